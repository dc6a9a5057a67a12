//! What the paper leaves open, tried one by one, and what that explains.

use std::fmt::Write;

use super::claims::{Bench, Claim, SPEEDUPS, SYNC};
use super::doc::{distance, n, ratio, same, share, table};
use super::lab::{COFLOWSIM_AALO, COFLOWSIM_FAIR, Lab};
use super::world::{Placement, World};

/// One thing done differently.
struct Experiment {
    name: &'static str,
    about: &'static str,
    world: World,
    saath: &'static str,
    /// Which Aalos to try it with.
    aalos: &'static [&'static str],
    /// Whether CoflowSim's FAIR is tried too.
    fair: bool,
}

/// The readings of Aalo that the paper allows.
pub const AALOS: [&str; 4] = ["aalo", "aalo:sharing=strict", "aalo:at=both", "aalo:at=both:sharing=strict"];

const TWO: &[&str] = &["aalo", "aalo:sharing=strict"];
const THREE: &[&str] = &["aalo", "aalo:sharing=strict", COFLOWSIM_AALO];
const FOUR: &[&str] = &[AALOS[0], AALOS[1], AALOS[2], COFLOWSIM_AALO];
const FIVE: &[&str] = &[AALOS[0], AALOS[1], AALOS[2], AALOS[3], COFLOWSIM_AALO];

fn experiments(lab: &Lab<'_>) -> Vec<Experiment> {
    let plain = lab.plain;
    let world = |name, about, world| Experiment { name, about, world, saath: "", aalos: TWO, fair: false };
    let saath = |name, about, saath| Experiment { name, about, world: plain, saath, aalos: TWO, fair: false };
    let tasks = World { placement: Placement::Tasks, ..plain };
    let crowded = World { epochs: true, ..tasks };
    vec![
        Experiment {
            aalos: FIVE,
            fair: true,
            ..world("as it is", "the trace and the parameters of section 6; nothing changed", plain)
        },
        Experiment {
            fair: true,
            ..world(
                "mappers by number",
                "the i-th mapper of every coflow on port i, as CoflowSim's reader is said to have it; reducers as in the trace",
                World { placement: Placement::Mappers, ..plain },
            )
        },
        Experiment {
            aalos: FOUR,
            fair: true,
            ..world(
                "tasks by number",
                "the i-th mapper and the i-th reducer of every coflow on port i",
                tasks,
            )
        },
        Experiment {
            aalos: FOUR,
            fair: true,
            ..world(
                "epochs",
                "coflows arrive at the start of the 10.24 s in which they would: CoflowSim's main loop admits them so, and \
                 counts from there",
                World { epochs: true, ..plain },
            )
        },
        Experiment {
            fair: true,
            ..world(
                "binary units",
                "1 MB = 2^20 bytes, ports of 2^30 bit/s, 1,024 ms of the trace in a second, thresholds from 10 MiB",
                World { binary: true, ..plain },
            )
        },
        world("interval 0", "a schedule whenever something happens", World { interval: 0.0, ..plain }),
        Experiment {
            aalos: &AALOS,
            ..world("arrivals x 2", "coflows arrive twice as fast", World { speed: 2.0, ..plain })
        },
        Experiment {
            fair: true,
            ..world("arrivals x 4", "coflows arrive four times as fast", World { speed: 4.0, ..plain })
        },
        Experiment {
            fair: true,
            ..world("arrivals x 16", "coflows arrive sixteen times as fast", World { speed: 16.0, ..plain })
        },
        saath("requeue off", "Saath without the estimate of 4.3", ":requeue=off"),
        saath("contention all", "Saath counts rivals in all queues", ":contention=all"),
        saath("available full", "Saath needs whole ports for all-or-none", ":available=full"),
        saath("time flow", "Saath's deadlines by a flow's part of the threshold", ":time=flow"),
        saath("no deadlines", "Saath with d = inf", ":d=inf"),
        saath(
            "no all-or-none",
            "Saath without D1: a coflow's flows one by one, each as fast as its ports allow",
            ":all-or-none=off",
        ),
        saath("no work conservation", "Saath without D4", ":work-conservation=off"),
        Experiment { aalos: FOUR, fair: true, ..world("tasks by number + epochs", "both of them", crowded) },
        Experiment {
            aalos: THREE,
            fair: true,
            ..world(
                "all of CoflowSim",
                "tasks by number, epochs and binary units together",
                World { binary: true, ..crowded },
            )
        },
    ]
}

