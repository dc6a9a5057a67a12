//! Writes the outputs of `weir sim` and `weir compare`: the result, and files with lines for coflows and flows.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile, ResultDestination};
use weir_console::policy_spec;
use weir_sim::Outcome;

use crate::args;
use crate::network::Network;
use crate::source::Source;

/// The outputs of a command, opened before the replays.
pub struct Outputs {
    result: ResultDestination,
    per_coflow: Option<OutputFile>,
    per_flow: Option<OutputFile>,
    per_link: Option<OutputFile>,
}

type WriteLines = fn(&mut OutputFile, &Source, &Network, &[String], &[Outcome]) -> csv::Result<()>;

impl Outputs {
    /// Opens the outputs, which must differ from each other and from all inputs.
    ///
    /// # Errors
    /// If a file cannot be created, or is another output or an input.
    pub fn open(
        experiment: &args::Experiment,
        detail_files: &args::DetailFiles,
        policies: &[&String],
    ) -> Result<Outputs, Failure> {
        let out = experiment.output.out.as_deref();
        let args::DetailFiles { per_coflow, per_flow, per_link } = detail_files;
        let (coflows, flows, links) = (per_coflow.as_deref(), per_flow.as_deref(), per_link.as_deref());
        let outputs_by_option =
            [("--out", out), ("--per-coflow", coflows), ("--per-flow", flows), ("--per-link", links)];
        check_distinct(experiment, policies, &outputs_by_option)?;
        let open = |path: Option<&Path>| path.map(OutputFile::create).transpose();
        Ok(Outputs {
            result: ResultDestination::new(out)?,
            per_coflow: open(coflows)?,
            per_flow: open(flows)?,
            per_link: open(links)?,
        })
    }

    /// Writes all outputs; files appear once all of them are complete.
    ///
    /// # Errors
    /// If an output cannot be written.
    pub fn write(
        self,
        text: &str,
        source: &Source,
        network: &Network,
        policies: &[String],
        outcomes: &[Outcome],
    ) -> Result<(), Failure> {
        let mut complete = Vec::new();
        // If the reader closes the standard output early, the files are still written.
        let mut stdout_failure = None;
        let lines = [
            (self.per_coflow, coflow_lines as WriteLines),
            (self.per_flow, flow_lines),
            (self.per_link, link_lines),
        ];
        for (file, write_lines) in lines {
            let Some(mut file) = file else { continue };
            match write_lines(&mut file, source, network, policies, outcomes)
                .map_err(|error| file.failure(&io_error(error)))
            {
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
    output::check_distinct(&experiment.input.trace, outputs)?;
    let args::NetworkOptions { incast, fabric, .. } = &experiment.network;
    let files = [incast, fabric].into_iter().flatten().map(PathBuf::as_path);
    let trees = policies.iter().filter_map(|policy| policy_spec::tree_file(policy)).map(Path::new);
    files.chain(trees).try_for_each(|file| output::check_distinct(file, outputs))
}

fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

fn coflow_lines(
    out: &mut OutputFile,
    _: &Source,
    _: &Network,
    policies: &[String],
    outcomes: &[Outcome],
) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "coflow", "arrival_s", "width", "bytes", "cct_s"])?;
    for (policy, outcome) in policies.iter().zip(outcomes) {
        for coflow in &outcome.coflows {
            let (id, arrival, width, bytes) = (coflow.id, coflow.released_at, coflow.width, coflow.bytes);
            csv.serialize((policy, id, arrival, width, bytes, coflow.cct()))?;
        }
    }
    Ok(csv.flush()?)
}

fn flow_lines(
    out: &mut OutputFile,
    source: &Source,
    _: &Network,
    policies: &[String],
    outcomes: &[Outcome],
) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "coflow", "flow", "src", "dst", "bytes", "fct_s"])?;
    for (policy, outcome) in policies.iter().zip(outcomes) {
        for coflow in &outcome.coflows {
            let flows = &source.workload.coflows[coflow.index].flows;
            for (number, (flow, end)) in flows.iter().zip(&coflow.flow_ends).enumerate() {
                let fct = end - coflow.released_at;
                csv.serialize((policy, coflow.id, number, flow.src, flow.dst, flow.bytes.get(), fct))?;
            }
        }
    }
    Ok(csv.flush()?)
}

fn link_lines(
    out: &mut OutputFile,
    _: &Source,
    network: &Network,
    policies: &[String],
    outcomes: &[Outcome],
) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "kind", "link", "utilization"])?;
    for (policy, outcome) in policies.iter().zip(outcomes) {
        for (kind, used) in [("send", &outcome.send_utilization), ("receive", &outcome.recv_utilization)] {
            for (port, utilization) in used.iter().enumerate() {
                csv.serialize((policy, kind, port, utilization))?;
            }
        }
        for (trunk, utilization) in outcome.trunk_utilization.iter().enumerate() {
            csv.serialize((policy, "trunk", network.trunk_name(trunk), utilization))?;
        }
    }
    Ok(csv.flush()?)
}
