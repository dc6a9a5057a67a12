//! Measures Table 2 of Saath: the processor time and memory of a coordinator and of agents. Also measures the latency of orders
//! by the number of hosts.

mod measure;

use weir_agent::live::load_generator;
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_coordinator::control_plane::Settings;
use weir_sim::outcome::{mean, percentile};

use crate::markdown::{format_cell, table};
use measure::{AGENT_PROCESSES, Overheads, SAMPLE_INTERVAL, Usage};

/// The numbers of hosts. The first one is that of the paper's testbed.
const HOSTS: [u32; 4] = [150, 200, 250, 300];

/// Table 2: the mean and the 90th percentile under Saath.
const PUBLISHED: [(&str, &str, f64, f64); 5] = [
    ("coordinator", "CPU, % of a core", 37.8, 42.7),
    ("coordinator", "memory, MB", 229.0, 284.0),
    ("coordinator", "schedule, ms", 0.57, 2.85),
    ("agent", "CPU, % of a core", 5.6, 5.7),
    ("agent", "memory, MB", 1.68, 1.7),
];

/// The section of the page: published and measured overheads.
pub(super) fn section(progress: &Progress) -> Result<String, Failure> {
    let bar = progress.add_step_bar("overheads", HOSTS.len());
    let mut all = Vec::new();
    for hosts in HOSTS {
        all.push(measure::measure(hosts)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(text(&all))
}

fn text(all: &[Overheads]) -> String {
    let (interval, coflows) = (
        format_cell(Settings::default().interval * 1e3),
        load_generator::STEADY_COFLOWS + load_generator::ENDING_COFLOWS,
    );
    let mut out = format!(
        "A coordinator under `saath` (`weir serve`) with {} hosts, {coflows} coflows and {} flows computes a schedule every \
         {interval} ms.\n\n\
         - {AGENT_PROCESSES} hosts have an agent process (`weir agent run`) with {} sockets, each with little traffic. The \
         agents of the other hosts are tasks of one further process. They have the same streams to the coordinator, but no \
         sockets.\n\
         - Each host has {} flows that send at their ordered rates; agents report them in full every second. In addition, \
         four flows per second end at each host, and each end changes the schedule.\n\
         - All processes run on this machine and connect over loopback without TLS. The paper has one machine for each \
         process.\n\
         - CPU and memory are sampled every {} s. Memory is the resident set, in MB of 10^6 bytes. The P90 of schedules is \
         the upper bound of a histogram bucket.\n",
        HOSTS[0],
        coflows * HOSTS[0],
        load_generator::STEADY_COFLOWS,
        load_generator::STEADY_COFLOWS,
        SAMPLE_INTERVAL.as_secs_f64(),
    );
    out.push_str(&usage_table(&all[0]));
    out.push_str(&format!(
        "The latency of an order is the time from the report of an agent to the receipt of the order that answers it. The \
         latency includes the wait for the next schedule, up to {interval} ms. Agents report three to eight sixteenths of an \
         interval after the earliest time at which orders arrive. The coordinator and the agents in tasks share the \
         processors, which limits the number of hosts.\n",
    ));
    out + &latency_table(all)
}

fn usage_table(measured: &Overheads) -> String {
    let mean_and_p90 = |samples: &[Usage], value: fn(&Usage) -> f64| {
        let values: Vec<f64> = samples.iter().map(value).collect();
        (mean(&values), percentile(&values, 90.0))
    };
    let (cpu, memory) = (|usage: &Usage| usage.cpu * 100.0, |usage: &Usage| usage.memory_bytes / 1e6);
    let figures = [
        mean_and_p90(&measured.coordinator, cpu),
        mean_and_p90(&measured.coordinator, memory),
        (measured.schedule_secs.0 * 1e3, measured.schedule_secs.1 * 1e3),
        mean_and_p90(&measured.agents, cpu),
        mean_and_p90(&measured.agents, memory),
    ];
    let line = |(&(process, quantity, mean, p90), figures): (&(&str, &str, f64, f64), (f64, f64))| {
        let names = [process, quantity].map(str::to_owned);
        names.into_iter().chain([mean, p90, figures.0, figures.1].map(format_cell)).collect()
    };
    let lines: Vec<Vec<String>> = PUBLISHED.iter().zip(figures).map(line).collect();
    table(&["", "", "published: mean", "P90", "measured: mean", "P90"], 2, &lines)
}

fn latency_table(all: &[Overheads]) -> String {
    let line = |measured: &Overheads| {
        let latencies =
            [50.0, 90.0, 99.0].map(|p| format_cell(percentile(&measured.latencies_secs, p) * 1e3));
        let cpu: Vec<f64> = measured.coordinator.iter().map(|usage| usage.cpu * 100.0).collect();
        let counts = [measured.hosts.to_string(), measured.latencies_secs.len().to_string()];
        let schedule_and_cpu = [format_cell(measured.schedule_secs.0 * 1e3), format_cell(mean(&cpu))];
        counts.into_iter().chain(latencies).chain(schedule_and_cpu).collect()
    };
    let head = ["hosts", "orders", "median, ms", "P90", "P99", "mean schedule, ms", "coordinator's CPU, %"];
    table(&head, 1, &all.iter().map(line).collect::<Vec<_>>())
}
