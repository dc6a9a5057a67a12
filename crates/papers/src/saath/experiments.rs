//! What the paper leaves open, tried one by one, and what that explains.

use std::fmt::Write;

use super::claims::{Bench, Claim, SPEEDUPS, SYNC};
use super::lab::{COFLOWSIM_AALO, COFLOWSIM_FAIR, LATE_MS, Lab, ONE_FLOW, order_of};
use super::world::{Placement, World};
use crate::doc::{n, ratio, share, table};

mod draws;
mod explanations;
mod listing;
mod verdicts;

/// One thing done differently.
struct Experiment {
    name: &'static str,
    about: &'static str,
    world: World,
    saath: &'static str,
    /// Whether Saath sends one flow at a time where Aalo does.
    alike: bool,
    /// What is different only in the steps of the ablation before the last.
    parts: &'static str,
    /// Which Aalos to try it with.
    aalos: Vec<&'static str>,
    /// What is tried for UC-TCP: some of [`TCPS`].
    tcps: &'static [&'static str],
}

/// The readings of Aalo that the paper allows.
pub const AALOS: [&str; 4] = ["aalo", "aalo:sharing=strict", "aalo:at=both", "aalo:at=both:sharing=strict"];

/// What may be meant by UC-TCP: max-min, what CoflowSim calls fair, and coflow after coflow at each port on its own.
const TCPS: [&str; 3] = ["fair", COFLOWSIM_FAIR, FIFO_AT_PORTS];
const FIFO_AT_PORTS: &str = "aalo:queues=1";
const MAX_MIN: &[&str] = &[TCPS[0]];
/// Where more coflows come than the last of them can take in a time that one would wait for.
const SHARED: &[&str] = &[TCPS[0], TCPS[1]];

const TWO: &[&str] = &["aalo", "aalo:sharing=strict"];
/// Queues at both ends, and CoflowSim's.
const AT_BOTH: &[&str] = &[AALOS[2], COFLOWSIM_AALO];
/// One flow at a time, in the orders that are drawn.
const SINGLE: &[&str] = &[ONE_FLOW[0].0, ONE_FLOW[1].0];
const ALIKE: &[&str] = &[ONE_FLOW[2].0];

const NO_WORK_CONSERVATION: &str = ":work-conservation=off";

/// Queues that take turns, at both ends and at senders.
const TURNS: &[&str] = &[
    "aalo:at=both:sharing=turns:turn=8ms",
    "aalo:at=both:sharing=turns:turn=16ms",
    "aalo:at=both:sharing=turns:turn=32ms",
    "aalo:at=both:sharing=turns:turn=64ms",
    "aalo:sharing=turns:turn=8ms",
    "aalo:sharing=turns:turn=32ms",
];

