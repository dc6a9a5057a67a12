//! Runs the profiled jobs under a coordinator, with agents at hosts and at four switches, next to plain TCP.
//!
//! Each job has a host under each of three leaves, so jobs also meet between switches. A job registers, opens its connections, and
//! deregisters at its end, as Saba's library does (section 6); agents mark its packets by its cgroup.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_console::failure::Failure;
use weir_console::profile::{ProfileTarget, TimedCommand};
use weir_console::progress::Progress;
use weir_console::testbed;
use weir_core::model::Topology;
use weir_core::model::topology::TopologyBuilder;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::{Bed, BedName, Node};
use weir_trace::sensitivity::{ProfiledApplication, SensitivityTable};

use super::super::cgroup::Cgroup;
use super::super::cluster::{self, Process};
use super::super::hosted_coordinator::{HostedCoordinator, LISTEN};
use super::super::{LINK_BYTES_PER_SEC, link_rate};
use super::{JOBS, JobFiles, RUNS};
use crate::markdown::{format_cell, table};

/// The number of leaves, each with two hosts.
const LEAVES: usize = 3;

/// The switches: leaves, then the core.
const SWITCHES: [&str; LEAVES + 1] = ["leaf0", "leaf1", "leaf2", "core"];

/// Whether a job runs on the first or the second host under each leaf. The first and the last job share the links of hosts, and all jobs
/// share those between switches.
const SECOND_HOST: [bool; JOBS.len()] = [false, true, false];

/// The host of the coordinator.
const COORDINATOR_HOST: usize = 2 * LEAVES;

/// The time between two runs of a job.
const PAUSE: Duration = Duration::from_millis(500);

/// The coordinator's interval.
const INTERVAL_MILLIS: u64 = 100;

/// Which jobs run when: the time of the first start in seconds, and the number of runs, by job.
struct Arrivals {
    name: &'static str,
    jobs: [(f64, usize); JOBS.len()],
}

const ARRIVALS: [Arrivals; 2] = [
    Arrivals { name: "start together", jobs: [(0.0, 1); JOBS.len()] },
    Arrivals { name: "come and go", jobs: [(2.0, 3), (1.0, 2), (0.0, 2)] },
];

/// How jobs share the links.
struct Setup {
    name: String,
    /// The degree of the models and the number of priority levels; none for plain TCP.
    saba: Option<(usize, usize)>,
    /// By arrivals and job: the times of all runs, in seconds.
    times_secs: [[Vec<f64>; JOBS.len()]; ARRIVALS.len()],
    /// By arrivals: how often the level of a running job changed.
    remappings: [usize; ARRIVALS.len()],
}

/// The part of the section about jobs under a coordinator and agents.
pub(super) fn section(
    bed: &BedName,
    profiled: &[ProfiledApplication],
    progress: &Progress,
) -> Result<String, Failure> {
    let (alone, setups) = testbed::with_bed(bed, &network(), |bed| measure(bed, profiled, progress))?;
    Ok(text(&alone, &setups))
}

fn setups() -> Vec<Setup> {
    let setup = |name: &str, saba| Setup {
        name: name.to_owned(),
        saba,
        times_secs: Default::default(),
        remappings: Default::default(),
    };
    vec![
        setup("plain TCP", None),
        setup("Saba, k=1", Some((1, 8))),
        setup("Saba, k=2", Some((2, 8))),
        setup("Saba, k=3", Some((3, 8))),
        setup("Saba, k=1, two levels", Some((1, 2))),
    ]
}

/// The median time of each job alone under plain TCP, in seconds, and all times of each setup.
fn measure(
    bed: &Bed,
    profiled: &[ProfiledApplication],
    progress: &Progress,
) -> Result<([f64; JOBS.len()], Vec<Setup>), Failure> {
    let jobs = Jobs::new(bed)?;
    let mut setups = setups();
    let bar = progress.add_step_bar("jobs under agents", RUNS * (1 + setups.len() * ARRIVALS.len()));
    let mut alone: [Vec<f64>; JOBS.len()] = Default::default();
    // Each repetition runs all setups, so that other load on the machine affects all of them.
    for _ in 0..RUNS {
        for (job, times) in alone.iter_mut().enumerate() {
            times.push(jobs.run(job)?);
        }
        bar.inc(1);
        for setup in &mut setups {
            let cluster = match setup.saba {
                None => None,
                Some((degree, levels)) => {
                    Some(Cluster::start(bed, &jobs, &table_of(profiled, degree)?, levels)?)
                }
            };
            for (at, arrivals) in ARRIVALS.iter().enumerate() {
                let times = run(&jobs, arrivals, cluster.as_ref())?;
                for (all, new) in setup.times_secs[at].iter_mut().zip(times) {
                    all.extend(new);
                }
                setup.remappings[at] += cluster.as_ref().map_or(0, Cluster::take_remappings);
                bar.inc(1);
            }
            drop(cluster);
            bed.set_queues(None).map_err(|error| testbed::failure(&error))?;
        }
    }
    bar.finish_and_clear();
    Ok((alone.map(|times| percentile(&times, 50.0)), setups))
}

