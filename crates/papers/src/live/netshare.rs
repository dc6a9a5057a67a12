//! Measures section 5.3 of NetShare: TCP and UDP over the links of a testbed (Table 2, Fig. 12 to 15).

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::run_scenario;
use weir_console::testbed;
use weir_core::model::scenario::Scenario;
use weir_core::units::Time;
use weir_sim::service::{Mechanism, ScenarioOutcome};
use weir_testbed::{BedName, Phase};

use super::PAPER_PHASE_SECS;
use crate::markdown::{format_cell, table};
use crate::netshare::{MBIT, MECHANISMS, table_2_scenario};

/// The rate of every link, in Mbit/s.
const LINK_MBIT: f64 = 1000.0;

/// The shortest phase in which rates settle within the first half, in seconds.
const MIN_PHASE_SECS: f64 = 10.0;

/// The services, in the order of the scenario.
const SERVICES: [&str; 3] = ["A1", "A2", "A3"];

/// A rate in the text of section 5.3: mechanism, index of the phase, index of the service, quote, and range in Mbit/s.
type PublishedRate = (Mechanism, usize, usize, &'static str, (f64, f64));

/// The published rates, in the order of the text.
fn published_rates() -> [PublishedRate; 10] {
    use Mechanism::{None, Queues, QueuesThrottling, Throttling};
    [
        (QueuesThrottling, 0, 0, "gets 250 Mbps", (250.0, 250.0)),
        (QueuesThrottling, 0, 1, "gets 750 Mbps", (750.0, 750.0)),
        (QueuesThrottling, 3, 0, "close to 725Mbps", (725.0, 725.0)),
        (QueuesThrottling, 3, 1, "only 250 Mbps ... is useful", (250.0, 250.0)),
        (None, 0, 0, "receives zero throughput", (0.0, 0.0)),
        (None, 2, 0, "sometimes as low as 750 Mbps", (750.0, 750.0)),
        (Queues, 3, 0, "also receives only 250Mbps", (250.0, 250.0)),
        (Queues, 3, 1, "only receives 250Mbps", (250.0, 250.0)),
        (Throttling, 0, 0, "similar to the case without any DRR", (0.0, 0.0)),
        (Throttling, 3, 0, "nearly 450-500Mbps", (450.0, 500.0)),
    ]
}

/// Simulated and measured rates under a mechanism.
struct Run {
    mechanism: Mechanism,
    figure: &'static str,
    simulated: ScenarioOutcome,
    measured: Vec<Phase>,
}

impl Run {
    /// The simulated and the measured rates of all services in a phase, in Mbit/s.
    fn rates(&self, phase: usize) -> [Vec<f64>; 2] {
        [&self.simulated.phases[phase].final_rates, &self.measured[phase].second_half_rates]
            .map(|rates| self.simulated.sum_by_service(rates).iter().map(|rate| rate / MBIT).collect())
    }
}

/// The section of the page: published, simulated and measured rates.
pub(super) fn section(bed: &BedName, phase: Time, progress: &Progress) -> Result<String, Failure> {
    let scenario = table_2_scenario(phase.get() / PAPER_PHASE_SECS);
    let mut simulated = Vec::new();
    for (mechanism, figure) in MECHANISMS.into_iter().filter(|(mechanism, _)| !mechanism.has_allocator()) {
        simulated.push((mechanism, figure, run_scenario(&scenario, mechanism, progress)?));
    }
    let runs = testbed::with_bed(bed, &scenario.topology, |bed| {
        let measure = |(mechanism, figure, simulated): (_, _, ScenarioOutcome)| {
            let measured = testbed::measure_scenario(bed, &scenario, mechanism, &simulated, progress)?;
            Ok(Run { mechanism, figure, simulated, measured })
        };
        simulated.into_iter().map(measure).collect::<Result<Vec<_>, Failure>>()
    })?;
    Ok(text(&scenario, phase, &runs))
}

fn text(scenario: &Scenario, phase: Time, runs: &[Run]) -> String {
    let mut out = format!(
        "The network of Fig. 6: {} hosts, links of {} Gbit/s. A1 sends TCP from H1 to H5, A2 sends UDP from H2 to H9, and A3 \
         sends UDP from H7 to H10. All send up to the rate of their hosts' links. The weights are 1:3:9. In the text A3 \
         sends from H3. In Table 2, however, A3 shares a link with A1's acknowledgements, so A3 sends from H7 here. Four \
         phases of {} s (Table 2): A1 and A2; A2 and A3; A1 and A3; all three.\n\n\
         - Queues: an HTB class for each service at every port of a switch.\n\
         - Throttling: receivers report the received rate every 50 ms over the same links, and senders apply Algorithm 1. \
         The sending and receiving programs do both; no agent runs.\n\
         - Rates are in Mbit/s with headers, measured over the second half of each phase. Under throttling, only the rate \
         that arrives is measured, not the rate that A2 sends (\"275 Mbps\", \"a little over 500Mbps\").\n\n",
        scenario.topology.hosts(),
        format_cell(LINK_MBIT / 1000.0),
        format_cell(phase.get()),
    );
    if phase.get() < MIN_PHASE_SECS {
        out.push_str(&format!(
            "**Phases are shorter than {MIN_PHASE_SECS} s: TCP and throttling do not settle, so these rates are not meaningful.**\n\n"
        ));
    }
    out.push_str(
        "Rates in the text of section 5.3. A point is 1 % of a link. If a range is published, the distance is to its nearer \
         end.\n",
    );
    let lines: Vec<Vec<String>> = published_rates().iter().map(|rate| comparison_row(rate, runs)).collect();
    let head =
        ["mechanism", "phase", "service", "text", "published", "simulated", "measured", "points apart"];
    out.push_str(&table(&head, 4, &lines));
    out.push_str("All measured rates, with the simulated ones in brackets.\n");
    out + &rates_table(runs)
}

fn comparison_row(
    &(mechanism, phase, service, quote, (low, high)): &PublishedRate,
    runs: &[Run],
) -> Vec<String> {
    let run = runs.iter().find(|run| run.mechanism == mechanism).expect("`section` runs every mechanism");
    let [simulated, measured] = run.rates(phase).map(|rates| rates[service]);
    vec![
        mechanism.name().to_owned(),
        (phase + 1).to_string(),
        SERVICES[service].to_owned(),
        format!("\"{quote}\""),
        if low == high { format_cell(low) } else { format!("{} to {}", format_cell(low), format_cell(high)) },
        format_cell(simulated),
        format_cell(measured),
        format_cell(100.0 * (measured - measured.clamp(low, high)).abs() / LINK_MBIT),
    ]
}

fn rates_table(runs: &[Run]) -> String {
    let mut lines = Vec::new();
    for run in runs {
        for phase in 0..run.measured.len() {
            let [simulated, measured] = run.rates(phase);
            let cells = simulated.iter().zip(&measured).map(|(&simulated, &measured)| {
                let is_idle = simulated == 0.0 && measured < 1.0;
                if is_idle {
                    "-".to_owned()
                } else {
                    format!("{} ({})", format_cell(measured), format_cell(simulated))
                }
            });
            let head = [run.mechanism.name().to_owned(), run.figure.to_owned(), (phase + 1).to_string()];
            lines.push(head.into_iter().chain(cells).collect());
        }
    }
    table(&[&["mechanism", "figure", "phase"][..], &SERVICES].concat(), 3, &lines)
}
