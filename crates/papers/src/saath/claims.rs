//! What the paper says in numbers, and how the same number is measured.

use std::rc::Rc;

use weir_sim::outcome::percentile;

use super::lab::{self, Lab, Summary};
use super::world::World;
use crate::doc;
use weir_sim::outcome::speedups;

/// What the numbers are measured on: a world, and what stands for each of the paper's policies in it.
#[derive(Clone)]
pub struct Bench<'l> {
    pub lab: &'l Lab<'l>,
    pub world: World,
    /// Which Aalo.
    pub aalo: &'static str,
    /// Parameters of Saath, each with a colon before it.
    pub saath: &'static str,
    /// More of them, for the steps of the ablation before the last.
    pub parts: &'static str,
    /// What stands for plain TCP.
    pub tcp: &'static str,
    /// How late ends of flows are noticed at most, in milliseconds.
    pub late_ms: u32,
    /// Which draw of policies that draw; without, numbers are the medians over all.
    pub draw: Option<u64>,
}

/// The steps of the ablation (Fig. 10): name, and parameters of Saath.
pub const STEPS: [(&str, &str); 3] =
    [("A/N", ":lcof=off:per-flow=off"), ("A/N + P/F", ":lcof=off"), ("Saath", "")];

impl<'l> Bench<'l> {
    /// The trace as it is, with Weir's defaults.
    pub fn plain(lab: &'l Lab<'l>) -> Bench<'l> {
        Bench {
            lab,
            world: lab.plain,
            aalo: "aalo",
            saath: "",
            parts: "",
            tcp: "fair",
            late_ms: 0,
            draw: None,
        }
    }

    /// A policy in this world.
    pub fn get(&self, policy: &str) -> Rc<Summary> {
        self.lab.get(self.world, policy)
    }

    fn saath(&self, step: usize) -> String {
        let parts = if step + 1 == STEPS.len() { "" } else { self.parts };
        let apart = if self.alike() { ", " } else { "" };
        format!("saath{}{parts}{apart}{}", STEPS[step].1, self.saath)
    }

    /// Whether Saath sends one flow at a time, as no other policy but Aalo does.
    fn alike(&self) -> bool {
        lab::order_of(self.saath).is_some()
    }

    /// Saath at a step of the ablation.
    pub fn step(&self, step: usize) -> Rc<Summary> {
        self.get(&self.saath(step))
    }

    /// Aalo.
    pub fn aalo(&self) -> Rc<Summary> {
        self.get(self.aalo)
    }

    /// What a policy made of this world, at each draw.
    fn draws(&self, policy: &str) -> Vec<Rc<Summary>> {
        let all = lab::draws_of(policy);
        // What is not drawn is the same at every draw of the others.
        let draws = match self.draw {
            Some(draw) if all.contains(&draw) => draw..draw + 1,
            _ => all,
        };
        draws.map(|draw| self.lab.draw(self.world, policy, draw)).collect()
    }

    /// Percentiles P10, P50 and P90 of the speed-up of a step over a policy.
    pub fn speedup(&self, step: usize, over: &str) -> [f64; 3] {
        let steps = self.draws(&self.saath(step));
        // Each draw of one beside the same of the other; what is not drawn is the same beside all.
        let base = self.draws(over);
        let drawn = (0..steps.len().max(base.len()))
            .map(|at| doc::spread(&steps[at % steps.len()].over(&base[at % base.len()])));
        medians(&drawn.collect::<Vec<_>>())
    }

    /// Percentiles P10, P50 and P90 of what no scheduler's speed-up over a policy exceeds.
    pub fn most(&self, over: &str) -> [f64; 3] {
        let alone = self.lab.alone(self.world);
        let drawn = self.draws(over).into_iter().map(|base| doc::spread(&speedups(&base.ccts, &alone)));
        medians(&drawn.collect::<Vec<_>>())
    }

    /// A number found of the deviations of the coflows of several flows that are equally long, or not. `None` of a stand-in that has
    /// none.
    fn of_deviations(&self, policy: &str, equal: bool, what: impl Fn(&[f64]) -> f64) -> Option<f64> {
        let drawn: Vec<Vec<f64>> = match self.late_ms {
            0 => self.draws(policy).iter().map(|drawn| drawn.deviations.clone()).collect(),
            ms => self.lab.late(self.world, policy, ms),
        };
        let found: Option<Vec<f64>> = drawn
            .iter()
            .map(|deviations| {
                let facts = self.lab.facts.iter().zip(deviations);
                let kept =
                    facts.filter(|(f, _)| f.width > 1 && f.equal == equal).map(|(_, &deviation)| deviation);
                (!deviations.is_empty()).then(|| what(&kept.collect::<Vec<f64>>()))
            })
            .collect();
        found.map(|found| median(found.into_iter()))
    }

    /// Below which deviation flows end at the same time: 0 but for rounding, or the hundredth that is left of it where ends are noticed
    /// late.
    fn at_once(&self) -> f64 {
        if self.late_ms == 0 { 1e-6 } else { 0.01 }
    }
}

