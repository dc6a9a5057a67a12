//! The file of `--resume`: outcomes of finished replays, from which a comparison continues after an interruption.
//!
//! The first line identifies the input, and each further line has the outcome of one policy. A line is appended when a replay finishes.
//! Each line starts with the checksum of its rest, in JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use weir_console::checksum;
use weir_console::failure::Failure;
use weir_core::model::Workload;
use weir_core::policy::AnyPolicy;
use weir_experiment::network::Network;
use weir_experiment::source::Source;
use weir_sim::{CoflowOutcome, Outcome, ReplayOptions};

/// The maximum size of a file. The outcome of 100,000 coflows takes 20 MB.
const MAX_BYTES: u64 = 4 << 30;

/// What outcomes depend on, except for the policy.
#[derive(Debug, Serialize, Deserialize)]
struct Input {
    /// The size of the running program and the time of its last change: another build can decide differently.
    program: String,
    /// Checksums of the coflows and of the network, as read from all files and options.
    coflows: String,
    network: String,
}

impl Input {
    fn new(source: &Source, network: &Network) -> Result<Input, Failure> {
        let program = std::env::current_exe().and_then(fs::metadata);
        let program = program.and_then(|file| Ok(format!("{} {:?}", file.len(), file.modified()?)));
        let options =
            ReplayOptions { keep_flow_ends: false, keep_link_use: false, ..network.options().clone() };
        Ok(Input {
            program: program
                .map_err(|error| Failure::runtime(format_args!("--resume: the running program: {error}")))?,
            coflows: checksum::hash_debug_text(&(&source.workload, &source.sensitivities)),
            network: checksum::hash_debug_text(&options),
        })
    }

    /// What differs from the input of this comparison.
    fn difference(&self, other: &Input) -> Option<&'static str> {
        match () {
            () if self.program != other.program => Some("another build of weir"),
            () if self.coflows != other.coflows => Some("other coflows"),
            () if self.network != other.network => Some("another network, port rate or interval"),
            () => None,
        }
    }
}

/// A line of the file: the outcome of a policy.
#[derive(Debug, Serialize, Deserialize)]
struct Entry<T> {
    policy: String,
    /// The checksum of the policy's tree.
    tree: Option<String>,
    outcome: T,
}

/// The outcomes of the file, and the file for further ones.
pub struct KeptOutcomes {
    path: PathBuf,
    /// By policy.
    outcomes: BTreeMap<String, Outcome>,
    /// By policy: the checksum of its tree.
    trees: BTreeMap<String, String>,
    file: Mutex<File>,
}

impl KeptOutcomes {
    /// Opens or creates the file. Reads the outcomes of these policies with the details of a replay over `network`, which must be
    /// of the same input.
    ///
    /// # Errors
    /// If the file or a policy cannot be read, the file is of another input, or another process uses it.
    pub fn open(
        path: &Path,
        source: &Source,
        network: &Network,
        policies: &[String],
    ) -> Result<KeptOutcomes, Failure> {
        let refuse = |message: &dyn Display| Failure::input(format_args!("{}: {message}", path.display()));
        if path.as_os_str() == "-" || path.exists() && !path.is_file() {
            return Err(Failure::input(format_args!("--resume: `{}`: expected a file", path.display())));
        }
        let input = Input::new(source, network)?;
        let trees = tree_checksums(policies, source)?;
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = opened.map_err(|error| Failure::output(path, &error))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => refuse(&"another process uses this file"),
            TryLockError::Error(error) => refuse(&error),
        })?;
        let mut kept =
            KeptOutcomes { path: path.to_owned(), outcomes: BTreeMap::new(), trees, file: Mutex::new(file) };
        let fits = |outcome: &Outcome| fits(outcome, &source.workload, network);
        let complete_bytes =
            kept.read(&input, policies, network.options(), fits).map_err(|error| refuse(&error))?;
        if complete_bytes == 0 {
            kept.write_line(&input)?;
        } else {
            // Without a last line that was not written to its end.
            let file = kept.file.get_mut().expect("no other thread has the file");
            file.set_len(complete_bytes).map_err(|error| Failure::output(path, &error))?;
        }
        Ok(kept)
    }

    /// Reads the file. Returns the length of its complete lines, 0 for an empty file.
    fn read(
        &mut self,
        input: &Input,
        policies: &[String],
        options: &ReplayOptions,
        fits: impl Fn(&Outcome) -> bool,
    ) -> Result<u64, String> {
        let file = self.file.get_mut().expect("no other thread has the file");
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        if size > MAX_BYTES {
            return Err(format!("{size} bytes; expected at most {MAX_BYTES}"));
        }
        let mut reader = BufReader::new(&*file);
        let (mut complete_bytes, mut line) = (0, Vec::new());
        for number in 1.. {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
            // The first line of a file that this module wrote is complete.
            if length == 0 || number > 1 && !line.ends_with(b"\n") {
                break;
            }
            let invalid = |error: String| format!("line {number}: {error}");
            if number == 1 {
                let former: Input = parse_line(&line).map_err(invalid)?;
                if let Some(difference) = former.difference(input) {
                    let remedy = "repeat the former command, or name another file";
                    return Err(format!("has outcomes for {difference}; help: {remedy}"));
                }
            } else {
                let Entry::<Outcome> { policy, tree, outcome } = parse_line(&line).map_err(invalid)?;
                if !fits(&outcome) {
                    return Err(invalid("the outcome is of other coflows or links".to_owned()));
                }
                let is_requested = policies.contains(&policy) && tree.as_ref() == self.trees.get(&policy);
                if let Some(outcome) = with_details(outcome, options).filter(|_| is_requested) {
                    self.outcomes.insert(policy, outcome);
                }
            }
            complete_bytes += length as u64;
        }
        Ok(complete_bytes)
    }

    /// Takes the outcomes of finished replays, by policy.
    pub fn take_outcomes(&mut self) -> BTreeMap<String, Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Appends the outcome of a policy.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&self, policy: &str, outcome: &Outcome) -> Result<(), Failure> {
        self.write_line(&Entry { policy: policy.to_owned(), tree: self.trees.get(policy).cloned(), outcome })
    }

    fn write_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            let json = serde_json::to_string(value)?;
            let line = format!("{} {json}\n", checksum::hash_bytes(json.as_bytes()));
            let mut file = self.file.lock().expect("no thread panics while it holds the lock");
            let length = file.metadata()?.len();
            // The next line must not continue a part of this one.
            file.write_all(line.as_bytes()).inspect_err(|_| drop(file.set_len(length)))
        };
        write().map_err(|error| Failure::output(&self.path, &error))
    }
}

