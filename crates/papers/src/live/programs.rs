//! Measures the shares of a link that unmodified programs get in the cgroups of two applications.
//!
//! The shares follow from Saba's weights, from a change of these weights, and from NetShare's central allocator.

mod applications;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::{Value, json};
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::testbed;
use weir_testbed::{BedName, Node};

use super::cgroup::Cgroup;
use super::cluster::{self, Coordinator, Process};
use super::{LINK_BYTES_PER_SEC, link_rate};
use crate::markdown::{format_cell, table};
use applications::APPLICATIONS;

/// The sensitivities c of the applications, before and after the change. An application with a fraction b of the bandwidth has the
/// slowdown 1 + c (1 - b)^2. The sum of both slowdowns is minimal if the fractions are in proportion to c.
const SENSITIVITIES: [[f64; 2]; 2] = [[1.0, 3.0], [3.0, 1.0]];

/// Fig. 5 of NetShare: three services with a third of each link. The last sends nothing, and the first gets two thirds of the unused
/// bandwidth. Each application belongs to one of the first two services.
const SERVICES: [&str; 2] = ["a1", "a2"];
const ALLOCATOR_CONFIG: &str = "queues = \"services\"\nallocator = true\n\
                         [service.a1]\nexcess = 2\n[service.a2]\nexcess = 1\n[service.a3]\nexcess = 1\n";
const FIG_5_SHARES: [f64; 2] = [1.0 / 3.0 + 2.0 / 9.0, 1.0 / 3.0 + 1.0 / 9.0];

/// The time between a change and the measurement, in which TCP adapts.
const WARM_UP: Duration = Duration::from_secs(1);

/// The duration of a measurement.
const MEASUREMENT_TIME: Duration = Duration::from_secs(10);

/// The mechanism that divides the link between the applications.
#[derive(Clone, Copy, PartialEq)]
enum Sharing {
    /// Saba's weights.
    Weights,
    /// NetShare's central allocator.
    Allocator,
}

/// The shares of both applications under one mechanism.
struct MeasuredShares {
    sharing: String,
    /// The expected fractions of the sum of both rates.
    expected_shares: [f64; 2],
    /// The rates at which their receivers receive, in bytes per second with headers.
    rates: [f64; 2],
}

/// The section of the page: expected and measured shares.
pub(super) fn section(bed: &BedName, progress: &Progress) -> Result<String, Failure> {
    let out = head();
    if let Some(missing) = applications::missing_program() {
        return Ok(out + &format!("Not measured, because `{missing}` is not installed.\n\n"));
    }
    let measured =
        testbed::with_bed(bed, &super::big_switch(1 + APPLICATIONS.len() as u32, link_rate()), |bed| {
            let (nodes, name) = (&bed.plan().nodes, &bed.plan().name);
            let bar = progress.add_step_bar("programs, in real time", SENSITIVITIES.len() + 1);
            let mut measured = measure(nodes, name, Sharing::Weights, &bar)?;
            measured.extend(measure(nodes, name, Sharing::Allocator, &bar)?);
            bar.finish_and_clear();
            Ok(measured)
        })?;
    Ok(out + &shares_table(&measured))
}

/// Runs the programs on the first host, and measures after each change.
fn measure(
    nodes: &[Node],
    bed: &BedName,
    sharing: Sharing,
    bar: &ProgressBar,
) -> Result<Vec<MeasuredShares>, Failure> {
    // Drop order is the reverse of declaration order, so the programs end first.
    let directory = tempfile::tempdir().map_err(Failure::runtime)?;
    let [bulk, web] = APPLICATIONS.map(|name| Cgroup::create(&format!("weir-{bed}-{name}")));
    let cgroups = [bulk?, web?];
    let coordinator = start_coordinator(nodes, sharing)?;
    let _agent = start_agent(&nodes[0], &coordinator, &cgroups, directory.path())?;
    // The agent starts to mark packets right after it has configured the queues, and does not announce it.
    pause(WARM_UP)?;
    let mut programs = applications::start(&cgroups, nodes, directory.path())?;
    let changes = match sharing {
        Sharing::Weights => SENSITIVITIES.map(Some).to_vec(),
        Sharing::Allocator => vec![None],
    };
    let mut measured = Vec::new();
    for change in changes {
        if let Some(sensitivities) = change {
            coordinator.put("/v1/sensitivity", &sensitivity_table(sensitivities))?;
        }
        pause(WARM_UP)?;
        let (before, began) = (received_bytes(nodes)?, Instant::now());
        pause(MEASUREMENT_TIME)?;
        let (after, seconds) = (received_bytes(nodes)?, began.elapsed().as_secs_f64());
        programs.iter_mut().try_for_each(Process::check_running)?;
        let (sharing, expected) = match change {
            Some([bulk, web]) => (format!("Saba, c = {bulk}:{web}"), [bulk, web].map(|c| c / (bulk + web))),
            None => ("allocator".to_owned(), FIG_5_SHARES),
        };
        let rates = [0, 1].map(|index| (after[index] - before[index]) as f64 / seconds);
        measured.push(MeasuredShares { sharing, expected_shares: expected, rates });
        bar.inc(1);
    }
    Ok(measured)
}