fn medians(drawn: &[[f64; 3]]) -> [f64; 3] {
    [0, 1, 2].map(|at| median(drawn.iter().map(|spread| spread[at])))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(&values.collect::<Vec<f64>>(), 50.0)
}

/// The share of values below a bound.
pub fn below(values: &[f64], bound: f64) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().filter(|&&v| v < bound).count() as f64 / values.len() as f64
    }
}

/// A published number.
pub struct Claim {
    /// What of.
    pub name: &'static str,
    /// As the paper has it.
    pub published: f64,
    /// Where the paper has it.
    pub source: &'static str,
    /// Whether it is a share.
    pub is_share: bool,
    /// Whether it depends on which Aalo.
    pub on_aalo: bool,
    /// Whether it depends on what stands for plain TCP.
    pub on_tcp: bool,
    /// The same, measured; `None` where a stand-in cannot say.
    pub measure: fn(&Bench<'_>) -> Option<f64>,
    /// The most that any scheduler could have.
    pub most: Option<fn(&Bench<'_>) -> f64>,
}

impl Claim {
    /// What it is about; the rest of its name is [`Claim::aspect`].
    pub fn subject(&self) -> &'static str {
        self.name.rfind([',', ':']).map_or(self.name, |at| &self.name[..at])
    }

    /// Which number about its subject it is.
    pub fn aspect(&self) -> &'static str {
        self.name[self.subject().len()..].trim_start_matches([',', ':', ' '])
    }

    /// Whether no scheduler could have it, nor a number that is the same.
    pub fn out_of_reach(&self, bench: &Bench<'_>) -> bool {
        self.most.is_some_and(|most| most(bench) < self.published * (1.0 - doc::SAME))
    }

    /// A value of it as text.
    pub fn text(&self, value: f64) -> String {
        if self.is_share { doc::share(value) } else { doc::n(value) }
    }
}

fn of_aalo(bench: &Bench<'_>, equal: bool, what: impl Fn(&[f64]) -> f64) -> Option<f64> {
    bench.of_deviations(bench.aalo, equal, what)
}

fn of_saath(bench: &Bench<'_>, what: impl Fn(&[f64]) -> f64) -> Option<f64> {
    bench.of_deviations(&bench.saath(2), true, what)
}

