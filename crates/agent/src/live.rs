//! The agent as it runs: orders come, programs hand over their sockets, and the rates in force are put on these. The queues in force
//! are put on the host's interfaces, and applications that are found by themselves get the classes of theirs.
//!
//! - `coordinator_stream` is the stream to the coordinator, opened again whenever it ends.
//! - `report_timer` is when to report.
//! - `local_socket` is where programs hand over the sockets of their flows.
//! - `flows` are those: what they are told, and what they have sent.
//! - `socket` is what TCP of the kernel takes and says.
//! - [`load_generator`] is many agents without any of that but the stream, to measure coordinators.
//! - `observed_connections` are applications whose traffic is found: what is told of their connections, and their classes.
//! - `demands` are what these connections ask for, and what they may send.
//! - `throttle` measures what arrives of UDP, and limits what is sent of it by what arrives elsewhere.
//! - [`watchdog`] is a second process, which frees sockets when this one dies.
//! - `interfaces` keeps the interfaces as ordered.
//!
//! One thread does all of it, once an interval: what was sent is read, what is in force is put on sockets that differ, and what goes
//! otherwise than the coordinator reckons is reported. If nothing comes from the coordinator the same goes on, and with the end of the lease all sockets are free.
//! Interfaces are changed beside it, since that takes longer than an interval.

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

/// How often what is measured is compared with what is in force before a coordinator has said what its interval is.
const ALONE: Duration = Duration::from_millis(8);

/// How often everything is reported anew: a coordinator may have heard of a flow before it heard of its coflow.
const ANEW: Duration = Duration::from_secs(1);

/// What an agent has to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the coordinator is.
    pub coordinator: Endpoint,
    /// Which host or switch this is, by its number there.
    pub host: u32,
    /// The link of a host, or those of a switch as the coordinator numbers them.
    pub links: Vec<Link>,
    /// Where programs find the agent: the path of a Unix socket; none if they are not to.
    pub local_socket: Option<PathBuf>,
    /// How to start a watchdog over the sockets of programs; none for a switch, and where `dry_run`.
    pub watchdog: Option<watchdog::Start>,
    /// Whether interfaces stay as they are, and the `tc` commands that would change them are printed.
    pub dry_run: bool,
}

/// A link out of a host or switch.
#[derive(Debug, Clone)]
pub struct Link {
    /// What it carries: orders above it are refused.
    pub rate: Rate,
    /// The interfaces that are this link, which get the queues of orders. Several share its rate evenly.
    pub interfaces: Vec<Interface>,
}

/// What is known on this host, for the loop and for programs that come in between.
struct Host {
    keeper: LeaseState,
    /// Why the last order was refused, if it was.
    refused: Option<Refused>,
    flows: Flows,
    voice: ReportHistory,
    /// The applications that it finds by itself, if it does.
    applications: Option<Applications>,
    /// Whether it is a host's that measures and limits nothing, and has not said so yet.
    is_deaf: bool,
    /// Whether weights held that nobody was promised when it was looked last.
    weighed: bool,
    /// Where what its links should have goes when it is something else.
    wanted: watch::Sender<Wanted>,
    /// What the interfaces differ in from orders, and what was restored at them.
    interfaces: interfaces::Status,
    watchdog: Option<Watchdog>,
    /// Whether a watchdog could not be started, which was logged.
    is_unwatched: bool,
    /// What its link carries in bytes per second, if it has interfaces.
    shaped: Option<f64>,
    began: Instant,
}

/// What is wanted of interfaces.
#[derive(Debug, Clone, Default, PartialEq)]
struct Wanted {
    /// The queues of links.
    queues: BTreeMap<u32, Queues>,
    /// The classes of flows of UDP, at a host's link.
    limited: BTreeMap<u16, Limited>,
}

/// The same for all who work on it.
#[derive(Clone)]
struct Shared(Arc<Mutex<Host>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Host> {
        // Nobody leaves it half done: a panic elsewhere says nothing about what is in there.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Host {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Puts the rates in force on all sockets that differ.
    fn pace(&mut self) {
        let now = self.now();
        let keeper = &self.keeper;
        self.flows.pace(|key| keeper.rate(key, now));
    }

    /// Says what interfaces should have, if that is something else than before.
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

    /// Lets the watchdog know of the sockets, and until when they have rates.
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

    /// A coordinator is there, which wants to know what arrives, and what applications ask for, or does not.
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
            // What comes after one that was refused has a gap before it, and many that are alike are said once.
            Some(Refused::Gap) if self.refused.is_some() => {}
            Some(_) if self.refused == refused => {}
            Some(why) => say(&format!("an order was refused: {why}")),
        }
        self.refused = if refused == Some(Refused::Gap) { self.refused.or(refused) } else { refused };
        self.pace();
        self.want();
    }

    /// Nothing was told to whoever listens now.
    fn report_all(&mut self) {
        self.voice = ReportHistory::default();
        self.flows.report_delta.report_all();
        if let Some(applications) = &mut self.applications {
            applications.report_all();
        }
    }

    /// What is to be said now, if anything is.
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

/// What an agent leaves in the kernel when it has stopped.
pub struct Left {
    /// The traffic of applications.
    pub traffic: Option<Traffic>,
    /// The interfaces that may have queues of the agent's, by their present names.
    pub interfaces: Vec<Interface>,
}

/// Runs an agent until `stop`. Then all sockets are free, and interfaces and the traffic of applications stay as they are.
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

/// Lets programs in, if there is a local_socket.
async fn serve(local_socket: Option<local_socket::LocalSocketServer>, shared: Shared) -> io::Result<()> {
    match local_socket {
        Some(local_socket) => local_socket.serve(shared).await,
        None => std::future::pending().await,
    }
}

/// Tells whoever looks after the host.
fn say(what: &str) {
    // Whoever listens there may have gone, which is no reason to go too.
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
                    // Orders more often than that do not keep it from looking.
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
                // Queues are others with orders, or when weights end, which a switch with many ports need not look for each time.
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
                // While the last report is not under way, what changes is kept for the next.
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
