//! Runs the [`ControlPlane`] on one thread: schedules at every interval, and runs the requests of [`Handle`]s.
//!
//! Saath, section 5: the schedule of an interval is computed from the reports of the last interval, and sent at once. The
//! thread therefore applies reports when they arrive, and schedules once per interval, before queued requests. In the paper,
//! hosts serve the next flow themselves when a flow ends. Here the coordinator schedules early then, and when flows begin or
//! change between data and none. Early schedules take a fifth of a processor at most.
//!
//! Reports that name no flow wait until the next schedule or request, so that not each of them wakes the thread.
//!
//! Memory is bounded. Requests wait in one short queue, in which each call of a handle has one entry. If the order queue
//! of a host is full, its orders are dropped; when the queue has room again, the next order is a full order.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until};
use weir_proto::{Order, RefusedOrders, Report, RestoredObjects, UdpControl};
use weir_tls::LogLimit;

use crate::control_plane::{ControlPlane, MatchingMessages, RejectedEntries, ServiceWeights};

mod duration_stats;
mod histogram;

pub use duration_stats::DurationStats;
pub use histogram::Histogram;

/// Maximum number of queued requests. Further callers wait until the queue has room.
const MAX_QUEUED_REQUESTS: usize = 256;

/// The shortest time between a schedule and an early one: this fraction of an interval, and this many times the duration of the last
/// schedule.
const EARLY_GAP_DIVISOR: u32 = 8;
const EARLY_GAP_FACTOR: u32 = 4;

/// Maximum number of queued orders to a host.
const MAX_QUEUED_ORDERS: usize = 4;

/// The longest wait for agents to apply an order, in intervals and in total. An order is sent within an interval, and reported as applied
/// within another one.
const MAX_CONFIRMATION_INTERVALS: u32 = 6;
const MAX_CONFIRMATION_WAIT: Duration = Duration::from_millis(250);

/// How often a wait checks whether agents have applied an order.
const CONFIRMATION_CHECK_INTERVAL: Duration = Duration::from_millis(4);

/// A request for the thread to run.
type Job = Box<dyn FnOnce(&mut State) + Send>;

/// The coordinator has stopped, so no thread can run the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator has stopped")]
pub struct Stopped;

/// Counts and statistics of the coordinator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overview {
    /// Active coflows.
    pub active_coflows: usize,
    /// Coflows, active or completed.
    pub coflows: usize,
    /// Flows of these coflows.
    pub flows: usize,
    /// Hosts and switches whose agents are connected.
    pub connected_agents: usize,
    /// Rejected report entries since the start.
    pub rejected_entries: RejectedEntries,
    /// See [`ControlPlane::refused_orders`].
    pub refused_orders: RefusedOrders,
    /// See [`ControlPlane::restored_objects`].
    pub restored_objects: RestoredObjects,
    /// Orders dropped since the start, because earlier orders were still queued.
    pub dropped_orders: u64,
    /// Durations of the last schedules.
    pub schedule_durations: DurationStats,
    /// Durations of all schedules since the start.
    pub schedule_histogram: Histogram,
    /// Reports received since the start.
    pub received_reports: u64,
    /// See [`ControlPlane::forwarded_udp_measurements`].
    pub forwarded_udp_measurements: u64,
    /// See [`ControlPlane::ordered_udp_limits`].
    pub ordered_udp_limits: u64,
    /// See [`ControlPlane::matching_messages`].
    pub matching_messages: Option<MatchingMessages>,
}

/// Channel for the orders of a host.
struct OrderChannel {
    orders: mpsc::Sender<Order>,
    /// Whether an order was dropped since the last full order.
    has_dropped_order: bool,
}

/// The maximum number of reports of an agent, on average, that wait for the next schedule.
const MAX_WAITING_REPORTS: usize = 8;

/// A report that has not been applied.
struct WaitingReport {
    host: u32,
    report: Report,
    received_at: Instant,
}