fn experiments(lab: &Lab<'_>) -> Vec<Experiment> {
    let plain = lab.plain;
    let world = |name, about, world| Experiment {
        name,
        about,
        world,
        saath: "",
        alike: false,
        parts: "",
        aalos: TWO.to_vec(),
        tcps: MAX_MIN,
    };
    let saath_in = |name, about, of, saath| Experiment { saath, ..world(name, about, of) };
    let saath = |name, about, saath| saath_in(name, about, plain, saath);
    let tasks = World { placement: Placement::Tasks, ..plain };
    let (epochs, crowded) = (World { epochs: true, ..plain }, World { epochs: true, ..tasks });
    let mappers = World { placement: Placement::Mappers, ..plain };
    let turns = |name, about, of| Experiment { aalos: TURNS.to_vec(), ..world(name, about, of) };
    let single = |name, about, of, saath| Experiment {
        aalos: [TWO, SINGLE].concat(),
        ..saath_in(name, about, of, saath)
    };
    let parts = |experiment| Experiment { parts: NO_WORK_CONSERVATION, ..experiment };
    let alike =
        |name, about, of| Experiment { alike: true, aalos: SINGLE.to_vec(), ..world(name, about, of) };
    let mapped = World { epochs: true, ..mappers };
    vec![
        Experiment {
            aalos: [&AALOS[..], &[COFLOWSIM_AALO], SINGLE, ALIKE].concat(),
            tcps: &TCPS,
            ..world("as it is", "the trace and the parameters of section 6; nothing changed", plain)
        },
        Experiment {
            aalos: [TWO, SINGLE].concat(),
            tcps: &TCPS,
            ..world(
                "mappers by number",
                "the i-th mapper of every coflow on port i, as CoflowSim's reader is said to have it; reducers as in the trace",
                mappers,
            )
        },
        Experiment {
            aalos: [TWO, AT_BOTH, SINGLE].concat(),
            tcps: &TCPS,
            ..world(
                "tasks by number",
                "the i-th mapper and the i-th reducer of every coflow on port i",
                tasks,
            )
        },
        Experiment {
            aalos: [TWO, AT_BOTH, SINGLE, ALIKE].concat(),
            tcps: &TCPS,
            ..world(
                "epochs",
                "coflows arrive at the start of the 10.24 s in which they would: CoflowSim's main loop admits them so, and \
                 counts from there",
                epochs,
            )
        },
        Experiment {
            tcps: &TCPS,
            ..world(
                "binary units",
                "1 MB = 2^20 bytes, ports of 2^30 bit/s, 1,024 ms of the trace in a second, thresholds from 10 MiB",
                World { binary: true, ..plain },
            )
        },
        world("interval 0", "a schedule whenever something happens", World { interval: 0.0, ..plain }),
        Experiment {
            aalos: AALOS.to_vec(),
            ..world("arrivals x 2", "coflows arrive twice as fast", World { speed: 2.0, ..plain })
        },
        Experiment {
            tcps: SHARED,
            ..world("arrivals x 4", "coflows arrive four times as fast", World { speed: 4.0, ..plain })
        },
        Experiment {
            tcps: SHARED,
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
        saath(
            "no work conservation",
            "Saath without D4; against it speaks that the text explains what is out of sync under Saath by \"work conservation\" (6.2)",
            NO_WORK_CONSERVATION,
        ),
        parts(single(
            "parts without work conservation",
            "A/N and A/N + P/F without D4, Saath with it: D4 is none of the \"3 complimentary design ideas\" of Fig. 10, and may have been a part of the whole \
             only",
            plain,
            "",
        )),
        turns(
            "turns",
            "Aalo's queues do not divide a port but have all of it for a time, one after the other: K times the turn that is named, K - 1 \
             times, and so on",
            plain,
        ),
        turns("turns + tasks by number", "both of them", tasks),
        turns("turns + epochs", "both of them", epochs),
        turns("turns + tasks by number + epochs", "all three", crowded),
        Experiment {
            aalos: [TWO, AT_BOTH, SINGLE].concat(),
            tcps: &TCPS,
            ..world("tasks by number + epochs", "both of them", crowded)
        },
        single("available full + epochs", "both of them", epochs, ":available=full"),
        single("epochs + arrivals x 4", "both of them", World { speed: 4.0, ..epochs }, ""),
        single("mappers by number + epochs", "both of them", mapped, ""),
        saath_in("available full + mappers by number + epochs", "all three", mapped, ":available=full"),
        parts(single("parts without work conservation + epochs", "both of them", epochs, "")),
        single(
            "no work conservation + mappers by number + epochs",
            "all three",
            mapped,
            NO_WORK_CONSERVATION,
        ),
        single("no work conservation + tasks by number + epochs", "all three", crowded, NO_WORK_CONSERVATION),
        alike("Saath alike", "Saath sends one flow at a time too, as said below", plain),
        alike("Saath alike + epochs", "both of them", epochs),
        parts(alike("Saath alike + parts without work conservation", "both of them", plain)),
        parts(alike("Saath alike + parts without work conservation + epochs", "all three", epochs)),
        Experiment {
            aalos: [TWO, &[COFLOWSIM_AALO], SINGLE].concat(),
            tcps: &TCPS,
            ..world(
                "all of CoflowSim",
                "tasks by number, epochs and binary units together",
                World { binary: true, ..crowded },
            )
        },
    ]
}

/// A setting: an experiment with one reading of Aalo.
struct Row<'l> {
    name: String,
    /// Whether anything is different from the paper and the trace but the reading of Aalo.
    changed: bool,
    /// As in [`Experiment`].
    tcps: &'static [&'static str],
    bench: Bench<'l>,
}

