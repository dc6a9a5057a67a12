//! Replays whose results are missing or incomplete, and the columns that say so.

use std::fmt;

use serde_json::{Value, json};
use weir_sim::Outcome;
use weir_sim::lower_bound::{BoundViolation, LowerBounds};
use weir_sim::outcome::{Stall, StalledCoflow};

use crate::failure::Failure;
use crate::record::Record;

/// The column with the summary of the problem.
const ERROR: &str = "error";

/// The column with the number of completed coflows, which is null if there are no results.
pub const COMPLETED: &str = "coflows_completed";

/// The caption of that column.
pub const COMPLETED_CAPTION: &str = "completed: coflows that completed. Statistics are of these, and speedups of those that completed under both policies.\n";

/// The first cell of a replay without results.
pub const FAILED: &str = "failed";

/// The maximum number of problems in a message.
const MAX_PROBLEMS: usize = 8;

/// Why the results of a replay are missing or incomplete.
#[derive(Debug, Clone, PartialEq)]
pub enum Problem {
    /// The outcome violates a lower bound, which is a bug of the policy or the simulator. There are no results.
    Invalid(BoundViolation),
    /// Some coflows cannot complete. The results are those of the others.
    Stalled {
        /// When, and which coflows.
        stall: Stall,
        /// The number of completed coflows.
        completed: usize,
    },
}

impl Problem {
    /// The problem of an outcome, if it has one.
    pub fn find(outcome: &Outcome, bounds: &LowerBounds) -> Option<Problem> {
        if let Err(violation) = bounds.check(outcome) {
            return Some(Problem::Invalid(violation));
        }
        let stall = outcome.stall.clone()?;
        Some(Problem::Stalled { stall, completed: outcome.coflows.len() })
    }

    /// Whether there are no results.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Problem::Invalid(_))
    }

    /// The problem as one line.
    pub fn summary(&self) -> String {
        match self {
            Problem::Invalid(violation) => format!("internal error: {violation}"),
            Problem::Stalled { stall, completed } => {
                let count = completed + stall.coflows.len();
                format!("{completed} of {count} coflows completed; {}", stall.summary())
            }
        }
    }
}

impl fmt::Display for Problem {
    /// The summary, and a line for each of the first coflows that cannot complete.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        match self {
            Problem::Invalid(_) => Ok(()),
            Problem::Stalled { stall, .. } => stall.fmt_coflows(f),
        }
    }
}

/// Adds the columns about problems to a record. If one record has a problem, all of them get the columns.
pub fn add_columns(record: &mut Record, problem: Option<&Problem>) {
    record.add(ERROR, problem.map(Problem::summary));
    let (completed, stalled) = match problem {
        None => (record.get("coflows").cloned().unwrap_or_default(), Vec::new()),
        Some(Problem::Invalid(_)) => (Value::Null, Vec::new()),
        Some(Problem::Stalled { stall, completed }) => {
            ((*completed).into(), stall.coflows.iter().map(stalled_value).collect())
        }
    };
    record.add(COMPLETED, completed);
    record.add("stalled_coflows", stalled);
}

fn stalled_value(coflow: &StalledCoflow) -> Value {
    let StalledCoflow { id, remaining_bytes, links, parents, .. } = coflow;
    json!({ "coflow": id, "remaining_bytes": remaining_bytes, "links": links, "parents": parents })
}

/// Whether a record is that of a replay without results.
pub fn is_failed(record: &Record) -> bool {
    record.get(ERROR).is_some_and(Value::is_string) && record.get(COMPLETED).is_some_and(Value::is_null)
}

/// The failure of a command whose results are written and have these problems; `None` without problems.
pub fn to_failure<'a>(problems: impl Iterator<Item = (String, &'a Problem)>) -> Option<Failure> {
    let mut lines: Vec<String> = problems.map(|(replay, problem)| format!("{replay}: {problem}")).collect();
    let omitted = lines.len().saturating_sub(MAX_PROBLEMS);
    if omitted > 0 {
        lines.truncate(MAX_PROBLEMS);
        lines.push(format!("{omitted} more problems; help: `--format json` has all of them"));
    }
    (!lines.is_empty()).then(|| Failure::runtime(lines.join("\nweir: ")))
}
