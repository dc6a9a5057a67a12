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

/// The policies of Table 2. Without work conservation, a schedule of Saath has only the first two of the steps whose times the paper names:
/// the order of coflows, all-or-none, and the rest, "for assigning rates for work conservation" (section 7.3).
const POLICIES: [&str; 3] = ["saath", "aalo", "saath:work-conservation=off"];

/// The number of sockets of an agent process: by default, and at the host with most flows of the public trace (1,082 open flows at a port).
const SOCKETS: [u32; 2] = [load_generator::STEADY_COFLOWS, 1000];

/// Table 2: the mean and the 90th percentile under Saath and Aalo.
const PUBLISHED: [(&str, &str, [f64; 4]); 5] = [
    ("coordinator", "CPU, % of a core", [37.8, 42.7, 33.5, 35.5]),
    ("coordinator", "memory, MB", [229.0, 284.0, 267.0, 374.0]),
    ("coordinator", "schedule, ms", [0.57, 2.85, 0.1, 0.2]),
    ("agent", "CPU, % of a core", [5.6, 5.7, 5.5, 5.7]),
    ("agent", "memory, MB", [1.68, 1.7, 1.75, 1.78]),
];

/// Table 2: the mean times of two steps of a schedule of Saath, in ms.
const PUBLISHED_STEPS: &str = "0.57, of them 0.02 for the order of coflows and 0.24 for all-or-none";

/// The section of the page: published and measured overheads.
pub(super) fn section(progress: &Progress) -> Result<String, Failure> {
    let [table_2, more_hosts @ ..] = HOSTS;
    let bar = progress.add_step_bar("overheads", POLICIES.len() + 1 + more_hosts.len());
    let measure = |policy, hosts, sockets| {
        let measured = measure::measure(policy, hosts, sockets);
        bar.inc(1);
        measured
    };
    let of_policies = POLICIES.map(|policy| measure(policy, table_2, SOCKETS[0]));
    let of_policies = of_policies.into_iter().collect::<Result<Vec<_>, _>>()?;
    let with_sockets = measure(POLICIES[0], table_2, SOCKETS[1])?;
    let with_hosts = more_hosts.map(|hosts| measure(POLICIES[0], hosts, SOCKETS[0]));
    let with_hosts = with_hosts.into_iter().collect::<Result<Vec<_>, _>>()?;
    bar.finish_and_clear();
    Ok(text(&of_policies, &with_sockets, &with_hosts))
}

/// The section: each policy at the paper's number of hosts, the first one with more sockets, and with more hosts.
fn text(of_policies: &[Overheads], with_sockets: &Overheads, with_hosts: &[Overheads]) -> String {
    let (interval, coflows) = (
        format_cell(Settings::default().interval * 1e3),
        load_generator::STEADY_COFLOWS + load_generator::ENDING_COFLOWS,
    );
    let mut out = format!(
        "A coordinator (`weir serve`) with {} hosts, {coflows} coflows and {} flows computes a schedule every {interval} ms.\n\n\
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
    out.push_str(&usage_table(of_policies));
    out.push_str(&format!(
        "Without work conservation (`{}`), a schedule takes {} ms in the mean, and {} ms with it. Published: {PUBLISHED_STEPS}. The \
         rest is work conservation.\n\n",
        POLICIES[2],
        format_cell(of_policies[2].schedule_secs.0 * 1e3),
        format_cell(of_policies[0].schedule_secs.0 * 1e3),
    ));
    out.push_str(&format!("An agent with more sockets under `{}`:\n", POLICIES[0]));
    out.push_str(&sockets_table([&of_policies[0], with_sockets]));
    out.push_str(&format!(
        "The latency of an order is the time from the report of an agent to the receipt of the order that answers it. The \
         latency includes the wait for the next schedule, up to {interval} ms. Agents report three to eight sixteenths of an \
         interval after the earliest time at which orders arrive. The coordinator and the agents in tasks share the \
         processors, which limits the number of hosts.\n",
    ));
    out + &latency_table(of_policies.iter().take(1).chain(with_hosts))
}

/// The mean and the 90th percentile of samples.
fn mean_and_p90(samples: &[Usage], value: fn(&Usage) -> f64) -> [f64; 2] {
    let values: Vec<f64> = samples.iter().map(value).collect();
    [mean(&values), percentile(&values, 90.0)]
}

fn cpu_percent(usage: &Usage) -> f64 {
    usage.cpu * 100.0
}

fn megabytes(usage: &Usage) -> f64 {
    usage.memory_bytes / 1e6
}

/// Published and measured figures under the first two policies.
fn usage_table(measured: &[Overheads]) -> String {
    let figures = |measured: &Overheads| {
        [
            mean_and_p90(&measured.coordinator, cpu_percent),
            mean_and_p90(&measured.coordinator, megabytes),
            [measured.schedule_secs.0 * 1e3, measured.schedule_secs.1 * 1e3],
            mean_and_p90(&measured.agents, cpu_percent),
            mean_and_p90(&measured.agents, megabytes),
        ]
    };
    let [saath, aalo] = [0, 1].map(|policy| figures(&measured[policy]));
    let line = |(at, &(process, quantity, published)): (usize, &(&str, &str, [f64; 4]))| {
        let [saath_mean, saath_p90, aalo_mean, aalo_p90] = published;
        let numbers = [[saath_mean, saath_p90], saath[at], [aalo_mean, aalo_p90], aalo[at]];
        let names = [process, quantity].map(str::to_owned);
        names.into_iter().chain(numbers.concat().into_iter().map(format_cell)).collect()
    };
    let lines: Vec<Vec<String>> = PUBLISHED.iter().enumerate().map(line).collect();
    let saath = ["Saath, published: mean", "P90", "`saath`: mean", "P90"];
    let aalo = ["Aalo, published: mean", "P90", "`aalo`: mean", "P90"];
    table(&[&["", ""][..], &saath, &aalo].concat(), 2, &lines)
}

/// What an agent process uses, by its sockets.
fn sockets_table(measured: [&Overheads; 2]) -> String {
    let line = |(sockets, measured): (u32, &Overheads)| {
        let figures = [cpu_percent, megabytes].map(|value| mean_and_p90(&measured.agents, value)).concat();
        [sockets.to_string()].into_iter().chain(figures.into_iter().map(format_cell)).collect()
    };
    let lines: Vec<Vec<String>> = SOCKETS.into_iter().zip(measured).map(line).collect();
    table(&["sockets", "CPU, % of a core: mean", "P90", "memory, MB: mean", "P90"], 1, &lines)
}

fn latency_table<'a>(all: impl Iterator<Item = &'a Overheads>) -> String {
    let line = |measured: &Overheads| {
        let latencies =
            [50.0, 90.0, 99.0].map(|p| format_cell(percentile(&measured.latencies_secs, p) * 1e3));
        let [cpu, _] = mean_and_p90(&measured.coordinator, cpu_percent);
        let counts = [measured.hosts.to_string(), measured.latencies_secs.len().to_string()];
        let schedule_and_cpu = [format_cell(measured.schedule_secs.0 * 1e3), format_cell(cpu)];
        counts.into_iter().chain(latencies).chain(schedule_and_cpu).collect()
    };
    let head = ["hosts", "orders", "median, ms", "P90", "P99", "mean schedule, ms", "coordinator's CPU, %"];
    table(&head, 1, &all.map(line).collect::<Vec<_>>())
}
