//! Runs an [`Overlay`]: one thread sends orders, one computes decisions, one resolves the names of relays, and tasks call a [`Handle`].
//!
//! Calls lock the overlay for a short time. A decision and its rules are computed and names are resolved without the lock, so orders and
//! reports do not wait for them. With many flows, orders and decisions become less frequent, so that calls do not wait for them. The
//! threads end when all handles are dropped, that of names at its next query.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tracing::{error, info, warn};
use weir_core::wide_area_policy::WideAreaPolicy;
use weir_proto::relay::RelayOrder;

use super::Overlay;
use super::decision::{DecisionRequest, decide};
use super::names::{NamedRelay, Names, QUERY_INTERVAL};
use crate::config::{self, RelayAddress};

/// Time between two checks for due orders and decisions.
const TICK: Duration = Duration::from_millis(20);

/// The time between two checks is at least the time of the last one, multiplied by this factor: checks lock the overlay.
const TICK_PAUSE_FACTOR: u32 = 4;

/// Maximum time between two checks.
const MAX_TICK: Duration = Duration::from_millis(500);

/// The pause after a decision: the time to compute the decision, multiplied by this factor.
const DECISION_PAUSE_FACTOR: u32 = 2;

/// Maximum number of queued orders to a relay.
const MAX_QUEUED_ORDERS: usize = 4;

/// The time without a report after which another stream may replace that of a relay: ten reports.
const REPLACEMENT_TIMEOUT: f64 = 1.0;

/// The minimum time between two log lines about relays with the same name.
const NAME_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The stream of a relay is refused, since another relay with its name is connected from this address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameTaken(pub SocketAddr);

/// The stream of a relay.
struct Stream {
    orders: mpsc::Sender<RelayOrder>,
    address: SocketAddr,
}

struct State {
    overlay: Overlay,
    streams: Vec<Option<Stream>>,
    /// When the log last had a line about two relays with this name.
    name_warnings: Vec<Option<Instant>>,
    requests: SyncSender<DecisionRequest>,
    /// Whether a decision is being computed.
    is_deciding: bool,
    /// The earliest time of the next decision.
    next_decision_at: Instant,
}

struct Shared {
    state: Mutex<State>,
    started_at: Instant,
    config: Arc<config::Overlay>,
}

