//! Owner of the [`ControlPlane`]: one thread calls it with the time, and runs the requests of [`Handle`]s.
//!
//! Saath, section 5: the schedule of an interval is computed from the reports of the interval before, and pushed at
//! once. The thread therefore applies reports when they arrive, and schedules once an interval, whatever requests wait.
//!
//! Memory is bounded. Requests wait in one short queue, in which each call of a handle has one entry. A host that does
//! not take its orders gets no more until it does; the next order is then complete.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};
use weir_core::policy::AnyPolicy;
use weir_proto::{FlowKey, Found, Order, Queues, Refusals, Report, Restored};

use crate::plane::{
    ControlPlane, HostState, Refusal, Registration, RejectedEntries, Services, Share, Standing, Summary,
    Transfer,
};

mod histogram;
mod timing;

pub use histogram::Histogram;
pub use timing::Timing;

/// Maximum number of queued requests; callers beyond it wait until the queue has room.
const QUEUE: usize = 256;

/// Maximum number of queued orders to a host.
const ORDERS: usize = 4;

/// A request for the thread to run.
type Work = Box<dyn FnOnce(&mut State) + Send>;

/// The coordinator has stopped, so no thread can run the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator has stopped")]
pub struct Stopped;

/// Reason for which a request was not applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Declined {
    /// The control plane refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The coordinator has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Counts and statistics of the coordinator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overview {
    /// Active coflows.
    pub under_way: usize,
    /// Known coflows, active or completed.
    pub coflows: usize,
    /// Flows of the known coflows.
    pub flows: usize,
    /// Hosts and switches that are connected to receive orders.
    pub attending: usize,
    /// Rejected report entries since the start.
    pub doubts: RejectedEntries,
    /// See [`ControlPlane::refusals`].
    pub refusals: Refusals,
    /// See [`ControlPlane::restored`].
    pub restored: Restored,
    /// Orders that were not sent since the start, because the host had not taken the ones before.
    pub dropped: u64,
    /// Durations of the last schedules.
    pub schedules: Timing,
    /// Durations of all schedules since the start.
    pub histogram: Histogram,
    /// Reports received since the start.
    pub reports: u64,
    /// See [`ControlPlane::passed_on`].
    pub passed_on: u64,
}

/// Channel for the orders of a host.
struct Line {
    orders: mpsc::Sender<Order>,
    /// Whether an order was dropped since the last complete order.
    behind: bool,
}

/// State of the thread.
struct State {
    plane: ControlPlane,
    began: Instant,
    lines: Vec<Option<Line>>,
    dropped: u64,
    schedules: timing::Window,
    histogram: Histogram,
    reports: u64,
}

/// Starts the thread that owns a control plane. The thread ends when all handles are dropped.
///
/// # Errors
/// The operating system cannot create the timer or the thread.
pub fn start(plane: ControlPlane) -> io::Result<(Handle, JoinHandle<()>)> {
    let clock = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let every = Duration::from_secs_f64(plane.settings().interval);
    let (work, asked) = mpsc::channel(QUEUE);
    let (hosts, throttles, allocates) = (plane.hosts().len(), plane.throttles(), plane.allocates());
    let lines = std::iter::repeat_with(|| None).take(hosts).collect();
    let schedules = timing::Window::default();
    let histogram = Histogram::default();
    let state = State { plane, began: Instant::now(), lines, dropped: 0, schedules, histogram, reports: 0 };
    let thread = thread::Builder::new()
        .name("weir-master".to_owned())
        .spawn(move || clock.block_on(run(state, asked, every)))?;
    Ok((Handle { work, every, hosts: hosts as u32, throttles, allocates }, thread))
}

