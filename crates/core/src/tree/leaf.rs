//! A leaf: a policy, its coflows, and the fabric that it decides over.

use super::maxmin::MaxMin;
use crate::allocation::{Allocation, Common};
use crate::model::network::Scope;
use crate::model::{Blind, Fabric, Mask, Network, Sharing, Sizes, View};
use crate::policy::{self, AnyPolicy, Event, Params, ParamsError, Policy};

/// What decides inside a leaf.
pub(super) enum Inner {
    Blind(Box<dyn Policy<Knows = Blind>>),
    Sizes(Box<dyn Policy<Knows = Sizes>>),
    MaxMin(MaxMin),
}

/// An application, or a service as a whole.
pub(super) struct Leaf {
    pub(super) inner: Inner,
    /// Its fabric, coflows and changes, which take the network's place while it is asked.
    pub(super) scope: Scope,
    pub(super) decided: Allocation,
    /// Whether it had its turn in this schedule.
    pub(super) turned: bool,
    /// Sides where it has live flows.
    pub(super) present: Mask,
    /// By side: its slice, and what it uses.
    pub(super) slice: Vec<f64>,
    /// By side, of `fair` leaves beside others: the weighted part, which may be more than they claim.
    pub(super) part: Vec<f64>,
    pub(super) used: Vec<f64>,
    /// By side, of `fair` leaves: what it claims.
    pub(super) claims: Vec<f64>,
}

/// What decides inside a leaf under this policy.
fn inner(spec: &str) -> Result<Inner, ParamsError> {
    let name = Params::parse(spec)?.name().to_owned();
    match policy::build(spec)? {
        _ if name == "fair" => Ok(Inner::MaxMin(MaxMin::default())),
        AnyPolicy::Blind(policy) if name != "aalo" => Ok(Inner::Blind(policy)),
        AnyPolicy::Sizes(policy) if name != "aalo+" => Ok(Inner::Sizes(policy)),
        AnyPolicy::Blind(_) | AnyPolicy::Sizes(_) | AnyPolicy::Tree(_) => Err(ParamsError::Leaf { name }),
    }
}

/// Whether a policy can be that of a leaf: it exists, with these parameters, and sets rates, or is `fair`.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_leaf(spec: &str) -> Result<(), ParamsError> {
    inner(spec).map(|_| ())
}

impl Leaf {
    /// A leaf under this policy, without coflows.
    pub(super) fn new(spec: &str, fabric: &Fabric) -> Result<Leaf, ParamsError> {
        let sides = 2 * fabric.ports();
        Ok(Leaf {
            inner: inner(spec)?,
            scope: Scope::new(fabric.clone()),
            decided: Allocation::default(),
            turned: false,
            present: Mask::default(),
            slice: vec![0.0; sides],
            part: vec![0.0; sides],
            used: vec![0.0; sides],
            claims: vec![f64::INFINITY; sides],
        })
    }

    pub(super) fn is_fair(&self) -> bool {
        matches!(self.inner, Inner::MaxMin(_))
    }

    pub(super) fn sharing(&self) -> Sharing {
        if matches!(self.inner, Inner::Sizes(_)) { Sharing::Remaining } else { Sharing::Equal }
    }

    pub(super) fn on(&mut self, event: Event, network: &mut Network, now: f64) {
        network.exchange(&mut self.scope);
        match &mut self.inner {
            Inner::Blind(policy) => policy.on(event, &mut View::new(network, now)),
            Inner::Sizes(policy) => policy.on(event, &mut View::new(network, now)),
            Inner::MaxMin(fair) => fair.stale = true,
        }
        network.exchange(&mut self.scope);
    }

    pub(super) fn wake(&mut self, network: &mut Network, now: f64) -> f64 {
        network.exchange(&mut self.scope);
        let wake = match &mut self.inner {
            Inner::Blind(policy) => policy.wake(&mut View::new(network, now), &self.decided),
            Inner::Sizes(policy) => policy.wake(&mut View::new(network, now), &self.decided),
            Inner::MaxMin(_) => f64::INFINITY,
        };
        network.exchange(&mut self.scope);
        wake
    }

