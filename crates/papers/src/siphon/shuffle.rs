//! Simulates a shuffle between regions and the reduce tasks after it (sections 3.2 and 5.2).
//!
//! A task starts when all of its data has arrived, and computes for a time proportional to the bytes that it read.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use weir_console::failure::Failure;
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, WideArea, Workload};
use weir_core::units::{Bytes, Time};

/// A reduce task.
#[derive(Debug, Clone, PartialEq)]
pub struct ReduceTask {
    /// The position of its region.
    pub region: usize,
    /// The bytes that it reads from each region.
    pub read_bytes: Vec<f64>,
}

/// A job whose reduce tasks all read at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Shuffle {
    /// Its reduce tasks.
    pub tasks: Vec<ReduceTask>,
    /// Seconds of computation per byte read.
    pub compute_secs_per_byte: f64,
}

/// The outcome of a job; times are in seconds since the start of the shuffle.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOutcome {
    /// The end of each task's reads.
    pub read_ends_secs: Vec<f64>,
    /// The end of each task.
    pub task_ends_secs: Vec<f64>,
}

impl JobOutcome {
    /// The coflow's completion time: the end of the slowest read.
    pub fn cct(&self) -> f64 {
        self.read_ends_secs.iter().copied().fold(0.0, f64::max)
    }

    /// The end of the last task.
    pub fn end(&self) -> f64 {
        self.task_ends_secs.iter().copied().fold(0.0, f64::max)
    }
}

impl Shuffle {
    /// Draws a job that reads `bytes` in total: a fraction from each region (`region_fractions`), by `tasks` reduce tasks in each region.
    /// The tasks of a region together read in proportion to their number. Single tasks differ by a random factor of up to three.
    pub fn draw(
        seed: u64,
        bytes: f64,
        region_fractions: &[f64],
        tasks: &[u32],
        compute_secs_per_byte: f64,
    ) -> Shuffle {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let all: u32 = tasks.iter().sum();
        let mut drawn_tasks = Vec::new();
        for (region, &count) in tasks.iter().enumerate() {
            let sizes: Vec<f64> =
                (0..count).map(|_| 0.5 + (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64).collect();
            let sum: f64 = sizes.iter().sum();
            let region_bytes = bytes * f64::from(count) / f64::from(all);
            let reads =
                |size: f64| region_fractions.iter().map(|part| region_bytes * size / sum * part).collect();
            drawn_tasks.extend(sizes.iter().map(|&size| ReduceTask { region, read_bytes: reads(size) }));
        }
        Shuffle { tasks: drawn_tasks, compute_secs_per_byte }
    }

    /// The reads as one coflow, with the number of the task of each flow. Each region has a port from which tasks read, and a port
    /// for each of its tasks.
    pub fn workload(&self, area: &WideArea) -> (Workload, Vec<usize>) {
        let regions = area.regions().len();
        let tasks_in = |region: usize| self.tasks.iter().filter(|task| task.region == region).count();
        let region_ports = 1 + (0..regions).map(tasks_in).max().unwrap_or(0) as u32;
        let mut next_port: Vec<u32> = (0..regions as u32).map(|region| region * region_ports).collect();
        let (mut flows, mut task_of_flow) = (Vec::new(), Vec::new());
        for (number, task) in self.tasks.iter().enumerate() {
            next_port[task.region] += 1;
            let reads = (0..).zip(&task.read_bytes);
            for (from, &bytes) in reads.filter(|(_, bytes)| **bytes > 0.0) {
                let bytes = Bytes::new(bytes).expect("drawn sizes are valid");
                flows.push(FlowSpec::new(from * region_ports, next_port[task.region], bytes));
                task_of_flow.push(number);
            }
        }
        let coflow = CoflowSpec::new(1, Time::ZERO, flows);
        let mut names = ServiceNames::empty();
        names.intern(ServiceNames::DEFAULT, ServiceNames::DEFAULT);
        let ports = regions as u32 * region_ports;
        (Workload { ports, coflows: vec![coflow], events: Vec::new(), names }, task_of_flow)
    }

    /// Runs the job alone on the links of `area`.
    ///
    /// # Errors
    /// If the policy does not exist, or the replay fails.
    pub fn run(&self, area: &WideArea, policy: &str, seed: u64) -> Result<JobOutcome, Failure> {
        let (workload, task_of_flow) = self.workload(area);
        let outcome = super::replay(&workload, area, policy, seed)?;
        let mut reads = vec![0.0; self.tasks.len()];
        for (&task, &end) in task_of_flow.iter().zip(&outcome.coflows[0].flow_ends) {
            reads[task] = f64::max(reads[task], end);
        }
        let ends = self.tasks.iter().zip(&reads);
        let ends = ends
            .map(|(task, read)| read + task.read_bytes.iter().sum::<f64>() * self.compute_secs_per_byte)
            .collect();
        Ok(JobOutcome { read_ends_secs: reads, task_ends_secs: ends })
    }
}

#[cfg(test)]
mod tests {
    use weir_core::model::wide_area::LinkMeasurement;
    use weir_core::units::{Rate, Time};

