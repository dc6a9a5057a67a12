//! Unmodified programs in the cgroups of two applications: the class of their packets, and their shares of a link, before and after the
//! coordinator is told to weigh them otherwise, and under rates that no queues give.

mod cast;
mod control;
mod wire;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use weir_core::model::Topology;
use weir_core::model::topology::Plan;
use weir_core::units::Rate;
use weir_testbed::{Name, Node};

use crate::doc::{n, table, yes};
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::testbed;

use cast::{APPLICATIONS, Cast, Group, Program};
use control::{Control, Given};
use wire::{Capture, Count, Packets};

/// What every link carries, with headers, in bytes per second.
const LINK: f64 = 12.5e6;

/// How sensitive the applications are, first and then. Their slowdowns are 1 + c (1 - b)^2 of their part b of the bandwidth, and the sum of both is
/// least where their parts are as c is to c.
const SENSITIVE: [[f64; 2]; 2] = [[1.0, 3.0], [3.0, 1.0]];

/// Fig. 5 of NetShare: three services with a third of each link each, of which the last does nothing, and the first has two thirds of what it
/// leaves. Each application is one.
const SERVICES: [&str; 2] = ["a1", "a2"];
const SHARED: &str = "queues = \"services\"\nallocator = true\n\
                      [service.a1]\nexcess = 2\n[service.a2]\nexcess = 1\n[service.a3]\nexcess = 1\n";
const FIG_5: [f64; 2] = [1.0 / 3.0 + 2.0 / 9.0, 1.0 / 3.0 + 1.0 / 9.0];

/// How long shares may take to be there.
const SETTLE: Duration = Duration::from_secs(1);

/// How long is measured.
const MEASURE: Duration = Duration::from_secs(10);

/// Points of a link within which a share counts as the expected one.
const POINTS: f64 = 3.0;

/// What was seen under one sensitivity table.
struct Phase {
    given: [Given; 2],
    before: Packets,
    after: Packets,
    seconds: f64,
}

impl Phase {
    /// Waits until shares are there, and looks at what comes.
    fn see(control: &Control, capture: &Capture) -> Result<Phase, Failure> {
        pause(SETTLE)?;
        let given = control.given()?;
        let (before, began) = (capture.packets(), Instant::now());
        pause(MEASURE)?;
        let (after, seconds) = (capture.packets(), began.elapsed().as_secs_f64());
        Ok(Phase { given, before, after, seconds })
    }

    /// Bytes of all packets of each application.
    fn bytes(&self, programs: &[Program]) -> [f64; 2] {
        [0, 1].map(|at| {
            let mine = programs.iter().filter(|program| program.application() == at);
            mine.map(|&program| self.of(program, |_| true).bytes as f64).sum::<f64>()
        })
    }

    /// What came of a program's packets meanwhile.
    fn of(&self, program: Program, is: impl Fn(u8) -> bool) -> Count {
        let sum = |packets: &Packets| {
            let mine = packets.iter().filter(|((port, mark, _), _)| *port == program.port() && is(*mark));
            mine.fold(Count::default(), |sum, (_, count)| Count {
                packets: sum.packets + count.packets,
                bytes: sum.bytes + count.bytes,
            })
        };
        let (before, after) = (sum(&self.before), sum(&self.after));
        Count { packets: after.packets - before.packets, bytes: after.bytes - before.bytes }
    }
}

/// Expected and measured.
///
/// # Errors
/// If it cannot be measured here, or is ended early.
pub(super) fn section(bed: &Name, progress: &Progress) -> Result<String, Failure> {
    let (programs, left_out): (Vec<Program>, Vec<Program>) =
        Program::ALL.into_iter().partition(|program| program.missing().is_empty());
    let mut out = head();
    for program in left_out {
        out.push_str(&format!(
            "Left out: {}, as {} is not installed.\n",
            program.about(),
            program.missing().join(" and ")
        ));
    }
    if (0..APPLICATIONS.len()).any(|at| !programs.iter().any(|program| program.application() == at)) {
        out.push_str("So one of the two applications has no program, and nothing is measured.\n\n");
        return Ok(out);
    }
    let (phases, rated) = testbed::on_a_bed(bed, &topology(), |bed| {
        let (nodes, name) = (&bed.plan().nodes, &bed.plan().name);
        let bar = progress.steps("programs, in real time", SENSITIVE.len() + 1);
        let place = || tempfile::tempdir().map_err(Failure::undone);
        let phases = weighed(nodes, name, &programs, place()?.path(), &bar)?;
        let rated = rated(nodes, name, &programs, place()?.path())?;
        bar.finish_and_clear();
        Ok((phases, rated))
    })?;
    out.push_str(&text(&programs, &phases));
    out.push_str(&rates(&programs, &rated));
    Ok(out)
}