    /// Finds where it has live flows. O(coflows x words of a port mask), and of `fair` leaves, O(flows log flows) if any came or
    /// went.
    pub(super) fn find(&mut self, network: &Network) {
        let ports = network.fabric().ports();
        self.turned = false;
        self.present.clear();
        for &slot in &self.scope.active {
            let coflow = network.coflow(slot);
            coflow.send_mask().iter().for_each(|port| self.present.insert(port));
            coflow.recv_mask().iter().for_each(|port| self.present.insert(ports + port));
        }
        if let Inner::MaxMin(fair) = &mut self.inner {
            fair.collect(&self.scope.active, network);
        }
    }

    /// Decides over this much of each side, and finds what that uses.
    pub(super) fn decide(&mut self, offer: &[f64], network: &mut Network, now: f64) {
        self.decided.clear(network.slots());
        self.used.fill(0.0);
        let ports = network.fabric().ports();
        let changed = self.scope.fabric.set(&offer[..ports], &offer[ports..]);
        if let Inner::MaxMin(fair) = &self.inner {
            fair.decide(&self.scope.active, offer, &mut self.decided, &mut self.used);
            self.decided.seal();
            return;
        }
        network.exchange(&mut self.scope);
        match &mut self.inner {
            Inner::Blind(policy) => {
                let mut view = View::new(network, now);
                if changed {
                    policy.on(Event::PortChanged, &mut view);
                }
                policy.schedule(&mut view, &mut self.decided);
            }
            Inner::Sizes(policy) => {
                let mut view = View::new(network, now);
                if changed {
                    policy.on(Event::PortChanged, &mut view);
                }
                policy.schedule(&mut view, &mut self.decided);
                for &slot in view.active() {
                    if let Common::Together(seconds) = self.decided.common(slot) {
                        let loads = view.loads(slot);
                        loads.send().for_each(|(port, bytes)| self.used[port] += bytes / seconds);
                        loads.recv().for_each(|(port, bytes)| self.used[ports + port] += bytes / seconds);
                    }
                }
            }
            Inner::MaxMin(_) => {}
        }
        network.exchange(&mut self.scope);
        self.decided.seal();
        self.count_used(network, ports);
    }

    /// Whether it lacks something that it lent, or that its other flows took with what others left: a flow has less than the slices and
    /// parts at both of its ends, and one of them was offered less than that and is full. O(flows), if there is such a side.
    pub(super) fn is_denied(&self, offer: &[f64], network: &Network, dust: f64) -> bool {
        let under = |side: usize| self.used[side] < self.slice[side].max(self.part[side]) - dust;
        let full = |side: usize| under(side) && self.used[side] >= offer[side] - dust;
        if !self.present.iter().any(full) {
            return false;
        }
        let ports = network.fabric().ports();
        self.scope.active.iter().any(|&slot| {
            let coflow = network.coflow(slot);
            coflow.live_flows().any(|flow| {
                let (src, dst) = coflow.ends_of(flow);
                let [send, recv] = [src as usize, ports + dst as usize];
                under(send) && under(recv) && (full(send) || full(recv))
            })
        })
    }

    /// Adds up what equal and single rates use.
    fn count_used(&mut self, network: &Network, ports: usize) {
        for &slot in &self.scope.active {
            if let Common::Each(rate) = self.decided.common(slot) {
                let coflow = network.coflow(slot);
                for load in coflow.senders() {
                    self.used[load.port as usize] += rate * f64::from(load.live);
                }
                for load in coflow.receivers() {
                    self.used[ports + load.port as usize] += rate * f64::from(load.live);
                }
            }
        }
        for rated in self.decided.flows() {
            let (src, dst) = network.coflow(rated.slot).ends_of(rated.flow);
            self.used[src as usize] += rated.rate;
            self.used[ports + dst as usize] += rated.rate;
        }
    }
}
