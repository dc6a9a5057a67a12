//! Writes the outputs of `weir sim` and `weir compare`: the result, and files with lines for coflows and flows.

use std::io::Write;
use std::path::{Path, PathBuf};

use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile, ResultDestination};
use weir_console::policy_spec;
use weir_experiment::results::Results;
use weir_experiment::tables::ResultTable;

use crate::args;
use crate::detail_file::DetailFile;

/// The outputs of a command, opened before the replays.
pub struct Outputs {
    result: ResultDestination,
    per_coflow: Option<DetailFile>,
    per_flow: Option<DetailFile>,
    per_bin: Option<DetailFile>,
    per_group: Option<DetailFile>,
    per_job: Option<DetailFile>,
    per_demand: Option<DetailFile>,
    per_link: Option<DetailFile>,
    per_link_time: Option<DetailFile>,
}

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
        let open = |path: Option<&Path>| path.map(DetailFile::create).transpose();
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
        let tables = [
            (self.per_coflow, ResultTable::Coflows),
            (self.per_flow, ResultTable::Flows),
            (self.per_bin, ResultTable::Bins),
            (self.per_group, ResultTable::Groups),
            (self.per_job, ResultTable::Jobs),
            (self.per_demand, ResultTable::Demands),
            (self.per_link, ResultTable::Links),
            (self.per_link_time, ResultTable::LinkTimes),
        ];
        for (file, table) in tables {
            let Some(file) = file else { continue };
            match write_table(file, table, results) {
                Ok(file) => complete.push(file),
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

/// Writes a table.
fn write_table(file: DetailFile, table: ResultTable, results: &Results<'_>) -> Result<OutputFile, Failure> {
    let mut rows = file.begin(table.columns().into_iter().map(|(name, _)| name.to_owned()))?;
    table.write(results, &mut rows).map_err(|error| rows.failure(&error))?;
    rows.end()
}
