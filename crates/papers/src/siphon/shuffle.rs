//! Simulates a shuffle between regions and the reduce tasks after it (sections 3.2 and 5.2).
//!
//! A task starts when all of its data has arrived, and computes for a time proportional to the bytes that it read.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use weir_core::model::WideArea;
use weir_core::wide_area::WideAreaPolicy;

use weir_sim::wide_area::{
    CoflowDemand, FlowGroup, GroupOrder, WideAreaOptions, WideAreaReplayError, WideAreaRun, run,
};

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
    /// The replay of the transfers: their ends, paths, and the bytes of each link.
    pub replay: WideAreaRun,
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

    /// The transfers between regions, with a flow group per task.
    pub fn demand(&self, area: &WideArea) -> CoflowDemand {
        let group = |task: &ReduceTask| {
            let from = task.read_bytes.iter().enumerate();
            let flows =
                from.filter_map(|(from, &bytes)| Some((area.link_between(from, task.region)?, bytes)));
            FlowGroup {
                bytes: task.read_bytes.iter().sum(),
                flows: flows.filter(|(_, bytes)| *bytes > 0.0).collect(),
            }
        };
        CoflowDemand {
            arrival: 0.0,
            service_and_application: (0, 0),
            groups: self.tasks.iter().map(group).collect(),
        }
    }

    /// Runs the job alone on the links of `area`.
    ///
    /// # Errors
    /// As for [`run`].
    pub fn run(
        &self,
        area: &WideArea,
        scheme: WideAreaPolicy,
        inside: GroupOrder,
        seed: u64,
    ) -> Result<JobOutcome, WideAreaReplayError> {
        let options = WideAreaOptions { seed, group_order: inside, keep_flow_ends: false };
        let run = run(&[self.demand(area)], area, scheme, &options, |_| true)?;
        let reads: Vec<f64> =
            run.transfer_ends[0].iter().map(|ends| ends.iter().copied().fold(0.0, f64::max)).collect();
        let ends = self.tasks.iter().zip(&reads);
        let ends = ends
            .map(|(task, read)| read + task.read_bytes.iter().sum::<f64>() * self.compute_secs_per_byte)
            .collect();
        Ok(JobOutcome { read_ends_secs: reads, task_ends_secs: ends, replay: run })
    }
}

#[cfg(test)]
mod tests {
    use weir_core::model::wide_area::LinkMeasurement;
    use weir_core::units::{Rate, Time};
    use weir_core::wide_area::build;

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
    fn figure_3(inside: GroupOrder) -> JobOutcome {
        const MB: f64 = 1e6;
        let task = |first, third| ReduceTask { region: 1, read_bytes: vec![first * MB, 0.0, third * MB] };
        let shuffle = Shuffle {
            tasks: vec![task(150.0, 50.0), task(100.0, 50.0)],
            compute_secs_per_byte: 1.0 / (50.0 * MB),
        };
        shuffle.run(&area_of_three_regions(|_, _| 50.0 * MB), build("fifo").unwrap(), inside, 1).unwrap()
    }

    #[test]
    fn figure_4_largest_flow_group_first() {
        let job = figure_3(GroupOrder::LargestFirst);
        assert_near(&job.read_ends_secs, &[3.0, 5.0]);
        assert_near(&job.task_ends_secs, &[7.0, 8.0]);
        assert_near(&[job.end()], &[8.0]);
    }

    #[test]
    fn figure_5_smallest_flow_group_first() {
        let job = figure_3(GroupOrder::SmallestFirst);
        assert_near(&job.read_ends_secs, &[5.0, 2.0]);
        assert_near(&job.task_ends_secs, &[9.0, 5.0]);
        assert_near(&[job.end()], &[9.0]);
    }

    #[test]
    fn section_5_2_slowest_read_does_not_depend_on_the_order() {
        // "the slowest flow will always finish at the same time in spite of the scheduling order".
        for inside in [GroupOrder::Concurrent, GroupOrder::LargestFirst, GroupOrder::SmallestFirst] {
            assert_near(&[figure_3(inside).cct()], &[5.0]);
        }
    }

    #[test]
    fn detours_shorten_the_shuffle_and_flow_groups_the_job() {
        // Two groups of unequal size on one slow link.
        let area = area_of_three_regions(|from, to| if (from, to) == (0, 1) { 1.0 } else { 10.0 });
        let task = |bytes| ReduceTask { region: 1, read_bytes: vec![bytes, 0.0, 0.0] };
        let shuffle = Shuffle { tasks: vec![task(11.0), task(99.0)], compute_secs_per_byte: 0.1 };
        let job = |policy: &str, inside| shuffle.run(&area, build(policy).unwrap(), inside, 1).unwrap();
        let naive = job("fair", GroupOrder::Concurrent);
        let detours = job("fair:detours=on", GroupOrder::Concurrent);
        let siphon = job("siphon:detours=on", GroupOrder::LargestFirst);
        assert_near(&[naive.cct(), detours.cct(), siphon.cct()], &[110.0, 10.0, 10.0]);
        // With flow groups, the larger group ends after 9 s and computes for 9.9 s. With shared links, it ends after 10 s.
        assert_near(&[siphon.end(), detours.end()], &[18.9, 19.9]);
    }
}
