//! Runs the agent: applies the coordinator's rates to handed-over sockets, its queues to interfaces, and its classes to applications.
//!
//! - `coordinator_stream` keeps the stream to the coordinator open, and opens it again when it ends.
//! - `report_timer` decides when to send a report.
//! - `local_socket` receives the sockets of flows from programs.
//! - `flows` paces these sockets, and measures their progress.
//! - `socket` sets and reads socket options.
//! - [`load_generator`] simulates many agents to measure coordinators.
//! - `observed_connections` counts the connections of applications, and sets the classes of their packets.
//! - `demands` predicts the demands of these connections, and divides limits between them.
//! - `throttle` measures UDP that arrives, and limits UDP that is sent by the rate at which it arrives at other hosts.
//! - [`watchdog`] is a second process that removes pacing rates if this one is killed.
//! - `interfaces` keeps the interfaces as ordered.
//!
//! One thread does this work once an interval: it reads the bytes sent, sets the pacing rates that differ, and reports the flows that
//! deviate from the coordinator's estimate. Without a coordinator it continues to do so, and removes all rates when the lease ends.
//! Other threads change interfaces, since a change takes longer than an interval.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tonic::transport::Endpoint;
use weir_core::units::Rate;
use weir_proto::{FlowKey, Pace, Queues, Report};

use crate::lease::{LeaseState, Refused};
use crate::queues::{Interface, Limited};
use crate::report_delta::{ReportHistory, max_silence};
use crate::traffic::Traffic;

mod coordinator_stream;
mod demands;
pub mod endpoint;
mod flows;
mod interfaces;
pub mod load_generator;
mod local_socket;
mod observed_connections;
mod report_timer;
mod socket;
mod throttle;
pub mod watchdog;

use coordinator_stream::Event;
use flows::Flows;
use observed_connections::Applications;
use report_timer::ReportTimer;
use watchdog::Watchdog;

/// How often the agent measures and sets rates before a coordinator has sent its interval.
const ALONE: Duration = Duration::from_millis(8);

/// How often the agent reports again what the coordinator has not confirmed: a report may arrive before the flow's coflow.
const ANEW: Duration = Duration::from_secs(1);

/// The configuration of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The coordinator's address.
    pub coordinator: Endpoint,
    /// The number of this host or switch at the coordinator.
    pub host: u32,
    /// The link of a host, or the links of a switch in the coordinator's order.
    pub links: Vec<Link>,
    /// The path of the Unix socket for programs; none to accept no programs.
    pub local_socket: Option<PathBuf>,
    /// How to start a watchdog for the sockets of programs; none for a switch, and with `dry_run`.
    pub watchdog: Option<watchdog::Start>,
    /// Whether to print the `tc` commands instead of running them.
    pub dry_run: bool,
}

/// A link of a host or switch.
#[derive(Debug, Clone)]
pub struct Link {
    /// The rate of the link. Orders with higher rates are refused.
    pub rate: Rate,
    /// The interfaces of this link, which get the ordered queues. Several interfaces share the rate evenly.
    pub interfaces: Vec<Interface>,
}

/// The state of the agent. The loop and the connections of programs share it.
struct Host {
    keeper: LeaseState,
    /// Why the last order was refused; none if it was accepted.
    refused: Option<Refused>,
    flows: Flows,
    voice: ReportHistory,
    /// The applications that the agent observes, if it observes any.
    applications: Option<Applications>,
    /// Whether this agent cannot throttle, which it has not logged yet.
    is_deaf: bool,
    /// Whether weights that are not guaranteed held at the last check.
    weighed: bool,
    /// Receives the desired state of the links when it changes.
    wanted: watch::Sender<Wanted>,
    /// The conflicts of interfaces, the number of restored objects, and the present names.
    interfaces: interfaces::Status,
    watchdog: Option<Watchdog>,
    /// Whether a watchdog could not be started, which was logged.
    is_unwatched: bool,
    /// The rate of the host's link in bytes per second, if it has interfaces.
    shaped: Option<f64>,
    began: Instant,
}

