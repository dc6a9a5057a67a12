//! Section 5.3: a TCP flow and two UDP flows (Table 2, Fig. 12 to 15).

use weir_core::model::Plan;
use weir_core::model::scenario::{Scenario, Sending};
use weir_sim::service::{Mechanism, Shared};

use super::Making;
use super::claim::{Claim, claims};
use super::scene::{MBIT, Scene, mbit};
use crate::doc::{n, share, table};
use weir_console::failure::Failure;

/// Table 2's phases.
const PHASES: [&str; 4] = ["5-35 s", "35-65 s", "65-95 s", "95-125 s"];

/// The mechanisms, and their figures.
pub(in super::super) const VARIANTS: [(Mechanism, &str); 6] = [
    (Mechanism::QueuesThrottling, "Fig. 12"),
    (Mechanism::None, "Fig. 13"),
    (Mechanism::Queues, "Fig. 14"),
    (Mechanism::Throttling, "Fig. 15"),
    (Mechanism::Central, "none"),
    (Mechanism::QueuesCentral, "none"),
];

/// Table 2, with phases so many times as long as the paper's.
#[cfg(all(feature = "live", target_os = "linux"))]
pub(crate) fn table_2(times: f64) -> Scenario {
    scene(times).0
}

/// A1 by TCP, A2 and A3 by UDP as fast as their links; A3 from a host under E2, as Table 2's bottlenecks have it.
fn scene(times: f64) -> Scene {
    let udp = Sending::Unresponsive(mbit(1000.0));
    let at = |time: f64| times * time;
    Scene::new(Plan::NetShareFig6, &[1.0, 3.0, 9.0], at(125.0))
        .flow(0, "H1", "H5", Sending::Elastic)
        .flow(1, "H2", "H9", udp)
        .flow(2, "H7", "H10", udp)
        .active(0, &[(at(5.0), at(35.0)), (at(65.0), at(125.0))])
        .active(1, &[(at(5.0), at(65.0)), (at(95.0), at(125.0))])
        .active(2, &[(at(35.0), at(125.0))])
}

/// Published and measured.
///
/// # Errors
/// If a run is ended early.
pub(super) fn section(making: &Making<'_>) -> Result<String, Failure> {
    let scene = scene(1.0);
    let mut runs = Vec::new();
    for (mechanism, figure) in VARIANTS {
        runs.push((mechanism, figure, scene.run(mechanism, making)?));
    }
    let mut out = String::from(
        "## Section 5.3: rate throttling (Table 2, Fig. 12 to 15)\n\nA1 sends by TCP, A2 and A3 by UDP at 1 Gbit; weights 1:3:9. In Mbit/s, \
         at the end of each phase. The text's \"weight 2\" of A2 is 3 everywhere else.\n",
    );
    let at = |mechanism: Mechanism, phase: usize, service: usize| {
        let run = runs.iter().find(|run| run.0 == mechanism).expect("all mechanisms were run");
        run.2.phases[phase].last[service] / MBIT
    };
    let sent = |mechanism: Mechanism, phase: usize, service: usize| {
        let run = runs.iter().find(|run| run.0 == mechanism).expect("all mechanisms were run");
        run.2.phases[phase].sent[service] / MBIT
    };
    use Mechanism::{None, Queues, QueuesThrottling, Throttling};
    out.push_str(&claims(&[
        Claim::new(
            "queues and throttling, 5-35 s: A1",
            "5.3: \"A1 gets 250 Mbps\"",
            250.0,
            at(QueuesThrottling, 0, 0),
        ),
        Claim::new("A2", "5.3: \"A2 gets 750 Mbps\"", 750.0, at(QueuesThrottling, 0, 1)),
        Claim::new("95-125 s: A1", "5.3: \"close to 725Mbps\"", 725.0, at(QueuesThrottling, 3, 0)),
        Claim::new("A2", "5.3: \"only 250 Mbps ... is useful\"", 250.0, at(QueuesThrottling, 3, 1)),
        Claim::new("A2 sends", "5.3: \"275 Mbps (250 * 1.1)\"", 275.0, sent(QueuesThrottling, 3, 1)),
        Claim::new("no mechanism, 5-35 s: A1", "5.3: \"receives zero throughput\"", 0.0, at(None, 0, 0)),
        Claim::new("65-95 s: A1", "5.3: \"sometimes as low as 750 Mbps\"", 750.0, at(None, 2, 0)),
        Claim::new(
            "queues alone, 95-125 s: A1",
            "5.3: \"also receives only 250Mbps\"",
            250.0,
            at(Queues, 3, 0),
        ),
        Claim::new("A2", "5.3: \"only receives 250Mbps\"", 250.0, at(Queues, 3, 1)),
        Claim::new(
            "throttling alone, 95-125 s: A1",
            "5.3: \"nearly 450-500Mbps\", its lower end",
            450.0,
            at(Throttling, 3, 0),
        ),
    ]));
    out.push_str(
        "\nAll of it. The mean over a phase is in brackets where it is not the same to three digits.\n",
    );
    out.push_str(&everything(&runs));
    out.push_str(&alone(making, at(Throttling, 3, 0), sent(Throttling, 3, 1))?);
    out.push_str(&acknowledgements(making)?);
    let (without, with) = (at(Mechanism::Central, 0, 0), at(Mechanism::QueuesCentral, 0, 0));
    out.push_str(&format!(
        "**Central allocation** has no experiment in the paper. With one queue it leaves A1 {} Mbit/s of its 250 in the first phase: A2 is \
         let in at 10 % more than its part, in one queue TCP gets what that leaves, it is measured at that, and the allocator gives \
         it no more the next time. With queues at the switches as well A1 keeps {}. Table 1 asks for none at routers; next to \
         unresponsive sources they are needed.\n\n",
        n(without),
        n(with),
    ));
    Ok(out)
}

