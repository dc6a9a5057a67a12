//! The engine: events and the time go in, an [`Allocation`] and the next time to ask come out.
//!
//! It has no clock, thread, socket or file. A driver (the simulator's loop, the coordinator) tells it what
//! happens and when, and asks for schedules; the policy cannot tell which driver that is.

use std::sync::Arc;

use crate::allocation::Allocation;
use crate::carry::{Carrier, Crossings, Receivers};
use crate::model::{
    Blind, CoflowSpec, Ended, Fabric, FlowState, Goodput, Names, Network, Sharing, Side, Sizes, Slot, Trunks,
    View,
};
use crate::policy::{AnyPolicy, Event, Policy};
use crate::tree::{Tree, TreeError};

/// Who decides.
enum Root {
    Blind(Box<dyn Policy<Knows = Blind>>),
    Sizes(Box<dyn Policy<Knows = Sizes>>),
    Tree(Box<Tree>),
}

/// A policy, or a tree of them, on a network.
pub struct Engine {
    network: Network,
    root: Root,
    allocation: Allocation,
    /// What is carried of that, where something besides ports is short.
    carrier: Option<Carrier>,
}

impl Engine {
    /// An engine for an idle fabric, and for coflows of services and applications with these names.
    ///
    /// # Errors
    /// A tree of policies that has no place for one of the names.
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

    /// The same, but receiving ports carry only so much of what is decided. The policy is not told.
    pub fn carrying(self, goodput: Arc<Goodput>) -> Engine {
        Engine { carrier: Some(Carrier::new(Box::new(Receivers::new(goodput)))), ..self }
    }

    /// The same, but flows with rates cross these links, which carry no more than they can of what is decided. The policy is not told.
    pub fn crossing(self, trunks: Trunks) -> Engine {
        Engine { carrier: Some(Carrier::new(Box::new(Crossings::new(trunks)))), ..self }
    }

    /// The network as it is known.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What was decided last.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// In a tree: what the leaf of a coflow was offered at least when it decided last, of the sending sides of all ports, then
    /// of the receiving ones; nothing where it has no live flows.
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

    /// A coflow is released; the names of the engine have its service and application. Flows whose data is there and that
    /// have bytes go live; flows without bytes end at once and are put in `ended`; the others wait for [`Engine::data`].
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

    /// A flow of a coflow that the policy is about to hear of goes live, or ends at once if it has no bytes; says whether it did.
    fn begin(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) -> bool {
        if bytes == 0.0 {
            self.network.finish(slot, flow);
        } else {
            self.network.release(slot, flow, now);
        }
        bytes == 0.0
    }

    /// The data of a waiting flow is there. A flow without bytes ends at once, which is answered with `true`.
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

    /// The data of a flow is not there for a while: it waits for [`Engine::data`]. Says whether it was live.
    pub fn hold(&mut self, slot: Slot, flow: u32, now: f64) -> bool {
        if self.network.coflow(slot).state(flow) != FlowState::Live {
            return false;
        }
        self.network.hold(slot, flow, now);
        self.forget(slot);
        self.tell(Event::FlowHeld(slot, flow), now);
        true
    }

    /// Other flows of a coflow are live now.
    fn forget(&mut self, slot: Slot) {
        if let Some(carrier) = &mut self.carrier {
            carrier.forget(slot);
        }
    }

    /// A flow that has not ended starts anew, without what it has sent.
    pub fn restart(&mut self, slot: Slot, flow: u32, now: f64) {
        self.sent(slot, flow, 0.0, now);
    }

    /// A port carries `factor` times its nominal rate from now on.
    pub fn scale_port(&mut self, port: u32, side: Side, factor: f64, now: f64) {
        self.network.scale_port(port, side, factor);
        self.tell(Event::PortChanged, now);
    }

    /// A flow ended, somebody saw.
    pub fn flow_done(&mut self, slot: Slot, flow: u32, now: f64) {
        self.network.finish(slot, flow);
        self.tell(Event::FlowDone(slot, flow), now);
    }

    /// Time has come to `now`. Flows that should have ended by then at the rates that were decided, but that nobody saw end, have
    /// `left` bytes to go (or all that they had, if less). A driver that hears of ends from hosts calls it first, whenever
    /// time has passed. O(coflows), and O(flows) of those coflows that have such flows.
    pub fn overdue(&mut self, left: f64, now: f64) {
        for (slot, flow) in self.network.overdue(left, now) {
            self.tell(Event::FlowHeld(slot, flow), now);
            self.tell(Event::FlowLive(slot, flow), now);
        }
    }

    /// A flow has sent `bytes` by now, somebody saw, whatever was decided. O(log flows).
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

    /// A flow ended after so many bytes, somebody saw, whatever its size was thought to be.
    pub fn closed(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) {
        if self.network.coflow(slot).state(flow) == FlowState::Done {
            return;
        }
        self.hold(slot, flow, now);
        self.network.resize(slot, flow, bytes);
        self.flow_done(slot, flow, now);
    }

    /// The flows of a coflow under way are those of `spec` from now on: more, or others. A flow in the same place of its specification
    /// as before, and with the same ends, goes on where it was, and waits if it waited; all others begin, or are done if they have no
    /// bytes. The coflow keeps its age. O(flows log flows).
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

    /// A coflow leaves, whatever is left of it.
    pub fn withdraw(&mut self, slot: Slot, now: f64) {
        for flow in 0..self.network.coflow(slot).width() as u32 {
            self.closed(slot, flow, self.network.attained(slot, flow, now), now);
        }
        self.remove(slot, now);
    }

    /// Hosts report what all flows of a coflow have sent until `now`, and at which rate they go on.
    pub fn report(&mut self, slot: Slot, sent: f64, rate: f64, now: f64) {
        self.network.report(slot, sent, rate, now);
    }

    /// A coflow whose flows are all done leaves.
    pub fn remove(&mut self, slot: Slot, now: f64) {
        self.tell(Event::Done(slot), now);
        self.network.remove(slot);
        if let Root::Tree(tree) = &mut self.root {
            tree.leave(slot);
        }
    }

    /// When the next flow ends at the rates that were decided, as far as sizes are known; infinite if none does.
    pub fn next_end(&mut self) -> f64 {
        self.network.next_end()
    }

    /// Ends the flows that the decided rates end until `limit`, tells the policy, and puts them in `ended` in
    /// order of time.
    pub fn run_out(&mut self, limit: f64, ended: &mut Vec<Ended>) {
        let first = ended.len();
        self.network.run_out(limit, ended);
        for &Ended { slot, flow, at } in &ended[first..] {
            self.tell(Event::FlowDone(slot, flow), at);
        }
    }

    /// Decides anew and puts the rates in force.
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

    /// The time at which to ask for the next schedule even if nothing happens; infinite if never. Asked right after
    /// [`Engine::schedule`], and after the reports of what it led to where rates were left to the transport.
    pub fn wake(&mut self, now: f64) -> f64 {
        let decided = &self.allocation;
        match &mut self.root {
            Root::Blind(policy) => policy.wake(&mut View::new(&mut self.network, now), decided),
            Root::Sizes(policy) => policy.wake(&mut View::new(&mut self.network, now), decided),
            Root::Tree(tree) => tree.wake(&mut self.network, now),
        }
    }
}
