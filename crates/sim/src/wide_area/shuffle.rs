//! One job's shuffle between regions, and the reduce tasks after it (Siphon, ATC '18, sections 3.2 and 5.2).
//!
//! A task begins when all that it reads is there, and computes for a time in proportion to what it has read.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use weir_core::model::WideArea;
use weir_core::wide_area::Scheme;

use super::{Demand, Group, Inside, Options, Run, WideAreaReplayError, run};

/// A reduce task.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// The region that it runs in.
    pub region: usize,
    /// The bytes that it reads, by region.
    pub reads: Vec<f64>,
}

/// A job that reads all at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Shuffle {
    /// Its reduce tasks.
    pub tasks: Vec<Task>,
    /// How long a task computes, in seconds for each byte that it has read.
    pub computing: f64,
}

/// What was found, times in seconds since the shuffle began.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// When each task had read all.
    pub reads: Vec<f64>,
    /// When each task had computed.
    pub ends: Vec<f64>,
    /// Links, ways and the rest.
    pub run: Run,
}

impl Job {
    /// When the last task had read all: the coflow's completion time.
    pub fn cct(&self) -> f64 {
        self.reads.iter().copied().fold(0.0, f64::max)
    }

    /// When the last task ended.
    pub fn end(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

impl Shuffle {
    /// A job that reads so many bytes in all: from each region a part, by as many tasks in each as are given, which have in all as much
    /// of the whole as there are of them. Tasks of a region differ by up to a factor of three; seeds draw it.
    pub fn draw(seed: u64, bytes: f64, from: &[f64], tasks: &[u32], computing: f64) -> Shuffle {
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        let all: u32 = tasks.iter().sum();
        let mut drawn = Vec::new();
        for (region, &count) in tasks.iter().enumerate() {
            let sizes: Vec<f64> =
                (0..count).map(|_| 0.5 + (chance.next_u64() >> 11) as f64 / (1u64 << 53) as f64).collect();
            let sum: f64 = sizes.iter().sum();
            let of_region = bytes * f64::from(count) / f64::from(all);
            let reads = |size: f64| from.iter().map(|part| of_region * size / sum * part).collect();
            drawn.extend(sizes.iter().map(|&size| Task { region, reads: reads(size) }));
        }
        Shuffle { tasks: drawn, computing }
    }

    /// The transfers between regions, a group for each task.
    pub fn demand(&self, area: &WideArea) -> Demand {
        let group = |task: &Task| {
            let from = task.reads.iter().enumerate();
            let flows = from.filter_map(|(from, &bytes)| Some((area.link(from, task.region)?, bytes)));
            Group { bytes: task.reads.iter().sum(), flows: flows.filter(|(_, bytes)| *bytes > 0.0).collect() }
        };
        Demand { arrival: 0.0, of: (0, 0), groups: self.tasks.iter().map(group).collect() }
    }

    /// Runs it alone.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(
        &self,
        area: &WideArea,
        scheme: Scheme,
        inside: Inside,
        seed: u64,
    ) -> Result<Job, WideAreaReplayError> {
        let options = Options { seed, inside, keep_flows: false };
        let run = run(&[self.demand(area)], area, scheme, &options, |_| true)?;
        let reads: Vec<f64> =
            run.ends[0].iter().map(|ends| ends.iter().copied().fold(0.0, f64::max)).collect();
        let ends = self.tasks.iter().zip(&reads);
        let ends = ends.map(|(task, read)| read + task.reads.iter().sum::<f64>() * self.computing).collect();
        Ok(Job { reads, ends, run })
    }
}
