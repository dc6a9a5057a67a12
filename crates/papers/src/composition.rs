//! `weir reproduce composition`: what each level of a policy tree adds, by taking them one after the other.

use std::fmt::Write;

use weir_core::model::{Slot, Workload};
use weir_core::policy::{self, AnyPolicy};
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::Polynomial;
use weir_core::tree::{Application, Between, Plan, Service};
use weir_core::units::{Rate, Time};
use weir_sim::bound::bottleneck;
use weir_sim::outcome::mean;
use weir_sim::{CoflowOutcome, Moment, Observer, Options, Outcome, replay};
use weir_trace::generate::{Preset, generate, spread};
use weir_trace::{Limits, TraceUnit};

use crate::{Running, doc};
use weir_console::failure::Failure;
use weir_console::progress::Watch;
use weir_console::run::pool;

/// Names of services and their weights.
const SERVICES: [(&str, f64); 2] = [("service-1", 3.0), ("service-2", 1.0)];

/// Names of applications, and how much slower they are with half of the bandwidth.
const APPLICATIONS: [(&str, f64); 3] =
    [("application-1", 2.2), ("application-2", 1.4), ("application-3", 1.1)];

/// Below this, rounding is all that a port lacks, or a part of it; as a part of a healthy port.
const DUST: f64 = 1e-6;

/// What is compared.
const WAYS: [Way; 11] = [
    Way { name: "fair", levels: Levels::None, leaves: "fair" },
    Way { name: "services", levels: Levels::Services, leaves: "fair" },
    Way { name: "services, `saath`", levels: Levels::Services, leaves: "saath" },
    Way { name: "services, `varys`", levels: Levels::Services, leaves: "varys" },
    Way { name: "services, `sincronia`", levels: Levels::Services, leaves: "sincronia" },
    Way { name: "services, applications", levels: Levels::Both, leaves: "fair" },
    Way { name: "services, applications, `saath`", levels: Levels::Both, leaves: "saath" },
    Way {
        name: "services, applications, `saath:all-or-none=off`",
        levels: Levels::Both,
        leaves: "saath:all-or-none=off",
    },
    Way { name: "services, applications, `varys`", levels: Levels::Both, leaves: "varys" },
    Way { name: "services, applications, `sincronia`", levels: Levels::Both, leaves: "sincronia" },
    Way { name: "`saath` alone", levels: Levels::None, leaves: "saath" },
];

#[derive(Clone, Copy, PartialEq)]
enum Levels {
    None,
    Services,
    Both,
}

struct Way {
    name: &'static str,
    levels: Levels,
    leaves: &'static str,
}

/// D(b) = 1 + 4 (s - 1) (1 - b)^2, with the slowdown s at half of the bandwidth.
fn sensitivity(slowdown: f64) -> Sensitivity {
    let k = 4.0 * (slowdown - 1.0);
    Sensitivity::new(Polynomial::new(&[1.0 + k, -2.0 * k, k]).expect("three small numbers"))
}

impl Way {
    fn policy(&self) -> Result<AnyPolicy, Failure> {
        let between = match self.levels {
            Levels::None => return policy::build(self.leaves).map_err(Failure::input),
            Levels::Services => Between::Whole(self.leaves.to_owned()),
            Levels::Both => Between::Saba(
                APPLICATIONS.map(|(name, slowdown)| (name.to_owned(), sensitivity(slowdown))).into(),
            ),
        };
        let policy = self.leaves.to_owned();
        let other = Application { name: String::new(), weight: 1.0, model: None, policy };
        let services = SERVICES.map(|(name, weight)| Service {
            name: name.to_owned(),
            weight,
            between: between.clone(),
            applications: Vec::new(),
            other: other.clone(),
        });
        Ok(AnyPolicy::Tree(Plan::Services(services.into(), None)))
    }
}

/// Who a coflow belongs to, as places in [`SERVICES`] and [`APPLICATIONS`].
fn owner(workload: &Workload, index: usize) -> (usize, usize) {
    let coflow = &workload.coflows[index];
    let place = |names: &[&str], name: &str| names.iter().position(|n| *n == name).unwrap_or(0);
    let application = &workload.names.applications(coflow.service)[coflow.application as usize];
    (
        place(&SERVICES.map(|s| s.0), workload.names.service(coflow.service)),
        place(&APPLICATIONS.map(|a| a.0), application),
    )
}