struct Row<'l> {
    experiment: usize,
    bench: Bench<'l>,
}

impl Row<'_> {
    fn label(&self, experiments: &[Experiment], claim: &Claim) -> String {
        let name = experiments[self.experiment].name;
        let with = if claim.on_aalo {
            self.bench.aalo
        } else if self.bench.tcp == COFLOWSIM_FAIR && claim.name.contains("UC-TCP") {
            COFLOWSIM_FAIR
        } else {
            return name.to_owned();
        };
        format!("{name}, {}", quoted(with))
    }
}

/// A policy as code, a stand-in as words.
pub fn quoted(policy: &str) -> String {
    if [COFLOWSIM_FAIR, COFLOWSIM_AALO].contains(&policy) { policy.to_owned() } else { format!("`{policy}`") }
}

fn rows<'l>(lab: &'l Lab<'l>, experiments: &[Experiment]) -> Vec<Row<'l>> {
    let mut rows = Vec::new();
    for (experiment, e) in experiments.iter().enumerate() {
        for (place, &aalo) in e.aalos.iter().enumerate() {
            // The last of several Aalos comes with CoflowSim's FAIR, so that it is one of the rows.
            let tcp = if e.fair && place + 1 == e.aalos.len() { COFLOWSIM_FAIR } else { "fair" };
            rows.push(Row { experiment, bench: Bench { lab, world: e.world, aalo, saath: e.saath, tcp } });
        }
    }
    rows
}

/// The section about experiments.
pub fn section(lab: &Lab<'_>) -> String {
    let experiments = experiments(lab);
    let rows = rows(lab, &experiments);
    let mut out = String::from(
        "\n## Experiments\n\nEach changes one thing (the last two: several) and measures everything again.\n",
    );
    let about: Vec<Vec<String>> =
        experiments.iter().map(|e| vec![e.name.to_owned(), e.about.to_owned()]).collect();
    out.push_str(&table(&["experiment", "what is different"], 2, &about));
    out.push_str(STAND_INS);
    writeln!(
        out,
        " It also rounds flows up to whole megabytes, which {} of the flows of this trace are already.",
        share(lab.whole())
    )
    .expect("memory takes all");
    speedups(&experiments, &rows, &mut out);
    sync(&experiments, &rows, &mut out);
    out.push_str("\n### What explains what\n\nFor each published number: whether it comes out (within 10 %) on the trace as it \
                  is with Weir's Aalo, and the experiments under which it does. An experiment explains a number only if \
                  the other number about the same thing (the other percentile, the other share) comes out there too; \
                  where it does not, the two are not the paper's setting, and one of them came out by chance.\n\n");
    for claims in [&SPEEDUPS, &SYNC] {
        for claim in claims {
            explain(claim, claims, &experiments, &rows, &mut out);
        }
    }
    together(&experiments, &rows, &mut out);
    out
}

const STAND_INS: &str = "\
\"CoflowSim's FAIR\" and \"CoflowSim's Aalo\" are stand-ins that do what that simulator's source does \
(`FlowSimulator.fairShare`, `CoflowSimulatorDark.updateRates`): under FAIR a flow gets min(1 / flows of its sender, 1 / flows of \
its receiver) of a port, and what that leaves is lost; under Aalo queues are strict, kept at both ends, and queues and rates \
change only when a coflow arrives or ends. CoflowSim also leaves old rates in force for flows that lost their turn, \
so that its ports carry more than they can; that is not copied. Its source places tasks by number before, and \
by the trace's racks after, `Job.arrangeTasks`; so the placements by number are tried, not taken for granted.";