/// The checksums of the policies that are trees, by policy.
fn tree_checksums(policies: &[String], source: &Source) -> Result<BTreeMap<String, String>, Failure> {
    let mut checksums = BTreeMap::new();
    for policy in policies {
        let names = Some(&source.workload.names);
        if let AnyPolicy::Tree(tree) =
            weir_console::policy_spec::build_policy(policy, names, &source.sensitivities)?
        {
            checksums.insert(policy.clone(), checksum::hash_debug_text(&tree));
        }
    }
    Ok(checksums)
}

/// Parses a line of which the checksum is right.
fn parse_line<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n')).unwrap_or_default();
    match line.split_once(' ') {
        Some((sum, json)) if checksum::hash_bytes(json.as_bytes()) == sum => {
            serde_json::from_str(json).map_err(|error| error.to_string())
        }
        _ => Err("wrong checksum; expected a line that --resume has written".to_owned()),
    }
}

/// An outcome with the details that these options keep, without others; `None` if it lacks them.
fn with_details(mut outcome: Outcome, options: &ReplayOptions) -> Option<Outcome> {
    let has_flow_ends = outcome.coflows.iter().all(|coflow| coflow.flow_ends.len() == coflow.width);
    if options.keep_flow_ends && !has_flow_ends || options.keep_link_use && outcome.link_use.is_none() {
        return None;
    }
    if !options.keep_flow_ends {
        for coflow in &mut outcome.coflows {
            coflow.flow_ends.clear();
            coflow.flow_paths.clear();
        }
    }
    outcome.link_use = outcome.link_use.filter(|_| options.keep_link_use);
    Some(outcome)
}

/// Whether an outcome has the coflows and the jobs of a workload, completed or stalled.
fn has_coflows(outcome: &Outcome, workload: &Workload) -> bool {
    let completed = outcome.coflows.iter().chain(&outcome.endless_coflows);
    let fits = |coflow: &CoflowOutcome| {
        let spec = workload.coflows.get(coflow.index);
        spec.is_some_and(|spec| (spec.id, spec.flows.len()) == (coflow.id, coflow.width))
    };
    let stalled = || outcome.stall.iter().flat_map(|stall| &stall.coflows).map(|coflow| coflow.index);
    let mut indices: Vec<usize> = completed.clone().map(|coflow| coflow.index).chain(stalled()).collect();
    indices.sort_unstable();
    let is_finite = |coflow: &CoflowOutcome| coflow.index < workload.finite_coflows().len();
    let are_separate =
        outcome.coflows.iter().all(is_finite) && !outcome.endless_coflows.iter().any(is_finite);
    let mut jobs: BTreeSet<u64> = workload.coflows.iter().filter_map(|coflow| coflow.job).collect();
    stalled().filter_map(|index| workload.coflows.get(index)?.job).for_each(|job| {
        jobs.remove(&job);
    });
    let has_jobs = outcome.jobs.iter().map(|job| job.id).eq(jobs);
    has_jobs
        && are_separate
        && completed.clone().all(fits)
        && indices.into_iter().eq(0..workload.coflows.len())
}

/// Whether an outcome has the coflows of a workload and the links of a network.
fn fits(outcome: &Outcome, workload: &Workload, network: &Network) -> bool {
    let ends_fit = outcome.coflows.iter().all(|coflow| [0, coflow.width].contains(&coflow.flow_ends.len()));
    let paths_fit = outcome.coflows.iter().all(|coflow| {
        let count = if network.trunk_count() == 0 { 0 } else { coflow.flow_ends.len() };
        let mut links = coflow.flow_paths.iter().flatten();
        coflow.flow_paths.len() == count && links.all(|&link| (link as usize) < network.trunk_count())
    });
    let has_coflows = has_coflows(outcome, workload);
    let [ports, trunks] = [workload.ports as usize, network.trunk_count()];
    let sides = [&outcome.send_utilization, &outcome.recv_utilization];
    let has_sides = sides.into_iter().all(|side| [0, ports].contains(&side.len()));
    let has_use = outcome.link_use.as_ref().is_none_or(|used| {
        let sides = [&used.send, &used.recv].into_iter().all(|side| [0, ports].contains(&side.len()));
        let mut parts = used.send.iter().chain(&used.recv).chain(&used.trunks).map(Vec::len);
        let first = parts.next();
        sides && used.trunks.len() == trunks && parts.all(|length| Some(length) == first)
    });
    has_coflows && ends_fit && paths_fit && has_sides && has_use && outcome.trunk_utilization.len() == trunks
}
