//! The engine: turns events with their times into an [`Allocation`] and the time of the next schedule.
//!
//! The engine is sans-I/O: it uses no clock, thread, socket or file. A driver (the simulator's loop, the coordinator)
//! passes events and times, and requests schedules. Policies behave identically under all drivers.

use std::sync::Arc;

use crate::allocation::Allocation;
use crate::carry::{Carrier, Crossings, Receivers};
use crate::model::{
    Blind, CoflowSpec, Ended, Fabric, FlowState, Goodput, Names, Network, Sharing, Side, Sizes, Slot, Trunks,
    View,
};
use crate::policy::{AnyPolicy, Event, Policy};
use crate::tree::{Tree, TreeError};

/// The policy, or tree of policies, that decides.
enum Root {
    Blind(Box<dyn Policy<Knows = Blind>>),
    Sizes(Box<dyn Policy<Knows = Sizes>>),
    Tree(Box<Tree>),
}

/// A policy, or a policy tree, on a network.
pub struct Engine {
    network: Network,
    root: Root,
    allocation: Allocation,
    /// Reduces the decided rates where something other than ports is the bottleneck.
    carrier: Option<Carrier>,
}

impl Engine {
    /// Creates an engine for an idle fabric, and for coflows of services and applications with these names.
    ///
    /// # Errors
    /// [`TreeError`] if the policy tree does not contain one of the names, or one of its policies cannot be built.
    pub fn new(fabric: Fabric, policy: AnyPolicy, names: &Names) -> Result<Engine, TreeError> {
        let policy = match policy {
            AnyPolicy::Tree(plan) => plan.only(names)?.unwrap_or(AnyPolicy::Tree(plan)),
            other => other,
        };
        let (sharing, root) = match policy {
            AnyPolicy::Blind(policy) => (Sharing::Equal, Root::Blind(policy)),
            AnyPolicy::Sizes(policy) => (Sharing::Remaining, Root::Sizes(policy)),
            AnyPolicy::Tree(plan) => {
                let tree = Tree::new(&plan, names, &fabric)?;
                (tree.sharing(), Root::Tree(Box::new(tree)))
            }
        };
        Ok(Engine {
            network: Network::new(fabric, sharing),
            root,
            allocation: Allocation::default(),
            carrier: None,
        })
    }

    /// Limits receiving ports to their goodput. The policy decides without this limit.
    pub fn carrying(self, goodput: Arc<Goodput>) -> Engine {
        Engine { carrier: Some(Carrier::new(Box::new(Receivers::new(goodput)))), ..self }
    }

    /// Limits the rates of flows that cross these links to the capacities of the links. The policy decides without
    /// this limit.
    pub fn crossing(self, trunks: Trunks) -> Engine {
        Engine { carrier: Some(Carrier::new(Box::new(Crossings::new(trunks)))), ..self }
    }

    /// The network as the engine knows it.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The last decision.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// In a tree: the slices that the leaf of a coflow decided over last, the minimum of its offers. Sending sides of
    /// all ports come first, then receiving sides. A slice is 0 where the leaf has no live flows.
    ///
    /// `None` if the policy is not a tree.
    pub fn slices(&self, slot: Slot) -> Option<&[f64]> {
        match &self.root {
            Root::Tree(tree) => Some(tree.slices(slot)),
            Root::Blind(_) | Root::Sizes(_) => None,
        }
    }

    fn tell(&mut self, event: Event, now: f64) {
        match &mut self.root {
            Root::Blind(policy) => policy.on(event, &mut View::new(&mut self.network, now)),
            Root::Sizes(policy) => policy.on(event, &mut View::new(&mut self.network, now)),
            Root::Tree(tree) => tree.on(event, &mut self.network, now),
        }
    }

    /// Releases a coflow, whose service and application have to be among the engine's names.
    ///
    /// Flows with data and bytes become live. Flows without bytes complete at once and are added to `ended`. The
    /// other flows wait for [`Engine::data`].
    pub fn release(&mut self, spec: &CoflowSpec, index: usize, now: f64, ended: &mut Vec<Ended>) -> Slot {
        let slot = match &mut self.root {
            Root::Blind(_) => self.network.insert(spec, index, now, Sharing::Equal),
            Root::Sizes(_) => self.network.insert(spec, index, now, Sharing::Remaining),
            Root::Tree(tree) => {
                let leaf = tree.leaf_of(spec.service, spec.application);
                let slot = self.network.insert(spec, index, now, tree.sharing_of(leaf));
                tree.enter(leaf, slot);
                slot
            }
        };
        for flow in 0..spec.flows.len() as u32 {
            let original = &spec.flows[self.network.coflow(slot).original(flow) as usize];
            if original.release.get() > 0.0 {
                continue;
            }
            if self.begin(slot, flow, original.bytes.get(), now) {
                ended.push(Ended { slot, flow, at: now });
            }
        }
        self.tell(Event::Released(slot), now);
        slot
    }

