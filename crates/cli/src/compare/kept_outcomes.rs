//! The file of `--resume`: outcomes of finished replays, from which a comparison continues after an interruption.
//!
//! The first line describes the input, and each further line has the outcome of one policy. A line is appended when a replay finishes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use weir_console::checksum;
use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_core::model::Workload;
use weir_sim::Outcome;

use crate::args;
use crate::network::{KeptDetails, Network};

/// The maximum size of a file. The outcome of 100,000 coflows takes 20 MB.
const MAX_BYTES: u64 = 4 << 30;

/// Checks that all sources can be read again.
///
/// # Errors
/// If a source is the standard input.
pub fn check_sources(experiment: &args::Experiment) -> Result<(), Failure> {
    match experiment.input.sources.iter().any(|file| file.as_os_str() == "-") {
        true => Err(Failure::input("--resume: expected files as sources, not the standard input")),
        false => Ok(()),
    }
}

/// What outcomes depend on, except for the policy.
#[derive(Debug, Serialize, Deserialize)]
pub struct Input {
    version: String,
    /// The files that the command reads, with their checksums.
    files: BTreeMap<String, String>,
    /// The options of sources, replay and network, and what outcomes contain.
    options: [String; 4],
}

impl Input {
    /// The input of a comparison.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn new(experiment: &args::Experiment, kept: KeptDetails) -> Result<Input, Failure> {
        let files = super::input_files(experiment, &[]);
        let with_checksum = |file: PathBuf| Ok((file.display().to_string(), checksum::compute(&file)?));
        Ok(Input {
            version: args::version().to_owned(),
            files: files.into_iter().map(with_checksum).collect::<Result<_, Failure>>()?,
            options: [
                format!("{:?}", experiment.input.read_options),
                format!("{:?}", experiment.replay),
                format!("{:?}", experiment.network),
                format!("{kept:?}"),
            ],
        })
    }

    /// What differs from the input of this comparison.
    fn difference(&self, other: &Input) -> Option<String> {
        if self.version != other.version {
            return Some(format!("another version of weir, {}", self.version));
        }
        if self.options != other.options {
            return Some("other options".to_owned());
        }
        let differs = |name: &&String| self.files.get(*name) != other.files.get(*name);
        let name = self.files.keys().chain(other.files.keys()).find(differs)?;
        Some(format!("other files or contents of files ({name})"))
    }
}

/// A line of the file: the outcome of a policy.
#[derive(Debug, Serialize, Deserialize)]
struct Entry<T> {
    policy: String,
    /// The checksum of the policy's tree file.
    tree: Option<String>,
    outcome: T,
}

/// The outcomes of the file, and the file for further ones.
pub struct KeptOutcomes {
    path: PathBuf,
    /// By policy.
    outcomes: BTreeMap<String, Outcome>,
    trees: BTreeMap<String, String>,
    file: Mutex<File>,
}

impl KeptOutcomes {
    /// Opens or creates the file. Reads the outcomes of these policies, which must be of the same input.
    ///
    /// # Errors
    /// If the file or a policy tree cannot be read, the file is of another input, or another process uses it.
    pub fn open(
        path: &Path,
        input: &Input,
        policies: &[String],
        workload: &Workload,
        network: &Network,
    ) -> Result<KeptOutcomes, Failure> {
        let mut trees = BTreeMap::new();
        for policy in policies {
            if let Some(file) = policy_spec::tree_file(policy) {
                trees.insert(policy.clone(), checksum::compute(Path::new(&file))?);
            }
        }
        let unreadable =
            |error: &dyn std::fmt::Display| Failure::input(format_args!("{}: {error}", path.display()));
        let options = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = options.map_err(|error| Failure::output(path, &error))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => unreadable(&"another process uses this file"),
            TryLockError::Error(error) => unreadable(&error),
        })?;
        let lines = complete_lines(&mut file).map_err(|error| unreadable(&error))?;
        let Some((first, entries)) = lines.split_first() else {
            write_line(&mut file, input).map_err(|error| Failure::output(path, &error))?;
            return Ok(KeptOutcomes {
                path: path.to_owned(),
                outcomes: BTreeMap::new(),
                trees,
                file: file.into(),
            });
        };
        let invalid = |line: usize, error: &dyn std::fmt::Display| {
            unreadable(&format_args!("line {line}: {error}; expected a file that --resume has written"))
        };
        let kept_input: Input = serde_json::from_str(first).map_err(|error| invalid(1, &error))?;
        if let Some(difference) = kept_input.difference(input) {
            return Err(unreadable(&format_args!(
                "has outcomes for {difference}; help: remove the file to start again"
            )));
        }
        let mut outcomes = BTreeMap::new();
        for (number, line) in (2..).zip(entries) {
            let entry: Entry<Outcome> =
                serde_json::from_str(line).map_err(|error| invalid(number, &error))?;
            if !fits(&entry.outcome, workload, network) {
                return Err(invalid(number, &"the outcome is of other coflows or links"));
            }
            if entry.tree.as_ref() == trees.get(&entry.policy) {
                outcomes.insert(entry.policy, entry.outcome);
            }
        }
        Ok(KeptOutcomes { path: path.to_owned(), outcomes, trees, file: file.into() })
    }

    /// The outcome of a policy, if its replay has finished.
    pub fn get(&self, policy: &str) -> Option<&Outcome> {
        self.outcomes.get(policy)
    }

    /// Appends the outcome of a policy.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&self, policy: &str, outcome: &Outcome) -> Result<(), Failure> {
        let entry = Entry { policy: policy.to_owned(), tree: self.trees.get(policy).cloned(), outcome };
        let mut file = self.file.lock().expect("no thread panics while it holds the lock");
        write_line(&mut file, &entry).map_err(|error| Failure::output(&self.path, &error))
    }
}

/// Reads all complete lines, and removes a last line that was not written to its end.
fn complete_lines(file: &mut File) -> io::Result<Vec<String>> {
    if file.metadata()?.len() > MAX_BYTES {
        return Err(io::Error::other(format!("expected at most {MAX_BYTES} bytes")));
    }
    let (mut lines, mut end) = (Vec::new(), 0);
    let mut reader = BufReader::new(&*file);
    loop {
        let mut line = String::new();
        let length = reader.read_line(&mut line)?;
        if !line.ends_with('\n') {
            break;
        }
        end += length as u64;
        lines.push(line);
    }
    file.set_len(end)?;
    file.seek(SeekFrom::End(0))?;
    Ok(lines)
}

fn write_line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// Whether an outcome has the coflows of a workload and the links of a network.
fn fits(outcome: &Outcome, workload: &Workload, network: &Network) -> bool {
    let ends_fit = outcome.coflows.iter().all(|coflow| [0, coflow.width].contains(&coflow.flow_ends.len()));
    let coflows = outcome.coflows.iter().map(|coflow| (coflow.index, coflow.id, coflow.width));
    let expected = workload.coflows.iter().enumerate();
    let has_coflows = coflows.eq(expected.map(|(index, spec)| (index, spec.id, spec.flows.len())));
    let [ports, trunks] = [workload.ports as usize, network.trunk_count()];
    let sides = [&outcome.send_utilization, &outcome.recv_utilization];
    let has_sides = sides.into_iter().all(|side| [0, ports].contains(&side.len()));
    let has_use = outcome.link_use.as_ref().is_none_or(|used| {
        let sides = [&used.send, &used.recv].into_iter().all(|side| [0, ports].contains(&side.len()));
        sides && used.trunks.len() == trunks
    });
    ends_fit && has_coflows && has_sides && has_use && outcome.trunk_utilization.len() == trunks
}