/// The sender, and a host for each application.
fn topology() -> Topology {
    Plan::BigSwitch { hosts: 3, rate: link() }.build().expect("a constant")
}

fn link() -> Rate {
    Rate::new(LINK).expect("a constant")
}

/// A sensitivity table with the models of both applications, which are called as they are.
fn sensitivity(sensitive: [f64; 2]) -> String {
    let model = |(name, c): (&str, f64)| {
        format!("[[application]]\nname = \"{name}\"\ncoefficients = [{}, {}, {c}]\n", 1.0 + c, -2.0 * c)
    };
    format!("version = 1\n{}", APPLICATIONS.into_iter().zip(sensitive).map(model).collect::<String>())
}

/// Under Saba's weights, and others while all goes on.
fn weighed(
    nodes: &[Node],
    bed: &Name,
    programs: &[Program],
    place: &Path,
    bar: &ProgressBar,
) -> Result<Vec<Phase>, Failure> {
    let groups = groups(bed)?;
    let mut control = Control::begin(nodes, link(), "", place)?;
    control.put("/v1/sensitivity", &sensitivity(SENSITIVE[0]))?;
    control.register(APPLICATIONS)?;
    control.attend(link(), groups.each_ref().map(Group::path), place)?;
    pause(SETTLE)?;
    let capture = capture(nodes, programs)?;
    let mut cast = Cast::begin(programs, &groups, nodes, place)?;
    let mut phases = Vec::new();
    for sensitive in SENSITIVE {
        control.put("/v1/sensitivity", &sensitivity(sensitive))?;
        phases.push(Phase::see(&control, &capture)?);
        cast.check()?;
        bar.inc(1);
    }
    Ok(phases)
}

/// Under rates of the central allocator; and what connections may send in the end.
fn rated(
    nodes: &[Node],
    bed: &Name,
    programs: &[Program],
    place: &Path,
) -> Result<(Phase, [Option<f64>; 2]), Failure> {
    let groups = groups(bed)?;
    let mut control = Control::begin(nodes, link(), SHARED, place)?;
    control.register_in(SERVICES)?;
    control.attend(link(), groups.each_ref().map(Group::path), place)?;
    pause(SETTLE)?;
    let capture = capture(nodes, programs)?;
    let mut cast = Cast::begin(programs, &groups, nodes, place)?;
    let phase = Phase::see(&control, &capture)?;
    cast.check()?;
    Ok((phase, control.limits()?))
}

fn groups(bed: &Name) -> Result<[Group; 2], Failure> {
    let [bulk, web] = APPLICATIONS.map(|name| Group::new(&format!("weir-{bed}-{name}")));
    Ok([bulk?, web?])
}

fn capture(nodes: &[Node], programs: &[Program]) -> Result<Capture, Failure> {
    let ports: Vec<u16> = programs.iter().map(|program| program.port()).collect();
    let others: Vec<&Node> = nodes[1..3].iter().collect();
    Capture::begin(&others, cast::from(nodes), &ports).map_err(Failure::undone)
}

fn pause(time: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    while began.elapsed() < time {
        Failure::unless_asked()?;
        thread::sleep(time.saturating_sub(began.elapsed()).min(Duration::from_millis(100)));
    }
    Ok(())
}

fn head() -> String {
    format!(
        "## Unmodified programs\n\n\
         Three hosts under one switch, links of {} Mbit/s. On the first are a coordinator (`weir serve`), an agent (`weir agent run`), and programs \
         in the cgroups of two applications, {}, which know nothing of either. What both send leaves by one link. The applications are registered \
         over REST with slowdowns 1 + c (1 - b)^2 of their part b of the link, so that Saba's weights are as c is to c; then the table \
         is set anew with the c of the other, while all goes on. What arrives was looked at on the other hosts, packet by packet, for {} s after {} s.\n\n",
        n(LINK * 8e-6),
        APPLICATIONS.map(|name| format!("`{name}`")).join(" and "),
        MEASURE.as_secs(),
        SETTLE.as_secs(),
    )
}