    /// Starts a flow of a coflow that the policy does not know yet. The flow becomes live, or completes at once if it
    /// has no bytes; returns whether it completed.
    fn begin(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) -> bool {
        if bytes == 0.0 {
            self.network.finish(slot, flow);
        } else {
            self.network.release(slot, flow, now);
        }
        bytes == 0.0
    }

    /// Marks the data of a waiting flow as available. Returns true if the flow has no bytes and therefore completes
    /// at once.
    pub fn data(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) -> bool {
        if self.network.coflow(slot).state(flow) != FlowState::Waiting {
            return false;
        }
        if bytes == 0.0 {
            self.flow_done(slot, flow, now);
            return true;
        }
        self.network.release(slot, flow, now);
        self.forget(slot);
        self.tell(Event::FlowLive(slot, flow), now);
        false
    }

    /// Marks the data of a live flow as unavailable; the flow waits for [`Engine::data`]. Returns whether the flow
    /// was live.
    pub fn hold(&mut self, slot: Slot, flow: u32, now: f64) -> bool {
        if self.network.coflow(slot).state(flow) != FlowState::Live {
            return false;
        }
        self.network.hold(slot, flow, now);
        self.forget(slot);
        self.tell(Event::FlowHeld(slot, flow), now);
        true
    }

    /// Drops cached state of a coflow whose live flows changed.
    fn forget(&mut self, slot: Slot) {
        if let Some(carrier) = &mut self.carrier {
            carrier.forget(slot);
        }
    }

    /// Restarts a flow that has not completed: its progress is lost.
    pub fn restart(&mut self, slot: Slot, flow: u32, now: f64) {
        self.sent(slot, flow, 0.0, now);
    }

    /// Scales the capacity of a port side to `factor` times its nominal rate.
    pub fn scale_port(&mut self, port: u32, side: Side, factor: f64, now: f64) {
        self.network.scale_port(port, side, factor);
        self.tell(Event::PortChanged, now);
    }

    /// Records the observed completion of a flow.
    pub fn flow_done(&mut self, slot: Slot, flow: u32, now: f64) {
        self.network.finish(slot, flow);
        self.tell(Event::FlowDone(slot, flow), now);
    }

    /// Corrects flows that should have completed by `now` at the decided rates, but without an observed completion.
    ///
    /// Such flows get `left` bytes to send, or their whole size if that is smaller. A driver that learns of
    /// completions from hosts calls this first whenever time has passed. O(coflows), and O(flows) of the coflows with
    /// such flows.
    pub fn overdue(&mut self, left: f64, now: f64) {
        for (slot, flow) in self.network.overdue(left, now) {
            self.tell(Event::FlowHeld(slot, flow), now);
            self.tell(Event::FlowLive(slot, flow), now);
        }
    }

    /// Sets the observed bytes that a flow has sent by `now`, independent of the decided rates. O(log flows).
    pub fn sent(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) {
        match self.network.coflow(slot).state(flow) {
            FlowState::Done => {}
            FlowState::Waiting => {
                self.network.set_sent(slot, flow, bytes);
                self.tell(Event::FlowHeld(slot, flow), now);
            }
            FlowState::Live => {
                self.network.hold(slot, flow, now);
                self.network.set_sent(slot, flow, bytes);
                self.tell(Event::FlowHeld(slot, flow), now);
                self.network.release(slot, flow, now);
                self.tell(Event::FlowLive(slot, flow), now);
            }
        }
    }

    /// Records the observed completion of a flow after `bytes` bytes, independent of its specified size.
    pub fn closed(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) {
        if self.network.coflow(slot).state(flow) == FlowState::Done {
            return;
        }
        self.hold(slot, flow, now);
        self.network.resize(slot, flow, bytes);
        self.flow_done(slot, flow, now);
    }

