//! The policy that gives the flows of a transfer the rate of the slowest.
//!
//! The policy knows the links of each job, which the replay does not. Job starts and ends are wake-ups, since a job also computes before
//! its first transfer and after its last. In this time it is registered with Saba, and affects the queues of other jobs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_core::allocation::{Allocation, CommonRate};
use weir_core::model::{CoflowSpec, SizesKnown, Slot, View};
use weir_core::ordered_f64::OrderedF64;
use weir_core::policy::{Event, Policy, Timing};
use weir_core::rounding;

use super::PlacedJob;
use super::error::SharingError;
use super::fabric::JobLinks;
use super::sharing::{Ports, SharingRule, Transfer};

/// How many solutions the policy has computed.
#[derive(Debug, Default)]
pub(super) struct SolutionCounts {
    pub computed: AtomicU64,
    pub unsettled: AtomicU64,
}

/// A change of the running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum JobChange {
    Start(usize),
    End(usize),
}

/// Sets the rates of the jobs' transfers.
pub(super) struct JobPolicy {
    ports: Ports,
    /// By job: its row in the sensitivity table.
    models: Vec<Option<usize>>,
    /// The coflows of the workload. Those of a job are adjacent, in order.
    coflows: Vec<CoflowSpec>,
    /// Future starts and known ends of jobs.
    job_changes: BinaryHeap<Reverse<(OrderedF64, JobChange)>>,
    counts: Arc<SolutionCounts>,
}

impl JobPolicy {
    /// The policy for `jobs`, which are the jobs 0, 1, ... of `coflows`.
    pub fn new(
        jobs: &[PlacedJob],
        coflows: &[CoflowSpec],
        links: &JobLinks,
        sharing: &SharingRule,
        counts: Arc<SolutionCounts>,
    ) -> Result<JobPolicy, SharingError> {
        let start = |(number, job): (usize, &PlacedJob)| {
            Reverse((OrderedF64(job.start.get()), JobChange::Start(number)))
        };
        Ok(JobPolicy {
            ports: Ports::new(jobs, links, sharing)?,
            models: jobs.iter().map(|job| job.model).collect(),
            coflows: coflows.to_vec(),
            job_changes: jobs.iter().enumerate().map(start).collect(),
            counts,
        })
    }

    /// Applies the starts and ends of jobs until `now`.
    fn apply_job_changes(&mut self, now: f64) {
        while let Some(&Reverse((OrderedF64(at), change))) = self.job_changes.peek()
            && rounding::is_due(at, now)
        {
            self.job_changes.pop();
            match change {
                JobChange::Start(job) => self.ports.add_job(job, self.models[job]),
                JobChange::End(job) => self.ports.remove_job(job),
            }
        }
    }

    /// The job of a coflow of the workload.
    fn job(&self, index: usize) -> usize {
        self.coflows[index].job.expect("each coflow of the workload is a transfer of a job") as usize
    }
}

impl Policy for JobPolicy {
    type Knowledge = SizesKnown;

    fn timing(&self) -> Timing {
        Timing::local("queues of switches share the links")
    }

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesKnown>) {
        let (Event::CoflowReleased(slot) | Event::CoflowCompleted(slot)) = event else { return };
        self.apply_job_changes(view.now());
        let (index, released_at) = (view.coflow(slot).workload_index, view.coflow(slot).released_at);
        // Not the flow's size in the network, which ends with a transfer at its limit. A job without transfers is a coflow of one empty
        // flow.
        let (job, size) = (self.job(index), self.coflows[index].flows[0].bytes.get());
        match event {
            Event::CoflowReleased(_) if size > 0.0 => self.ports.start_transfer(job, size),
            Event::CoflowCompleted(_) if size > 0.0 => self.ports.end_transfer(job),
            _ => {}
        }
        let is_last = self.coflows.get(index + 1).is_none_or(|next| next.job != self.coflows[index].job);
        if matches!(event, Event::CoflowCompleted(_)) && is_last {
            let end = self.coflows[index].computed_at(released_at, view.now());
            self.job_changes.push(Reverse((OrderedF64(end), JobChange::End(job))));
        }
    }

    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        self.apply_job_changes(view.now());
        let slots: Vec<Slot> = view.active_coflows().to_vec();
        let transfer = |&slot: &Slot| Transfer {
            job: self.job(view.coflow(slot).workload_index),
            // The coflow has two equal flows.
            remaining_bytes: view.total_remaining_bytes(slot) / 2.0,
        };
        let transfers: Vec<Transfer> = slots.iter().map(transfer).collect();
        let is_settled = self.ports.compute_rates(&transfers);
        self.counts.computed.fetch_add(1, Ordering::Relaxed);
        self.counts.unsettled.fetch_add(u64::from(!is_settled), Ordering::Relaxed);
        for (slot, transfer) in slots.into_iter().zip(transfers) {
            let rate = self.ports.rate(transfer.job);
            if rate > 0.0 {
                out.set_common(slot, CommonRate::CompleteTogether(transfer.remaining_bytes / rate));
            }
        }
    }

    fn next_wakeup(&mut self, _: &mut View<'_, SizesKnown>, _: &Allocation) -> f64 {
        self.job_changes.peek().map_or(f64::INFINITY, |Reverse((OrderedF64(at), _))| *at)
    }
}
