//! Replays over a wide area.

use weir_core::model::{WideArea, Workload};
use weir_core::wide_area;
use weir_sim::Outcome;
use weir_sim::wide_area::{Inside, Options, replay};

use crate::args;
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::pool;
use weir_console::spec;

/// A wide area that was read.
#[derive(Clone)]
pub struct Wide {
    /// The name it was asked for by.
    pub name: String,
    /// What it says.
    pub area: WideArea,
    /// What its bandwidth is drawn by.
    pub seed: u64,
}

impl Wide {
    /// Reads the one that was asked for, if one was.
    ///
    /// # Errors
    /// If it cannot be read, or is none.
    pub fn read(args: &args::Wide) -> Result<Option<Wide>, Failure> {
        let Some(path) = &args.wide_area else { return Ok(None) };
        let area = weir_trace::wide_area::read(path)?;
        Ok(Some(Wide { name: path.display().to_string(), area, seed: args.bandwidth_seed }))
    }

    /// What there is, for people.
    pub fn caption(&self) -> String {
        let regions = self.area.regions().join(", ");
        let holds = if self.area.changes() {
            let like = match self.area.correlation() {
                0.0 => String::new(),
                correlation => format!(" at a correlation of {correlation}"),
            };
            format!("another bandwidth every {}{like}, seed {}", self.area.holds(), self.seed)
        } else {
            "bandwidth does not change".to_owned()
        };
        format!("{}: links between {regions}; {holds}.\n", self.name)
    }

    /// Replays a workload under each of these policies, up to `jobs` at a time.
    ///
    /// # Errors
    /// A policy that is not for a wide area, a workload that is not, or somebody asks to stop.
    pub fn run(
        &self,
        workload: &Workload,
        policies: &[String],
        keep_flows: bool,
        jobs: usize,
        progress: &Progress,
    ) -> Result<Vec<Outcome>, Failure> {
        let build = |policy: &String| spec::build_wide(policy, &workload.names);
        policies.iter().try_for_each(|policy| build(policy).map(drop))?;
        pool(policies.len(), jobs, |at| self.replay(workload, &policies[at], keep_flows, progress))
    }

    /// Replays a workload under one policy.
    ///
    /// # Errors
    /// As [`Wide::run`].
    pub fn replay(
        &self,
        workload: &Workload,
        policy: &str,
        keep_flows: bool,
        progress: &Progress,
    ) -> Result<Outcome, Failure> {
        let options = Options { seed: self.seed, inside: Inside::Shared, keep_flows };
        let watch = progress.watch(policy, workload.coflows.len());
        let scheme = spec::build_wide(policy, &workload.names)?;
        let outcome = replay(workload, &self.area, scheme, &options, |done| watch.reached(done));
        outcome.map_err(|error| Failure::wide_area(policy, &error))
    }

    /// The same, with its bandwidth drawn by another seed.
    pub fn with_seed(&self, seed: u64) -> Wide {
        Wide { seed, ..self.clone() }
    }
}

/// The policies to compare if none are named.
pub fn all() -> Vec<String> {
    wide_area::TABLE.iter().map(|entry| entry.name.to_owned()).collect()
}