    /// Replaces the flows of an active coflow by those of `spec`.
    ///
    /// A flow at the same position of the specification as before, with the same ends, keeps its progress, and waits
    /// if it waited. All other flows start, or complete at once if they have no bytes. The coflow keeps its age.
    /// O(flows log flows).
    pub fn respecify(&mut self, slot: Slot, spec: &CoflowSpec, now: f64) {
        let before = self.network.coflow(slot);
        let flows = 0..before.width() as u32;
        let stays = |flow: u32| {
            let now = spec.flows.get(before.original(flow) as usize);
            now.is_some_and(|f| (f.src, f.dst) == before.ends_of(flow))
        };
        let waiting = flows.clone().filter(|&flow| before.state(flow) == FlowState::Waiting && stays(flow));
        let mut waiting: Vec<u32> = waiting.map(|flow| before.original(flow)).collect();
        waiting.sort_unstable();
        for flow in flows {
            self.hold(slot, flow, now);
        }
        self.tell(Event::Done(slot), now);
        self.network.respecify(slot, spec, now);
        for flow in 0..spec.flows.len() as u32 {
            let coflow = self.network.coflow(slot);
            let waits = waiting.binary_search(&coflow.original(flow)).is_ok();
            if coflow.state(flow) != FlowState::Waiting || waits {
                continue;
            }
            let bytes = spec.flows[coflow.original(flow) as usize].bytes.get();
            self.begin(slot, flow, bytes, now);
        }
        self.tell(Event::Released(slot), now);
    }

    /// Removes a coflow that may be incomplete.
    pub fn withdraw(&mut self, slot: Slot, now: f64) {
        for flow in 0..self.network.coflow(slot).width() as u32 {
            self.closed(slot, flow, self.network.attained(slot, flow, now), now);
        }
        self.remove(slot, now);
    }

    /// Records what all flows of a coflow have sent by `now` in bytes, and their total rate in bytes per second, as
    /// reported by hosts.
    pub fn report(&mut self, slot: Slot, sent: f64, rate: f64, now: f64) {
        self.network.report(slot, sent, rate, now);
    }

    /// Removes a coflow whose flows have all completed.
    pub fn remove(&mut self, slot: Slot, now: f64) {
        self.tell(Event::Done(slot), now);
        self.network.remove(slot);
        if let Root::Tree(tree) = &mut self.root {
            tree.leave(slot);
        }
    }

    /// The time of the next completion at the decided rates, as far as sizes are known; infinite if no flow
    /// completes.
    pub fn next_end(&mut self) -> f64 {
        self.network.next_end()
    }

    /// Completes the flows that the decided rates complete by `limit`, notifies the policy, and adds the flows to
    /// `ended` in the order of time.
    pub fn run_out(&mut self, limit: f64, ended: &mut Vec<Ended>) {
        let first = ended.len();
        self.network.run_out(limit, ended);
        for &Ended { slot, flow, at } in &ended[first..] {
            self.tell(Event::FlowDone(slot, flow), at);
        }
    }

    /// Computes a new allocation and applies its rates.
    pub fn schedule(&mut self, now: f64) {
        self.network.begin(now);
        self.allocation.clear(self.network.slots());
        let out = &mut self.allocation;
        match &mut self.root {
            Root::Blind(policy) => policy.schedule(&mut View::new(&mut self.network, now), out),
            Root::Sizes(policy) => policy.schedule(&mut View::new(&mut self.network, now), out),
            Root::Tree(tree) => tree.schedule(&mut self.network, now, out),
        }
        out.seal();
        let in_force = match &mut self.carrier {
            Some(carrier) => carrier.carry(out, &self.network, now),
            None => out,
        };
        self.network.apply(in_force, now);
        if let Root::Tree(tree) = &mut self.root {
            tree.applied(&self.network);
        }
    }

    /// The time of the next schedule if no event occurs before; infinite if none is needed.
    ///
    /// Call it right after [`Engine::schedule`]. If rates are left to the transport, call it after the reports of the
    /// resulting rates.
    pub fn wake(&mut self, now: f64) -> f64 {
        let decided = &self.allocation;
        match &mut self.root {
            Root::Blind(policy) => policy.wake(&mut View::new(&mut self.network, now), decided),
            Root::Sizes(policy) => policy.wake(&mut View::new(&mut self.network, now), decided),
            Root::Tree(tree) => tree.wake(&mut self.network, now),
        }
    }
}
