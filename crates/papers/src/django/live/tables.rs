//! The tables of coflows under Django, Aalo+ and DCTCP.

use weir_sim::outcome::{mean, percentile};

use super::pulls::Pulls;
use super::scenario::{Comparison, FIRST, FIRST_RUNS, Measurement, PUBLISHED_TABLE2};
use crate::markdown::{format_cell, format_percent, table};

/// Published ratios of Fig. 5: the mean "to 85% and 65%" of Aalo+ and DCTCP, and P95 "to 60% and 23%" (6.1).
const PUBLISHED_FIG5: [f64; 4] = [0.85, 0.65, 0.60, 0.23];

/// The ratio to the lowest CCT up to which a number of connections is one of the best.
const BEST_TOLERANCE: f64 = 1.01;

/// The loss from which on the summary names a number of connections.
const MENTIONED_LOSS: f64 = 1e-3;

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
    let [measured_speedups, simulated_speedups] = [first.speedups(measured), first.speedups(simulated)];
    let sources = |at: usize| {
        let simulated = format_cell(simulated_speedups[at]);
        let published =
            first.published[at].map_or(String::new(), |value| format!("published: {}, ", format_cell(value)));
        format!("{} ({published}simulated: {simulated})", format_cell(measured_speedups[at]))
    };
    let ratio =
        |measurement: &Measurement| format_cell(mean(&measurement.measured) / mean(&measurement.simulated));
    let lowest = pulls.iter().map(|pulls| pulls.measured).fold(f64::INFINITY, f64::min);
    let best = pulls.iter().filter(|pulls| pulls.measured <= BEST_TOLERANCE * lowest);
    let best: Vec<String> = best.map(|pulls| pulls.connections.to_string()).collect();
    let lossy = pulls.iter().filter(|pulls| pulls.ports.loss > MENTIONED_LOSS);
    let lossy: Vec<String> = lossy.map(|pulls| pulls.connections.to_string()).collect();
    let lossy = if lossy.is_empty() { "none".to_owned() } else { lossy.join(", ") };
    format!(
        "## Summary\n\n\
         What differs from the paper and from the simulator:\n\n\
         - **Speedup of Django, seven servers**: of the mean over DCTCP {}, of P95 {}. Over Aalo+, of the mean {}, of P95 {}.\n\
         - **Measured means divided by simulated ones**: {} under Django, {} under Aalo+, and {} under DCTCP. The simulator has no \
         packets, time-outs, processors or messages. Which of them makes the difference was not measured.\n\
         - **Fig. 2**: the numbers of connections within 1 % of the lowest CCT are {} (published: 11). Those with more than 0.1 % loss: \
         {lossy}.\n\n",
        sources(1),
        sources(3),
        sources(0),
        sources(2),
        ratio(&first.django),
        ratio(&first.aalo),
        ratio(&first.dctcp),
        best.join(", "),
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
         The first {} coflows of the trace that have a flow between two hosts, with {} flows. The measured CCT of a coflow is the \
         median of {FIRST_RUNS} runs; the paper has at least 10. CCTs are in seconds; the paper gives no unit.\n{}",
        first.coflows,
        first.flows,
        table(&["policy", "", "mean", "P95", "P99"], 2, &rows),
    )
}

/// Fig. 5 to 8: Django's speedups.
pub fn speedups(all: &[Comparison]) -> String {
    let mut rows = Vec::new();
    let fig5 = PUBLISHED_FIG5.map(|ratio| format_cell(1.0 / ratio)).to_vec();
    rows.push([["Fig. 5, 16 hosts", "-", "published"].map(str::to_owned).to_vec(), fig5].concat());
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
         threshold (theorem 4.1). Published speedups are from ns-3 with 16 hosts (6.1, 6.4), except for those of Table 2, which are ratios \
         of its figures; the text has \"around 1.3x\" (6.3). The default buffer holds 100 packets, and the \
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
         Queues are in packets, at the switch's ports to the seven hosts: the mean is that of all arriving packets. Buffers hold the bytes of \
         so many full packets, so a queue with small packets, such as acknowledgements, has more. A flow is unscheduled if its agent has no valid order when it ends.\n{}",
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
            let counts = match control.matching_messages {
                Some(messages) => messages
                    .by_name()
                    .map(|(_, count)| format_cell(count as f64 / comparison.flows as f64))
                    .to_vec(),
                None => vec!["-".to_owned(); 5],
            };
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