/// The sensitivity table of all jobs with models of one degree.
fn table_of(profiled: &[ProfiledApplication], degree: usize) -> Result<String, Failure> {
    let rows = profiled.iter().map(|fitted| fitted.row(degree)).collect();
    let table = SensitivityTable::new(rows).map_err(Failure::runtime)?;
    let mut text = Vec::new();
    table.write(&mut text).map_err(Failure::runtime)?;
    String::from_utf8(text).map_err(Failure::runtime)
}

/// Three leaves with two hosts each under a core. The host of the coordinator has a cable to each switch.
fn network() -> Topology {
    let build = || {
        let mut builder = TopologyBuilder::new();
        (0..COORDINATOR_HOST).try_for_each(|host| builder.add_host(&host_name(host)))?;
        builder.add_host("coordinator")?;
        let [leaves @ .., core] = SWITCHES;
        leaves.iter().try_for_each(|leaf| builder.add_switch(leaf, 1))?;
        builder.add_switch(core, 2)?;
        for (leaf, name) in leaves.iter().enumerate() {
            for host in [2 * leaf, 2 * leaf + 1] {
                builder.add_cable(&host_name(host), name, link_rate())?;
            }
            builder.add_cable(name, core, link_rate())?;
        }
        SWITCHES
            .iter()
            .try_for_each(|switch| builder.add_cable("coordinator", switch, link_rate()).map(drop))?;
        builder.build()
    };
    build().expect("the nodes and cables are valid")
}

fn host_name(host: usize) -> String {
    format!("h{host}")
}

/// The hosts of a job, one under each leaf.
fn hosts_of(job: usize) -> [usize; LEAVES] {
    std::array::from_fn(|leaf| 2 * leaf + usize::from(SECOND_HOST[job]))
}

/// The jobs on their hosts, each in a cgroup.
struct Jobs<'a> {
    files: JobFiles,
    targets: Vec<ProfileTarget<'a>>,
    cgroups: Vec<Cgroup>,
    namespaces: Vec<Vec<String>>,
}