/// The reports that wait for the thread.
#[derive(Clone, Default)]
struct WaitingReports(Arc<Mutex<Vec<WaitingReport>>>);

impl WaitingReports {
    /// Adds a report. Returns the number of reports that wait.
    fn push(&self, host: u32, report: Report) -> usize {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(WaitingReport { host, report, received_at: Instant::now() });
        waiting.len()
    }

    fn take(&self) -> Vec<WaitingReport> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// State of the thread.
struct State {
    plane: ControlPlane,
    started_at: Instant,
    order_channels: Vec<Option<OrderChannel>>,
    dropped_orders: u64,
    /// Limits lines about replaced streams.
    log_limit: LogLimit,
    /// The time from which an early schedule may run.
    early_from: Instant,
    schedule_durations: duration_stats::DurationWindow,
    schedule_histogram: Histogram,
    waiting_reports: WaitingReports,
    received_reports: u64,
}

/// Starts the thread that owns a control plane. The thread ends when all handles are dropped.
///
/// # Errors
/// The operating system cannot create the timer or the thread.
pub fn start(plane: ControlPlane) -> io::Result<(Handle, JoinHandle<()>)> {
    let clock = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let schedule_interval = Duration::from_secs_f64(plane.settings().interval);
    let (job_sender, jobs) = mpsc::channel(MAX_QUEUED_REQUESTS);
    let agent_count = plane.host_statuses().len();
    let waiting_reports = WaitingReports::default();
    let handle = Handle {
        jobs: job_sender,
        waiting_reports: waiting_reports.clone(),
        max_waiting_reports: MAX_WAITING_REPORTS * agent_count,
        schedule_interval,
        first_generation: plane.first_generation(),
        has_allocator: plane.has_allocator(),
        measured: watch::Sender::new(Measured::of(&plane)),
    };
    let state = State {
        plane,
        started_at: Instant::now(),
        order_channels: std::iter::repeat_with(|| None).take(agent_count).collect(),
        log_limit: LogLimit::default(),
        dropped_orders: 0,
        early_from: Instant::now(),
        schedule_durations: duration_stats::DurationWindow::default(),
        schedule_histogram: Histogram::default(),
        waiting_reports,
        received_reports: 0,
    };
    let thread = thread::Builder::new()
        .name("weir-control".to_owned())
        .spawn(move || clock.block_on(run(state, jobs, schedule_interval)))?;
    Ok((handle, thread))
}

async fn run(mut state: State, mut jobs: mpsc::Receiver<Job>, schedule_interval: Duration) {
    let mut clock = interval(schedule_interval);
    // A late schedule skips intervals instead of running several schedules in a row.
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let is_early_due = state.plane.has_changed_flows();
        tokio::select! {
            biased;
            _ = clock.tick() => {
                state.run_schedule(false);
                // Queued requests run before the next schedule, even if this schedule took longer than an interval.
                for _ in 0..MAX_QUEUED_REQUESTS {
                    let Ok(job) = jobs.try_recv() else { break };
                    state.run_job(job);
                }
            }
            () = sleep_until(state.early_from.into()), if is_early_due => state.run_schedule(true),
            job = jobs.recv() => match job {
                Some(job) => state.run_job(job),
                None => return,
            }
        }
    }
}

impl State {
    /// Seconds since the start.
    fn now(&self) -> f64 {
        self.started_at.elapsed().as_secs_f64()
    }

    /// Runs a request, which sees the reports that arrived before it.
    fn run_job(&mut self, job: Job) {
        self.apply_reports();
        job(self);
    }

    fn apply_reports(&mut self) {
        for WaitingReport { host, report, received_at } in self.waiting_reports.take() {
            self.received_reports += 1;
            let received_at = received_at.saturating_duration_since(self.started_at).as_secs_f64();
            self.plane.report(host, &report, received_at);
        }
    }