/// Follows what services get of the port sides where both have flows.
struct Contended<'a> {
    watch: Watch,
    workload: &'a Workload,
    levels: Levels,
    rate: f64,
    /// What holds since the schedule before: when that was, the contended sides, and by service those where it is short.
    since: f64,
    sides: f64,
    short: [f64; 2],
    /// Of these, the sides where the leaf of such a flow lacks its own part.
    lacking: [f64; 2],
    /// Contended sides, and those where a service is short or lacks a leaf's part, over time.
    contended: f64,
    shortage: [f64; 2],
    lack: [f64; 2],
}

/// Who has flows at a side, and who decides about them: an application, or its service as a whole.
const LEAVES: usize = SERVICES.len() * APPLICATIONS.len();

impl Contended<'_> {
    /// The leaf of a coflow, among [`LEAVES`].
    fn leaf(&self, service: usize, application: usize) -> usize {
        let application = if self.levels == Levels::Both { application } else { 0 };
        service * APPLICATIONS.len() + application
    }

    /// Whether a service is short at each side: a flow of it has less than the service's part at both of its ends, and one of them
    /// is full. And whether its leaf then has less than its slice at both ends, too. If not, it has that at an end where its service is
    /// under its part, so that another application of the service uses less than its own there.
    fn look(&mut self, moment: &Moment<'_>) {
        let fabric = moment.fabric();
        let ports = fabric.ports();
        let capacity: Vec<f64> = fabric.send().iter().chain(fabric.recv()).copied().collect();
        let mut used = [vec![0.0; 2 * ports], vec![0.0; 2 * ports]];
        let mut used_by_leaf = vec![vec![0.0; 2 * ports]; LEAVES];
        let mut flows = [vec![0u32; 2 * ports], vec![0u32; 2 * ports]];
        let all = |visit: &mut dyn FnMut([usize; 2], Slot, u32, [usize; 2])| {
            for &slot in moment.active() {
                let coflow = moment.coflow(slot);
                let (service, application) = owner(self.workload, coflow.index);
                let leaf = self.leaf(service, application);
                for flow in coflow.live_flows() {
                    let (src, dst) = coflow.ends_of(flow);
                    visit([service, leaf], slot, flow, [src as usize, ports + dst as usize]);
                }
            }
        };
        all(&mut |[service, leaf], slot, flow, ends| {
            for side in ends {
                used[service][side] += moment.rate(slot, flow);
                used_by_leaf[leaf][side] += moment.rate(slot, flow);
                flows[service][side] += 1;
            }
        });
        let contended = |side: usize| flows[0][side] > 0 && flows[1][side] > 0;
        let weights: f64 = SERVICES.iter().map(|s| s.1).sum();
        let under = |service: usize, side: usize| {
            let part = if contended(side) { SERVICES[service].1 / weights } else { 1.0 };
            used[service][side] < part * capacity[side] - DUST * self.rate
        };
        let full = |side: usize| used[0][side] + used[1][side] >= capacity[side] - DUST * self.rate;
        let mut short = [vec![false; 2 * ports], vec![false; 2 * ports]];
        let mut lacking = short.clone();
        all(&mut |[service, leaf], slot, _, ends| {
            if ends.into_iter().all(|side| under(service, side)) && ends.into_iter().any(full) {
                ends.into_iter().for_each(|side| short[service][side] = contended(side));
                // Without a tree nobody has slices, and there is no other leaf.
                let slices = moment.slices(slot);
                let lacks = |side| {
                    slices.is_none_or(|slices| used_by_leaf[leaf][side] < slices[side] - DUST * self.rate)
                };
                if ends.into_iter().all(lacks) {
                    ends.into_iter().for_each(|side| lacking[service][side] = contended(side));
                }
            }
        });
        let count = |list: &[bool]| list.iter().filter(|short| **short).count() as f64;
        self.sides = (0..2 * ports).filter(|&side| contended(side)).count() as f64;
        self.short = [count(&short[0]), count(&short[1])];
        self.lacking = [count(&lacking[0]), count(&lacking[1])];
    }
}