impl<'a> Jobs<'a> {
    fn new(bed: &'a Bed) -> Result<Jobs<'a>, Failure> {
        let nodes = &bed.plan().nodes;
        let target = |job| ProfileTarget::hosts(bed, &hosts_of(job).map(host_name));
        let cgroup = |(name, _): &(&str, &str)| Cgroup::create(&format!("weir-{}-{name}", bed.plan().name));
        let namespaces = |job| hosts_of(job).iter().map(|&host| nodes[host].namespace.clone()).collect();
        Ok(Jobs {
            files: JobFiles::write()?,
            targets: (0..JOBS.len()).map(target).collect::<Result<_, _>>()?,
            cgroups: JOBS.iter().map(cgroup).collect::<Result<_, _>>()?,
            namespaces: (0..JOBS.len()).map(namespaces).collect(),
        })
    }

    /// Runs a job, and returns its time in seconds.
    fn run(&self, job: usize) -> Result<f64, Failure> {
        let command = self.files.command(job, &self.namespaces[job], 0);
        let command_line = self.cgroups[job].words(command.command_line);
        let command = TimedCommand { command_line, ..command };
        Ok(command.run(&self.targets[job], || ())?.as_secs_f64())
    }
}

/// Runs the jobs as they arrive, and returns the times of each.
fn run(jobs: &Jobs<'_>, arrivals: &Arrivals, cluster: Option<&Cluster>) -> Result<Vec<Vec<f64>>, Failure> {
    let began = Instant::now();
    let run_job = |job: usize, (start, runs): (f64, usize)| {
        let start = Duration::from_secs_f64(start);
        thread::sleep(start.saturating_sub(began.elapsed()));
        let mut times = Vec::with_capacity(runs);
        for number in 0..runs {
            if number > 0 {
                thread::sleep(PAUSE);
            }
            cluster.map_or(Ok(()), |cluster| cluster.register(job))?;
            times.push(jobs.run(job)?);
            cluster.map_or(Ok(()), |cluster| cluster.deregister(job))?;
        }
        Ok(times)
    };
    thread::scope(|scope| {
        let run_job = &run_job;
        let threads: Vec<_> = arrivals
            .jobs
            .into_iter()
            .enumerate()
            .map(|(job, runs)| scope.spawn(move || run_job(job, runs)))
            .collect();
        // All jobs end before the first failure is returned.
        let results: Vec<Result<Vec<f64>, Failure>> =
            threads.into_iter().map(|thread| thread.join().expect("`run_job` does not panic")).collect();
        results.into_iter().collect()
    })
}

/// A coordinator, and an agent at every other host and at every switch.
struct Cluster {
    _agents: Vec<Process>,
    coordinator: HostedCoordinator,
    /// The last known level of each registered job, and the number of changes.
    levels: Mutex<(BTreeMap<String, u64>, usize)>,
}

impl Cluster {
    fn start(bed: &Bed, jobs: &Jobs<'_>, sensitivity: &str, levels: usize) -> Result<Cluster, Failure> {
        let nodes = &bed.plan().nodes;
        add_routes_to_switches(nodes)?;
        let coordinator = HostedCoordinator::start(&nodes[COORDINATOR_HOST], &configuration(nodes, levels))?;
        coordinator.api.put_text("/v1/sensitivity", sensitivity)?;
        let agents = start_agents(nodes, &coordinator, jobs)?;
        coordinator.wait_for_agents(COORDINATOR_HOST, SWITCHES.len())?;
        Ok(Cluster { _agents: agents, coordinator, levels: Mutex::default() })
    }

    /// Registers a job, and a connection between each two of its hosts.
    fn register(&self, job: usize) -> Result<(), Failure> {
        let name = JOBS[job].0;
        self.coordinator.api.put(&format!("/v1/applications/{name}"), &json!({ "model": name }))?;
        for (from, to) in pairs(job) {
            let body = json!({ "application": name, "from": host_name(from), "to": host_name(to) });
            self.coordinator.api.put(&connection_path(job, from, to), &body)?;
        }
        self.count_remappings()
    }

    fn deregister(&self, job: usize) -> Result<(), Failure> {
        for (from, to) in pairs(job) {
            self.coordinator.api.delete(&connection_path(job, from, to))?;
        }
        self.coordinator.api.delete(&format!("/v1/applications/{}", JOBS[job].0))?;
        self.count_remappings()
    }

    fn count_remappings(&self) -> Result<(), Failure> {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.coordinator.api.get("/v1/applications")?;
        let applications = answer.as_array().map_or(&[][..], Vec::as_slice);
        let level = |entry: &Value| Some((entry["id"].as_str()?.to_owned(), entry["level"].as_u64()?));
        let now: BTreeMap<String, u64> = applications.iter().filter_map(level).collect();
        let changed =
            now.iter().filter(|(name, level)| levels.0.get(*name).is_some_and(|last| last != *level));
        levels.1 += changed.count();
        levels.0 = now;
        Ok(())
    }

    /// The number of remappings since the last call.
    fn take_remappings(&self) -> usize {
        std::mem::take(&mut self.levels.lock().unwrap_or_else(PoisonError::into_inner).1)
    }
}

/// Each two hosts of a job.
fn pairs(job: usize) -> impl Iterator<Item = (usize, usize)> {
    let hosts = hosts_of(job);
    (0..LEAVES).flat_map(move |to| (0..to).map(move |from| (hosts[from], hosts[to])))
}

fn connection_path(job: usize, from: usize, to: usize) -> String {
    format!("/v1/connections/{}-{from}-{to}", JOBS[job].0)
}

/// The configuration of the coordinator. The cables of its host have no queues, so that orders are not delayed.
///
/// Registrations change weights at once, so nothing needs short intervals. With them, ten agents would take the jobs' processors.
fn configuration(nodes: &[Node], levels: usize) -> String {
    let mut text = format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\ninterval = \"{INTERVAL_MILLIS}ms\"\n\
         [saba]\nlevels = {levels}\n{LISTEN}[host]\n"
    );
    let mut write = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    nodes[..=COORDINATOR_HOST].iter().for_each(|node| write(format!("{} = \"{}\"", node.name, link_rate())));
    write("[address]".to_owned());
    nodes[..=COORDINATOR_HOST]
        .iter()
        .for_each(|node| write(format!("{} = [\"{}\"]", node.name, node.address)));
    write("[switch]".to_owned());
    for (leaf, switch) in SWITCHES[..LEAVES].iter().enumerate() {
        let hosts = [2 * leaf, 2 * leaf + 1].map(host_name);
        write(format!("{switch} = [\"{}\", \"{}\", \"core\"]", hosts[0], hosts[1]));
    }
    write("core = [\"leaf0\", \"leaf1\", \"leaf2\"]".to_owned());
    text
}