    /// Computes one schedule and queues its orders.
    fn run_schedule(&mut self, is_early: bool) {
        let start = Instant::now();
        self.apply_reports();
        for (host, channel) in (0u32..).zip(&mut self.order_channels) {
            if let Some(channel) = channel
                && channel.has_dropped_order
                && channel.orders.capacity() > 0
            {
                channel.has_dropped_order = false;
                self.plane.require_full_order(host);
            }
        }
        for (host, order) in self.plane.tick(self.now()) {
            let order = Order { is_early, ..order };
            let Some(channel) = &mut self.order_channels[host as usize] else { continue };
            // The agent would refuse changes after a dropped order: the next order that it receives is a full one.
            if channel.has_dropped_order && !order.is_full {
                self.dropped_orders += 1;
                continue;
            }
            match channel.orders.try_send(order) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(_)) => {
                    channel.has_dropped_order = true;
                    self.dropped_orders += 1;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => self.order_channels[host as usize] = None,
            }
        }
        if let Some(error) = self.plane.take_policy_error() {
            tracing::error!(%error, "the policy stops, and TCP divides the links; help: set another policy");
        }
        let duration = start.elapsed();
        let interval = Duration::from_secs_f64(self.plane.settings().interval);
        let gap = (interval / EARLY_GAP_DIVISOR).max(duration * EARLY_GAP_FACTOR);
        self.early_from = start + duration + gap;
        self.schedule_durations.add(duration);
        self.schedule_histogram.add(duration);
    }

    fn subscribe_to_orders(&mut self, host: u32) -> Option<mpsc::Receiver<Order>> {
        let channel = self.order_channels.get_mut(host as usize)?;
        let is_open = channel.as_ref().is_some_and(|channel| !channel.orders.is_closed());
        let name = self.plane.agent_names().name(host);
        if is_open && self.log_limit.permits(name, "replaced", self.started_at.elapsed()) {
            tracing::warn!(
                host = name,
                "a new stream replaces an open one: the agent has lost its connection, or two agents have this name"
            );
        }
        let (orders, receiver) = mpsc::channel(MAX_QUEUED_ORDERS);
        *channel = Some(OrderChannel { orders, has_dropped_order: false });
        self.plane.require_full_order(host);
        self.plane.clear_observed(host);
        self.plane.start_grace_periods(host);
        Some(receiver)
    }

    fn overview(&self) -> Overview {
        let (coflows, flows) = self.plane.coflow_and_flow_counts();
        Overview {
            active_coflows: self.plane.active_coflow_count(),
            coflows,
            flows,
            connected_agents: self
                .order_channels
                .iter()
                .flatten()
                .filter(|channel| !channel.orders.is_closed())
                .count(),
            rejected_entries: self.plane.rejected_entries(),
            refused_orders: self.plane.refused_orders(),
            restored_objects: self.plane.restored_objects(),
            dropped_orders: self.dropped_orders,
            schedule_durations: self.schedule_durations.stats(),
            schedule_histogram: self.schedule_histogram,
            received_reports: self.received_reports,
            forwarded_udp_measurements: self.plane.forwarded_udp_measurements(),
            ordered_udp_limits: self.plane.ordered_udp_limits(),
            matching_messages: self.plane.matching_messages(),
        }
    }
}

/// Client of the thread that owns the control plane. Clones use the same thread.
#[derive(Clone)]
pub struct Handle {
    jobs: mpsc::Sender<Job>,
    waiting_reports: WaitingReports,
    /// The number of waiting reports that wakes the thread.
    max_waiting_reports: usize,
    schedule_interval: Duration,
    first_generation: u64,
    has_allocator: bool,
    measured: watch::Sender<Measured>,
}

/// The rates that agents have to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// See [`ControlPlane::udp_control`].
    pub udp_control: Option<UdpControl>,
    /// See [`ControlPlane::wants_demands`].
    pub wants_demands: bool,
}