impl Observer for Contended<'_> {
    fn scheduled(&mut self, moment: &Moment<'_>) -> bool {
        let time = moment.now() - self.since;
        self.contended += self.sides * time;
        for (sum, short) in self.shortage.iter_mut().zip(self.short) {
            *sum += short * time;
        }
        for (sum, lacking) in self.lack.iter_mut().zip(self.lacking) {
            *sum += lacking * time;
        }
        self.since = moment.now();
        self.look(moment);
        self.watch.scheduled(moment)
    }

    fn done(&mut self, outcome: &CoflowOutcome) {
        self.watch.done(outcome);
    }
}

/// What one replay found.
struct Found {
    /// By service: mean CCT.
    ccts: [f64; 2],
    cct: f64,
    /// By application: mean predicted slowdown.
    slowdowns: [f64; 3],
    slowdown: f64,
    /// By service: the part of the contended sides, over time, where it is short.
    short: [f64; 2],
    /// Likewise, where a leaf of it lacks its own part.
    lacking: [f64; 2],
}

/// A coflow that ended.
struct Ended {
    service: usize,
    application: usize,
    cct: f64,
    /// What its application's model predicts.
    slowdown: f64,
}

impl Ended {
    fn new(workload: &Workload, coflow: &CoflowOutcome, rate: f64) -> Ended {
        let (service, application) = owner(workload, coflow.index);
        let alone = bottleneck(&workload.coflows[coflow.index], workload.ports) / rate;
        // Rounding may make a coflow a little faster than it can be.
        let part = Fraction::new((alone / coflow.cct()).min(1.0)).unwrap_or(Fraction::ALL);
        let slowdown = sensitivity(APPLICATIONS[application].1).slowdown(part);
        Ended { service, application, cct: coflow.cct(), slowdown }
    }
}

impl Found {
    fn new(workload: &Workload, outcome: &Outcome, watched: &Contended<'_>) -> Found {
        let each: Vec<Ended> =
            outcome.coflows.iter().map(|coflow| Ended::new(workload, coflow, watched.rate)).collect();
        let cct = |keep: &dyn Fn(&Ended) -> bool| {
            mean(&each.iter().filter(|e| keep(e)).map(|e| e.cct).collect::<Vec<f64>>())
        };
        let slowdown = |keep: &dyn Fn(&Ended) -> bool| {
            mean(&each.iter().filter(|e| keep(e)).map(|e| e.slowdown).collect::<Vec<f64>>())
        };
        Found {
            ccts: [0, 1].map(|service| cct(&|e| e.service == service)),
            cct: cct(&|_| true),
            slowdowns: [0, 1, 2].map(|application| slowdown(&|e| e.application == application)),
            slowdown: slowdown(&|_| true),
            short: watched.shortage.map(|short| short / watched.contended),
            lacking: watched.lack.map(|lack| lack / watched.contended),
        }
    }

    /// The mean of several.
    fn mean(all: &[Found]) -> Found {
        let of = |value: &dyn Fn(&Found) -> f64| mean(&all.iter().map(value).collect::<Vec<f64>>());
        Found {
            ccts: [0, 1].map(|at| of(&|f| f.ccts[at])),
            cct: of(&|f| f.cct),
            slowdowns: [0, 1, 2].map(|at| of(&|f| f.slowdowns[at])),
            slowdown: of(&|f| f.slowdown),
            short: [0, 1].map(|at| of(&|f| f.short[at])),
            lacking: [0, 1].map(|at| of(&|f| f.lacking[at])),
        }
    }
}

/// The default number of seeds.
pub const SEEDS: u64 = 10;

