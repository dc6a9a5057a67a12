//! Computes the examples of sections 2 and 3 (Fig. 1 to 5).

use weir_core::model::TopologyTemplate;
use weir_core::model::scenario::SendMode;
use weir_core::solve::{HierarchicalMaxMin, ServiceShares};
use weir_sim::service::Mechanism;

use super::Context;
use super::scenario::{ScenarioBuilder, final_rates, mbit_rate};
use crate::markdown::{format_cell, table};
use weir_console::failure::Failure;

pub(super) const TCP: SendMode = SendMode::Elastic;

/// The section of the page: the examples, published and measured.
pub(super) fn section(context: &Context<'_>) -> Result<String, Failure> {
    let row = |example: &str, section: &str, published: &str, rates: &[f64]| {
        let measured = rates.iter().map(|&rate| format_cell(rate)).collect::<Vec<_>>().join(", ");
        [example, section, published, &measured].map(str::to_owned).to_vec()
    };
    let mut rows = Vec::new();
    for (example, section, published, scenario) in queue_examples() {
        let rates = final_rates(&scenario.simulate(Mechanism::Queues, context)?);
        rows.push(row(
            example,
            section,
            published,
            &rates.iter().map(|rate| rate / 1000.0).collect::<Vec<_>>(),
        ));
    }
    let excess = Some([2.0, 1.0, 1.0]);
    for (example, published, rates) in [
        ("Fig. 5, all three send", "3.33, 3.33, 3.33", fig5(excess, f64::INFINITY)),
        ("Fig. 5, A3 idles, weights alone", "5, 5, 0", fig5(None, 0.0)),
        ("Fig. 5, A3 idles, excess 2:1", "5.55, 4.4, 0", fig5(excess, 0.0)),
    ] {
        rows.push(row(example, "3.3", published, &rates));
    }
    Ok(format!(
        "## Fig. 1 to 5: the examples\n\n\
         Fig. 1 to 4 run on their networks with a queue for each service. The rates of Fig. 5 are those of the central \
         allocator. The paper rounds 6.67, 5.56 and 4.44 down.\n\
         {}",
        table(&["Gbit/s", "section", "published", "measured"], 3, &rows)
    ))
}

/// Fig. 1 to 4.
fn queue_examples() -> [(&'static str, &'static str, &'static str, ScenarioBuilder); 6] {
    let (weights, by_service) = ([4.0, 1.0, 1.0], [0, 1, 1, 2]);
    let (services, connections) =
        (fig3(&weights, by_service, TCP, TCP), fig3(&[4.0, 1.0, 1.0, 1.0], [0, 1, 2, 3], TCP, TCP));
    let limited = SendMode::Capped(mbit_rate(6000.0));
    let fig2 = ScenarioBuilder::new(TopologyTemplate::NetShareFig3, &weights, 1.0)
        .flow(0, "H5", "H6", TCP)
        .flow(1, "H1", "H4", TCP)
        .flow(2, "H3", "H8", TCP);
    [
        ("Fig. 1, weights 4:1:1: A1, A2 to E2, A2 to E3, A3", "2", "8, 1, 1, 9", fig1(TCP)),
        ("the same, A1 needs 6", "2", "6, 2, 2, 8", fig1(limited)),
        ("Fig. 2: A1, A2, A3", "3.1", "8, 2, 8", fig2),
        ("Fig. 3, queues of services: A1, H1, H2, H3", "3.1", "8, 1, 1, 9", services),
        ("Fig. 3, queues of connections: A1, H1, H2, H3", "3.1", "6.6, -, -, -", connections),
        ("Fig. 4, greedy UDP, queues alone: A1, H1, H2, H3", "3.2", "-, 1, -, 5", fig4(5000.0)),
    ]
}

fn fig1(a1: SendMode) -> ScenarioBuilder {
    ScenarioBuilder::new(TopologyTemplate::NetShareFig1, &[4.0, 1.0, 1.0], 1.0)
        .flow(0, "E1-A1", "E2-A1", a1)
        .flow(1, "E1-A2", "E2-A2", TCP)
        .flow(1, "E1-A2", "E3-A2", TCP)
        .flow(2, "E4-A3", "E3-A3", TCP)
}

/// Fig. 3: the flows of A1, H1, H2 and H3. `queues` has the service of each, and so its queue.
fn fig3(weights: &[f64], queues: [usize; 4], h1: SendMode, h2: SendMode) -> ScenarioBuilder {
    ScenarioBuilder::new(TopologyTemplate::NetShareFig3, weights, 1.0)
        .flow(queues[0], "H5", "H6", TCP)
        .flow(queues[1], "H1", "H4", h1)
        .flow(queues[2], "H2", "H7", h2)
        .flow(queues[3], "H3", "H8", TCP)
}

/// Fig. 4: H1 sends UDP at 10 Gbit/s, and H2 sends UDP at `h2` Mbit/s. H1 delivers 1 Gbit/s if equal rates of H1 and H2
/// arrive at C1, which holds if `h2` is 5 Gbit/s.
pub(super) fn fig4(h2: f64) -> ScenarioBuilder {
    let udp = |rate| SendMode::Unresponsive(mbit_rate(rate));
    fig3(&[4.0, 1.0, 1.0], [0, 1, 1, 2], udp(10_000.0), udp(h2))
}

/// Fig. 5: the central allocator's rates in Gbit/s on a link of 10 Gbit/s, with equal weights. A1 and A2 have unlimited
/// demands, A3 has a demand of `a3_demand_gbit` Gbit/s.
pub(super) fn fig5(excess: Option<[f64; 3]>, a3_demand_gbit: f64) -> [f64; 3] {
    let weights = [1.0; 3];
    let shares = excess
        .map_or_else(|| ServiceShares::weighted(&weights), |own| ServiceShares::with_excess(&weights, &own));
    let mut link = HierarchicalMaxMin::new(&[10.0], shares.expect("the paper's weights are valid"))
        .expect("the network has one link, of a valid capacity");
    let demands = [(0, f64::INFINITY), (1, f64::INFINITY), (2, a3_demand_gbit)];
    let ids = demands.map(|(service, demand)| {
        link.add_class(service, &[0], 1, demand).expect("the path is this link, and demands are valid")
    });
    link.solve();
    ids.map(|id| link.rate(id))
}
