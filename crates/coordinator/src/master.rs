//! A [`ControlPlane`] with a clock: one thread owns it, and [`Handle`]s ask it to do things.
//!
//! Saath, section 5: the schedule of an interval is made from what hosts reported during the one before, and pushed right away. So
//! reports are taken in as they come, and the thread decides once an interval, whatever waits.
//!
//! Nothing piles up: what is asked waits for a place in one short queue, a caller has one question there at a time, and of orders a host
//! that does not take them gets none until it does, and then one that names everything.

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

/// How many questions wait at most; more of them wait outside.
const QUEUE: usize = 256;

/// How many orders to a host wait at most.
const ORDERS: usize = 4;

/// Something to do for the thread.
type Work = Box<dyn FnOnce(&mut State) + Send>;

/// The coordinator has stopped: there is nobody to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator has stopped")]
pub struct Stopped;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Declined {
    /// It cannot be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is nobody to do it.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// The whole at a glance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overview {
    /// Coflows that are not over.
    pub under_way: usize,
    /// Coflows that are known, over or not.
    pub coflows: usize,
    /// Flows of these.
    pub flows: usize,
    /// Hosts that take orders now.
    pub attending: usize,
    /// What was not believed of reports, so far.
    pub doubts: RejectedEntries,
    /// See [`ControlPlane::refusals`].
    pub refusals: Refusals,
    /// See [`ControlPlane::restored`].
    pub restored: Restored,
    /// Orders that were not sent, since those before them were not taken, so far.
    pub dropped: u64,
    /// What schedules take.
    pub schedules: Timing,
    /// The same of all since the beginning.
    pub histogram: Histogram,
    /// Reports that were taken in, so far.
    pub reports: u64,
    /// See [`ControlPlane::passed_on`].
    pub passed_on: u64,
}

/// A host's way to get its orders.
struct Line {
    orders: mpsc::Sender<Order>,
    /// Whether an order was dropped since the last that names everything.
    behind: bool,
}

/// What the thread has.
struct State {
    plane: ControlPlane,
    began: Instant,
    lines: Vec<Option<Line>>,
    dropped: u64,
    schedules: timing::Window,
    histogram: Histogram,
    reports: u64,
}

