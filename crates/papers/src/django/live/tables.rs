//! The tables of coflows under Django, Aalo+ and DCTCP.

use weir_sim::outcome::{mean, percentile};

use super::pulls::Pulls;
use super::scenario::{Comparison, FIRST, FIRST_RUNS, Measurement};
use crate::markdown::{format_cell, format_percent, table};

/// Table 2 of the paper: mean, P95 and P99 under Django and under DCTCP. The paper gives no unit.
const PUBLISHED_TABLE2: [[f64; 3]; 2] = [[15.7, 10.9, 133.6], [18.1, 30.1, 1037.9]];

/// Django's speedup over DCTCP in the paper's testbed (6.3: "around 1.3x").
const PUBLISHED_SPEEDUP: f64 = 1.3;

fn statistics(ccts: &[f64]) -> [f64; 3] {
    [mean(ccts), percentile(ccts, 95.0), percentile(ccts, 99.0)]
}

fn simulated(measurement: &Measurement) -> &[f64] {
    &measurement.simulated
}

fn measured(measurement: &Measurement) -> &[f64] {
    &measurement.measured
}

/// What differs, first.
pub fn summary(all: &[Comparison], pulls: &[Pulls]) -> String {
    let first = &all[FIRST];
    let [over_aalo, over_dctcp, p95_over_aalo, p95_over_dctcp] = first.speedups(measured);
    let [sim_over_aalo, sim_over_dctcp, ..] = first.speedups(simulated);
    let ratio =
        |measurement: &Measurement| format_cell(mean(&measurement.measured) / mean(&measurement.simulated));
    let best = pulls.iter().min_by(|a, b| a.measured.total_cmp(&b.measured)).expect("Fig. 2 has points");
    let lossy = pulls.iter().find(|pulls| pulls.ports.loss > 1e-3);
    let lossy = lossy.map_or("at no number of connections".to_owned(), |pulls| {
        format!("from {} connections on", pulls.connections)
    });
    format!(
        "## Summary\n\n\
         - **Differs from the paper**: Django's speedup of the mean over DCTCP is {} (published: {PUBLISHED_SPEEDUP}, section 6.3; simulated: {}), \
         and over Aalo+ {} (simulated: {}). Of P95: {} over DCTCP, {} over Aalo+.\n\
         - **Differs from the simulator**: measured means divided by simulated ones are {} under Django, {} under Aalo+, and {} under \
         DCTCP.\n\
         - **Fig. 2**: {} connections are the best of those measured (published: 11). The switch drops more than 0.1 % \
         {lossy}.\n\n",
        format_cell(over_dctcp),
        format_cell(sim_over_dctcp),
        format_cell(over_aalo),
        format_cell(sim_over_aalo),
        format_cell(p95_over_dctcp),
        format_cell(p95_over_aalo),
        ratio(&first.django),
        ratio(&first.aalo),
        ratio(&first.dctcp),
        best.connections,
    )
}

/// Table 2: CCTs of the testbed of the paper, of the simulator, and of this testbed.
pub fn table2(all: &[Comparison]) -> String {
    let first = &all[FIRST];
    let row = |policy: &str, source: &str, values: [f64; 3]| {
        [vec![policy.to_owned(), source.to_owned()], values.map(format_cell).to_vec()].concat()
    };
    let mut rows = Vec::new();
    let policies = [
        ("Django", &first.django, Some(PUBLISHED_TABLE2[0])),
        ("Aalo+", &first.aalo, None),
        ("DCTCP", &first.dctcp, Some(PUBLISHED_TABLE2[1])),
    ];
    for (name, measurement, published) in policies {
        rows.extend(published.map(|published| row(name, "published", published)));
        rows.push(row(name, "simulated", statistics(&measurement.simulated)));
        rows.push(row(name, "measured", statistics(&measurement.measured)));
    }
    format!(
        "## Table 2: seven servers\n\n\
         The first {} coflows of the trace that have a flow between two hosts, with {} flows. Port p of the trace is host p modulo \
         7; an eighth host has the coordinator. Senders use the library (`FlowSender`). Under DCTCP, they have no \
         agent. CCTs are in seconds, from the arrival of a coflow to its last byte; each is the median of {FIRST_RUNS} runs. The paper \
         gives no unit.\n{}",
        first.coflows,
        first.flows,
        table(&["policy", "", "mean", "P95", "P99"], 2, &rows),
    )
}