    use super::*;

    /// Three regions; each link has a constant rate in bytes per second.
    fn area_of_three_regions(rate: impl Fn(usize, usize) -> f64) -> WideArea {
        let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        let measured = pairs.map(|(from, to)| LinkMeasurement {
            from,
            to,
            samples: vec![Rate::new(rate(from, to)).unwrap()],
        });
        let names = ["1", "2", "3"].map(str::to_owned);
        WideArea::new(names.into(), measured.into(), Time::new(1.0).unwrap(), 0.0).unwrap()
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        assert!(
            found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-9),
            "{found:?}, expected {expected:?}"
        );
    }

    /// Fig. 3: two reduce tasks in datacenter 2 that read from datacenters 1 and 3. In a unit of time, a link carries 50 MB, and a task
    /// computes 50 MB.
    fn figure_3(groups: &str) -> JobOutcome {
        const MB: f64 = 1e6;
        let task = |first, third| ReduceTask { region: 1, read_bytes: vec![first * MB, 0.0, third * MB] };
        let shuffle = Shuffle {
            tasks: vec![task(150.0, 50.0), task(100.0, 50.0)],
            compute_secs_per_byte: 1.0 / (50.0 * MB),
        };
        let policy = format!("mrtf:groups={groups}");
        shuffle.run(&area_of_three_regions(|_, _| 50.0 * MB), &policy, 1).unwrap()
    }

    #[test]
    fn figure_4_largest_flow_group_first() {
        let job = figure_3("on");
        assert_near(&job.read_ends_secs, &[3.0, 5.0]);
        assert_near(&job.task_ends_secs, &[7.0, 8.0]);
        assert_near(&[job.end()], &[8.0]);
    }

    #[test]
    fn figure_5_smallest_flow_group_first() {
        let job = figure_3("smallest");
        assert_near(&job.read_ends_secs, &[5.0, 2.0]);
        assert_near(&job.task_ends_secs, &[9.0, 5.0]);
        assert_near(&[job.end()], &[9.0]);
    }

    #[test]
    fn section_5_2_slowest_read_does_not_depend_on_the_order() {
        // "the slowest flow will always finish at the same time in spite of the scheduling order".
        for groups in ["off", "on", "smallest"] {
            assert_near(&[figure_3(groups).cct()], &[5.0]);
        }
    }

    #[test]
    fn detours_shorten_the_shuffle_and_flow_groups_the_job() {
        // Two groups of unequal size on one slow link.
        let area = area_of_three_regions(|from, to| if (from, to) == (0, 1) { 1.0 } else { 10.0 });
        let task = |bytes| ReduceTask { region: 1, read_bytes: vec![bytes, 0.0, 0.0] };
        let shuffle = Shuffle { tasks: vec![task(11.0), task(99.0)], compute_secs_per_byte: 0.1 };
        let job = |policy: &str| shuffle.run(&area, policy, 1).unwrap();
        let [naive, detours, siphon] = ["fair", "fair:detours=on", "siphon:detours=on:groups=on"].map(job);
        assert_near(&[naive.cct(), detours.cct(), siphon.cct()], &[110.0, 10.0, 10.0]);
        // With flow groups, the larger group ends after 9 s and computes for 9.9 s. With shared links, it ends after 10 s.
        assert_near(&[siphon.end(), detours.end()], &[18.9, 19.9]);
    }
}
