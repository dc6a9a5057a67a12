//! Why two rates of TCP beside UDP are not what section 5.3 says: what may be the cause is changed, and the rate measured again.
//!
//! All links carry a tenth of what they do in the paper, so that this machine can send packet by packet.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_core::model::scenario::{Scenario, Sending};
use weir_core::model::topology::Builder;
use weir_core::model::{NodeId, Topology, TopologyError};
use weir_core::netshare::Throttle;
use weir_core::units::{Rate, Time};
use weir_testbed::{Bed, BedError, Name, Node, counters, namespace};

use super::LINK;
use crate::doc::{n, table};
use crate::netshare::MBIT;
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::table::percent;
use weir_console::testbed::{failure, on_a_bed, send};

/// Of the paper's rates.
const PART: f64 = 0.1;

/// Services, by their numbers.
const A1: usize = 0;
const A2: usize = 1;
const A3: usize = 2;

/// When A1 begins: with A2, and after A3, as Table 2 has it.
const BEGIN: f64 = 1.0;

/// Between two looks at how long the way back takes.
const LOOK: Duration = Duration::from_millis(50);

/// After which what was sent to look is taken for lost.
const LOST: Duration = Duration::from_millis(200);

/// Both experiments.
///
/// # Errors
/// If they cannot be done here, or are ended early.
pub(super) fn section(
    bed: &Name,
    mut scenario: Scenario,
    phase: Time,
    progress: &Progress,
) -> Result<String, Failure> {
    scenario.topology = slower(&scenario.topology).map_err(Failure::undone)?;
    for demand in &mut scenario.demands {
        if let Sending::Unresponsive(rate) = &mut demand.sending {
            *rate = part(*rate);
        }
    }
    on_a_bed(bed, &scenario.topology, |bed| {
        let bench = Bench { bed, scenario: &scenario, phase: phase.get(), progress };
        let done = acknowledgements(&bench).and_then(|first| Ok(first + &hysteresis(&bench)?));
        // The bed may be somebody's, and goes on.
        bench.change(|bed| bed.send_singly(false))?;
        done
    })
}

/// Rates stay above zero.
fn part(rate: Rate) -> Rate {
    Rate::new(rate.get() * PART).expect("a part of a rate is one")
}

fn slower(topology: &Topology) -> Result<Topology, TopologyError> {
    let mut slower = Builder::new();
    for node in (0..topology.nodes() as u32).map(NodeId) {
        let name = topology.name(node);
        if topology.is_host(node) { slower.host(name) } else { slower.switch(name, topology.tier(node)) }?;
    }
    for cable in topology.links().iter().step_by(2) {
        slower.cable(topology.name(cable.from), topology.name(cable.to), part(cable.rate))?;
    }
    slower.build()
}

struct Bench<'a> {
    bed: &'a Bed,
    scenario: &'a Scenario,
    phase: f64,
    progress: &'a Progress,
}

/// What A1 had.
struct Found {
    /// Part of a link, over the second half.
    share: f64,
    /// Acknowledgements that left H5, per second, and how many of them H1 had.
    sent: f64,
    arrived: f64,
    /// What a small packet from H5 to H1 took over the second half, on average, in seconds; none if none arrived.
    back: Option<f64>,
}