/// Starts the thread that owns a plane. It ends when all handles are gone.
///
/// # Errors
/// If the system gives no thread.
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
    // Schedules that take longer than they may are left out, and not made up for.
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            _ = clock.tick() => {
                state.decide();
                // However long that took, what waits has its turn before the next.
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
    /// Seconds since the beginning.
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// One schedule, and its orders on their way.
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

/// Asks the thread that owns the plane. Clones ask the same one.
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

    /// How many hosts and switches there are: they are numbered from 0.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        let work: Work = Box::new(move |state| {
            // Who asked may have gone.
            let _ = answer.send(question(state));
        });
        self.work.send(work).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    // For frameworks.

    /// See [`ControlPlane::register`].
    ///
    /// # Errors
    /// Why it is not registered.
    pub async fn register(&self, id: String, registration: Registration) -> Result<bool, Declined> {
        Ok(self.ask(move |state| state.plane.register(&id, registration, state.now())).await??)
    }

    /// See [`ControlPlane::restore`].
    ///
    /// # Errors
    /// Why it is not registered.
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
    /// Why it stays as it is.
    pub async fn update(&self, id: String, flows: Vec<Transfer>) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.update(&id, &flows, state.now())).await??)
    }

    /// See [`ControlPlane::check_update`].
    ///
    /// # Errors
    /// Why not.
    pub async fn check_update(&self, id: String, flows: Vec<Transfer>) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.check_update(&id, &flows)).await??)
    }

    /// See [`ControlPlane::deregister`].
    ///
    /// # Errors
    /// If there is none.
    pub async fn deregister(&self, id: String) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.deregister(&id, state.now())).await??)
    }

    /// See [`ControlPlane::set_policy`].
    ///
    /// # Errors
    /// Why the policy before stays.
    pub async fn set_policy(&self, policy: AnyPolicy) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.set_policy(policy, state.now())).await??)
    }

    /// See [`ControlPlane::check_policy`].
    ///
    /// # Errors
    /// Why not.
    pub async fn check_policy(&self, policy: AnyPolicy) -> Result<(), Declined> {
        Ok(self.ask(move |state| state.plane.check_policy(policy)).await??)
    }

    /// See [`ControlPlane::set_queues`].
    ///
    /// # Errors
    /// If there is nobody to give orders.
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
    /// If there is nobody to share anything.
    pub async fn set_services(&self, services: Services) -> Result<(), Stopped> {
        self.ask(move |state| state.plane.set_services(services)).await
    }

    /// See [`ControlPlane::limits`].
    ///
    /// # Errors
    /// If nobody knows.
    pub async fn limits(&self) -> Result<BTreeMap<(u32, Arc<str>, IpAddr), u64>, Stopped> {
        self.ask(|state| state.plane.limits()).await
    }

    // For hosts.

    /// A host reports; the answer comes when it was taken in. See [`ControlPlane::report`].
    ///
    /// # Errors
    /// If there is nobody to report to.
    pub async fn report(&self, host: u32, report: Report) -> Result<(), Stopped> {
        self.ask(move |state| {
            state.reports += 1;
            state.plane.report(host, &report, state.now());
        })
        .await
    }

    /// A host's orders from now on, of which the first names everything; none if there is no such host. Who attended for it before gets
    /// no more. Orders come once the host reports.
    ///
    /// # Errors
    /// If there is nobody to give orders.
    pub async fn attend(&self, host: u32) -> Result<Option<mpsc::Receiver<Order>>, Stopped> {
        self.ask(move |state| state.attend(host)).await
    }

    // For whoever wants to know.

    /// See [`ControlPlane::found`].
    ///
    /// # Errors
    /// If there is nobody to ask.
    pub async fn found(&self) -> Result<Vec<(u32, Vec<Found>)>, Stopped> {
        self.ask(|state| state.plane.found()).await
    }

    /// See [`ControlPlane::list`].
    ///
    /// # Errors
    /// If there is nobody to ask.
    pub async fn list(&self, after: Option<String>, most: usize) -> Result<Vec<Summary>, Stopped> {
        self.ask(move |state| state.plane.list(after.as_deref(), most)).await
    }

    /// See [`ControlPlane::endings`].
    ///
    /// # Errors
    /// If there is nobody to ask.
    pub async fn endings(&self) -> Result<Vec<Arc<str>>, Stopped> {
        self.ask(|state| state.plane.endings()).await
    }

    /// See [`ControlPlane::belongs`].
    ///
    /// # Errors
    /// If there is nobody to ask.
    pub async fn belongs(&self, id: String) -> Result<Option<(String, bool)>, Stopped> {
        self.ask(move |state| state.plane.belongs(&id)).await
    }

    /// See [`ControlPlane::show`].
    ///
    /// # Errors
    /// If there is nobody to ask.
    pub async fn show(&self, id: String) -> Result<Option<Standing>, Stopped> {
        self.ask(move |state| state.plane.show(&id)).await
    }

    /// See [`ControlPlane::shares`].
    ///
    /// # Errors
    /// If there is nobody to ask.
    pub async fn shares(&self, after: Option<FlowKey>, most: usize) -> Result<Vec<Share>, Stopped> {
        self.ask(move |state| state.plane.shares(after.as_ref(), most)).await
    }

    /// See [`ControlPlane::hosts`].
    ///
    /// # Errors
    /// If there is nobody to ask.
    pub async fn host_states(&self) -> Result<Vec<HostState>, Stopped> {
        self.ask(|state| state.plane.hosts()).await
    }

    /// The whole at a glance.
    ///
    /// # Errors
    /// If there is nobody to ask.
    pub async fn overview(&self) -> Result<Overview, Stopped> {
        self.ask(|state| state.overview()).await
    }
}