/// Fig. 5 to 8: Django's speedups.
pub fn speedups(all: &[Comparison]) -> String {
    let mut rows = Vec::new();
    for comparison in all {
        let mut add = |source: &str, values: [Option<f64>; 4]| {
            let cells = values.map(|value| value.map_or("-".to_owned(), format_cell));
            let names = [comparison.name.clone(), comparison.connections.to_string(), source.to_owned()];
            rows.push([names.to_vec(), cells.to_vec()].concat());
        };
        add("published", comparison.published);
        add("simulated", comparison.speedups(simulated).map(Some));
        add("measured", comparison.speedups(measured).map(Some));
    }
    let head = ["setup", "m", "", "mean, over Aalo+", "over DCTCP", "P95, over Aalo+", "over DCTCP"];
    format!(
        "## Fig. 5 to 8: speedups of Django\n\n\
         CCTs under another policy divided by those under Django. m is Django's number of connections, the buffer minus the marking \
         threshold (theorem 4.1). Published speedups are from ns-3 with 16 hosts (6.1, 6.4). The default buffer holds 100 packets, and the \
         default load is 1. Fig. 7: n concurrent coflows with one reducer on each host; a coflow starts when an earlier one ends. The \
         first setup is the median of {FIRST_RUNS} runs, the others ran once.\n{}",
        table(&head, 3, &rows),
    )
}

/// The CCTs, losses and queues of all setups.
pub fn queues(all: &[Comparison]) -> String {
    let mut rows = Vec::new();
    for comparison in all {
        let policies =
            [("Django", &comparison.django), ("Aalo+", &comparison.aalo), ("DCTCP", &comparison.dctcp)];
        for (name, Measurement { measured, simulated, ports, unscheduled, .. }) in policies {
            let [mean, p95, _] = statistics(measured);
            let [simulated_mean, simulated_p95, _] = statistics(simulated);
            rows.push(vec![
                comparison.name.clone(),
                name.to_owned(),
                format_cell(simulated_mean),
                format_cell(mean),
                format_cell(simulated_p95),
                format_cell(p95),
                format_percent(ports.loss),
                format_cell(ports.mean_queue),
                ports.max_queue.to_string(),
                format_percent(*unscheduled),
            ]);
        }
    }
    let head = [
        "setup",
        "policy",
        "mean CCT s, simulated",
        "measured",
        "P95 s, simulated",
        "measured",
        "loss",
        "mean queue",
        "max queue",
        "unscheduled",
    ];
    format!(
        "## CCTs, drops and queues\n\n\
         Queues are in packets, at the switch's ports to the seven hosts: the mean is that of all arriving packets. A flow is \
         unscheduled if its agent has no valid order when it ends.\n{}",
        table(&head, 2, &rows),
    )
}

/// The messages and the processor time of Django and Aalo+.
pub fn control(all: &[Comparison]) -> String {
    let mut rows = Vec::new();
    for comparison in all {
        let policies = [("Django", &comparison.django), ("Aalo+", &comparison.aalo)];
        for (name, measurement) in policies {
            let Some(control) = &measurement.control else { continue };
            let messages = control.matching_messages.map(|messages| messages.by_name());
            let counts = messages.map_or([const { String::new() }; 5].map(|_| "-".to_owned()), |messages| {
                messages.map(|(_, count)| format_cell(count as f64 / comparison.flows as f64))
            });
            let schedule_ms = 1e3 * control.schedules_secs / control.schedules.max(1) as f64;
            let agent_share = control.agents_secs / measurement.seconds / f64::from(super::WORKERS);
            let names = [comparison.name.clone(), name.to_owned()];
            let times = [format_cell(schedule_ms), format_percent(agent_share)];
            rows.push(names.into_iter().chain(counts).chain(times).collect());
        }
    }
    let head = [
        "setup",
        "policy",
        "REQ_CANDIDATE per flow",
        "REPLY_CHOSEN",
        "SEND_START",
        "SEND_PAUSE",
        "SEND_RECOVERY",
        "schedule, ms",
        "processor of an agent",
    ];
    format!(
        "## Messages and processor time\n\n\
         The messages of the paper's Table 1, divided by the number of flows. A schedule is one decision of the coordinator, until its \
         orders are queued; the time of an agent is that of its process, in percent of one processor.\n{}",
        table(&head, 2, &rows),
    )
}