impl Bench<'_> {
    fn change(&self, change: impl FnOnce(&Bed) -> Result<(), BedError>) -> Result<(), Failure> {
        change(self.bed).map_err(|error| failure(&error))
    }

    /// A1 beside another service, over a bed as it is.
    fn run(&self, other: usize, throttle: Option<&Throttle>, what: &str) -> Result<Found, Failure> {
        let time = |seconds: f64| Time::new(seconds).expect("phases are times");
        let (begin, end) = (time(BEGIN), time(BEGIN + self.phase));
        let mut scenario = Scenario { end, ..self.scenario.clone() };
        scenario.demands.retain(|demand| demand.service == A1 || demand.service == other);
        for demand in &mut scenario.demands {
            demand.active = vec![(if demand.service == A3 { Time::ZERO } else { begin }, end)];
        }
        let node = |id: NodeId| self.bed.plan().node(id);
        let (from, to) = (node(scenario.demands[A1].from[0]), node(scenario.demands[A1].to[0]));
        let (sent, arrived) = (segments(to)?.sent, segments(from)?.received);
        let over = AtomicBool::new(false);
        let after = Duration::from_secs_f64(BEGIN + self.phase / 2.0);
        let (phases, back) = thread::scope(|scope| {
            let looks = scope.spawn(|| delay(to, from, after, &over));
            let phases = send(self.bed, &scenario, &[(begin, end)], throttle, what, self.progress);
            over.store(true, Ordering::Relaxed);
            (phases, looks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let back =
            back.map_err(|error| Failure::undone(format!("from {} to {}: {error}", to.name, from.name)))?;
        let per_second = |segments: u64| segments as f64 / self.phase;
        Ok(Found {
            share: phases?[0].late[A1] / (PART * LINK * MBIT),
            sent: per_second(segments(to)?.sent - sent),
            arrived: per_second(segments(from)?.received - arrived),
            back,
        })
    }
}

fn segments(node: &Node) -> Result<counters::Segments, Failure> {
    counters::segments(&node.namespace).map_err(|error| Failure::undone(format!("{}: {error}", node.name)))
}

/// What a small packet takes from one host to another, on average from some time on until all is over.
fn delay(from: &Node, to: &Node, after: Duration, over: &AtomicBool) -> io::Result<Option<f64>> {
    let open = |node: &Node| namespace::inside(&node.namespace, || UdpSocket::bind((node.address, 0)))?;
    let (sender, receiver) = (open(from)?, open(to)?);
    sender.connect(receiver.local_addr()?)?;
    receiver.set_read_timeout(Some(LOST))?;
    let (began, mut sum, mut count) = (Instant::now(), 0.0, 0);
    for number in 0_u32.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let sent = Instant::now();
        // What does not get out is lost.
        let _ = sender.send(&number.to_be_bytes());
        let mut found = [0; 4];
        // One that was taken for lost may be late.
        while receiver.recv(&mut found).is_ok() {
            if found == number.to_be_bytes() {
                if began.elapsed() >= after {
                    sum += sent.elapsed().as_secs_f64();
                    count += 1;
                }
                break;
            }
        }
        thread::sleep(LOOK);
    }
    Ok((count > 0).then(|| sum / f64::from(count)))
}

/// Of several runs, in order.
fn list(found: &[Found], of: impl Fn(&Found) -> String) -> String {
    found.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn shares(found: &[Found]) -> String {
    list(found, |found| percent(found.share))
}

/// Phase 3 without a mechanism: A3 on the way of A1's acknowledgements.
fn acknowledgements(bench: &Bench<'_>) -> Result<String, Failure> {
    const RUNS: usize = 3;
    // Whether hosts send packet by packet, and whether queues count packets.
    let rows = [(false, false), (true, false), (true, true)];
    let measured = rows.into_iter().map(|(singly, counted)| {
        bench.change(|bed| bed.send_singly(singly))?;
        bench.change(|bed| if counted { bed.set_counted_queues() } else { bed.set_queues(None) })?;
        let hosts = if singly { "packet by packet" } else { "several segments at once" };
        let queues = if counted { "packets" } else { "bytes" };
        let runs = (0..RUNS).map(|_| bench.run(A3, None, &format!("{hosts}, queues count {queues}")));
        Ok((hosts, queues, runs.collect::<Result<Vec<_>, Failure>>()?))
    });
    let measured: Vec<_> = measured.collect::<Result<_, Failure>>()?;
    bench.change(|bed| bed.set_queues(None))?;
    let lines: Vec<Vec<String>> = measured
        .iter()
        .map(|(hosts, queues, found)| {
            let lost = |found: &Found| percent((1.0 - found.arrived / found.sent).max(0.0));
            let back = |found: &Found| found.back.map_or_else(|| "-".to_owned(), |back| n(1e3 * back));
            vec![
                (*hosts).to_owned(),
                (*queues).to_owned(),
                shares(found),
                list(found, |found| n(found.sent)),
                list(found, lost),
                list(found, back),
            ]
        })
        .collect();
    let head = [
        "hosts send",
        "queues count",
        "A1, of a link",
        "acknowledgements a second",
        "of these lost",
        "their way, ms",
    ];
    Ok(format!(
        "Do acknowledgements that share a link with A3 slow A1 down, as the text has it of phase 3 with no mechanism? Kernels of today hand over \
         several segments of a connection as one packet, for which there is one acknowledgement, and queues that count bytes have room for one \
         of 66 where there is none for a packet of A3. So phase 3 once more with links of {} Mbit/s, over which this machine can send packet by packet, \
         and with queues that count packets, so that there are more of both, acknowledgements and losses. {RUNS} runs each.\n",
        n(PART * LINK),
    ) + &table(&head, 2, &lines))
}

/// Phase 1 with throttling alone: A1 and A2 on one link.
fn hysteresis(bench: &Bench<'_>) -> Result<String, Failure> {
    const RUNS: usize = 5;
    let floor = bench.scenario.floor;
    let rows = [
        ("nothing", None),
        ("Algorithm 1", Some(Throttle::new(floor))),
        ("Algorithm 1 without its hysteresis", Some(Throttle::without_hysteresis(floor))),
    ];
    bench.change(|bed| bed.send_singly(true))?;
    let measured = rows.into_iter().map(|(what, throttle)| {
        let runs = (0..RUNS).map(|_| bench.run(A2, throttle.as_ref(), &format!("A2 throttled by {what}")));
        Ok((what, runs.collect::<Result<Vec<_>, Failure>>()?))
    });
    let measured: Vec<_> = measured.collect::<Result<_, Failure>>()?;
    let lines: Vec<Vec<String>> =
        measured.iter().map(|(what, found)| vec![(*what).to_owned(), shares(found)]).collect();
    Ok(format!(
        "And why has A1 more in phase 1 with throttling alone than with no mechanism? Algorithm 1 leaves the limit as it is as long as the rate that \
         arrives differs by less than 5 % from that of the period before. If A2 comes back to its limit in smaller steps than that, it stays there, \
         below what the link carries, and A1 has the rest. So phase 1 once more over these links, packet by packet, and without that hysteresis. \
         {RUNS} runs each.\n"
    ) + &table(&["A2 is throttled by", "A1, of a link"], 1, &lines))
}