impl Row<'_> {
    fn label(&self, bench: &Bench<'_>, claim: &Claim) -> String {
        let with = match claim {
            Claim { on_aalo: true, .. } => bench.aalo,
            Claim { on_tcp: true, .. } if bench.tcp != TCPS[0] => bench.tcp,
            _ if order_of(bench.saath).is_some() => bench.saath,
            _ => return self.name.clone(),
        };
        format!("{}, {}", self.name, quoted(with))
    }

    /// The setting, with each of [`TCPS`] that are tried in it.
    fn variants(&self) -> impl Iterator<Item = Bench<'_>> {
        self.tcps.iter().map(|&tcp| Bench { tcp, ..self.bench.clone() })
    }
}

/// A policy as code, a stand-in as words.
pub fn quoted(policy: &str) -> String {
    if [COFLOWSIM_FAIR, COFLOWSIM_AALO].contains(&policy) || order_of(policy).is_some() {
        policy.to_owned()
    } else {
        format!("`{policy}`")
    }
}

fn rows<'l>(lab: &'l Lab<'l>, experiments: &[Experiment]) -> Vec<Row<'l>> {
    let each =
        experiments.iter().enumerate().flat_map(|(at, e)| e.aalos.iter().map(move |aalo| (at, e, aalo)));
    let rows = each.map(|(at, e, &aalo)| Row {
        name: e.name.to_owned(),
        changed: at > 0,
        tcps: e.tcps,
        bench: Bench {
            world: e.world,
            aalo,
            saath: if e.alike { aalo } else { e.saath },
            parts: e.parts,
            ..Bench::plain(lab)
        },
    });
    rows.collect()
}

/// Ends that are noticed late, as the trace is and with epochs, for Saath as it is and with whole ports.
fn late_rows<'l>(lab: &'l Lab<'l>) -> Vec<Row<'l>> {
    let epochs = World { epochs: true, ..lab.plain };
    let settings = [
        ("", lab.plain, "", TWO),
        ("epochs + ", epochs, "", TWO),
        ("available full + ", lab.plain, ":available=full", &TWO[..1]),
        ("available full + epochs + ", epochs, ":available=full", &TWO[..1]),
    ];
    let each = settings.iter().flat_map(|of| LATE_MS.iter().map(move |ms| (of, *ms)));
    let rows = each.flat_map(|((with, world, saath, aalos), late_ms)| {
        aalos.iter().map(move |aalo| Row {
            name: format!("{with}ends up to {late_ms} ms late"),
            changed: true,
            tcps: MAX_MIN,
            bench: Bench { world: *world, aalo, saath, late_ms, ..Bench::plain(lab) },
        })
    });
    rows.collect()
}

/// The section about experiments.
pub fn section(lab: &Lab<'_>) -> String {
    let experiments = experiments(lab);
    let (rows, late) = (rows(lab, &experiments), late_rows(lab));
    let mut out = String::from(
        "\n## Experiments\n\nEach changes one thing (those with a plus, and the last: several) and measures everything again.\n",
    );
    let about: Vec<Vec<String>> =
        experiments.iter().map(|e| vec![e.name.to_owned(), e.about.to_owned()]).collect();
    out.push_str(&table(&["experiment", "what is different"], 2, &about));
    out.push_str(STAND_INS);
    writeln!(
        out,
        " It also rounds what a reducer gets up to whole megabytes, and each of its flows up to one at least; {} of the flows of this trace \
         are whole megabytes already.",
        share(lab.whole())
    )
    .expect("memory takes all");
    out.push_str(EPOCHS);
    speedups(&rows, &mut out);
    draws::section(&rows, &mut out);
    listing::section(lab, &mut out);
    bounds(lab, &rows, &mut out);
    sync(&rows, &mut out);
    late_ends(&late, &mut out);
    explanations::section(rows, late, &mut out);
    verdicts::section(lab, &mut out);
    out
}

const EPOCHS: &str = "\
That a simulator of this line admits coflows by epochs is no guess: besides CoflowSim, the public one of a later system \
(github.com/coflowPhilae/simulator) admits what arrives within the next 10,240 ms, and counts from then.\n";

