//! Simulates section 5.3: a TCP flow and two UDP flows (Table 2, Fig. 12 to 15).

use weir_console::chart::{DotRow, Scale};
use weir_core::model::TopologyTemplate;
use weir_core::model::scenario::SendMode;
use weir_sim::service::{Mechanism, ScenarioOutcome};

use super::Context;
use super::scenario::{MBIT, ScenarioBuilder, mbit_rate};
use crate::claim::{Claim, claims_table};
use crate::markdown::{format_cell, table};
use crate::picture::{Pictures, published_next_to_measured};
use weir_console::failure::Failure;

/// The phases of Table 2.
const PHASE_NAMES: [&str; 4] = ["5-35 s", "35-65 s", "65-95 s", "95-125 s"];

/// The mechanisms and their figures. The paper has no experiment with central allocation.
pub(in super::super) const MECHANISMS: [(Mechanism, &str); 6] = [
    (Mechanism::QueuesThrottling, "Fig. 12"),
    (Mechanism::None, "Fig. 13"),
    (Mechanism::Queues, "Fig. 14"),
    (Mechanism::Throttling, "Fig. 15"),
    (Mechanism::Central, "none"),
    (Mechanism::QueuesCentral, "none"),
];

/// The scenario of Table 2. The durations of the phases are `time_scale` times those of the paper.
#[cfg(all(feature = "live", target_os = "linux"))]
pub(crate) fn table_2_scenario(time_scale: f64) -> weir_core::model::scenario::Scenario {
    scenario_builder(time_scale).0
}

/// Builds the scenario of Table 2. Weights are 1:3:9; the "weight 2" of A2 in the text is 3 everywhere else. A1 sends TCP, A2
/// and A3 send UDP at the rate of their links. A3's sender is under E2, as the bottlenecks in Table 2 require.
pub(super) fn scenario_builder(time_scale: f64) -> ScenarioBuilder {
    let udp = SendMode::Unresponsive(mbit_rate(1000.0));
    let scaled = |time: f64| time_scale * time;
    ScenarioBuilder::new(TopologyTemplate::NetShareFig6, &[1.0, 3.0, 9.0], scaled(125.0))
        .flow(0, "H1", "H5", SendMode::Elastic)
        .flow(1, "H2", "H9", udp)
        .flow(2, "H7", "H10", udp)
        .active(0, &[(scaled(5.0), scaled(35.0)), (scaled(65.0), scaled(125.0))])
        .active(1, &[(scaled(5.0), scaled(65.0)), (scaled(95.0), scaled(125.0))])
        .active(2, &[(scaled(35.0), scaled(125.0))])
}