/// The desired state of interfaces.
#[derive(Debug, Clone, Default, PartialEq)]
struct Wanted {
    /// The queues of links.
    queues: BTreeMap<u32, Queues>,
    /// The classes of UDP flows, at a host's link.
    limited: BTreeMap<u16, Limited>,
}

/// The state of the agent, shared between tasks.
#[derive(Clone)]
struct Shared(Arc<Mutex<Host>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Host> {
        // No task leaves the state half changed, so it stays valid after a panic of another task.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Host {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Sets the ordered rates on all sockets that differ.
    fn pace(&mut self) {
        let now = self.now();
        let keeper = &self.keeper;
        self.flows.pace(|key| keeper.rate(key, now));
    }

    /// Sends the desired state of interfaces if it has changed.
    fn want(&self) {
        let limited = self.shaped.map(|link| self.flows.limited(link)).unwrap_or_default();
        let queues = self.keeper.queues(self.now());
        self.wanted.send_if_modified(|last| {
            let is_other = last.queues != *queues || last.limited != limited;
            if is_other {
                *last = Wanted { queues: queues.into_owned(), limited };
            }
            is_other
        });
    }

    fn open(&mut self, key: FlowKey, owner: u64, socket: std::os::fd::OwnedFd) -> Result<(), flows::Refusal> {
        let rate = self.keeper.rate(&key, self.now());
        self.flows.open(key, owner, socket, rate, self.shaped.is_some())?;
        self.watch();
        Ok(())
    }

    /// Passes new sockets and the end of the lease on to the watchdog.
    fn watch(&mut self) {
        let now = self.now();
        match self.watchdog.as_mut().map_or(Ok(false), Watchdog::ensure) {
            Ok(true) => self.flows.hand_over_all(),
            Ok(false) => {}
            Err(error) if self.is_unwatched => drop(error),
            Err(error) => {
                self.is_unwatched = true;
                say(&format!(
                    "no watchdog ({error}): rates of sockets would outlive this agent if it were killed"
                ));
            }
        }
        self.flows.hand_over(self.watchdog.as_mut());
        if let Some(left) = self.keeper.ends().and_then(|ends| ends.checked_sub(now))
            && let Some(watchdog) = &mut self.watchdog
        {
            watchdog.renew(crate::traffic::now() + left, self.keeper.lease());
        }
    }

    /// Starts with a new stream to a coordinator, which wants UDP measurements and demands, or does not.
    fn begin(&mut self, arrivals: bool, demands: bool) {
        self.report_all();
        if let Some(applications) = &mut self.applications {
            applications.begin(demands);
            applications.throttles.begin(&mut applications.traffic, arrivals, Instant::now());
        }
        if arrivals && std::mem::take(&mut self.is_deaf) {
            say(
                "the coordinator throttles, but without --interface and --application nothing is measured or limited here",
            );
        }
    }

    fn obey(&mut self, mut order: weir_proto::Order) {
        let over = order.flows.iter().filter(|(_, pace)| *pace == Pace::Gone);
        let over: Vec<FlowKey> = over.map(|(key, _)| key.clone()).collect();
        let (now, arrivals) = (self.now(), std::mem::take(&mut order.arrivals));
        let limits = order.whole || !order.limits.is_empty();
        let refused = self.keeper.accept(order, now).err();
        match refused {
            None => {
                over.iter().for_each(|key| self.flows.report_delta.settle(key));
                if let Some(applications) = &mut self.applications {
                    if limits {
                        applications.change();
                    }
                    applications.throttles.heed(&mut applications.traffic, &arrivals, Instant::now());
                }
            }
            // An order after a refused one has a gap before it. Identical refusals in a row are logged once.
            Some(Refused::Gap) if self.refused.is_some() => {}
            Some(_) if self.refused == refused => {}
            Some(why) => say(&format!("an order was refused: {why}")),
        }
        self.refused = if refused == Some(Refused::Gap) { self.refused.or(refused) } else { refused };
        self.pace();
        self.want();
    }

    /// Reports everything again, since a new coordinator knows none of it.
    fn report_all(&mut self) {
        self.voice = ReportHistory::default();
        self.flows.report_delta.report_all();
        if let Some(applications) = &mut self.applications {
            applications.report_all();
        }
    }

    /// The report to send now; none if there is no news, and the last one is recent.
    fn report(&mut self, interval: Duration, now: Instant) -> Option<Report> {
        let found = self.applications.as_mut().map(|known| known.changes(now)).unwrap_or_default();
        let arrivals = self.applications.as_mut().map(|known| known.throttles.arrivals()).unwrap_or_default();
        let (obeys, refusals) = (self.keeper.obeys(), self.keeper.refusals());
        let passed = self.now();
        let mut restored = self.applications.as_ref().map(|known| known.restored()).unwrap_or_default();
        restored.queues += self.interfaces.restored;
        let conflicts = self.interfaces.conflicts.clone();
        let flows = self.flows.changes(passed);
        let report = Report { obeys, flows, found, arrivals, refusals, restored, conflicts };
        let most = max_silence(self.keeper.lease(), interval);
        self.voice.is_due(&report, most, passed).then_some(report)
    }
}

/// What an agent leaves in the kernel when it stops.
pub struct Left {
    /// The programs and maps for the traffic of applications.
    pub traffic: Option<Traffic>,
    /// The interfaces that may have queues of the agent's, by their present names.
    pub interfaces: Vec<Interface>,
}

/// Runs an agent until `stop`. All sockets are then unpaced; interfaces and the traffic of applications stay unchanged.
///
/// # Errors
/// If the socket for programs cannot be opened.
pub async fn run(
    settings: Settings,
    traffic: Option<Traffic>,
    stop: impl Future<Output = ()>,
) -> (Left, io::Result<()>) {
    let local_socket =
        match settings.local_socket.as_deref().map(local_socket::LocalSocketServer::open).transpose() {
            Ok(local_socket) => local_socket,
            Err(error) => return (Left { traffic, interfaces: Vec::new() }, Err(error)),
        };
    socket::raise_file_limit();
    let (wanted, ordered) = watch::channel(Wanted::default());
    // A switch has no programs.
    let shaped =
        settings.links.first().filter(|link| settings.local_socket.is_some() && !link.interfaces.is_empty());
    let link = settings.links.first().map_or(Rate::ZERO, |link| link.rate);
    let host = Host {
        keeper: LeaseState::new(settings.links.iter().map(|link| link.rate).collect()),
        refused: None,
        flows: Flows::default(),
        voice: ReportHistory::default(),
        is_deaf: settings.local_socket.is_some() && (traffic.is_none() || shaped.is_none()),
        applications: traffic.map(|traffic| Applications::new(traffic, link)),
        weighed: false,
        wanted,
        interfaces: interfaces::Status::default(),
        is_unwatched: false,
        watchdog: settings.watchdog.clone().map(|start| {
            let interfaces = settings.links.iter().flat_map(|link| link.interfaces.clone());
            Watchdog::new(start, &interfaces.collect::<Vec<_>>())
        }),
        shaped: shaped.map(|link| link.rate.get()),
        began: Instant::now(),
    };
    let shared = Shared(Arc::new(Mutex::new(host)));
    let (said, mut events) = mpsc::channel(16);
    let ended = tokio::select! {
        ended = serve(local_socket, shared.clone()) => ended,
        () = coordinator_stream::keep(settings.coordinator.clone(), settings.host, said, say) => Ok(()),
        () = work(&shared, settings.host, &mut events) => Ok(()),
        () = keep_interfaces(&shared, &settings, ordered) => Ok(()),
        () = inspect(&shared) => Ok(()),
        () = stop => Ok(()),
    };
    let mut host = shared.lock();
    host.flows.free();
    host.watchdog = None;
    let traffic = host.applications.take().map(|applications| applications.traffic);
    (Left { traffic, interfaces: std::mem::take(&mut host.interfaces.names) }, ended)
}

/// How often the agent looks for programs and maps that another process removed.
const INSPECT: Duration = Duration::from_millis(250);

/// Restores programs and maps that another process removed.
async fn inspect(shared: &Shared) {
    let mut clock = clock(INSPECT);
    loop {
        clock.tick().await;
        let inspection = shared.lock().applications.as_ref().map(|known| known.traffic.inspection());
        let Some(inspection) = inspection else { return std::future::pending().await };
        if spawn_blocking(move || inspection.is_intact()).await.is_ok_and(|is_intact| !is_intact)
            && let Some(applications) = &mut shared.lock().applications
        {
            applications.repair();
        }
    }
}

async fn keep_interfaces(shared: &Shared, settings: &Settings, ordered: watch::Receiver<Wanted>) {
    match settings.dry_run {
        true => interfaces::print(&settings.links, ordered).await,
        false => interfaces::keep(shared, &settings.links, ordered).await,
    }
}

/// Accepts programs, if there is a local socket.
async fn serve(local_socket: Option<local_socket::LocalSocketServer>, shared: Shared) -> io::Result<()> {
    match local_socket {
        Some(local_socket) => local_socket.serve(shared).await,
        None => std::future::pending().await,
    }
}

/// Logs a line to the standard error.
fn say(what: &str) {
    // The reader of the log may have exited, which must not stop the agent.
    let _ = writeln!(io::stderr(), "weir agent: {what}");
}

async fn work(shared: &Shared, host: u32, events: &mut mpsc::Receiver<Event>) {
    let (mut clock, mut interval, mut report_timer) = (clock(ALONE), ALONE, ReportTimer::new(host, ALONE));
    let (mut anew, mut looked) = (Instant::now(), Instant::now());
    let mut reports: Option<mpsc::Sender<Report>> = None;
    loop {
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(Event::Begun { every, arrivals, demands, up }) => {
                    (clock, interval, report_timer) = (self::clock(every), every, ReportTimer::new(host, every));
                    reports = Some(up);
                    shared.lock().begin(arrivals, demands);
                }
                Some(Event::Order(order)) => {
                    shared.lock().obey(order);
                    // Orders that arrive more often than that must not delay the measurements.
                    if looked.elapsed() < interval {
                        clock.reset_at(report_timer.order(Instant::now()).into());
                    }
                }
                Some(Event::Ended) => reports = None,
                None => return,
            },
            _ = clock.tick() => {
                looked = Instant::now();
                let mut host = shared.lock();
                let host = &mut *host;
                host.flows.measure();
                host.pace();
                host.watch();
                // Queues change with orders, or when weights end. A switch with many ports does not compute them each time.
                let weighed = host.keeper.weigh(host.now());
                if host.shaped.is_some() || weighed != host.weighed {
                    host.weighed = weighed;
                    host.want();
                }
                if let Some(applications) = &mut host.applications {
                    applications.look(host.keeper.limits(host.began.elapsed()), Instant::now());
                }
                if anew.elapsed() >= ANEW {
                    anew = Instant::now();
                    host.flows.report_delta.report_unsettled();
                }
                // While the previous report is not sent, changes wait for the next one.
                if let Some(Ok(place)) = reports.as_ref().map(|reports| reports.try_reserve())
                    && let Some(report) = host.report(interval, Instant::now())
                {
                    place.send(report);
                }
            }
        }
    }
}

fn clock(every: Duration) -> tokio::time::Interval {
    let mut clock = interval(every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    clock
}