const LATE: &str = "\n\
The simulators have no messages, so flows that go alike end at the same instant. What if each end is noticed late, by 0 to so many milliseconds, \
all equally likely, each flow on its own? That is added to the flows' completion times of the same replays, the median of 20 draws; \
\"at once\" is a deviation below 1 % here, since no two are the same.\n";

const STAND_INS: &str = "\
\"CoflowSim's FAIR\" and \"CoflowSim's Aalo\" are stand-ins that do what that simulator's source does \
(`FlowSimulator.fairShare`, `CoflowSimulatorDark.updateRates`): under FAIR a flow gets min(1 / flows of its sender, 1 / flows of \
its receiver) of a port, and what that leaves is lost; under Aalo queues are strict, kept at both ends, and queues and rates \
change only when a coflow arrives or ends. CoflowSim also leaves old rates in force for flows that lost their turn, \
so that its ports carry more than they can; that is not copied. Its source places tasks by number before, and \
by the trace's racks after, `Job.arrangeTasks`; so the placements by number are tried, not taken for granted. It is what the paper names \
for Aalo and Varys, \"which are open-sourced [6]\"; but its own simulator \"is written in 4 KLOC in C++\" (section 6), and CoflowSim in Java.";

fn speedups(rows: &[Row<'_>], out: &mut String) {
    out.push_str("\n### Speed-ups of Saath and of its parts\n");
    let mut lines = vec![published(&SPEEDUPS, &["**published**", ""])];
    lines.extend(rows.iter().map(|row| line(&SPEEDUPS, row)));
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
    let claim = &SPEEDUPS[7];
    let fair: Vec<Vec<String>> = with_tcps(rows)
        .map(|row| {
            let values = row.variants().map(|bench| (claim.measure)(&bench).unwrap_or(0.0));
            let cells = values.flat_map(|value| [n(value), ratio(value, claim.published)]);
            filled(std::iter::once(row.name.clone()).chain(cells), 1 + 2 * TCPS.len())
        })
        .collect();
    writeln!(
        out,
        "\nUC-TCP as max-min (`fair`), as CoflowSim's FAIR, and as `{FIFO_AT_PORTS}`: Aalo with a single queue, so that every sender serves coflow \
         after coflow. For that speaks \"individual ports independently schedule the arriving CoFlows\" and \"no queues\" (6.1), against it \"as \
         per TCP\". Median speed-up of Saath, published {}:",
        n(claim.published)
    )
    .expect("memory takes all");
    let head = ["experiment", "max-min", "ratio", "CoflowSim's FAIR", "ratio", "FIFO at ports", "ratio"];
    out.push_str(&table(&head, 1, &fair));
}

/// A line of a table, with a dash in each cell that there is nothing for.
fn filled(cells: impl Iterator<Item = String>, count: usize) -> Vec<String> {
    cells.chain(std::iter::repeat_with(|| "-".to_owned())).take(count).collect()
}

/// The first setting of each experiment in which several of [`TCPS`] are tried.
fn with_tcps<'r, 'l>(rows: &'r [Row<'l>]) -> impl Iterator<Item = &'r Row<'l>> {
    let first =
        |at: &usize| rows[*at].tcps.len() > 1 && rows[..*at].iter().all(|row| row.name != rows[*at].name);
    (0..rows.len()).filter(first).map(|at| &rows[at])
}

