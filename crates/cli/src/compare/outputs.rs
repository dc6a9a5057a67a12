//! Writes the outputs of `weir sim` and `weir compare`: the result, and files with lines for coflows and flows.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile, ResultDestination};
use weir_console::policy_spec;
use weir_console::table::BITS_PER_BYTE;
use weir_sim::Outcome;
use weir_sim::lower_bound::min_fcts;

use super::coflow_lines::{self, finite, owner};
use super::groups::write_groups;
use super::results::Results;
use super::slowdowns::{slowdown, write_bins};
use crate::args;
use crate::jobs;
use crate::services::ServedDemand;

/// The outputs of a command, opened before the replays.
pub struct Outputs {
    result: ResultDestination,
    per_coflow: Option<OutputFile>,
    per_flow: Option<OutputFile>,
    per_bin: Option<OutputFile>,
    per_group: Option<OutputFile>,
    per_job: Option<OutputFile>,
    per_demand: Option<OutputFile>,
    per_link: Option<OutputFile>,
    per_link_time: Option<OutputFile>,
}

type WriteLines = fn(&mut OutputFile, &Results<'_>) -> csv::Result<()>;

impl Outputs {
    /// Opens the outputs, which must differ from each other, from the `other` outputs, options and their files, and from all
    /// inputs.
    ///
    /// # Errors
    /// If a file cannot be created, or is another output or an input.
    pub fn open(
        experiment: &args::Experiment,
        detail_files: &args::DetailFiles,
        others: &[(&str, Option<&Path>)],
        policies: &[&String],
    ) -> Result<Outputs, Failure> {
        let out = experiment.output.out.as_deref();
        let args::DetailFiles {
            per_coflow,
            per_flow,
            per_bin,
            per_group,
            per_job,
            per_demand,
            per_link,
            per_link_time,
        } = detail_files;
        let (coflows, flows, bins) = (per_coflow.as_deref(), per_flow.as_deref(), per_bin.as_deref());
        let (groups, jobs, links) = (per_group.as_deref(), per_job.as_deref(), per_link.as_deref());
        let (link_times, demands) = (per_link_time.as_deref(), per_demand.as_deref());
        let details = [
            ("--per-coflow", coflows),
            ("--per-flow", flows),
            ("--per-bin", bins),
            ("--per-group", groups),
            ("--per-job", jobs),
            ("--per-demand", demands),
            ("--per-link", links),
            ("--per-link-time", link_times),
        ];
        let outputs_by_option = [&[("--out", out)], &details[..], others].concat();
        output::check_single_stdout(&outputs_by_option)?;
        check_distinct(experiment, policies, &outputs_by_option)?;
        let open = |path: Option<&Path>| path.map(OutputFile::create).transpose();
        Ok(Outputs {
            result: ResultDestination::new(out)?,
            per_coflow: open(coflows)?,
            per_flow: open(flows)?,
            per_bin: open(bins)?,
            per_group: open(groups)?,
            per_job: open(jobs)?,
            per_demand: open(demands)?,
            per_link: open(links)?,
            per_link_time: open(link_times)?,
        })
    }

    /// Whether a person reads the result in a terminal.
    pub fn has_terminal(&self) -> bool {
        self.result.is_terminal()
    }

    /// Writes all outputs; files appear once all of them are complete.
    ///
    /// # Errors
    /// If an output cannot be written.
    pub fn write(self, text: &str, results: &Results<'_>) -> Result<(), Failure> {
        let mut complete = Vec::new();
        // If the reader closes the standard output early, the files are still written.
        let mut stdout_failure = None;
        let lines = [
            (self.per_coflow, coflow_lines as WriteLines),
            (self.per_flow, flow_lines),
            (self.per_bin, |file, results| write_bins(file, results)),
            (self.per_group, |file, results| write_groups(file, results)),
            (self.per_job, job_lines),
            (self.per_demand, demand_lines),
            (self.per_link, link_lines),
            (self.per_link_time, link_time_lines),
        ];
        for (file, write_lines) in lines {
            let Some(mut file) = file else { continue };
            match write_lines(&mut file, results).map_err(|error| file.failure(&io_error(error))) {
                Ok(()) => complete.push(file),
                Err(failure) if failure.exit_code > 0 => return Err(failure),
                Err(failure) => stdout_failure = Some(failure),
            }
        }
        let result = match self.result {
            ResultDestination::Stdout => Some(ResultDestination::Stdout),
            ResultDestination::File(mut file) => {
                file.write_all(text.as_bytes()).map_err(|error| file.failure(&error))?;
                complete.push(file);
                None
            }
        };
        complete.into_iter().try_for_each(OutputFile::finish)?;
        match (stdout_failure, result) {
            (Some(failure), _) => Err(failure),
            (None, Some(stdout)) => stdout.write_text(text),
            (None, None) => Ok(()),
        }
    }
}

/// Checks that the outputs differ from each other, and from each file that the replays read.
///
/// # Errors
/// If two of them are the same file.
pub fn check_distinct(
    experiment: &args::Experiment,
    policies: &[&String],
    outputs: &[(&str, Option<&Path>)],
) -> Result<(), Failure> {
    let args::NetworkOptions { incast, fabric, .. } = &experiment.network;
    let files = [incast, fabric].into_iter().flatten().chain(&experiment.input.sources).map(PathBuf::as_path);
    let trees = policies.iter().filter_map(|policy| policy_spec::tree_file(policy)).map(Path::new);
    files.chain(trees).try_for_each(|file| output::check_distinct(file, outputs))
}

fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

fn coflow_lines(out: &mut OutputFile, results: &Results<'_>) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy"].into_iter().chain(coflow_lines::columns()))?;
    let (source, workload) = (results.source, &results.source.workload);
    let alone = results.network.bounds(workload).min_ccts;
    for (policy, outcome) in results.by_policy() {
        coflow_lines::write_lines(&mut csv, policy, (source, workload), &alone, &outcome.coflows)?;
    }
    Ok(csv.flush()?)
}

fn flow_lines(out: &mut OutputFile, results: &Results<'_>) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let place = ["policy", "coflow", "flow", "src", "dst", "bytes", "fct_s", "start_s", "end_s"];
    csv.write_record(place.into_iter().chain(coflow_lines::OWNER_COLUMNS).chain(["path"]))?;
    let alone = min_fcts(&results.source.workload, results.network.options());
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut path_text = |links: &[u32]| {
        for &link in links {
            names.entry(link).or_insert_with(|| results.network.trunk_name(link as usize));
        }
        links.iter().map(|link| names[link].as_str()).collect::<Vec<_>>().join("; ")
    };
    for (policy, outcome) in results.by_policy() {
        for coflow in &outcome.coflows {
            let flows = &results.source.workload.coflows[coflow.index].flows;
            for (number, (flow, end)) in flows.iter().zip(&coflow.flow_ends).enumerate() {
                let (bytes, fct) = (flow.bytes.get(), end - coflow.released_at);
                let path = coflow.flow_paths.get(number).map_or_else(String::new, |links| path_text(links));
                let place = (coflow.id, number, flow.src, flow.dst);
                let (start, alone) =
                    (coflow.released_at + flow.data_delay.get(), alone[coflow.index][number]);
                let times = (start, end, finite(alone), slowdown(end - start, alone));
                csv.serialize((
                    policy,
                    place,
                    bytes,
                    fct,
                    times,
                    owner(&results.source.workload, coflow),
                    path,
                ))?;
            }
        }
    }
    Ok(csv.flush()?)
}

fn job_lines(out: &mut OutputFile, results: &Results<'_>) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "job", "start_s", "end_s", "time_s", "alone_s", "slowdown"])?;
    for (policy, outcome) in results.by_policy() {
        for job in &outcome.jobs {
            let time = job.end - job.arrival;
            let jobs = results.source.jobs.as_ref();
            let alone = jobs.and_then(|jobs| jobs.position(job.id)).and_then(|index| results.alone[index]);
            let slowdown = alone.map(|alone| jobs::slowdown(time, alone));
            let name = results.source.job_name(job.id);
            csv.serialize((policy, name, job.arrival, job.end, time, alone, slowdown))?;
        }
    }
    Ok(csv.flush()?)
}

fn demand_lines(out: &mut OutputFile, results: &Results<'_>) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "policy",
        "service",
        "demand",
        "coflow",
        "from_s",
        "to_s",
        "connections",
        "bytes",
        "mean_bit_per_s",
    ])?;
    for (policy, outcome) in results.by_policy() {
        for served in results.source.services.iter().flat_map(|services| services.served(outcome)) {
            let ServedDemand { service, demand, coflow, from, to, connections, bytes } = served;
            let mean = served.mean_rate() * BITS_PER_BYTE;
            csv.serialize((policy, service, demand, coflow, from, to, connections, bytes, mean))?;
        }
    }
    Ok(csv.flush()?)
}