fn text(programs: &[Program], phases: &[Phase]) -> String {
    let mut out =
        "The class of an application is its queue at the link, and the DSCP of its packets.\n".to_owned();
    let mut lines = Vec::new();
    let mut marked = true;
    for (phase, sensitive) in phases.iter().zip(SENSITIVE) {
        for &program in programs {
            let class = phase.given[program.application()].class;
            let (all, ours) = (phase.of(program, |_| true), phase.of(program, |mark| mark == class));
            let is = all.packets > 0 && ours.packets == all.packets;
            marked &= is;
            lines.push(vec![
                program.about().to_owned(),
                APPLICATIONS[program.application()].to_owned(),
                colon(sensitive),
                class.to_string(),
                all.packets.to_string(),
                ours.packets.to_string(),
                yes(is),
            ]);
        }
    }
    let head = ["", "application", "c", "class", "packets", "with its DSCP", "all"];
    out.push_str(&table(&head, 2, &lines));
    // Programs connect before the first phase is measured, under its table.
    let first = &phases[0];
    let begun = |program: Program, is: &dyn Fn(u8) -> bool| -> u64 {
        let mine =
            first.after.iter().filter(|((port, mark, syn), _)| *syn && *port == program.port() && is(*mark));
        mine.map(|(_, count)| count.packets).sum()
    };
    let line = |&program: &Program| {
        let class = first.given[program.application()].class;
        let (all, ours) = (begun(program, &|_| true), begun(program, &|mark| mark == class));
        (
            vec![program.about().to_owned(), all.to_string(), ours.to_string(), yes(all > 0 && all == ours)],
            all > 0 && all == ours,
        )
    };
    let begun: Vec<(Vec<String>, bool)> = programs.iter().map(line).collect();
    let from_the_first = begun.iter().all(|(_, is)| *is);
    out.push_str(
        "The first packets of connections: SYN of who connects, SYN and ACK of who is connected to.\n",
    );
    let lines: Vec<Vec<String>> = begun.into_iter().map(|(line, _)| line).collect();
    out.push_str(&table(&["", "SYN", "with its DSCP", "all"], 1, &lines));
    out.push_str(&shares(programs, phases));
    let said = match (marked, from_the_first) {
        (true, true) => "All packets have the DSCP of their application's class, from the first on.",
        (true, false) => "All measured packets have the DSCP of their application's class, but not all SYN.",
        (false, _) => "Not all packets have the DSCP of their application's class.",
    };
    out.push_str(&format!("{said}\n\n"));
    out
}

fn shares(programs: &[Program], phases: &[Phase]) -> String {
    let mut out =
        "Shares of what both applications get, with headers; expected is what the coordinator gives them.\n"
            .to_owned();
    let (mut lines, mut held) = (Vec::new(), 0);
    for (phase, sensitive) in phases.iter().zip(SENSITIVE) {
        let bytes = phase.bytes(programs);
        for (at, name) in APPLICATIONS.iter().enumerate() {
            let (expected, found) =
                (100.0 * phase.given[at].share, 100.0 * bytes[at] / (bytes[0] + bytes[1]));
            let points = (found - expected).abs();
            held += usize::from(points <= POINTS);
            lines.push(vec![
                (*name).to_owned(),
                colon(sensitive),
                n(bytes[at] / phase.seconds * 8e-6),
                n(expected),
                n(found),
                n(points),
                yes(points <= POINTS),
            ]);
        }
    }
    let within = format!("within {POINTS} points");
    let head = ["application", "c", "Mbit/s", "expected %", "measured %", "points apart", &within];
    out.push_str(&table(&head, 1, &lines));
    out.push_str(&format!("{held} of {} are within {POINTS} points.\n\n", lines.len()));
    out
}

/// Expected and measured under the central allocator.
fn rates(programs: &[Program], (phase, limits): &(Phase, [Option<f64>; 2])) -> String {
    let bytes = phase.bytes(programs);
    let mut held = 0;
    let lines = (0..APPLICATIONS.len()).map(|at| {
        let (expected, found) = (100.0 * FIG_5[at], 100.0 * bytes[at] / (bytes[0] + bytes[1]));
        let points = (found - expected).abs();
        held += usize::from(points <= POINTS);
        vec![
            APPLICATIONS[at].to_owned(),
            SERVICES[at].to_owned(),
            n(100.0 * phase.given[at].share),
            limits[at].map_or("none".to_owned(), |limit| n(limit * 8e-6)),
            n(bytes[at] / phase.seconds * 8e-6),
            n(expected),
            n(found),
            n(points),
            yes(points <= POINTS),
        ]
    });
    let lines: Vec<Vec<String>> = lines.collect();
    let within = format!("within {POINTS} points");
    let head = [
        "application",
        "service",
        "queue's %",
        "may send, Mbit/s",
        "Mbit/s",
        "expected %",
        "measured %",
        "points apart",
        &within,
    ];
    format!(
        "NetShare's Fig. 5 (3.3), with the same programs begun anew and another coordinator: three services with a third of the link each, of \
         which the last does nothing. Queues give each of the others half; the central allocator gives the first two thirds of what is left. What \
         the connections of an application may send together is as the coordinator says in the end; agents pace them.\n\n{}{held} of {} are within \
         {POINTS} points.\n\n",
        table(&head, 2, &lines),
        lines.len(),
    )
}

fn colon(of_both: [f64; 2]) -> String {
    format!("{}:{}", of_both[0], of_both[1])
}