async fn run(mut state: State, mut asked: mpsc::Receiver<Work>, every: Duration) {
    let mut clock = interval(every);
    // A late schedule skips intervals instead of running several schedules in a row.
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            _ = clock.tick() => {
                state.decide();
                // Queued requests run before the next schedule, even if this schedule took longer than an interval.
                for _ in 0..QUEUE {
                    let Ok(work) = asked.try_recv() else { break };
                    work(&mut state);
                }
            }
            work = asked.recv() => match work {
                Some(work) => work(&mut state),
                None => return,
            }
        }
    }
}

impl State {
    /// Seconds since the start.
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Computes one schedule and queues its orders.
    fn decide(&mut self) {
        let began = Instant::now();
        for (host, line) in (0u32..).zip(&mut self.lines) {
            if let Some(line) = line
                && line.behind
                && line.orders.capacity() > 0
            {
                line.behind = false;
                self.plane.renew(host);
            }
        }
        for (host, order) in self.plane.tick(self.now()) {
            let Some(line) = &mut self.lines[host as usize] else { continue };
            match line.orders.try_send(order) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(_)) => {
                    line.behind = true;
                    self.dropped += 1;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => self.lines[host as usize] = None,
            }
        }
        let took = began.elapsed();
        self.schedules.add(took);
        self.histogram.add(took);
    }

    fn attend(&mut self, host: u32) -> Option<mpsc::Receiver<Order>> {
        let line = self.lines.get_mut(host as usize)?;
        let (orders, taken) = mpsc::channel(ORDERS);
        *line = Some(Line { orders, behind: false });
        self.plane.renew(host);
        self.plane.forget_found(host);
        self.plane.reconnected(host);
        Some(taken)
    }

    fn overview(&self) -> Overview {
        let (coflows, flows) = self.plane.known();
        Overview {
            under_way: self.plane.under_way(),
            coflows,
            flows,
            attending: self.lines.iter().flatten().filter(|line| !line.orders.is_closed()).count(),
            doubts: self.plane.doubts(),
            refusals: self.plane.refusals(),
            restored: self.plane.restored(),
            dropped: self.dropped,
            schedules: self.schedules.timing(),
            histogram: self.histogram,
            reports: self.reports,
            passed_on: self.plane.passed_on(),
        }
    }
}

/// Client of the thread that owns the control plane. Clones use the same thread.
#[derive(Clone)]
pub struct Handle {
    work: mpsc::Sender<Work>,
    every: Duration,
    hosts: u32,
    throttles: bool,
    allocates: bool,
}

impl Handle {
    /// The time between two schedules.
    pub fn interval(&self) -> Duration {
        self.every
    }

    /// See [`ControlPlane::throttles`].
    pub fn throttles(&self) -> bool {
        self.throttles
    }

    /// See [`ControlPlane::allocates`].
    pub fn allocates(&self) -> bool {
        self.allocates
    }