/// The runs of Table 2's scenario under each mechanism.
pub(super) struct Table2(Vec<(Mechanism, &'static str, ScenarioOutcome)>);

impl Table2 {
    /// Simulates the scenario under each mechanism.
    pub(super) fn run(context: &Context<'_>) -> Result<Table2, Failure> {
        let builder = scenario_builder(1.0);
        let run = |(mechanism, figure)| Ok((mechanism, figure, builder.simulate(mechanism, context)?));
        Ok(Table2(MECHANISMS.into_iter().map(run).collect::<Result<_, Failure>>()?))
    }

    fn outcome(&self, mechanism: Mechanism) -> &ScenarioOutcome {
        &self.0.iter().find(|run| run.0 == mechanism).expect("`MECHANISMS` lists every mechanism").2
    }

    /// The rate at which a service receives at the end of a phase, in Mbit/s.
    pub(super) fn received_mbit(&self, mechanism: Mechanism, phase: usize, service: usize) -> f64 {
        self.outcome(mechanism).phases[phase].final_rates[service] / MBIT
    }

    /// The rate at which a service sends at the end of a phase, in Mbit/s.
    pub(super) fn sent_mbit(&self, mechanism: Mechanism, phase: usize, service: usize) -> f64 {
        self.outcome(mechanism).phases[phase].final_sent_rates[service] / MBIT
    }
}

/// The figures in the text of the paper.
pub(super) fn claims(runs: &Table2) -> [Claim; 10] {
    use Mechanism::{None, Queues, QueuesThrottling, Throttling};
    let claim = |subject, citation, published, mechanism, phase, service| {
        Claim::number(subject, citation, published, runs.received_mbit(mechanism, phase, service))
    };
    let queues_throttling = QueuesThrottling;
    [
        claim(
            "queues and throttling, 5-35 s: A1",
            "5.3: \"A1 gets 250 Mbps\"",
            250.0,
            queues_throttling,
            0,
            0,
        ),
        claim("A2", "5.3: \"A2 gets 750 Mbps\"", 750.0, queues_throttling, 0, 1),
        claim("95-125 s: A1", "5.3: \"close to 725Mbps\"", 725.0, queues_throttling, 3, 0),
        claim("A2", "5.3: \"only 250 Mbps ... is useful\"", 250.0, queues_throttling, 3, 1),
        Claim::number(
            "A2 sends",
            "5.3: \"275 Mbps (250 * 1.1)\"",
            275.0,
            runs.sent_mbit(queues_throttling, 3, 1),
        ),
        claim("no mechanism, 5-35 s: A1", "5.3: \"receives zero throughput\"", 0.0, None, 0, 0),
        claim("65-95 s: A1", "5.3: \"sometimes as low as 750 Mbps\"", 750.0, None, 2, 0),
        claim("queues alone, 95-125 s: A1", "5.3: \"also receives only 250Mbps\"", 250.0, Queues, 3, 0),
        claim("A2", "5.3: \"only receives 250Mbps\"", 250.0, Queues, 3, 1),
        claim(
            "throttling alone, 95-125 s: A1",
            "5.3: \"nearly 450-500Mbps\", its lower end",
            450.0,
            Throttling,
            3,
            0,
        ),
    ]
}

/// The section of the page.
pub(super) fn section(runs: &Table2, claims: &[Claim], pictures: &mut Pictures) -> String {
    format!(
        "## Section 5.3: rate throttling (Table 2, Fig. 12 to 15)\n\n\
         A1 sends TCP; A2 and A3 send UDP at 1 Gbit/s. The weights are 1:3:9. Rates are in Mbit/s at the end of each phase. \
         The paper attributes A1's dips to 750 Mbit/s in the third phase to lost acknowledgements, which the simulator does \
         not model.\n\
         {}{}The rates of all phases. The mean over a phase is in brackets if it differs from the rate at the end. The paper \
         has no experiment with central allocation.\n\
         {}",
        claims_table(claims),
        pictures.add(
            "throttling",
            "Rates of A1 and A2 under each mechanism: published and measured",
            "The rates of the table, by mechanism and phase.",
            published_next_to_measured("Mbit/s", Scale::Linear, None, rows_by_mechanism(claims)),
        ),
        phases_table(runs)
    )
}

/// The claims as rows of a plot, below the names of mechanisms. A subject is `MECHANISM, PHASE: FLOW`, `PHASE: FLOW` with the mechanism
/// of the claim before, or `FLOW` with its phase, too.
fn rows_by_mechanism(claims: &[Claim]) -> Vec<DotRow> {
    let (mut rows, mut phase) = (Vec::new(), "");
    for claim in claims {
        let Some(row) = claim.to_row() else { continue };
        let flow = match claim.subject().split_once(": ") {
            Some((place, flow)) => {
                phase = place;
                if let Some((mechanism, name)) = place.split_once(", ") {
                    rows.push(DotRow::heading(mechanism));
                    phase = name;
                }
                flow
            }
            None => claim.subject(),
        };
        rows.push(DotRow { name: format!("{phase}: {flow}"), ..row });
    }
    rows
}

fn phases_table(runs: &Table2) -> String {
    let mut rows = Vec::new();
    for (mechanism, figure, outcome) in &runs.0 {
        for (phase, name) in outcome.phases.iter().zip(PHASE_NAMES) {
            let cells = phase.final_rates.iter().zip(&phase.mean_rates).map(|(last, mean)| {
                let (last, mean) = (format_cell(last / MBIT), format_cell(mean / MBIT));
                if last == mean { last } else { format!("{last} ({mean})") }
            });
            let text = [mechanism.name().to_owned(), (*figure).to_owned(), name.to_owned()];
            rows.push(text.into_iter().chain(cells).collect());
        }
    }
    table(&["mechanism", "figure", "phase", "A1", "A2", "A3"], 3, &rows)
}