/// Client of a running overlay. Clones use the same overlay.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Starts the threads of an overlay.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub fn start(
        overlay: Overlay,
        config: Arc<config::Overlay>,
        policy: WideAreaPolicy,
    ) -> io::Result<Handle> {
        let (requests, request_receiver) = sync_channel(1);
        let state = Mutex::new(State {
            overlay,
            streams: std::iter::repeat_with(|| None).take(config.relays.len()).collect(),
            name_warnings: vec![None; config.relays.len()],
            requests,
            is_deciding: false,
            next_decision_at: Instant::now(),
        });
        let shared = Arc::new(Shared { state, started_at: Instant::now(), config });
        let (for_orders, for_decisions) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
        thread::Builder::new().name("weir-overlay".to_owned()).spawn(move || send_orders(&for_orders))?;
        thread::Builder::new()
            .name("weir-decisions".to_owned())
            .spawn(move || compute_decisions(policy, &request_receiver, &for_decisions))?;
        let names = Names::of(&shared.config);
        if !names.is_empty() {
            let for_names = Arc::downgrade(&shared);
            let runtime = Builder::new_current_thread().enable_all().build()?;
            thread::Builder::new()
                .name("weir-names".to_owned())
                .spawn(move || resolve_names(names, &runtime, &for_names))?;
        }
        Ok(Handle(shared))
    }

    /// The configuration.
    pub fn config(&self) -> &config::Overlay {
        &self.0.config
    }

    /// Calls the overlay with the time since the start, in seconds.
    pub fn call<T>(&self, request: impl FnOnce(&mut Overlay, f64) -> T) -> T {
        request(&mut self.0.lock().overlay, self.0.now())
    }

    /// Subscribes the relay at `address` to its orders. The first order is a full order. An earlier subscription ends.
    ///
    /// # Errors
    /// [`NameTaken`]: another stream of the relay has delivered a report in the last second. Of two running relays with
    /// one name, the first one stays connected.
    pub fn subscribe_to_orders(
        &self,
        relay: u16,
        address: SocketAddr,
    ) -> Result<mpsc::Receiver<RelayOrder>, NameTaken> {
        let (orders, receiver) = mpsc::channel(MAX_QUEUED_ORDERS);
        let mut state = self.0.lock();
        let (now, at) = (self.0.now(), usize::from(relay));
        let connected = state.streams[at].as_ref().filter(|stream| !stream.orders.is_closed());
        if let Some(connected) = connected.map(|stream| stream.address) {
            let is_silent =
                state.overlay.last_report_at(relay).is_none_or(|last| now - last > REPLACEMENT_TIMEOUT);
            let is_due = |last: Instant| last.elapsed() >= NAME_WARNING_INTERVAL;
            if !is_silent && state.name_warnings[at].is_none_or(is_due) {
                state.name_warnings[at] = Some(Instant::now());
                let name = &self.config().relays[at].name;
                warn!(
                    relay = %name, %connected, refused = %address,
                    "two relays have the same name; help: give each relay its own --name"
                );
            }
            if !is_silent {
                return Err(NameTaken(connected));
            }
        }
        state.overlay.connect(relay, now);
        state.streams[at] = Some(Stream { orders, address });
        Ok(receiver)
    }

    /// The address of a relay's stream; `None` without a stream.
    pub fn relay_address(&self, relay: u16) -> Option<SocketAddr> {
        Some(self.0.lock().streams[usize::from(relay)].as_ref()?.address)
    }

    /// Applies the first address of a relay's name, unless the relay has one of them.
    fn set_resolved_address(&self, relay: &NamedRelay, found: &[SocketAddr]) {
        let present = self.call(|overlay, _| overlay.addresses()[usize::from(relay.id)]);
        let is_present = present.is_some_and(|present| found.contains(&present));
        let Some(&address) = found.first().filter(|_| !is_present) else { return };
        info!(relay = %relay.name, name = %relay.host, %address, "resolved the name of a relay");
        let has_other_hosts = |relay: &config::Relay| match relay.address {
            RelayAddress::Fixed(address) => !address.ip().is_loopback(),
            RelayAddress::Name { .. } => false,
        };
        if address.ip().is_loopback() && self.config().relays.iter().any(has_other_hosts) {
            warn!(
                relay = %relay.name, name = %relay.host, %address,
                "other hosts cannot reach the address of a relay; help: the coordinator's host resolves its own name to a loopback address: \
                 write the IP address into the configuration"
            );
        }
        self.call(|overlay, _| overlay.set_address(relay.id, address));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> f64 {
        self.started_at.elapsed().as_secs_f64()
    }

    /// Queues the orders that are due, and requests a decision if one is due. Returns for how long the overlay was locked.
    fn tick(&self) -> Duration {
        let mut state = self.lock();
        let locked_at = Instant::now();
        let State { overlay, streams, requests, is_deciding, next_decision_at, .. } = &mut *state;
        for (relay, stream) in (0..).zip(&mut *streams) {
            if stream.as_ref().is_some_and(|stream| stream.orders.is_closed()) {
                *stream = None;
                overlay.disconnect(relay, self.now());
            }
        }
        let channel = |relay: u16| streams[usize::from(relay)].as_ref().map(|stream| &stream.orders);
        let has_room = |relay| channel(relay).is_some_and(|channel| channel.capacity() > 0);
        for (relay, order) in overlay.tick(self.now(), has_room) {
            // The channel has room, and only this thread sends. If the receiver has just ended, the next tick disconnects the relay.
            let _ = channel(relay).map(|channel| channel.try_send(order).is_ok());
        }
        let is_due = !*is_deciding && locked_at >= *next_decision_at;
        if is_due && let Some(request) = overlay.take_request(self.now()) {
            *is_deciding = true;
            if requests.try_send(request).is_err() {
                error!("decisions are not computed: their thread has ended");
            }
        }
        locked_at.elapsed()
    }
}

fn send_orders(shared: &Weak<Shared>) {
    let mut pause = TICK;
    loop {
        thread::sleep(pause);
        let Some(shared) = shared.upgrade() else { return };
        pause = (shared.tick() * TICK_PAUSE_FACTOR).clamp(TICK, MAX_TICK);
    }
}

fn resolve_names(mut names: Names, runtime: &Runtime, shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let handle = Handle(shared);
        for (relay, found) in runtime.block_on(names.resolve()) {
            handle.set_resolved_address(relay, &found);
        }
        drop(handle);
        thread::sleep(QUERY_INTERVAL);
    }
}

fn compute_decisions(
    mut policy: WideAreaPolicy,
    requests: &Receiver<DecisionRequest>,
    shared: &Weak<Shared>,
) {
    while let Ok(request) = requests.recv() {
        let started_at = Instant::now();
        let decision = decide(&mut policy, request);
        let pause = started_at.elapsed() * DECISION_PAUSE_FACTOR;
        let Some(shared) = shared.upgrade() else { return };
        let mut state = shared.lock();
        (state.is_deciding, state.next_decision_at) = (false, Instant::now() + pause);
        let former = state.overlay.apply(decision);
        drop(state);
        drop(former);
    }
}