fn speedups(experiments: &[Experiment], rows: &[Row<'_>], out: &mut String) {
    out.push_str("\n### Speed-ups of Saath and of its parts\n");
    let mut lines = vec![published(&SPEEDUPS, &["**published**", ""])];
    lines.extend(rows.iter().map(|row| line(&SPEEDUPS, row, experiments)));
    let head = [
        "experiment",
        "Aalo",
        "Aalo P50",
        "P90",
        "A/N P50",
        "P90",
        "A/N + P/F P50",
        "P90",
        "Varys P50",
        "UC-TCP P50",
    ];
    out.push_str(&table(&head, 2, &lines));
    let fair: Vec<Vec<String>> = rows
        .iter()
        .filter(|row| row.bench.tcp == COFLOWSIM_FAIR)
        .map(|row| {
            let median = |tcp| row.bench.speedup(2, tcp)[1];
            let (real, sim) = (median("fair"), median(COFLOWSIM_FAIR));
            let published = SPEEDUPS[7].published;
            let name = experiments[row.experiment].name.to_owned();
            vec![name, n(real), ratio(real, published), n(sim), ratio(sim, published)]
        })
        .collect();
    out.push_str(
        "\nUC-TCP as max-min (`fair`) and as CoflowSim's FAIR; median speed-up of Saath, published 154:\n",
    );
    out.push_str(&table(&["experiment", "max-min", "ratio", "CoflowSim's FAIR", "ratio"], 1, &fair));
}

fn published(claims: &[Claim], first: &[&str]) -> Vec<String> {
    let mut cells: Vec<String> = first.iter().map(|&c| c.to_owned()).collect();
    cells.extend(claims.iter().map(|c| format!("**{}**", c.text(c.published))));
    cells
}

fn line(claims: &[Claim], row: &Row<'_>, experiments: &[Experiment]) -> Vec<String> {
    let mut cells = vec![experiments[row.experiment].name.to_owned(), quoted(row.bench.aalo)];
    cells.extend(claims.iter().map(|claim| match (claim.measure)(&row.bench) {
        Some(value) => claim.text(value),
        None => "-".to_owned(),
    }));
    cells
}

fn sync(experiments: &[Experiment], rows: &[Row<'_>], out: &mut String) {
    out.push_str("\n### Flows that end out of sync\n");
    let mut lines = vec![published(&SYNC, &["**published**", ""])];
    let kept = rows.iter().filter(|row| row.bench.aalo != COFLOWSIM_AALO);
    lines.extend(kept.map(|row| line(&SYNC, row, experiments)));
    let head = [
        "experiment",
        "Aalo",
        "equal P50",
        "P80",
        "unequal P50",
        "P80",
        "equal, at once",
        "under 10 %",
        "Saath at once",
        "under 10 %",
    ];
    out.push_str(&table(&head, 2, &lines));
}

/// Whether a number comes out, by how much not, and under what it does.
fn explain(claim: &Claim, claims: &[Claim], experiments: &[Experiment], rows: &[Row<'_>], out: &mut String) {
    let base = (claim.measure)(&rows[0].bench).unwrap_or(0.0);
    write!(
        out,
        "- **{}**: published {}, measured {} ({} of it). ",
        claim.name,
        claim.text(claim.published),
        claim.text(base),
        ratio(base, claim.published)
    )
    .expect("memory takes all");
    let mut found = tried(claim, experiments, rows);
    found.sort_by(|a, b| distance(a.value, claim.published).total_cmp(&distance(b.value, claim.published)));
    let others: Vec<&Claim> =
        claims.iter().filter(|c| c.name != claim.name && c.subject() == claim.subject()).collect();
    // The other numbers about the same thing that an experiment leaves wrong.
    let wrong = |t: &Tried| {
        let values = others.iter().filter_map(|c| (c.measure)(&rows[t.row].bench).map(|value| (c, value)));
        let wrong = values.filter(|(c, value)| !same(*value, c.published));
        wrong.map(|(c, v)| format!("{} {}", c.aspect(), c.text(v))).collect::<Vec<_>>().join(", ")
    };
    let (hits, chances): (Vec<&Tried>, Vec<&Tried>) =
        found.iter().filter(|t| same(t.value, claim.published)).partition(|t| wrong(t).is_empty());
    let text = if same(base, claim.published) {
        "It comes out.".to_owned()
    } else if !hits.is_empty() {
        let list = |t: &&Tried| format!("{} ({})", t.label, claim.text(t.value));
        format!("It does not come out as it is, and does under: {}.", few(&hits, list))
    } else if !chances.is_empty() {
        let list = |t: &&Tried| format!("{} ({}, but there {})", t.label, claim.text(t.value), wrong(t));
        format!("**Nothing tried explains it.** By chance it comes out under: {}.", few(&chances, list))
    } else {
        match found.first() {
            Some(t) if distance(t.value, claim.published) < distance(base, claim.published) => format!(
                "**Nothing tried explains it.** Nearest: {} ({}, {} of the published).",
                t.label,
                claim.text(t.value),
                ratio(t.value, claim.published)
            ),
            _ => "**Nothing tried explains it**, or comes nearer.".to_owned(),
        }
    };
    writeln!(out, "{text}").expect("memory takes all");
}

/// A number under an experiment.
struct Tried {
    row: usize,
    label: String,
    value: f64,
}

/// A number under all experiments that change it.
fn tried(claim: &Claim, experiments: &[Experiment], rows: &[Row<'_>]) -> Vec<Tried> {
    let mut found: Vec<Tried> = Vec::new();
    for (place, row) in rows.iter().enumerate().skip(1) {
        let Some(value) = (claim.measure)(&row.bench) else { continue };
        let as_it_is = Bench { saath: "", world: rows[0].bench.world, ..row.bench.clone() };
        let without = (claim.measure)(&as_it_is).unwrap_or(0.0);
        if row.experiment > 0 && distance(value, without) < 0.005 {
            continue;
        }
        let label = row.label(experiments, claim);
        if !found.iter().any(|t| t.label == label) {
            found.push(Tried { row: place, label, value });
        }
    }
    found
}

/// The first four of a list, and how many more there are.
fn few<T>(list: &[T], text: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = list.iter().take(4).map(text).collect();
    let more = if list.len() > 4 { format!("; and {} more", list.len() - 4) } else { String::new() };
    format!("{}{more}", shown.join("; "))
}

/// Which one setting brings most of the published speed-ups at once.
fn together(experiments: &[Experiment], rows: &[Row<'_>], out: &mut String) {
    let hits = |row: &Row<'_>| {
        let near = |c: &&Claim| (c.measure)(&row.bench).is_some_and(|value| same(value, c.published));
        SPEEDUPS.iter().filter(near).map(|c| c.name).collect::<Vec<_>>()
    };
    let mut best: (usize, Vec<&str>) = (0, Vec::new());
    for (place, row) in rows.iter().enumerate() {
        let names = hits(row);
        if names.len() > best.1.len() {
            best = (place, names);
        }
    }
    let row = &rows[best.0];
    let names = if best.1.is_empty() { "none".to_owned() } else { best.1.join("; ") };
    writeln!(
        out,
        "\nOf the {} settings tried, the one under which most of the {} speed-ups come out at once is \"{}\" with {} and {}: {} of them \
         ({names}).",
        rows.len(),
        SPEEDUPS.len(),
        experiments[row.experiment].name,
        quoted(row.bench.aalo),
        quoted(row.bench.tcp),
        best.1.len(),
    )
    .expect("memory takes all");
}
