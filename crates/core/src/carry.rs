//! What the network carries of what was decided, where something besides ports is short.
//!
//! Policies decide as if ports carried all of their rate and nothing else could be full, and are not told otherwise. What is carried is a
//! second allocation, the one in force: flows that get less than was decided have rates of their own in it.

mod receivers;
mod trunks;

use crate::allocation::{Allocation, Common, FlowRate};
use crate::model::{Coflow, Network, Slot};

pub(crate) use receivers::Receivers;
pub(crate) use trunks::Crossings;

/// Something that may be short.
pub(crate) trait Carry: Send {
    /// Looks at what it would have to carry from `now` on; says whether that is more than it can.
    fn is_short(&mut self, decided: &Allocation, network: &Network, now: f64) -> bool;

    /// Puts what it carries into `carried`, after it was found to be short.
    fn reduce(&mut self, decided: &Decided<'_>, network: &Network, now: f64, carried: &mut Allocation);

    /// Other flows of a coflow are live now, though perhaps as many.
    fn forget(&mut self, slot: Slot) {
        let _ = slot;
    }
}

/// Turns what was decided into what is carried.
pub(crate) struct Carrier {
    what: Box<dyn Carry>,
    carried: Allocation,
    /// Whether the rates in force are not those that were decided.
    reduced: bool,
    /// Flows with rates of their own, in memory that is used again.
    own: Vec<FlowRate>,
}

impl Carrier {
    pub(crate) fn new(what: Box<dyn Carry>) -> Carrier {
        Carrier { what, carried: Allocation::default(), reduced: false, own: Vec::new() }
    }

    /// See [`Carry::forget`].
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.what.forget(slot);
    }

    /// What is to be in force from `now` on, to which what may be asked for was brought up. What [`Carry::is_short`] takes; where something is
    /// short, also flows with rates of their own and their logarithm, and what [`Carry::reduce`] takes.
    pub(crate) fn carry<'a>(
        &'a mut self,
        decided: &'a Allocation,
        network: &Network,
        now: f64,
    ) -> &'a Allocation {
        let reduces = self.what.is_short(decided, network, now);
        if !reduces && !self.reduced {
            return decided;
        }
        self.reduced = reduces;
        self.carried.clear(network.slots());
        if reduces {
            self.own.clear();
            self.own.extend_from_slice(decided.flows());
            self.own.sort_by_key(|own| (own.slot, own.flow));
            let decided = Decided { whole: decided, own: &self.own };
            self.what.reduce(&decided, network, now, &mut self.carried);
        } else {
            copy(decided, network, &mut self.carried);
        }
        self.carried.seal();
        &self.carried
    }
}

/// What was decided, and the flows with rates of their own by coflow and number.
pub(crate) struct Decided<'a> {
    whole: &'a Allocation,
    own: &'a [FlowRate],
}

impl Decided<'_> {
    /// A coflow's common rate, and its flows with rates of their own.
    fn of(&self, slot: Slot) -> (Common, &[FlowRate]) {
        let first = self.own.partition_point(|own| own.slot < slot);
        let own = &self.own[first..self.own.partition_point(|own| own.slot <= slot)];
        (self.whole.common(slot), own)
    }
}

/// The rate of a live flow by its coflow's common one.
fn common_rate(coflow: &Coflow, common: Common, flow: u32, now: f64) -> f64 {
    match common {
        Common::None => 0.0,
        Common::Each(rate) => rate,
        Common::Together(seconds) => coflow.left(flow, now) / seconds,
    }
}

/// Puts what was decided into `carried` as it is. What the decision keeps of the one before was not in force; from the next on it may be, so
/// the order has to be the same.
fn copy(decided: &Allocation, network: &Network, carried: &mut Allocation) {
    for &slot in network.active() {
        carried.set_common(slot, decided.common(slot));
    }
    for own in decided.flows() {
        carried.add_flow(own.slot, own.flow, own.rate);
    }
}

/// What each live flow of a coflow gets by a decision, with those that get nothing; `own` is what its flows have on top.
fn rates<'a>(
    coflow: &'a Coflow,
    common: Common,
    own: &'a [FlowRate],
    now: f64,
) -> impl Iterator<Item = (u32, f64)> + 'a {
    let mut own = own.iter().peekable();
    coflow.live_flows().map(move |flow| {
        let more = own.next_if(|own| own.flow == flow).map_or(0.0, |own| own.rate);
        (flow, common_rate(coflow, common, flow, now) + more)
    })
}