/// A host with several cables has routes to hosts only; connections of the switches' agents need routes back.
fn add_routes_to_switches(nodes: &[Node]) -> Result<(), Failure> {
    let host = &nodes[COORDINATOR_HOST];
    for (switch, port) in nodes.iter().filter(|node| node.is_switch).zip(&host.ports) {
        let [to, from] = [switch.address, host.address].map(|address| address.to_string());
        let gateway = weir_testbed::Plan::GATEWAY.to_string();
        let mut command = Command::new("ip");
        command.args(["-n", &host.namespace, "route", "replace", &to, "src", &from]);
        command.args(["via", &gateway, "dev", &port.interface, "onlink"]);
        cluster::run(command)?;
    }
    Ok(())
}

/// Starts the agents.
fn start_agents(
    nodes: &[Node],
    coordinator: &HostedCoordinator,
    jobs: &Jobs<'_>,
) -> Result<Vec<Process>, Failure> {
    let mut agents = Vec::new();
    for node in nodes.iter().filter(|node| node.name != "coordinator") {
        if node.is_switch {
            // The last port is that to the coordinator.
            agents.push(coordinator.start_switch_agent(node, LEAVES)?);
            continue;
        }
        let mut command = coordinator.agent_command(node)?;
        for ((name, _), cgroup) in JOBS.iter().zip(&jobs.cgroups) {
            command.arg("--application").arg(format!("{name}={}", cgroup.path().display()));
        }
        agents.push(Process::start(&format!("agent of {}", node.name), command)?);
    }
    Ok(agents)
}

impl Setup {
    /// A percentile of each job's slowdowns.
    fn slowdowns(&self, arrivals: usize, p: f64, alone: &[f64; JOBS.len()]) -> [f64; JOBS.len()] {
        std::array::from_fn(|job| percentile(&self.times_secs[arrivals][job], p) / alone[job])
    }

    /// The mean of the jobs' median slowdowns.
    fn average(&self, arrivals: usize, alone: &[f64; JOBS.len()]) -> f64 {
        mean(&self.slowdowns(arrivals, 50.0, alone))
    }
}

fn text(alone: &[f64; JOBS.len()], setups: &[Setup]) -> String {
    let names = JOBS.map(|(name, _)| name);
    let head: Vec<&str> =
        ["jobs", "setup"].into_iter().chain(names).chain(["average", "remappings"]).collect();
    let mut lines = Vec::new();
    for (at, arrivals) in ARRIVALS.iter().enumerate() {
        for setup in setups {
            let [min, median, max] =
                [0.0, 50.0, 100.0].map(|p| setup.slowdowns(at, p, alone).map(format_cell));
            let mut line = vec![arrivals.name.to_owned(), setup.name.clone()];
            line.extend((0..JOBS.len()).map(|job| format!("{} ({} to {})", median[job], min[job], max[job])));
            line.push(format_cell(setup.average(at, alone)));
            line.push(setup.saba.map_or("-".to_owned(), |_| setup.remappings[at].to_string()));
            lines.push(line);
        }
    }
    introduction(alone, setups) + &table(&head, 2, &lines)
}