/// Starts a coordinator on the first host, and registers the applications.
fn start_coordinator(nodes: &[Node], sharing: Sharing) -> Result<Coordinator, Failure> {
    let hosts = nodes[..=2].iter().map(|node| (node.name.clone(), link_rate()));
    let settings = if sharing == Sharing::Allocator { ALLOCATOR_CONFIG } else { "" };
    let coordinator = Coordinator::start(Some(&nodes[0]), &format!("policy = \"fair\"\n{settings}"), hosts)?;
    let put = |path: String, body: Value| coordinator.put(&path, &body.to_string());
    coordinator.put("/v1/sensitivity", &sensitivity_table(SENSITIVITIES[0]))?;
    for (index, name) in APPLICATIONS.iter().enumerate() {
        if sharing == Sharing::Allocator {
            put(format!("/v1/applications/{name}"), json!({ "service": SERVICES[index] }))?;
            continue;
        }
        put(format!("/v1/applications/{name}"), json!({ "model": name }))?;
        // A registered connection makes the agent configure queues before the programs start.
        let connection = json!({ "application": name, "from": nodes[0].name, "to": nodes[1 + index].name });
        put(format!("/v1/connections/{name}"), connection)?;
    }
    Ok(coordinator)
}

/// A sensitivity table with a model for each application, of the same name.
fn sensitivity_table(sensitivities: [f64; 2]) -> String {
    let model = |(name, c): (&str, f64)| {
        format!("[[application]]\nname = \"{name}\"\ncoefficients = [{}, {}, {c}]\n", 1.0 + c, -2.0 * c)
    };
    format!("version = 1\n{}", APPLICATIONS.into_iter().zip(sensitivities).map(model).collect::<String>())
}

/// Starts the agent of a host, and waits until its link has queues.
fn start_agent(
    node: &Node,
    coordinator: &Coordinator,
    cgroups: &[Cgroup; 2],
    directory: &Path,
) -> Result<Process, Failure> {
    let interface = &node.ports[0].interface;
    let tc = |words: &[&str]| {
        let output = cluster::command(Some(node), "tc").args(words).output().map_err(Failure::runtime)?;
        Ok::<String, Failure>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // The agent does not replace the testbed's queue, so it is deleted here; `with_bed` restores it. The command fails if an earlier
    // agent has already removed the queue.
    tc(&["qdisc", "del", "dev", interface, "root"])?;
    let socket = directory.join("agent");
    let mut command =
        cluster::agent_command(Some(node), &coordinator.agents_address, &node.name, link_rate(), &socket)?;
    command.args(["--interface", interface]);
    for (name, cgroup) in APPLICATIONS.iter().zip(cgroups) {
        command.arg(format!("--application={name}={}", cgroup.path().display()));
    }
    let agent = Process::start("agent", command)?;
    cluster::wait_until("queues of the agent", || {
        Ok(tc(&["class", "show", "dev", interface])?.contains("htb 7765:100 "))
    })?;
    Ok(agent)
}

/// The bytes that each receiver has received so far, with headers.
fn received_bytes(nodes: &[Node]) -> Result<[u64; 2], Failure> {
    let read = |node: &Node| {
        let mut command = cluster::command(Some(node), "ip");
        command.args(["-json", "-stats", "link", "show", "dev", &node.ports[0].interface]);
        let output = command.output().map_err(Failure::runtime)?;
        let links: Value = serde_json::from_slice(&output.stdout).map_err(Failure::runtime)?;
        let bytes = links[0]["stats64"]["rx"]["bytes"].as_u64();
        bytes.ok_or_else(|| Failure::runtime(format_args!("host {}: no counters of its link", node.name)))
    };
    Ok([read(&nodes[1])?, read(&nodes[2])?])
}

fn pause(time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        Failure::check_interrupt()?;
        thread::sleep(end.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)));
    }
    Ok(())
}

fn head() -> String {
    format!(
        "Three hosts under one switch, links of {} Mbit/s. The first host runs a coordinator (`weir serve`), an agent (`weir \
         agent run`) and two unmodified programs. Each program runs in the cgroup of an application: `iperf3 -c -P 2` in \
         `{}`, and `python3 -m http.server`, queried by `curl`, in `{}`. Both send over the link of the first host. Rates \
         are from the receivers' counters over {} s, starting {} s after each change.\n\n\
         - Saba: the sensitivity table gives an application with a fraction b of the link the slowdown 1 + c (1 - b)^2. The \
         sum of both slowdowns is minimal if the fractions are in proportion to c (Eq. 2). A second table replaces the first \
         while the programs send.\n\
         - Allocator: the applications are two of the three services of NetShare's Fig. 5 (3.3), which have equal weights. \
         The third sends nothing, and the first gets two thirds of the unused bandwidth. The agent limits the rates of each \
         application's connections.\n\n",
        format_cell(LINK_BYTES_PER_SEC * 8e-6),
        APPLICATIONS[0],
        APPLICATIONS[1],
        MEASUREMENT_TIME.as_secs(),
        WARM_UP.as_secs(),
    )
}

fn shares_table(all: &[MeasuredShares]) -> String {
    let mut lines = Vec::new();
    for MeasuredShares { sharing, expected_shares: expected, rates } in all {
        for (index, name) in APPLICATIONS.iter().enumerate() {
            let [expected, share] =
                [expected[index], rates[index] / (rates[0] + rates[1])].map(|part| 100.0 * part);
            let numbers = [rates[index] * 8e-6, expected, share, (share - expected).abs()].map(format_cell);
            lines.push([sharing.clone(), (*name).to_owned()].into_iter().chain(numbers).collect());
        }
    }
    let head = ["shares by", "application", "Mbit/s", "expected, %", "measured, %", "points apart"];
    table(&head, 2, &lines)
}