/// A median speed-up over Aalo.
const fn p50(
    name: &'static str,
    published: f64,
    source: &'static str,
    measure: fn(&Bench<'_>) -> Option<f64>,
) -> Claim {
    let most: fn(&Bench<'_>) -> f64 = |b| b.most(b.aalo)[1];
    let most = Some(most);
    Claim { name, published, source, is_share: false, on_aalo: true, on_tcp: false, measure, most }
}

/// The same at the 90th percentile.
const fn p90(
    name: &'static str,
    published: f64,
    source: &'static str,
    measure: fn(&Bench<'_>) -> Option<f64>,
) -> Claim {
    let most: fn(&Bench<'_>) -> f64 = |b| b.most(b.aalo)[2];
    Claim { most: Some(most), ..p50(name, published, source, measure) }
}

/// A share, which has no bound.
const fn part(
    name: &'static str,
    published: f64,
    source: &'static str,
    measure: fn(&Bench<'_>) -> Option<f64>,
) -> Claim {
    Claim { is_share: true, most: None, ..p50(name, published, source, measure) }
}

/// The speed-ups of the text of section 6.
pub const SPEEDUPS: [Claim; 8] = [
    p50("Saath over Aalo, median", 1.53, "6.1, Fig. 9: \"over Aalo by 1.53x (median)\"", |b| {
        Some(b.speedup(2, b.aalo)[1])
    }),
    p90("Saath over Aalo, P90", 4.5, "6.1, Fig. 9: \"and 4.5x (P90) for the FB trace\"", |b| {
        Some(b.speedup(2, b.aalo)[2])
    }),
    p50("A/N over Aalo, median", 1.13, "6.2, Fig. 10: \"1.13x ... in median case\"", |b| {
        Some(b.speedup(0, b.aalo)[1])
    }),
    p90("A/N over Aalo, P90", 3.05, "6.2, Fig. 10: \"3.05x ... at P90\"", |b| Some(b.speedup(0, b.aalo)[2])),
    p50("A/N + P/F over Aalo, median", 1.3, "6.2, Fig. 10: \"1.3x ... in the median case\"", |b| {
        Some(b.speedup(1, b.aalo)[1])
    }),
    p90("A/N + P/F over Aalo, P90", 3.83, "6.2, Fig. 10: \"3.83x ... at P90\"", |b| {
        Some(b.speedup(1, b.aalo)[2])
    }),
    Claim {
        on_aalo: false,
        most: Some(|b| b.most("varys")[1]),
        ..p50("Saath over Varys, median", 1.0, "6.1: \"close to that of SEBF in Varys\"", |b| {
            (!b.alike()).then(|| b.speedup(2, "varys")[1])
        })
    },
    Claim {
        on_aalo: false,
        on_tcp: true,
        most: Some(|b| b.most(b.tcp)[1]),
        ..p50("Saath over UC-TCP, median", 154.0, "6.1, caption of Fig. 9: \"154x\"", |b| {
            (!b.alike()).then(|| b.speedup(2, b.tcp)[1])
        })
    },
];

/// The text about flows that end out of sync.
pub const SYNC: [Claim; 8] = [
    part("Aalo, equal lengths: deviation, median", 0.12, "2.3, Fig. 2c: \"50% ... over 12%\"", |b| {
        of_aalo(b, true, |v| percentile(v, 50.0))
    }),
    part("Aalo, equal lengths: deviation, P80", 0.39, "2.3, Fig. 2c: \"(20%) ... (39%)\"", |b| {
        of_aalo(b, true, |v| percentile(v, 80.0))
    }),
    part("Aalo, unequal lengths: deviation, median", 0.27, "2.3, Fig. 2c: \"50% ... over 27%\"", |b| {
        of_aalo(b, false, |v| percentile(v, 50.0))
    }),
    part("Aalo, unequal lengths: deviation, P80", 0.50, "2.3, Fig. 2c: \"(20%) ... (50%)\"", |b| {
        of_aalo(b, false, |v| percentile(v, 80.0))
    }),
    part("Aalo, equal lengths: all at the same time", 0.20, "6.2, Fig. 13: \"20% in Aalo\"", |b| {
        of_aalo(b, true, |v| below(v, b.at_once()))
    }),
    part("Aalo, equal lengths: deviation under 10 %", 0.47, "6.2, Fig. 13: \"47% in Aalo\"", |b| {
        of_aalo(b, true, |v| below(v, 0.1))
    }),
    Claim {
        on_aalo: false,
        ..part("Saath, equal lengths: all at the same time", 0.40, "6.2, Fig. 13: \"40% of CoFlows\"", |b| {
            of_saath(b, |v| below(v, b.at_once()))
        })
    },
    Claim {
        on_aalo: false,
        ..part("Saath, equal lengths: deviation under 10 %", 0.71, "6.2, Fig. 13: \"71% of them\"", |b| {
            of_saath(b, |v| below(v, 0.1))
        })
    },
];
