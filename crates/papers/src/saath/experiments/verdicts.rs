//! What the text says without a number, under other settings too.

use super::super::claims::Bench;
use super::super::figures::bins;
use super::super::lab::Lab;
use super::super::sensitivity::{GROWTHS, INSENSITIVE, SPANNING, STARTS, swing, with};
use super::super::world::{Placement, World};
use super::{TWO, quoted};
use crate::doc::{n, same, table};

const ABOUT: &str = "\n\
### What the text says without numbers\n\n\
What Fig. 3, 11 and 14 are said to show, under other settings too. Bold is what comes out as the text has it; \"swings by\" and \"lifts\" are as \
under those figures, where S, E and K are too.";

/// Something that the text says.
struct Verdict {
    text: &'static str,
    /// What is measured, as text, and whether it is what the text says.
    measure: fn(&Bench<'_>) -> (String, bool),
}

const VERDICTS: [Verdict; 10] = [
    Verdict {
        text: "Fig. 3: \"LWTF outperforms SRTF\": mean CCT of SRTF over that of LWTF",
        measure: |b| {
            let ratio = b.get("srtf").mean() / b.get("lwtf").mean();
            (format!("{ratio:.4}"), ratio > 1.000_05)
        },
    },
    Verdict {
        text: "Fig. 11: A/N helps bin 1 most: the bin with the highest median",
        measure: |b| {
            let medians = bins(b, 0).map(|bin| bin[1]);
            let best = (0..4).max_by(|&one, &two| medians[one].total_cmp(&medians[two])).unwrap_or(0);
            ((best + 1).to_string(), best == 0)
        },
    },
    Verdict {
        text: "Fig. 11: P/F lifts the medians of bins 2 and 4",
        measure: |b| {
            let lifts = [1, 3].map(|bin| lift(b, 0, bin));
            (lifts.map(n).join(", "), lifts.iter().all(|lift| *lift > 1.005))
        },
    },
    Verdict {
        text: "Fig. 11: LCoF lifts the medians of all bins",
        measure: |b| {
            let lifts = [0, 1, 2, 3].map(|bin| lift(b, 1, bin));
            (lifts.map(n).join(", "), lifts.iter().all(|lift| *lift > 1.005))
        },
    },
    Verdict {
        text: "Fig. 14a: \"Aalo is highly sensitive to S\": swings by",
        measure: |b| sensitive(swing_s(b, b.aalo)),
    },
    Verdict {
        text: "Fig. 14a: \"SAATH is relatively insensitive\": swings by",
        measure: |b| insensitive(swing_s(b, "saath")),
    },
    Verdict {
        text: "Fig. 14b: \"insensitive to E\": Saath, with K = 10, swings by",
        measure: |b| insensitive(swing_e(b, "saath", &GROWTHS.map(|growth| (growth, "10")))),
    },
    Verdict {
        text: "Fig. 14b: \"insensitive to E\": Aalo, with K = 10, swings by",
        measure: |b| insensitive(swing_e(b, b.aalo, &GROWTHS.map(|growth| (growth, "10")))),
    },
    Verdict {
        text: "Fig. 14b: \"insensitive to E\": Saath, with as many queues as it takes, swings by",
        measure: |b| insensitive(swing_e(b, "saath", &SPANNING)),
    },
    Verdict {
        text: "Fig. 14d: Saath over Aalo \"from 1.53x to 1.9x\" with A, 1.24 times as much with arrivals four times as fast",
        measure: |b| {
            let fast = Bench { world: World { speed: 4.0 * b.world.speed, ..b.world }, ..b.clone() };
            let growth = fast.speedup(2, b.aalo)[1] / b.speedup(2, b.aalo)[1];
            (n(growth), same(growth, 1.9 / 1.53))
        },
    },
];

/// How many times as high the median of a bin is one step of the ablation later.
fn lift(bench: &Bench<'_>, from: usize, bin: usize) -> f64 {
    bins(bench, from + 1)[bin][1] / bins(bench, from)[bin][1]
}

fn sensitive(swing: f64) -> (String, bool) {
    (n(swing), swing >= INSENSITIVE)
}

fn insensitive(swing: f64) -> (String, bool) {
    (n(swing), swing < INSENSITIVE)
}

fn swing_s(bench: &Bench<'_>, policy: &str) -> f64 {
    let means = STARTS.map(|start| bench.get(&with(policy, "start", start, "10MB")).mean());
    swing(means.into_iter())
}

fn swing_e(bench: &Bench<'_>, policy: &str, values: &[(&str, &str)]) -> f64 {
    let means = values.iter().map(|&(growth, queues)| {
        bench.get(&with(&with(policy, "growth", growth, "10"), "queues", queues, "10")).mean()
    });
    swing(means.collect::<Vec<f64>>().into_iter())
}

/// All of them, by setting.
pub fn section(lab: &Lab<'_>, out: &mut String) {
    let epochs = World { epochs: true, ..lab.plain };
    let tasks = World { placement: Placement::Tasks, ..lab.plain };
    let worlds = [
        ("as it is", lab.plain),
        ("epochs", epochs),
        ("tasks by number", tasks),
        ("tasks by number + epochs", World { epochs: true, ..tasks }),
        ("arrivals x 4", World { speed: 4.0, ..lab.plain }),
    ];
    let settings = worlds.iter().flat_map(|&(name, world)| {
        TWO.iter().map(move |aalo| {
            (format!("{name}, {}", quoted(aalo)), Bench { world, aalo, ..Bench::plain(lab) })
        })
    });
    let settings: Vec<(String, Bench<'_>)> = settings.collect();
    let lines = VERDICTS.iter().map(|verdict| {
        let cells = settings.iter().map(|(_, bench)| match (verdict.measure)(bench) {
            (text, true) => format!("**{text}**"),
            (text, false) => text,
        });
        std::iter::once(verdict.text.to_owned()).chain(cells).collect()
    });
    let head: Vec<&str> = std::iter::once("").chain(settings.iter().map(|(name, _)| name.as_str())).collect();
    out.push_str(ABOUT);
    out.push('\n');
    out.push_str(&table(&head, 1, &lines.collect::<Vec<Vec<String>>>()));
    let never =
        VERDICTS.iter().filter(|verdict| settings.iter().all(|(_, bench)| !(verdict.measure)(bench).1));
    let never: Vec<&str> = never.map(|verdict| verdict.text).collect();
    if never.is_empty() {
        out.push_str("\nEach of them comes out under some setting.\n");
    } else {
        out.push_str(&format!("\n**Under no setting tried**: {}.\n", never.join("; ")));
    }
}