/// Where Saba loses to plain TCP, or the average slowdowns if it does not.
fn verdict(name: &str, arrivals: usize, alone: &[f64; JOBS.len()], setups: &[Setup]) -> String {
    let [tcp, saba @ ..] = setups else { return String::new() };
    let average = |setup: &Setup| setup.average(arrivals, alone);
    let losers: Vec<&Setup> = saba.iter().filter(|setup| average(setup) > average(tcp)).collect();
    if losers.is_empty() {
        return format!("Jobs that {name}: no setup of Saba has a higher average slowdown than plain TCP.");
    }
    let list = losers.iter().map(|setup| format!("{} {}", setup.name, format_cell(average(setup))));
    format!(
        "**Saba loses** for jobs that {name}: average slowdowns of {}, and {} under plain TCP.",
        list.collect::<Vec<_>>().join("; "),
        format_cell(average(tcp))
    )
}

/// The jobs, hosts and setups; first where Saba loses.
fn introduction(alone: &[f64; JOBS.len()], setups: &[Setup]) -> String {
    let verdict = ARRIVALS.iter().enumerate().map(|(at, arrivals)| verdict(arrivals.name, at, alone, setups));
    let [starts, runs] = [
        ARRIVALS[1].jobs.map(|(start, _)| format!("{start} s")).join(", "),
        ARRIVALS[1].jobs.map(|(_, runs)| runs.to_string()).join(", "),
    ];
    format!(
        "### Under a coordinator and agents\n\n\
         {}\n\nThe same jobs and profiles under three leaves and a core, with two hosts under each leaf and links of {} Mbit/s. A job has \
         a host under each leaf: `{}` and `{}` the first one, `{}` the second one, so all three meet between switches. A \
         coordinator divides each port by Eq. 2; agents run at the six hosts and the four switches, and mark the jobs' packets by \
         their cgroups, at an interval of {INTERVAL_MILLIS} ms. A job registers and opens its connections before it starts, and \
         deregisters at its end; its level may change while it runs (*remappings*, in the sum of {RUNS} repetitions). Queues of \
         agents carry 1 % less than the links of plain TCP. The ten agents and the coordinator use the processors of the jobs, so \
         jobs that compute take longer next to them; a cluster has one agent on each machine. Jobs *start together*, or they *come \
         and go*: `{}`, `{}` and `{}` first start after {starts}, and run {runs} times, \
         {} s after their last run. Slowdowns are the median times of all runs, divided by the median time alone under plain TCP.\n\n",
        verdict.collect::<Vec<_>>().join(" "),
        format_cell(LINK_BYTES_PER_SEC * 8e-6),
        JOBS[0].0,
        JOBS[2].0,
        JOBS[1].0,
        JOBS[0].0,
        JOBS[1].0,
        JOBS[2].0,
        format_cell(PAUSE.as_secs_f64()),
    )
}

#[cfg(test)]
mod tests {
    use weir_coordinator::config;
    use weir_testbed::Plan;

    use super::*;

    #[test]
    fn configuration_names_the_ports_of_switches_in_their_order() {
        let plan = Plan::new("bed".parse().unwrap(), &network()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = config::parse(&configuration(&plan.nodes, 8), "serve.toml", folder.path()).unwrap();
        assert_eq!(config.hosts.len(), COORDINATOR_HOST + 1);
        let topology = network();
        for (switch, node) in config.switches.iter().zip(&plan.nodes[COORDINATOR_HOST + 1..]) {
            assert_eq!(switch.name, node.name);
            // The last port, to the coordinator, is not in the configuration.
            let names =
                node.ports[..LEAVES].iter().map(|port| topology.name(topology.link(port.link).to).to_owned());
            let expected = format!("{} = [\"{}\"]", node.name, names.collect::<Vec<_>>().join("\", \""));
            assert!(configuration(&plan.nodes, 8).contains(&expected), "{expected}");
        }
    }

    #[test]
    fn a_loss_comes_first() {
        let with_times = |name: &str, saba, seconds: f64| Setup {
            name: name.to_owned(),
            saba,
            times_secs: std::array::from_fn(|_| std::array::from_fn(|_| vec![seconds])),
            remappings: [0; ARRIVALS.len()],
        };
        let setups = [with_times("plain TCP", None, 2.0), with_times("Saba, k=1", Some((1, 8)), 3.0)];
        let page = text(&[1.0; JOBS.len()], &setups);
        let first = page.lines().nth(2).unwrap();
        assert!(
            first
                .starts_with("**Saba loses** for jobs that start together: average slowdowns of Saba, k=1 3"),
            "{first}"
        );
        assert!(!text(&[1.0; JOBS.len()], &[with_times("plain TCP", None, 2.0)]).contains("loses"));
    }
}
