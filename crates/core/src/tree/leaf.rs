//! A leaf of a policy tree: a policy, its coflows, and its fabric.

use super::maxmin::MaxMin;
use crate::allocation::{Allocation, Common};
use crate::model::network::Scope;
use crate::model::{Blind, Fabric, Mask, Network, Sharing, Sizes, View};
use crate::policy::{self, AnyPolicy, Event, Params, ParamsError, Policy};

/// The algorithm of a leaf.
pub(super) enum Inner {
    Blind(Box<dyn Policy<Knows = Blind>>),
    Sizes(Box<dyn Policy<Knows = Sizes>>),
    MaxMin(MaxMin),
}

/// An application, or a service as a whole.
pub(super) struct Leaf {
    pub(super) inner: Inner,
    /// Fabric, coflows and changed flows of the leaf; exchanged with those of the network while the leaf decides.
    pub(super) scope: Scope,
    pub(super) decided: Allocation,
    /// Whether the leaf had its turn in this schedule.
    pub(super) turned: bool,
    /// Sides with live flows of the leaf.
    pub(super) present: Mask,
    /// By side: the slice.
    pub(super) slice: Vec<f64>,
    /// By side, for `fair` leaves of mixed trees: the weighted part, which may exceed the claim.
    pub(super) part: Vec<f64>,
    pub(super) used: Vec<f64>,
    /// By side, for `fair` leaves: the claim.
    pub(super) claims: Vec<f64>,
}

/// Builds the algorithm of a leaf from the specification of its policy.
fn inner(spec: &str) -> Result<Inner, ParamsError> {
    let name = Params::parse(spec)?.name().to_owned();
    match policy::build(spec)? {
        _ if name == "fair" => Ok(Inner::MaxMin(MaxMin::default())),
        AnyPolicy::Blind(policy) if name != "aalo" => Ok(Inner::Blind(policy)),
        AnyPolicy::Sizes(policy) if name != "aalo+" => Ok(Inner::Sizes(policy)),
        AnyPolicy::Blind(_) | AnyPolicy::Sizes(_) | AnyPolicy::Tree(_) => Err(ParamsError::Leaf { name }),
    }
}

/// Checks that a policy can be a leaf: its specification is valid, and it is `fair` or sets rates itself.
///
/// # Errors
/// [`ParamsError`] if the specification is invalid, or [`ParamsError::Leaf`] if the policy cannot be a leaf.
pub fn check_leaf(spec: &str) -> Result<(), ParamsError> {
    inner(spec).map(|_| ())
}

impl Leaf {
    /// Creates a leaf without coflows.
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

    /// Finds the sides with live flows. O(coflows x words of a port mask), and for `fair` leaves O(flows log flows)
    /// if flows changed.
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

    /// Decides over the offered capacity of each side, and computes the used capacity.
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

    /// Whether the leaf lacks bandwidth that other leaves or its own flows use.
    ///
    /// This is the case if a flow has two ends at which the leaf uses less than its slice or weighted part, and one
    /// of these ends is full. O(flows) if such a side exists.
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

    /// Adds up the capacity that equal rates and own rates use.
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
