//! Limits the bandwidth of a cluster's hosts for a profile: the coordinator orders the hosts' agents to send less. Each limit has a lease,
//! which a thread renews, so that hosts have their full rates again after this process was killed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_client::{Coordinator, CoordinatorError, percent_encode};
use weir_core::saba::Fraction;

use crate::failure::Failure;

/// How long a limit holds without a renewal, as the API expects it.
const LEASE: &str = "10s";

/// The time between two renewals.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// The maximum time until the interfaces of all hosts have a limit.
const APPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// How often the state of the hosts is read while they apply a limit.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How long queues take to settle after a change: those of an interface that had none send a tenth less for half a second.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Fractions are rounded to millionths.
const FRACTION_TOLERANCE: f64 = 1e-6;

/// Hosts of a cluster whose bandwidth is limited. Dropping it ends the renewals, not the limits.
pub struct ClusterHosts {
    links: Arc<HostLinks>,
    renewer: Option<JoinHandle<()>>,
}

/// The hosts, and the limit that they should have.
struct HostLinks {
    coordinator: Coordinator,
    hosts: Vec<String>,
    /// The owner of the limits: no other profiler has this name.
    owner: String,
    state: Mutex<LimitState>,
    /// Signals the end of the renewals.
    stopped: Condvar,
}

#[derive(Default)]
struct LimitState {
    /// The present limit; none before the first, and after the last.
    fraction: Option<f64>,
    /// Why a limit lapsed.
    failure: Option<String>,
    is_stopped: bool,
}

impl ClusterHosts {
    /// Hosts by their names at a coordinator.
    ///
    /// # Errors
    /// A host that is unknown or named twice, or whose agent is not connected, or a coordinator that cannot be reached.
    pub fn new(coordinator: Coordinator, hosts: &[String]) -> Result<ClusterHosts, Failure> {
        let states = coordinator.get("/v1/hosts")?;
        let mut absent = None;
        for (at, host) in hosts.iter().enumerate() {
            let Some(state) = find_host(&states, host).filter(|_| !hosts[..at].contains(host)) else {
                return Err(Failure::input(format_args!(
                    "--hosts: `{host}` is unknown or repeated; expected hosts of `weir ctl hosts`, each once"
                )));
            };
            absent = absent.or((state["present"] != true).then_some(host));
        }
        if let Some(host) = absent {
            return Err(Failure::runtime(format_args!(
                "host {host}: its agent is not connected; help: `weir ctl hosts` shows the state of agents"
            )));
        }
        let id = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let owner = format!("profile-{}-{}", std::process::id(), id.as_nanos());
        let (hosts, state, stopped) = (hosts.to_vec(), Mutex::default(), Condvar::new());
        let links = Arc::new(HostLinks { coordinator, hosts, owner, state, stopped });
        let renewing = Arc::clone(&links);
        let renewer = thread::spawn(move || renewing.renew());
        Ok(ClusterHosts { links, renewer: Some(renewer) })
    }

    /// Limits what each host sends to a fraction of its link, and waits until all interfaces have the limit.
    ///
    /// # Errors
    /// If the coordinator refuses, or an agent does not apply the limit in time.
    pub(super) fn limit_bandwidth(&self, fraction: Fraction) -> Result<(), Failure> {
        self.links.limit(fraction.get())?;
        self.links.wait_until_applied(Some(fraction.get()))?;
        thread::sleep(SETTLE_TIME);
        self.check()
    }

    /// Checks that the limits have held since they were set.
    ///
    /// # Errors
    /// If one lapsed: the last run was not at this bandwidth.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.links.check_applied();
        match &self.links.lock().failure {
            Some(reason) => Err(Failure::runtime(reason)),
            None => Ok(()),
        }
    }

    /// Ends the limits, and waits until the hosts have their full rates.
    ///
    /// # Errors
    /// If the coordinator cannot be reached. The limits then end with their lease.
    pub(super) fn restore(&self) -> Result<(), Failure> {
        self.links.lock().fraction = None;
        let mut result = Ok(());
        for host in &self.links.hosts {
            let ended = self.links.coordinator.delete(&self.links.path_with_owner(host));
            result = result.and(ended.map_err(Failure::from));
        }
        result.and_then(|()| self.links.wait_until_applied(None))
    }

    /// The names of the hosts.
    pub(super) fn names(&self) -> &[String] {
        &self.links.hosts
    }
}

