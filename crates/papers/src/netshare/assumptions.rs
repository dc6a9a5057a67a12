//! Writes the section with the assumptions that change a result most.

use weir_core::model::TopologyTemplate;
use weir_core::model::scenario::SendMode;
use weir_sim::service::Mechanism;

use super::Context;
use super::examples::{TCP, fig4, fig5};
use super::scaling::{PAYLOAD_FRACTION, Table3};
use super::scenario::{ScenarioBuilder, final_rates, mbit_rate};
use super::throttling::{self, Table2};
use crate::markdown::{format_cell, table};
use weir_console::failure::Failure;

/// The section of the page.
pub(super) fn section(context: &Context<'_>, table_2: &Table2, table_3: &Table3) -> Result<String, Failure> {
    let row = |assumption: &str, result: &str, published: &str, default: String, changed: String| {
        vec![assumption.to_owned(), result.to_owned(), published.to_owned(), default, changed]
    };
    let h1_gbit =
        |h2| Ok::<_, Failure>(final_rates(&fig4(h2).simulate(Mechanism::Queues, context)?)[1] / 1000.0);
    let mut rows = vec![row(
        "Fig. 4: H2 sends 10 Gbit/s, not 5",
        "H1, Gbit/s",
        "1",
        format_cell(h1_gbit(5000.0)?),
        format_cell(h1_gbit(10_000.0)?),
    )];
    let exact_rates = fig5(Some([2.0, 1.0, 1.0]), 0.0);
    for (assumption, a1) in fig5_with_enforcement(exact_rates, context)? {
        rows.push(row(assumption, "A1, Gbit/s", "5.55", format_cell(exact_rates[0]), format_cell(a1)));
    }
    rows.push(row(
        "throttling alone: the three flows start together",
        "A1, 95-125 s, Mbit/s",
        "450-500",
        format_cell(table_2.received_mbit(Mechanism::Throttling, 3, 0)),
        format_cell(rate_if_flows_start_together(context)?),
    ));
    rows.push(row(
        "central allocation: queues at the switches as well",
        "A1, 5-35 s, Mbit/s",
        "-",
        format_cell(table_2.received_mbit(Mechanism::Central, 0, 0)),
        format_cell(table_2.received_mbit(Mechanism::QueuesCentral, 0, 0)),
    ));
    let ((all_bytes, figures), (payload, _)) =
        (table_3.count_within_10_percent(1.0), table_3.count_within_10_percent(PAYLOAD_FRACTION));
    rows.push(row(
        "Table 3: payload only, 1,000 of 1,080 bytes as by ns-2's defaults",
        "figures within 10 % of the published",
        &figures.to_string(),
        all_bytes.to_string(),
        payload.to_string(),
    ));
    let table = table(&["assumption", "result", "published", "default", "changed"], 2, &rows);
    let a2 = format_cell(table_2.sent_mbit(Mechanism::Throttling, 3, 1));
    Ok(format!(
        "## Assumptions\n\n\
         The assumptions that change a result most, one at a time.\n\
         {table}- **Fig. 5 in the loop.** The loop of 3.3 measures rates over 50 ms, predicts demands by least squares, and lets \
         hosts send 10 % more than the allocator's rates. The paper predicts from \"offered traffic\". Here that is backlog: a \
         flow that always has data to send demands all bandwidth. A flow whose demand exceeds its rate gets no headroom. \
         Otherwise the queues decide, as in the first row, and excess weights do not work.\n\
         - **Throttling alone.** Algorithm 1 sets different limits for two UDP flows in one queue. The rate of the earlier \
         flow falls to 500 Mbit/s, and its limit is 10 % above that. The rate of the later flow rises to 500 Mbit/s, and its \
         limit is 20 % above that. The next measurement of the later flow is higher by less than 5 %. The limit becomes 10 % \
         above this rate, and stays there although the rate falls again. A2 is the later flow and sends {a2} Mbit/s.\n\
         - **Central allocation.** In Table 1, it requires no queues at routers. By the two rules above, that is true here: \
         A2's unresponsive sources are limited to their share, and A1's demand stays although it sends less at first.\n"
    ))
}

/// A1's rate in Gbit/s in Fig. 5 with the excess weights 2:1 while A3 idles, if hosts enforce the allocator's rates.
/// `exact_rates` are the allocator's rates for known demands, in Gbit/s.
fn fig5_with_enforcement(
    exact_rates: [f64; 3],
    context: &Context<'_>,
) -> Result<Vec<(&'static str, f64)>, Failure> {
    let two_flows = |sending: [SendMode; 2]| {
        let builder = ScenarioBuilder::new(TopologyTemplate::NetShareFig3, &[1.0; 3], 20.0);
        builder.flow(0, "H1", "H4", sending[0]).flow(1, "H3", "H8", sending[1])
    };
    let headroom =
        two_flows([0, 1].map(|service| SendMode::Capped(mbit_rate(exact_rates[service] * 1000.0 * 1.1))));
    let mut measured = two_flows([TCP; 2]);
    for (service, weight) in measured.0.services.iter_mut().zip([2.0, 1.0, 1.0]) {
        service.excess_weight = Some(weight);
    }
    let runs = [
        ("Fig. 5: hosts allow 10 % more (3.3)", &headroom, Mechanism::None),
        ("Fig. 5 in the loop: demands are measured (3.3)", &measured, Mechanism::Central),
        ("the same with queues", &measured, Mechanism::QueuesCentral),
    ];
    let run = |(name, builder, mechanism): (_, &ScenarioBuilder, _)| {
        Ok((name, final_rates(&builder.simulate(mechanism, context)?)[0] / 1000.0))
    };
    runs.into_iter().map(run).collect()
}

/// A1's rate in Mbit/s in the last phase of Table 2 with throttling alone, if no flow is active before that phase.
fn rate_if_flows_start_together(context: &Context<'_>) -> Result<f64, Failure> {
    let builder = (0..3)
        .fold(throttling::scenario_builder(1.0), |builder, demand| builder.active(demand, &[(95.0, 125.0)]));
    Ok(final_rates(&builder.simulate(Mechanism::Throttling, context)?)[0])
}
