//! Saath, Table 2: what a coordinator and agents take, live; and how many agents there may be.

mod bench;

use std::time::Duration;

use weir_agent::live::crowd;
use weir_coordinator::plane::Settings;
use weir_sim::outcome::{mean, percentile};

use crate::doc::{n, table, yes};
use bench::{Measured, REAL, Used};
use weir_console::failure::Failure;
use weir_console::progress::Progress;

/// The hosts of the paper's testbed.
const HOSTS: u32 = 150;

/// The most hosts that are tried: with twice as many again and again, and then between the last two until they are so close.
const MOST: u32 = 2400;
const APART: u32 = 40;

/// Table 2: the mean and the 90th percentile under Saath.
const PUBLISHED: [(&str, &str, f64, f64); 5] = [
    ("coordinator", "CPU, per cent of a core", 37.8, 42.7),
    ("coordinator", "memory, MB", 229.0, 284.0),
    ("coordinator", "a schedule, ms", 0.57, 2.85),
    ("agent", "CPU, per cent of a core", 5.6, 5.7),
    ("agent", "memory, MB", 1.68, 1.7),
];

/// Published and measured.
///
/// # Errors
/// If it cannot be measured here, or is ended early.
pub(super) fn section(progress: &Progress) -> Result<String, Failure> {
    let interval = Duration::from_secs_f64(Settings::default().interval);
    let bar = progress.steps("overheads", (MOST / HOSTS).ilog2() as usize + 1);
    let mut all: Vec<Measured> = Vec::new();
    let mut hosts = HOSTS;
    while hosts <= MOST && all.last().is_none_or(|last| last.within(99) <= interval) {
        all.push(bench::measure(hosts)?);
        bar.inc(1);
        hosts *= 2;
    }
    let carried = |all: &[Measured], is: bool| {
        let those = all.iter().filter(|measured| (measured.within(99) <= interval) == is);
        those.map(|measured| measured.hosts).collect::<Vec<_>>()
    };
    while let (Some(&most), Some(&least)) =
        (carried(&all, true).iter().max(), carried(&all, false).iter().min())
        && least > most + APART
    {
        all.push(bench::measure(most.midpoint(least))?);
    }
    all.sort_by_key(|measured| measured.hosts);
    Ok(text(&all, interval))
}

fn text(all: &[Measured], interval: Duration) -> String {
    let first = all.iter().find(|measured| measured.hosts == HOSTS).expect("it was measured first");
    let settings = Settings::default();
    let mut out = format!(
        "## Overheads beside Saath's Table 2\n\n\
         A coordinator under `saath`, a process of `weir serve`, with {} hosts, {} coflows and {} flows; a schedule every {} ms. {REAL} hosts have \
         agents that are processes of `weir agent run`, each with {} sockets on which little is sent. The other hosts' agents are tasks of one more \
         process, with the same streams and without sockets. Each host sends {} flows that go on as they are told, and so reports what is told otherwise, \
         and all of them each second; with the end of a flow, four a second on each host, schedules change. Plain text over loopback, and all on this one machine with {} processors, where the paper has \
         a machine for each. CPU and memory are looked at every half second. Memory is what is resident, in MB of 10^6 bytes. The 90th percentile \
         of schedules is the upper end of a range of times that are counted together.\n",
        first.hosts,
        crowd::STEADY + crowd::ENDING,
        (crowd::STEADY + crowd::ENDING) * first.hosts,
        n(interval.as_secs_f64() * 1e3),
        crowd::STEADY,
        crowd::STEADY,
        std::thread::available_parallelism().map_or(0, usize::from),
    );
    let two = |values: &dyn Fn(&Used) -> f64, used: &[Used]| {
        let values: Vec<f64> = used.iter().map(values).collect();
        (mean(&values), percentile(&values, 90.0))
    };
    let (cpu, memory) = (|used: &Used| used.cpu * 100.0, |used: &Used| used.memory / 1e6);
    let measured = [
        two(&cpu, &first.coordinator),
        two(&memory, &first.coordinator),
        (first.schedule.0 * 1e3, first.schedule.1 * 1e3),
        two(&cpu, &first.agents),
        two(&memory, &first.agents),
    ];
    let line = |(published, measured): (&(&str, &str, f64, f64), (f64, f64))| {
        let &(who, what, mean, most) = published;
        [who.to_owned(), what.to_owned()]
            .into_iter()
            .chain([mean, most, measured.0, measured.1].map(n))
            .collect()
    };
    let lines: Vec<Vec<String>> = PUBLISHED.iter().zip(measured).map(line).collect();
    let head = ["", "", "published: mean", "P90", "measured: mean", "P90"];
    out.push_str(&table(&head, 2, &lines));
    out.push_str(&format!(
        "From when an agent gives its report to the stream until it has the order that answers it, in ms. It waits for the next schedule, which is up to \
         an interval, so agents report three to eight sixteenths of one after the earliest that orders come. Hosts are doubled until one in a hundred orders \
         takes longer than an interval of {} ms, or there are {MOST}, and then it is looked between; leases are {} ms. Where nothing else is said, what limits is \
         the two sides' processor time on one machine, of which the tasks that speak as agents have a part.\n",
        n(interval.as_secs_f64() * 1e3),
        n(settings.lease * 1e3),
    ));
    let line = |measured: &Measured| {
        let waits = [50, 90, 99].map(|percent| n(measured.within(percent).as_secs_f64() * 1e3));
        let used = two(&cpu, &measured.coordinator).0;
        let rest = [n(measured.schedule.0 * 1e3), n(used), yes(measured.within(99) <= interval)];
        let counts = [measured.hosts.to_string(), measured.waits.len().to_string()];
        counts.into_iter().chain(waits).chain(rest).collect()
    };
    let lines: Vec<Vec<String>> = all.iter().map(line).collect();
    let head = [
        "hosts",
        "orders",
        "median",
        "P90",
        "P99",
        "mean schedule",
        "coordinator's CPU, %",
        "P99 within an interval",
    ];
    out.push_str(&table(&head, 1, &lines));
    let carried = all.iter().rev().find(|measured| measured.within(99) <= interval);
    out.push_str(&match carried {
        Some(carried) => format!("This machine carries {} agents and their coordinator.\n\n", carried.hosts),
        None => format!("This machine does not carry {HOSTS} agents and their coordinator.\n\n"),
    });
    out
}