/// The page: means over workloads that are generated with `seeds` seeds.
///
/// # Errors
/// If a replay has no outcome, or a signal stops the work.
pub fn page(seeds: u64, running: &Running<'_>) -> Result<String, Failure> {
    let options = Options { port_rate: Rate::GBIT, interval: Time::ZERO, keep_flows: false, behind: None };
    let workloads = (1..=seeds).map(workload).collect::<Result<Vec<Workload>, Failure>>()?;
    let found = pool(WAYS.len() * workloads.len(), running.jobs, |at| {
        let (way, workload) = (&WAYS[at / workloads.len()], &workloads[at % workloads.len()]);
        let mut watched = Contended {
            watch: running.progress.watch(way.name, workload.coflows.len()),
            workload,
            levels: way.levels,
            rate: options.port_rate.get(),
            since: 0.0,
            sides: 0.0,
            short: [0.0; 2],
            lacking: [0.0; 2],
            contended: 0.0,
            shortage: [0.0; 2],
            lack: [0.0; 2],
        };
        let outcome = replay(workload, way.policy()?, &options, &mut watched)
            .map_err(|error| Failure::replay(way.name, &error))?;
        Ok(Found::new(workload, &outcome, &watched))
    })?;
    let means: Vec<Found> = found.chunks(workloads.len()).map(Found::mean).collect();
    Ok(doc::tidy(document(seeds, &workloads, &means)))
}

/// The generator's small preset, spread over services and applications.
fn workload(seed: u64) -> Result<Workload, Failure> {
    let mut workload = generate(&Preset::Small.spec(seed), TraceUnit::MB, &Limits::default())?;
    spread(&mut workload, SERVICES.len(), APPLICATIONS.len(), seed)?;
    Ok(workload)
}

fn document(seeds: u64, workloads: &[Workload], found: &[Found]) -> String {
    let mut out = String::from("# What each level of a policy tree adds\n\n");
    let option = if seeds == SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    let coflows = workloads.first().map_or(0, |w| w.coflows.len());
    let ports = workloads.first().map_or(0, |w| w.ports);
    let listed = |list: &[(&str, f64)]| {
        list.iter().map(|(name, value)| format!("`{name}` {value}")).collect::<Vec<_>>().join(", ")
    };
    write!(
        out,
        "Made by `weir reproduce composition --out docs/results/composition.md{option}`. Every number, \"yes\" and \"no\" below was \
         computed by that one command.\n\n\
         No paper has this experiment. NetShare shares between services, Saba between applications, Saath between coflows; a policy tree \
         ([docs/policy-tree.md](../policy-tree.md)) puts one inside the other, and here the levels are added one at a time.\n\n\
         - Workloads: {} of the generator's `small` preset (seeds 1 to {}), {coflows} coflows on {ports} ports of 1 Gbit/s each, \
         spread evenly and by chance over two services of three applications; a schedule whenever something happens. Numbers are \
         means over the workloads.\n\
         - Weights of the services: {}.\n\
         - Slowdowns of the applications with half the bandwidth: {}. The model is D(b) = 1 + 4 (s - 1) (1 - b)^2, as for `weir policies saba`.\n\
         - *Short*: of all port sides where both services have flows, over time, those where a service is short of its part: \
         a flow of it has less than the service's part at both of its ends, and one of them is full, so that it is not its own policy that \
         leaves something (the part being all of a side that only it has flows at).\n\
         - *Lacking*: those of the sides where a service is short at which the application (or the service as a whole, if that is what has a \
         policy) of such a flow uses less than its own part at both ends, too. Elsewhere it has its part at an end, and its service is under \
         its own there since another of its applications uses less: that one has its parts at the other ends of its flows, and what \
         it does not use here the other service has.\n\
         - *Slowdown*: what the application's model predicts for the part of the bandwidth that a coflow had, which is the time \
         that it takes with the network to itself over its CCT; the mean over coflows. Sensitive applications weigh more in it, as \
         their models are steeper. Saba minimises such a sum at each port, over the applications there.\n\n## Measured\n",
        workloads.len(),
        seeds,
        listed(&SERVICES),
        listed(&APPLICATIONS),
    )
    .expect("memory takes all");
    let lines: Vec<Vec<String>> = WAYS
        .iter()
        .zip(found)
        .map(|(way, f)| {
            let mut line = vec![way.name.to_owned()];
            line.extend(f.short.map(doc::share));
            line.extend(f.lacking.map(doc::share));
            line.extend(f.ccts.map(doc::n));
            line.push(doc::n(f.cct));
            line.extend(f.slowdowns.map(|s| format!("{s:.3}")));
            line.push(format!("{:.3}", f.slowdown));
            line
        })
        .collect();
    let head = [
        "levels",
        "short: service-1",
        "service-2",
        "lacking: service-1",
        "service-2",
        "mean CCT s: service-1",
        "service-2",
        "all",
        "slowdown: application-1",
        "application-2",
        "application-3",
        "all",
    ];
    out.push_str(&doc::table(&head, 1, &lines));
    out.push_str(
        "## What each level adds\n\nParts that are short are those of the service that is worse off.\n",
    );
    out.push_str(&doc::table(&["level", "expected of it", "measured", "so it is"], 2, &added(found)));
    out
}