impl Drop for ClusterHosts {
    fn drop(&mut self) {
        self.links.lock().is_stopped = true;
        self.links.stopped.notify_all();
        if let Some(renewer) = self.renewer.take() {
            // A panic of the thread has been printed.
            let _ = renewer.join();
        }
    }
}

impl HostLinks {
    fn lock(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, host: &str) -> String {
        format!("/v1/hosts/{}/bandwidth", percent_encode(host))
    }

    fn path_with_owner(&self, host: &str) -> String {
        format!("{}?owner={}", self.path(host), percent_encode(&self.owner))
    }

    /// Sets the limit of each host. The renewals wait meanwhile.
    fn limit(&self, fraction: f64) -> Result<(), Failure> {
        let mut state = self.lock();
        self.put_all(fraction)?;
        state.fraction = Some(fraction);
        Ok(())
    }

    /// Sets or renews the limit of each host. Returns the first host that had no limit of this process.
    fn put_all(&self, fraction: f64) -> Result<Option<&str>, CoordinatorError> {
        let body = json!({ "fraction": fraction, "lease": LEASE, "owner": self.owner });
        let mut lapsed = None;
        for host in &self.hosts {
            let answer = self.coordinator.put(&self.path(host), &body)?;
            if answer["renewed"] != true {
                lapsed = lapsed.or(Some(host.as_str()));
            }
        }
        Ok(lapsed)
    }

    /// Renews the limits until the end.
    fn renew(&self) {
        let mut state = self.lock();
        while !state.is_stopped {
            let waited = self.stopped.wait_timeout(state, RENEWAL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            let Some(fraction) = state.fraction.filter(|_| !state.is_stopped) else { continue };
            let failure = match self.put_all(fraction) {
                Ok(None) => continue,
                Ok(Some(host)) => format!("host {host}: its limit ended during a run"),
                Err(error) => format!("the limits cannot be renewed: {error}"),
            };
            state.failure.get_or_insert(failure);
        }
    }

    /// Records a host that does not have the present limit.
    fn check_applied(&self) {
        let states = self.coordinator.get("/v1/hosts");
        let mut state = self.lock();
        let Some(fraction) = state.fraction else { return };
        let failure = match states {
            Ok(states) => self
                .first_difference(&states, Some(fraction))
                .map(|host| format!("host {host}: its interfaces lost the limit during a run")),
            Err(error) => Some(format!("the limits cannot be checked: {error}")),
        };
        if let Some(failure) = failure {
            state.failure.get_or_insert(failure);
        }
    }

    /// The first host whose interfaces have another limit.
    fn first_difference(&self, states: &Value, fraction: Option<f64>) -> Option<&str> {
        let has_limit = |host: &&String| {
            let applied =
                find_host(states, host).and_then(|state| state["applied_bandwidth_fraction"].as_f64());
            match (applied, fraction) {
                (Some(applied), Some(fraction)) => (applied - fraction).abs() <= FRACTION_TOLERANCE,
                (None, None) => true,
                _ => false,
            }
        };
        self.hosts.iter().find(|host| !has_limit(host)).map(String::as_str)
    }

    /// Waits until all interfaces have a limit, or none.
    fn wait_until_applied(&self, fraction: Option<f64>) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            let states = self.coordinator.get("/v1/hosts")?;
            let Some(host) = self.first_difference(&states, fraction) else { return Ok(()) };
            if began.elapsed() > APPLY_TIMEOUT {
                let conflicts = find_host(&states, host).map(|state| state["conflicts"].to_string());
                return Err(Failure::runtime(format_args!(
                    "host {host}: its agent has not changed its interfaces within {} s (conflicts: {}); expected an agent with --interface; \
                     help: `weir ctl hosts` shows the state of agents",
                    APPLY_TIMEOUT.as_secs(),
                    conflicts.unwrap_or_default()
                )));
            }
            if fraction.is_some() {
                Failure::check_interrupt()?;
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// The state of a host in the answer of `/v1/hosts`.
fn find_host<'a>(states: &'a Value, host: &str) -> Option<&'a Value> {
    states.as_array()?.iter().find(|state| state["name"] == host)
}
