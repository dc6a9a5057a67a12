//! How jobs share links: the queues of each port and their weights.
//!
//! - [`Sharing::Flows`], Saba's baseline (section 8.1): one queue a port, so that flows share max-min, whoever's they are. This is what
//!   the congestion control of InfiniBand approximates; here it is exact.
//! - [`Sharing::Applications`], the ideal max-min fairness of section 8.4, study 4: each application has a queue of its own at
//!   every port, and all have the same weight.
//! - [`Sharing::Saba`]: queues and weights from [`Controller`], which is told of jobs that begin and end and of their connections.

use std::num::NonZeroU16;

use weir_core::saba::controller::{AppId, ConnectionId, ControllerError, Port, Settings};
use weir_core::saba::{Controller, Fraction, Sensitivity};
use weir_core::solve::wfq::{Queue, Wfq, WfqError};

/// How links are shared.
#[derive(Debug, Clone, PartialEq)]
pub enum Sharing {
    /// Max-min between flows.
    Flows,
    /// Max-min between applications.
    Applications,
    /// Saba.
    Saba(Saba),
}

/// What Saba goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct Saba {
    /// The sensitivity table.
    pub models: Vec<Sensitivity>,
    /// Queues of a port: 8 in the testbed (section 8.1).
    pub queues: u16,
    /// Priority levels: 16 of InfiniBand (section 7.2).
    pub levels: NonZeroU16,
    /// The least weight of an application, as a part of an even share.
    pub floor: Fraction,
    /// How long connections are open.
    pub connections: Connections,
}

/// How long the connections of a job are open, which the paper does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// From the start of a transfer to its end: a port's weights are those of the jobs that use it now.
    Transfer,
    /// As long as the job runs.
    Job,
}

/// Why links cannot be shared so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SharingError {
    /// The controller refused something.
    #[error("Saba's controller: {0}")]
    Controller(#[from] ControllerError),
    /// The solver refused something.
    #[error("rates: {0}")]
    Rates(#[from] WfqError),
}

/// The ports of a cluster and what their queues are now.
pub(super) struct Ports {
    pub(super) wfq: Wfq,
    /// Queues of a port.
    queues: u32,
    kind: Kind,
}

enum Kind {
    Flows,
    Applications,
    Saba(Box<Controller>, Connections),
}

impl Ports {
    /// Ports of these capacities, for this many jobs.
    pub(super) fn new(capacities: &[f64], jobs: usize, sharing: &Sharing) -> Result<Ports, SharingError> {
        let (queues, kind) = match sharing {
            Sharing::Flows => (1, Kind::Flows),
            Sharing::Applications => (jobs.max(1) as u32, Kind::Applications),
            Sharing::Saba(saba) => {
                let settings = Settings { c_saba: Fraction::ALL, floor: saba.floor, levels: saba.levels };
                let all = vec![saba.queues; capacities.len()];
                let controller = Controller::central(saba.models.clone(), settings, &all)?;
                (u32::from(saba.queues), Kind::Saba(Box::new(controller), saba.connections))
            }
        };
        let of_port = |port| (0..queues).map(move |_| Queue { link: port, weight: 1.0 });
        let all: Vec<Queue> = (0..capacities.len() as u32).flat_map(of_port).collect();
        Ok(Ports { wfq: Wfq::new(capacities, &all)?, queues, kind })
    }

    /// A job begins, whose sensitivity is this row of the table.
    pub(super) fn begin(&mut self, job: usize, model: usize, ports: &[Port]) -> Result<(), SharingError> {
        if let Kind::Saba(controller, connections) = &mut self.kind {
            controller.register(AppId(job as u64), model)?;
            if *connections == Connections::Job {
                controller.open(ConnectionId(job as u64), AppId(job as u64), ports)?;
            }
        }
        Ok(())
    }

    /// A job ends.
    pub(super) fn end(&mut self, job: usize) -> Result<(), SharingError> {
        if let Kind::Saba(controller, connections) = &mut self.kind {
            if *connections == Connections::Job {
                controller.close(ConnectionId(job as u64))?;
            }
            controller.deregister(AppId(job as u64))?;
        }
        Ok(())
    }

    /// A job's transfer begins. One connection stands for all: weights depend on who is at a port, not how often.
    pub(super) fn open(&mut self, job: usize, ports: &[Port]) -> Result<(), SharingError> {
        if let Kind::Saba(controller, Connections::Transfer) = &mut self.kind {
            controller.open(ConnectionId(job as u64), AppId(job as u64), ports)?;
        }
        Ok(())
    }

    /// A job's transfer ends.
    pub(super) fn close(&mut self, job: usize) -> Result<(), SharingError> {
        if let Kind::Saba(controller, Connections::Transfer) = &mut self.kind {
            controller.close(ConnectionId(job as u64))?;
        }
        Ok(())
    }

    /// Brings the weights up to date.
    pub(super) fn update(&mut self) -> Result<(), SharingError> {
        let Kind::Saba(controller, _) = &mut self.kind else { return Ok(()) };
        for port in controller.update().changed {
            let Some(plan) = controller.plan(port) else { continue };
            for (queue, &weight) in (port * self.queues..).zip(&plan.weights) {
                // A queue that nobody uses keeps the weight that it had.
                if weight > 0.0 {
                    self.wfq.set_weight(queue as usize, weight)?;
                }
            }
        }
        Ok(())
    }

    /// The queue of a job at a port.
    pub(super) fn queue(&self, job: usize, port: Port) -> u32 {
        let queue = match &self.kind {
            Kind::Flows => 0,
            Kind::Applications => job as u32,
            Kind::Saba(controller, _) => {
                let level = controller.level(AppId(job as u64)).map_or(0, usize::from);
                let queue = controller.plan(port).and_then(|plan| plan.queue_of.get(level));
                queue.map_or(0, |&queue| u32::from(queue))
            }
        };
        port * self.queues + queue
    }
}