    /// Number of hosts and switches, which are numbered from 0.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        let work: Work = Box::new(move |state| {
            // The caller may have been cancelled.
            let _ = answer.send(question(state));
        });
        self.work.send(work).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    // Requests of frameworks.

    /// See [`ControlPlane::register`].
    ///
    /// # Errors
    /// [`Declined`]: the control plane refused it, or the coordinator has stopped.
    pub async fn register(&self, id: String, registration: Registration) -> Result<bool, Declined> {
        Ok(self.ask(move |state| state.plane.register(&id, registration, state.now())).await??)
    }

    /// See [`ControlPlane::restore`].
    ///
    /// # Errors
    /// [`Declined`]: the control plane refused it, or the coordinator has stopped.
    pub async fn restore(
        &self,
        id: String,
        registration: Registration,
        first: Option<Vec<Transfer>>,
    ) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.restore(&id, registration, first, state.now())).await??)
    }

    /// See [`ControlPlane::update`].
    ///
    /// # Errors
    /// [`Declined`]: the control plane refused it, or the coordinator has stopped. The coflow is unchanged.
    pub async fn update(&self, id: String, flows: Vec<Transfer>) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.update(&id, &flows, state.now())).await??)
    }

    /// See [`ControlPlane::check_update`].
    ///
    /// # Errors
    /// [`Declined`]: the control plane would refuse the update, or the coordinator has stopped.
    pub async fn check_update(&self, id: String, flows: Vec<Transfer>) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.check_update(&id, &flows)).await??)
    }

    /// See [`ControlPlane::deregister`].
    ///
    /// # Errors
    /// [`Declined`]: the coflow is unknown, or the coordinator has stopped.
    pub async fn deregister(&self, id: String) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.deregister(&id, state.now())).await??)
    }

    /// See [`ControlPlane::set_policy`].
    ///
    /// # Errors
    /// [`Declined`]: the control plane refused it, or the coordinator has stopped. The policy is unchanged.
    pub async fn set_policy(&self, policy: AnyPolicy) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.set_policy(policy, state.now())).await??)
    }

    /// See [`ControlPlane::check_policy`].
    ///
    /// # Errors
    /// [`Declined`]: the control plane would refuse the policy, or the coordinator has stopped.
    pub async fn check_policy(&self, policy: AnyPolicy) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.check_policy(policy)).await??)
    }

    /// See [`ControlPlane::set_queues`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn set_queues(&self, of_links: Vec<((u32, u32), Queues)>) -> Result<(), Stopped> {
        self.ask(move |state| {
            for ((host, link), queues) in of_links {
                state.plane.set_queues(host, link, queues);
            }
        })
        .await
    }

    /// See [`ControlPlane::set_services`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn set_services(&self, services: Services) -> Result<(), Stopped> {
        self.ask(move |state| state.plane.set_services(services)).await
    }

    /// See [`ControlPlane::limits`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn limits(&self) -> Result<BTreeMap<(u32, Arc<str>, IpAddr), u64>, Stopped> {
        self.ask(|state| state.plane.limits()).await
    }

    // Requests of agents.

    /// Applies a host's report, and returns after that. See [`ControlPlane::report`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn report(&self, host: u32, report: Report) -> Result<(), Stopped> {
        self.ask(move |state| {
            state.reports += 1;
            state.plane.report(host, &report, state.now());
        })
        .await
    }

    /// Subscribes to the orders of a host or switch; the first order is complete. `None` if no host has this number. An
    /// earlier subscription ends. Orders start after the host's first report.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn attend(&self, host: u32) -> Result<Option<mpsc::Receiver<Order>>, Stopped> {
        self.ask(move |state| state.attend(host)).await
    }

    // Queries.

    /// See [`ControlPlane::found`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn found(&self) -> Result<Vec<(u32, Vec<Found>)>, Stopped> {
        self.ask(|state| state.plane.found()).await
    }

    /// See [`ControlPlane::list`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn list(&self, after: Option<String>, most: usize) -> Result<Vec<Summary>, Stopped> {
        self.ask(move |state| state.plane.list(after.as_deref(), most)).await
    }

    /// See [`ControlPlane::endings`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn endings(&self) -> Result<Vec<Arc<str>>, Stopped> {
        self.ask(|state| state.plane.endings()).await
    }

    /// See [`ControlPlane::belongs`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn belongs(&self, id: String) -> Result<Option<(String, bool)>, Stopped> {
        self.ask(move |state| state.plane.belongs(&id)).await
    }

    /// See [`ControlPlane::show`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn show(&self, id: String) -> Result<Option<Standing>, Stopped> {
        self.ask(move |state| state.plane.show(&id)).await
    }

    /// See [`ControlPlane::shares`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn shares(&self, after: Option<FlowKey>, most: usize) -> Result<Vec<Share>, Stopped> {
        self.ask(move |state| state.plane.shares(after.as_ref(), most)).await
    }

    /// See [`ControlPlane::hosts`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn host_states(&self) -> Result<Vec<HostState>, Stopped> {
        self.ask(|state| state.plane.hosts()).await
    }

    /// Counts and statistics of the coordinator.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn overview(&self) -> Result<Overview, Stopped> {
        self.ask(|state| state.overview()).await
    }
}