fn everything(runs: &[(Mechanism, &str, Shared)]) -> String {
    let mut lines = Vec::new();
    for (mechanism, figure, shared) in runs {
        for (phase, name) in shared.phases.iter().zip(PHASES) {
            let cells = phase.last.iter().zip(&phase.mean).map(|(last, mean)| {
                let (last, mean) = (n(last / MBIT), n(mean / MBIT));
                if last == mean { last } else { format!("{last} ({mean})") }
            });
            let head = [mechanism.name().to_owned(), (*figure).to_owned(), name.to_owned()];
            lines.push(head.into_iter().chain(cells).collect());
        }
    }
    table(&["", "figure", "phase", "A1", "A2", "A3"], 3, &lines)
}

/// Why throttling alone does not give the symmetric answer: both flows begin at once instead.
fn alone(making: &Making<'_>, a1: f64, a2: f64) -> Result<String, Failure> {
    let mut together = scene(1.0);
    for demand in 0..3 {
        together = together.active(demand, &[(95.0, 125.0)]);
    }
    let shared = together.run(Mechanism::Throttling, making)?;
    let (begun, limit) = (shared.phases[0].last[0] / MBIT, shared.phases[0].sent[1] / MBIT);
    Ok(format!(
        "**Throttling alone** gives A1 {} Mbit/s in the last phase, the paper \"nearly 450-500\". Two UDP flows that meet in one queue get \
         different limits from Algorithm 1: the one that was there falls to 500 and is allowed 10 % more, the one that comes rises to 500 \
         and is allowed 20 % more; what then arrives of it is within 5 % of before, so the limit that follows is 10 % above \
         a rate that was too high. A2 comes last here and stays at {} Mbit/s. Where all three begin at 95 s, it is limited to {} and A1 \
         gets {}. On a switch, rates that waver by more than 5 % would let the two limits meet.\n\n",
        n(a1),
        n(a2),
        n(limit),
        n(begun),
    ))
}

/// What A3's flow does to acknowledgements of A1, if they are sent at a rate whatever arrives.
fn acknowledgements(making: &Making<'_>) -> Result<String, Failure> {
    // One of 84 bytes (on the wire) for two segments of 1538.
    let rate = 1000.0 * 84.0 / (2.0 * 1538.0);
    let acks = Scene::new(Plan::NetShareFig6, &[1.0, 3.0, 9.0], 30.0)
        .flow(0, "H5", "H1", Sending::Unresponsive(mbit(rate)))
        .flow(2, "H7", "H10", Sending::Unresponsive(mbit(1000.0)));
    let lost = |mechanism| {
        let shared = acks.run(mechanism, making)?;
        Ok::<f64, Failure>(1.0 - shared.phases[0].last[0] / MBIT / rate)
    };
    Ok(format!(
        "**Acknowledgements.** Without mechanisms, A1 dips to 750 in the paper's third phase, since its acknowledgements share the link from E2 \
         with A3. The simulator has none. Put in as a flow of {} Mbit/s from H5 to H1 (84 bytes for two segments of 1,538), {} of them are \
         lost without queues, {} with. That many lost acknowledgements do not limit a TCP flow for long, which fits dips that \
         come \"sometimes\"; the fluid model has the rate between them.\n\n",
        n(rate),
        share(lost(Mechanism::None)?),
        share(lost(Mechanism::Queues)?.max(0.0)),
    ))
}
