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

/// What is short.
pub(crate) enum Carrier {
    /// Receiving ports with many connections.
    Receivers(Receivers),
    /// Links between switches.
    Trunks(Box<Crossings>),
}

impl Carrier {
    /// What is to be in force from `now` on, to which what may be asked for was brought up.
    pub(crate) fn carry<'a>(
        &'a mut self,
        decided: &'a Allocation,
        network: &Network,
        now: f64,
    ) -> &'a Allocation {
        match self {
            Carrier::Receivers(receivers) => receivers.carry(decided, network, now),
            Carrier::Trunks(trunks) => trunks.carry(decided, network, now),
        }
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

/// The flows of a decision with rates of their own, by coflow and number.
#[derive(Default)]
struct Own(Vec<FlowRate>);

impl Own {
    fn of(&mut self, decided: &Allocation) {
        self.0.clear();
        self.0.extend_from_slice(decided.flows());
        self.0.sort_by_key(|own| (own.slot, own.flow));
    }

    /// Those of a coflow.
    fn coflow(&self, slot: Slot) -> &[FlowRate] {
        let first = self.0.partition_point(|own| own.slot < slot);
        &self.0[first..self.0.partition_point(|own| own.slot <= slot)]
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
