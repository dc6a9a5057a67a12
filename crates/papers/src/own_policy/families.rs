//! Families of workloads: the trace, and generated ones that differ in one respect each.

mod changing;
mod mixtures;
mod periodic;
mod presets;
mod random;
mod recurring;
mod single_flows;

use std::ops::Range;

use weir_console::failure::Failure;
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_sim::ReplayOptions;

pub use presets::for_variants;
pub use recurring::families as recurring;

use super::goal::Goal;
use super::{SAATH, SAATH_WITH_ESTIMATES};
use crate::Trace;

/// A workload and its network.
pub struct Case {
    /// The coflows.
    pub workload: Workload,
    /// The network and the schedules.
    pub options: ReplayOptions,
}

impl From<Workload> for Case {
    /// On one switch with the default options.
    fn from(workload: Workload) -> Case {
        Case { workload, options: ReplayOptions::default() }
    }
}

/// Workloads of one kind.
pub struct Family<'a> {
    /// The name.
    pub name: String,
    /// What the workloads are.
    pub description: String,
    /// The goals for the mean of `weir`.
    pub goals: Vec<Goal>,
    /// What times are of.
    pub timed: Timed,
    /// The workloads.
    pub source: Source<'a>,
}

/// What the times of a family are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// All coflows.
    Coflows,
    /// Jobs, including their computing.
    Jobs,
}

/// The workloads of a family.
pub enum Source<'a> {
    /// One workload: the trace with arrivals this many times as fast.
    Trace(Option<&'a Trace>, f64),
    /// A workload for each seed.
    Generated(BuildCase),
}

/// Builds the workload of a seed.
type BuildCase = Box<dyn Fn(u64) -> Result<Case, Failure>>;

impl<'a> Family<'a> {
    /// Generated workloads without goals, in which coflows are timed.
    fn generated(
        name: impl Into<String>,
        description: impl Into<String>,
        build: impl Fn(u64) -> Result<Case, Failure> + 'static,
    ) -> Family<'a> {
        Family {
            name: name.into(),
            description: description.into(),
            goals: Vec::new(),
            timed: Timed::Coflows,
            source: Source::Generated(Box::new(build)),
        }
    }

    fn with_goals(self, goals: Vec<Goal>) -> Family<'a> {
        Family { goals, ..self }
    }

    fn timed_by_job(self) -> Family<'a> {
        Family { timed: Timed::Jobs, ..self }
    }

    /// The workloads, one for each of the seeds if they are generated.
    ///
    /// # Errors
    /// If a workload or a network cannot be built, or the trace is missing.
    pub fn cases(&self, seeds: &Range<u64>) -> Result<Vec<Case>, Failure> {
        match &self.source {
            Source::Trace(Some(trace), factor) => {
                Ok(vec![Case::from(trace.workload.with_faster_arrivals(*factor))])
            }
            Source::Trace(None, _) => Err(Failure::input(format_args!(
                "--only: the workload `{}` needs a trace; help: add `--trace FILE`",
                self.name
            ))),
            Source::Generated(build) => seeds.clone().map(build).collect(),
        }
    }
}

/// Goals against `varys` and against Saath.
fn goals(varys: f64, saath: f64) -> Vec<Goal> {
    vec![Goal::over("varys", varys), Goal::over(SAATH, saath)]
}

/// The goal to be no worse than Saath with re-queueing.
fn no_worse_than_saath() -> Vec<Goal> {
    vec![Goal::over(SAATH_WITH_ESTIMATES, 1.0)]
}

/// All families. Those of the trace are there without a trace too, but have no workloads.
pub fn all(trace: Option<&Trace>) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = [1.0, 2.0, 4.0].map(|factor| trace_family(trace, factor)).into();
    families.extend(presets::families());
    families.extend(changing::families());
    families.extend(single_flows::families());
    families.extend(periodic::families());
    families.extend(mixtures::families());
    families
}

/// The families whose names contain one of the texts, in any case; all if there are no texts.
///
/// # Errors
/// If no name contains a text.
pub fn select<'a>(mut families: Vec<Family<'a>>, texts: &[String]) -> Result<Vec<Family<'a>>, Failure> {
    let contains =
        |family: &Family<'_>, text: &str| family.name.to_lowercase().contains(&text.to_lowercase());
    if let Some(text) = texts.iter().find(|text| !families.iter().any(|family| contains(family, text))) {
        let names: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
        return Err(Failure::input(format_args!(
            "--only: no family has `{text}` in its name; expected a part of one of: {}",
            names.join("; ")
        )));
    }
    families.retain(|family| texts.is_empty() || texts.iter().any(|text| contains(family, text)));
    Ok(families)
}

fn trace_family(trace: Option<&Trace>, factor: f64) -> Family<'_> {
    let name = trace.map_or("the trace", |trace| trace.name.as_str());
    Family {
        name: format!("Trace, arrivals x{factor}"),
        description: match factor {
            1.0 => format!("Coflows of {name}, with its arrivals."),
            _ => format!("Coflows of {name} arrive {factor} times as fast."),
        },
        goals: goals(1.02, 0.9),
        timed: Timed::Coflows,
        source: Source::Trace(trace, factor),
    }
}

/// An interval between schedules in seconds, as a part of a family's description.
fn describe_interval(seconds: f64) -> String {
    match seconds {
        0.0 => "A schedule at every event.".to_owned(),
        _ => format!("Schedules at multiples of {}.", format_interval(seconds)),
    }
}

/// An interval between schedules: 0, or microseconds below 1 ms, or milliseconds.
fn format_interval(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        _ if seconds < 1e-3 => format!("{:.0} us", seconds * 1e6),
        _ => format!("{:.0} ms", seconds * 1e3),
    }
}

/// A time of a generated workload.
fn seconds(seconds: f64) -> Time {
    Time::new(seconds).expect("all generated times are finite and not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_selected_by_parts_of_their_names() {
        let names = |texts: &[&str]| -> Result<Vec<String>, Failure> {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            Ok(select(all(None), &texts)?.into_iter().map(|family| family.name).collect())
        };
        assert_eq!(
            names(&["SMALL, interval 8 ms", "trace, arrivals x2"]).unwrap(),
            ["Trace, arrivals x2", "Preset small, interval 8 ms"]
        );
        assert_eq!(names(&["narrow"]).unwrap(), ["Narrow coflows"]);
        assert_eq!(names(&[]).unwrap().len(), all(None).len());
        let error = names(&["narrow", "missing"]).unwrap_err().to_string();
        assert!(error.contains("`missing`") && error.contains("Narrow coflows; "), "{error}");
    }

    #[test]
    fn families_of_the_trace_need_a_trace() {
        let error = all(None)[0].cases(&(1..2)).err().map(|error| error.to_string());
        assert!(error.unwrap().contains("--trace FILE"));
    }

    #[test]
    fn names_of_families_are_distinct() {
        let families = all(None);
        let mut names: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