impl Measured {
    fn of(plane: &ControlPlane) -> Measured {
        Measured { udp_control: plane.udp_control(), wants_demands: plane.wants_demands() }
    }
}

impl Handle {
    /// The time between two schedules.
    pub fn interval(&self) -> Duration {
        self.schedule_interval
    }

    /// The rates that agents have to measure. They change with the first maximum bandwidth of a service.
    pub fn measured(&self) -> watch::Receiver<Measured> {
        self.measured.subscribe()
    }

    /// See [`ControlPlane::has_allocator`].
    pub fn has_allocator(&self) -> bool {
        self.has_allocator
    }

    /// See [`ControlPlane::with_first_generation`].
    pub fn first_generation(&self) -> u64 {
        self.first_generation
    }

    /// Calls the control plane with the time since the start, in seconds.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut ControlPlane, f64) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        self.run(move |state| {
            let now = state.now();
            request(&mut state.plane, now)
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, answer_receiver) = oneshot::channel();
        let job: Job = Box::new(move |state| {
            // The caller may have been cancelled.
            let _ = answer.send(request(state));
        });
        self.jobs.send(job).await.map_err(|_| Stopped)?;
        answer_receiver.await.map_err(|_| Stopped)
    }

    /// Waits until hosts have applied orders: at most six intervals, and at most 250 ms.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn wait_until_applied(&self, orders: Vec<(u32, u64)>) -> Result<(), Stopped> {
        let wait = (self.schedule_interval * MAX_CONFIRMATION_INTERVALS).min(MAX_CONFIRMATION_WAIT);
        let (end, orders) = (Instant::now() + wait, Arc::new(orders));
        while !orders.is_empty() && Instant::now() < end {
            let awaited = Arc::clone(&orders);
            if self.call(move |plane, _| plane.have_applied(&awaited)).await? {
                break;
            }
            sleep(self.schedule_interval.min(CONFIRMATION_CHECK_INTERVAL)).await;
        }
        Ok(())
    }

    /// See [`ControlPlane::set_services`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn set_services(&self, services: ServiceWeights) -> Result<(), Stopped> {
        let set = move |plane: &mut ControlPlane, _| {
            plane.set_services(services);
            Measured::of(plane)
        };
        let measured = self.call(set).await?;
        self.measured.send_if_modified(|last| std::mem::replace(last, measured) != measured);
        Ok(())
    }

    /// Applies the report of a host or switch, before the next schedule and the next request. See [`ControlPlane::report`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn report(&self, host: u32, report: Report) -> Result<(), Stopped> {
        // Flows that begin or end, and messages of receivers, can cause an early schedule.
        let is_urgent = !report.flows.is_empty() || report.matching.is_some();
        if self.waiting_reports.push(host, report) < self.max_waiting_reports && !is_urgent {
            return if self.jobs.is_closed() { Err(Stopped) } else { Ok(()) };
        }
        // The thread applies all waiting reports.
        self.run(|_| ()).await
    }

    /// Subscribes to the orders of a host or switch. The first order is a full order, and follows the host's next report. An
    /// earlier subscription ends. `None` if no host or switch has this number.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn subscribe_to_orders(&self, host: u32) -> Result<Option<mpsc::Receiver<Order>>, Stopped> {
        self.run(move |state| state.subscribe_to_orders(host)).await
    }

    /// Removes a host from its slot, and ends the stream of its agent. See [`ControlPlane::leave_slot`].
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn remove_host(&self, slot: u32) -> Result<(), Stopped> {
        self.run(move |state| {
            let now = state.now();
            state.plane.leave_slot(slot, now);
            state.order_channels[slot as usize] = None;
        })
        .await
    }

    /// Counts and statistics of the coordinator.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn overview(&self) -> Result<Overview, Stopped> {
        self.run(|state| state.overview()).await
    }
}
