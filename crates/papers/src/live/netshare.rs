//! NetShare, section 5.3: TCP and UDP over the testbed's links (Table 2, Fig. 12 to 15).

mod causes;

use weir_core::model::scenario::Scenario;
use weir_core::units::Time;
use weir_sim::service::{Mechanism, Shared};
use weir_testbed::{Name, Phase};

use crate::doc::{n, table, yes};
use crate::netshare::{MBIT, VARIANTS, table_2};
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::share;
use weir_console::testbed;

/// What every link carries, in Mbit/s.
const LINK: f64 = 1000.0;

/// How far a measured share of a link may be from the published one, in points.
const POINTS: f64 = 3.0;

/// In phases of so many seconds rates settle within the first half.
const SETTLED: f64 = 10.0;

/// A rate that the text of section 5.3 has, from the lowest to the highest that it can mean, in Mbit/s.
struct Published {
    what: &'static str,
    words: &'static str,
    mechanism: Mechanism,
    phase: usize,
    service: usize,
    range: (f64, f64),
}

/// In the order of the text.
fn published() -> Vec<Published> {
    use Mechanism::{None, Queues, QueuesThrottling, Throttling};
    let claim = |what, words, mechanism, phase, service, range| Published {
        what,
        words,
        mechanism,
        phase,
        service,
        range,
    };
    vec![
        claim("queues and throttling, phase 1: A1", "gets 250 Mbps", QueuesThrottling, 0, 0, (250.0, 250.0)),
        claim("A2", "gets 750 Mbps", QueuesThrottling, 0, 1, (750.0, 750.0)),
        claim("phase 4: A1", "close to 725Mbps", QueuesThrottling, 3, 0, (725.0, 725.0)),
        claim("A2", "only 250 Mbps ... is useful", QueuesThrottling, 3, 1, (250.0, 250.0)),
        claim("no mechanism, phase 1: A1", "receives zero throughput", None, 0, 0, (0.0, 0.0)),
        claim("phase 3: A1", "sometimes as low as 750 Mbps", None, 2, 0, (750.0, 750.0)),
        claim("queues alone, phase 4: A1", "also receives only 250Mbps", Queues, 3, 0, (250.0, 250.0)),
        claim("A2", "only receives 250Mbps", Queues, 3, 1, (250.0, 250.0)),
        claim(
            "throttling alone, phase 1: A1",
            "similar to the case without any DRR",
            Throttling,
            0,
            0,
            (0.0, 0.0),
        ),
        claim("phase 4: A1", "nearly 450-500Mbps", Throttling, 3, 0, (450.0, 500.0)),
    ]
}

/// A run of one variant: simulated and measured.
struct Run {
    mechanism: Mechanism,
    figure: &'static str,
    simulated: Shared,
    measured: Vec<Phase>,
}

/// Published, simulated and measured.
///
/// # Errors
/// If it cannot be measured here, or is ended early.
pub(super) fn section(bed: &Name, phase: Time, progress: &Progress) -> Result<String, Failure> {
    let scenario = table_2(phase.get() / 30.0);
    let mut runs = Vec::new();
    for (mechanism, figure) in VARIANTS.into_iter().filter(|(mechanism, _)| !mechanism.allocates()) {
        runs.push((mechanism, figure, share(&scenario, mechanism, progress)?));
    }
    let runs = testbed::on_a_bed(bed, &scenario.topology, |bed| {
        let measure = |(mechanism, figure, simulated): (_, _, Shared)| {
            let measured = testbed::measure(bed, &scenario, mechanism, &simulated, progress)?;
            Ok(Run { mechanism, figure, simulated, measured })
        };
        runs.into_iter().map(measure).collect::<Result<Vec<_>, Failure>>()
    })?;
    Ok(text(&scenario, phase, &runs) + &causes::section(bed, scenario, phase, progress)?)
}

fn text(scenario: &Scenario, phase: Time, runs: &[Run]) -> String {
    let mut out = format!(
        "## NetShare, section 5.3: queues, throttling, both and neither\n\n\
         The network of Fig. 6 with links of {} Gbit/s, {} hosts. A1 sends by TCP from H1 to H5, A2 by UDP from H2 to H9 and A3 by UDP from H7 to H10 (the \
         text has H3, which is not behind E2, whose link A3 has in common with A1's acknowledgements by Table 2), both as \
         fast as their hosts' links; weights 1:3:9. Four phases of {} s (Table 2): A1 and A2; A2 and A3; A1 and A3; all. Queues are classes of HTB at \
         every port of the switches. For throttling, receivers report every 50 ms what arrives over the same links, and hosts \
         follow by Algorithm 1; here the programs that send and receive do both themselves, not agents. What A2 sends under throttling (\"275 Mbps\", \
         \"a little over 500Mbps\") is not measured: what arrives is. Rates in Mbit/s with headers, measured over the second half of each phase.\n\n\
         What the text of section 5.3 says. A point is 1 % of a link; of a range, the nearer end counts.\n",
        n(LINK / 1000.0),
        scenario.topology.hosts(),
        n(phase.get()),
    );
    if phase.get() < SETTLED {
        out.push_str(&format!(
            "\n**Phases are shorter than {SETTLED} s, in which TCP and throttling do not settle: what follows says little.**\n"
        ));
    }
    let found = |claim: &Published| {
        let run = runs.iter().find(|run| run.mechanism == claim.mechanism).expect("all of them were run");
        let simulated = run.simulated.by_service(&run.simulated.phases[claim.phase].last)[claim.service];
        let measured = run.simulated.by_service(&run.measured[claim.phase].late)[claim.service];
        (simulated / MBIT, measured / MBIT)
    };
    let mut held = 0;
    let claims = published();
    let lines: Vec<Vec<String>> = claims
        .iter()
        .map(|claim| {
            let (simulated, measured) = found(claim);
            let (low, high) = claim.range;
            let points = 100.0 * (measured - measured.clamp(low, high)).abs() / LINK;
            held += usize::from(points <= POINTS);
            let range = if low == high { n(low) } else { format!("{} to {}", n(low), n(high)) };
            vec![
                claim.what.to_owned(),
                format!("\"{}\"", claim.words),
                range,
                n(simulated),
                n(measured),
                n(points),
                yes(points <= POINTS),
            ]
        })
        .collect();
    let within = format!("within {POINTS} points");
    let head = ["", "the text", "published", "simulated", "measured", "points apart", &within];
    out.push_str(&table(&head, 2, &lines));
    out.push_str(&format!("{held} of {} are within {POINTS} points.\n\n", claims.len()));
    out.push_str("All of it: measured, and in brackets simulated.\n");
    out.push_str(&everything(runs));
    out
}

fn everything(runs: &[Run]) -> String {
    let mut lines = Vec::new();
    for run in runs {
        for (number, (simulated, measured)) in run.simulated.phases.iter().zip(&run.measured).enumerate() {
            let [simulated, measured] =
                [&simulated.last, &measured.late].map(|rates| run.simulated.by_service(rates));
            let cells = simulated.iter().zip(&measured).map(|(simulated, measured)| {
                if *simulated == 0.0 && *measured < MBIT {
                    "-".to_owned()
                } else {
                    format!("{} ({})", n(measured / MBIT), n(simulated / MBIT))
                }
            });
            let head = [run.mechanism.name().to_owned(), run.figure.to_owned(), (number + 1).to_string()];
            lines.push(head.into_iter().chain(cells).collect());
        }
    }
    table(&["", "figure", "phase", "A1", "A2", "A3"], 3, &lines)
}