/// What no scheduler could have, by baseline.
fn bounds(lab: &Lab<'_>, rows: &[Row<'_>], out: &mut String) {
    let (over, tcp) = ([&SPEEDUPS[0], &SPEEDUPS[1]], &SPEEDUPS[7]);
    writeln!(
        out,
        "\n### What no scheduler could have\n\nA coflow alone in the network takes as long as its busiest port for its bytes there; no schedule \
         is faster, whatever it knows. So a coflow's CCT under a baseline over that time is the most that any scheduler can speed it up, and \
         a percentile of these is the most that the same percentile of speed-ups can be. Saath itself is close: its CCTs over that time are {} at \
         the median and {} at P90 on the trace as it is. Bold is what is out of reach: nine tenths of the published number are more.",
        n(Bench::plain(lab).most("saath")[1]),
        n(Bench::plain(lab).most("saath")[2]),
    )
    .expect("memory takes all");
    let mut lines: Vec<Vec<String>> = Vec::new();
    let cell = |claim: &Claim, bench: &Bench<'_>| {
        let most = n(claim.most.map_or(f64::INFINITY, |most| most(bench)));
        if claim.out_of_reach(bench) { format!("**{most}**") } else { most }
    };
    for row in rows.iter().filter(|row| row.bench.saath.is_empty() && row.bench.parts.is_empty()) {
        let over = over.map(|claim| cell(claim, &row.bench));
        lines.push([row.name.clone(), quoted(row.bench.aalo)].into_iter().chain(over).collect());
    }
    let values = over.map(|claim| n(claim.published));
    lines.insert(0, ["published".to_owned(), "Aalo".to_owned()].into_iter().chain(values).collect());
    out.push_str(&table(&["experiment", "baseline", "P50", "P90"], 2, &lines));
    let mut lines =
        vec![["published".to_owned()].into_iter().chain(TCPS.map(|_| n(tcp.published))).collect::<Vec<_>>()];
    for row in with_tcps(rows) {
        let cells = row.variants().map(|bench| cell(tcp, &bench));
        lines.push(filled(std::iter::once(row.name.clone()).chain(cells), 1 + TCPS.len()));
    }
    out.push_str("\nThe same over what may be meant by UC-TCP, at the median:\n");
    out.push_str(&table(&["experiment", "max-min", "CoflowSim's FAIR", "FIFO at ports"], 1, &lines));
}

fn published(claims: &[Claim], first: &[&str]) -> Vec<String> {
    let mut cells: Vec<String> = first.iter().map(|&c| c.to_owned()).collect();
    cells.extend(claims.iter().map(|c| format!("**{}**", c.text(c.published))));
    cells
}

fn line(claims: &[Claim], row: &Row<'_>) -> Vec<String> {
    let mut cells = vec![row.name.clone(), quoted(row.bench.aalo)];
    cells.extend(claims.iter().map(|claim| match (claim.measure)(&row.bench) {
        Some(value) => claim.text(value),
        None => "-".to_owned(),
    }));
    cells
}

fn sync(rows: &[Row<'_>], out: &mut String) {
    out.push_str("\n### Flows that end out of sync\n");
    let kept = rows.iter().filter(|row| row.bench.aalo != COFLOWSIM_AALO && row.bench.parts.is_empty());
    out.push_str(&sync_table(kept));
}

/// Aalo and Saath as they are, and then Saath with whole ports beside Saath as it is.
fn late_ends(rows: &[Row<'_>], out: &mut String) {
    out.push_str(LATE);
    out.push_str(&sync_table(rows.iter().filter(|row| row.bench.saath.is_empty())));
    out.push_str("\nSaath's two shares, in percent, where all-or-none needs whole ports and where it does not; published 40 and 71:\n");
    let of_saath = &SYNC[SYNC.len() - 2..];
    let mut lines: Vec<Vec<String>> = Vec::new();
    for of_setting in rows.chunk_by(|a, b| a.bench.world == b.bench.world && a.bench.saath == b.bench.saath) {
        let Bench { world, saath, .. } = of_setting[0].bench;
        let arrivals = if world.epochs { "epochs" } else { "as they are" };
        let mut line = vec![format!("`saath{saath}`"), arrivals.to_owned()];
        // One reading of Aalo says it for all.
        for row in of_setting.iter().filter(|row| row.bench.aalo == TWO[0]) {
            let shares = of_saath.iter().filter_map(|claim| (claim.measure)(&row.bench));
            line.push(shares.map(|share| format!("{:.1}", share * 100.0)).collect::<Vec<_>>().join(" / "));
        }
        lines.push(line);
    }
    let late = LATE_MS.map(|ms| format!("{ms} ms"));
    let head: Vec<&str> = ["Saath", "arrivals"].into_iter().chain(late.iter().map(String::as_str)).collect();
    out.push_str(&table(&head, 2, &lines));
}

fn sync_table<'r, 'l: 'r>(rows: impl Iterator<Item = &'r Row<'l>>) -> String {
    let mut lines = vec![published(&SYNC, &["**published**", ""])];
    lines.extend(rows.map(|row| line(&SYNC, row)));
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
    table(&head, 2, &lines)
}