/// What each level is for, and whether it did that.
fn added(found: &[Found]) -> Vec<Vec<String>> {
    let [
        fair,
        services,
        coflows,
        varys_in_services,
        sincronia_in_services,
        both,
        saath,
        not_all,
        varys,
        sincronia,
        alone,
    ] = found
    else {
        return Vec::new();
    };
    let line = |level: &str, expected: &str, before: String, after: String, is: bool| {
        vec![level.to_owned(), expected.to_owned(), format!("{before} to {after}"), doc::yes(is)]
    };
    let falls = |level: &str, expected: &str, before: f64, after: f64| {
        line(level, expected, doc::n(before), doc::n(after), after < before)
    };
    // Of the service that is worse off.
    let most = |f: &Found| f.short[0].max(f.short[1]);
    let percent = |f: &Found| doc::share(most(f));
    let slow = |value: f64| format!("{value:.3}");
    let lent = |level: &str, f: &Found| {
        let lacking = f.lacking[0].max(f.lacking[1]);
        vec![
            level.to_owned(),
            "a service is short only where one of its applications has lent; no application lacks its part"
                .to_owned(),
            format!("short {}, lacking {}", percent(f), doc::share(lacking)),
            doc::yes(lacking < DUST && most(f) > DUST),
        ]
    };
    vec![
        line(
            "services",
            "nobody is short of its part any more",
            percent(fair),
            percent(services),
            services.short.iter().all(|short| *short < DUST) && fair.short.iter().any(|short| *short > DUST),
        ),
        falls("services", "the heavier service ends its coflows sooner", fair.ccts[0], services.ccts[0]),
        line(
            "applications",
            "the most sensitive application is slowed down less",
            slow(services.slowdowns[0]),
            slow(both.slowdowns[0]),
            both.slowdowns[0] < services.slowdowns[0],
        ),
        line(
            "applications",
            "so is the mean",
            slow(services.slowdown),
            slow(both.slowdown),
            both.slowdown < services.slowdown,
        ),
        line(
            "applications",
            "services keep their parts",
            percent(services),
            percent(both),
            both.short.iter().all(|short| *short < DUST),
        ),
        falls("`saath` in services", "the mean CCT falls", services.cct, coflows.cct),
        falls("`saath` in applications", "the mean CCT falls", both.cct, saath.cct),
        falls("`varys` in applications", "the mean CCT falls", both.cct, varys.cct),
        falls("`sincronia` in services", "the mean CCT falls", services.cct, sincronia_in_services.cct),
        falls("`sincronia` in applications", "the mean CCT falls", both.cct, sincronia.cct),
        falls(
            "`saath` in applications",
            "all-or-none is what costs: without it, the mean CCT falls",
            saath.cct,
            not_all.cct,
        ),
        line(
            "`varys` in services",
            "services keep their parts: it uses all that it can",
            percent(services),
            percent(varys_in_services),
            varys_in_services.short.iter().all(|short| *short < DUST),
        ),
        line(
            "`sincronia` in services",
            "likewise",
            percent(services),
            percent(sincronia_in_services),
            sincronia_in_services.short.iter().all(|short| *short < DUST),
        ),
        lent("`varys` in applications", varys),
        lent("`sincronia` in applications", sincronia),
        lent("`saath:all-or-none=off` in applications", not_all),
        line(
            "`saath` in applications",
            "services are short less than with `saath` alone",
            percent(alone),
            percent(saath),
            most(saath) < most(alone),
        ),
    ]
}