/// A link with its utilization during the replay, and in parts of the time.
struct UsedLink<'a> {
    kind: &'static str,
    name: String,
    utilization: f64,
    parts: &'a [f64],
}

fn used_links<'a>(results: &Results<'_>, outcome: &'a Outcome) -> Vec<UsedLink<'a>> {
    let parts = outcome.link_use.as_ref();
    let sides = [
        ("send", &outcome.send_utilization, parts.map(|parts| &parts.send)),
        ("receive", &outcome.recv_utilization, parts.map(|parts| &parts.recv)),
        ("trunk", &outcome.trunk_utilization, parts.map(|parts| &parts.trunks)),
    ];
    let of_side = |(kind, used, parts): (&'static str, &'a Vec<f64>, Option<&'a Vec<Vec<f64>>>)| {
        used.iter().enumerate().map(move |(number, &utilization)| {
            let parts = parts.map_or(&[][..], |parts| &parts[number]);
            let name = if kind == "trunk" { results.network.trunk_name(number) } else { number.to_string() };
            UsedLink { kind, name, utilization, parts }
        })
    };
    sides.into_iter().flat_map(of_side).collect()
}

fn link_lines(out: &mut OutputFile, results: &Results<'_>) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "kind", "link", "utilization", "peak_utilization"])?;
    for (policy, outcome) in results.by_policy() {
        for UsedLink { kind, name, utilization, parts } in used_links(results, outcome) {
            let peak = parts.iter().copied().max_by(f64::total_cmp);
            csv.serialize((policy, kind, name, utilization, peak))?;
        }
    }
    Ok(csv.flush()?)
}

fn link_time_lines(out: &mut OutputFile, results: &Results<'_>) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "kind", "link", "from_s", "to_s", "utilization"])?;
    for (policy, outcome) in results.by_policy() {
        let part_seconds = outcome.link_use.as_ref().map_or(0.0, |used| used.part_seconds);
        for UsedLink { kind, name, parts, .. } in used_links(results, outcome) {
            for (part, utilization) in parts.iter().enumerate() {
                let end_of = |part: usize| {
                    if part == parts.len() { outcome.makespan } else { part as f64 * part_seconds }
                };
                csv.serialize((policy, kind, &name, end_of(part), end_of(part + 1), utilization))?;
            }
        }
    }
    Ok(csv.flush()?)
}
