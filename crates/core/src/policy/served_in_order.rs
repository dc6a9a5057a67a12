//! Policies that decide an order of coflows, in which every link serves them (Siphon, ATC '18, section 3).
//!
//! The algorithm that orders the coflows ([`CoflowOrderer`]) knows sizes and past bandwidth
//! ([`crate::model::LinkHistory`]), but not the present capacity of links. Rates follow from the order and the present
//! capacity, as at relays that serve by strict priority: coflow by coflow, the flows of a coflow share the residual capacity
//! of their links max-min. With `groups`, the flows of a coflow are served group by group too
//! ([`crate::wide_area::flow_groups`]).
//!
//! The order is computed when a coflow arrives or completes, or when the data of a flow becomes available.

use std::collections::BTreeMap;

use super::{Event, LinkService, ParamsError, Policy, Routing};
use crate::allocation::{Allocation, Rule};
use crate::model::{Coflow, Fabric, LinkHistory, SizesKnown, Slot, View};
use crate::policy::params::Params;
use crate::rounding;
use crate::solve::maxmin::{FlowClass, max_min};
use crate::wide_area::{WaitingCoflow, flow_groups};

/// Orders coflows, which are in the order of arrival, by sizes and past bandwidth. Returns their indices in the order of service.
pub(super) type CoflowOrderer = Box<dyn FnMut(&[WaitingCoflow], &LinkHistory) -> Vec<usize> + Send>;

/// The order of flow groups inside a coflow; a group is all flows to one receiving port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupOrder {
    /// All groups at the same time.
    Concurrent,
    LargestFirst,
    /// For comparison (Fig. 5).
    SmallestFirst,
}

/// The parameters of every policy that serves in an order.
pub(super) const DETOURS_PARAM: (&str, &str) =
    ("detours=off", "between regions: relieve bottlenecks by paths through a third region (Siphon 3.3)");
pub(super) const GROUPS_PARAM: (&str, &str) = (
    "groups=off",
    "inside a coflow, the largest flow group first (Siphon 3.2): all flows to one port; or the `smallest` one",
);

/// A policy that serves coflows in the order of `orderer`.
pub(super) struct ServedInOrder {
    orderer: CoflowOrderer,
    detours: bool,
    group_order: GroupOrder,
    /// Whether the order has to be computed again.
    is_stale: bool,
    order: Vec<Slot>,
    /// By slot: the groups of the coflow's flows, in the order of service.
    groups: Vec<Vec<Vec<u32>>>,
}

impl ServedInOrder {
    pub(super) fn from_params(
        orderer: CoflowOrderer,
        params: &mut Params,
    ) -> Result<ServedInOrder, ParamsError> {
        let words = [
            ("off", GroupOrder::Concurrent),
            ("on", GroupOrder::LargestFirst),
            ("smallest", GroupOrder::SmallestFirst),
        ];
        Ok(ServedInOrder {
            orderer,
            detours: params.take_switch("detours", false)?,
            group_order: params.take_choice("groups", &words)?,
            is_stale: true,
            order: Vec::new(),
            groups: Vec::new(),
        })
    }

    /// The groups of a coflow's flows, in the order of service.
    fn group_flows(&self, slot: Slot, view: &View<'_, SizesKnown>) -> Vec<Vec<u32>> {
        let coflow = view.coflow(slot);
        let flows = 0..coflow.width() as u32;
        if self.group_order == GroupOrder::Concurrent {
            return vec![flows.collect()];
        }
        let mut by_receiver: BTreeMap<u32, (Vec<u32>, f64)> = BTreeMap::new();
        for flow in flows {
            let group = by_receiver.entry(coflow.flow_ports(flow).1).or_default();
            group.0.push(flow);
            group.1 += view.flow_size(slot, flow);
        }
        let (groups, sizes): (Vec<Vec<u32>>, Vec<f64>) = by_receiver.into_values().unzip();
        let mut order = flow_groups::order_largest_first(&sizes);
        if self.group_order == GroupOrder::SmallestFirst {
            order.reverse();
        }
        order.into_iter().map(|group| groups[group].clone()).collect()
    }

    fn compute_order(&mut self, view: &View<'_, SizesKnown>) {
        let fabric = view.fabric();
        let waiting_slots: Vec<Slot> = view
            .active_coflows()
            .iter()
            .copied()
            .filter(|&slot| view.coflow(slot).live_count() > 0)
            .collect();
        let to_waiting = |&slot: &Slot| {
            // Over a part of a link, bytes take as long as more of them over all of it.
            let loads = view.remaining_loads(slot).by_link().filter_map(|(link, bytes)| {
                let number = link.checked_sub(fabric.first_limiting_link())?;
                Some((number as u32, bytes / view.link_fraction(link).max(1e-9)))
            });
            WaitingCoflow {
                seq: view.coflow(slot).seq,
                remaining_bytes: loads.filter(|(_, bytes)| *bytes > 0.0).collect(),
            }
        };
        let waiting: Vec<WaitingCoflow> = waiting_slots.iter().map(to_waiting).collect();
        let order = (self.orderer)(&waiting, view.link_history());
        self.order = order.into_iter().map(|at| waiting_slots[at]).collect();
    }
}

impl Policy for ServedInOrder {
    type Knowledge = SizesKnown;

    fn link_service(&self) -> LinkService {
        LinkService::InOrder
    }

    fn routing(&self) -> Routing {
        Routing { detours: self.detours, separate_receivers: self.group_order != GroupOrder::Concurrent }
    }

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesKnown>) {
        match event {
            Event::CoflowReleased(slot) => {
                self.groups.resize(self.groups.len().max(slot as usize + 1), Vec::new());
                self.groups[slot as usize] = self.group_flows(slot, view);
                self.is_stale = true;
            }
            Event::CoflowCompleted(_) | Event::FlowLive(..) | Event::FlowInterrupted(..) => {
                self.is_stale = true
            }
            Event::FlowCompleted(..) | Event::CapacityChanged => {}
        }
    }

    /// O(links + flows log links) for each coflow, and the cost of an order.
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        if std::mem::take(&mut self.is_stale) {
            self.compute_order(view);
        }
        let mut residual = ResidualLinks::new(view.fabric());
        for &slot in &self.order {
            let coflow = view.coflow(slot);
            out.set_rule(slot, Rule::InOrder);
            for group in &self.groups[slot as usize] {
                let live = group.iter().copied().filter(|&flow| view.is_live(slot, coflow.seq, flow));
                residual.share(coflow, live, |flow, rate| out.add_flow_rate(slot, flow, rate));
            }
        }
    }
}

/// The residual capacity of links while coflows are served.
struct ResidualLinks<'a> {
    fabric: &'a Fabric,
    left: Vec<f64>,
}

impl ResidualLinks<'_> {
    fn new(fabric: &Fabric) -> ResidualLinks<'_> {
        ResidualLinks { fabric, left: fabric.capacities().to_vec() }
    }

    /// Shares the residual capacity between these flows, max-min. Calls `set_rate` with the rate of each flow that gets one.
    fn share(
        &mut self,
        coflow: &Coflow,
        flows: impl Iterator<Item = u32>,
        mut set_rate: impl FnMut(u32, f64),
    ) {
        let with_links = |flow: u32| {
            let links = coflow.flow_links(flow);
            // Ports that limit no flow can still be down.
            let is_open = links.clone().all(|link| self.left[link] > 0.0);
            let limiting = links.filter(|&link| link >= self.fabric.first_limiting_link());
            is_open.then(|| (flow, limiting.map(|link| link as u32).collect()))
        };
        let (flows, links): (Vec<u32>, Vec<Vec<u32>>) = flows.filter_map(with_links).unzip();
        let classes: Vec<FlowClass<'_>> = links.iter().map(|links| FlowClass { links, flows: 1.0 }).collect();
        let rates = max_min(&self.left, &classes);
        for ((&flow, rate), links) in flows.iter().zip(&rates).zip(&links) {
            links.iter().for_each(|&link| self.left[link as usize] -= rate);
            // A flow inside a region crosses no link that limits it.
            let rate = rate.min(self.fabric.send_capacity(coflow.flow_ports(flow).0));
            if rate > 0.0 {
                set_rate(flow, rate);
            }
        }
        // A residual within the rounding error of the rates counts as 0.
        for (rate, links) in rates.iter().zip(&links) {
            for &link in links {
                if self.left[link as usize] < rate * rounding::CAPACITY {
                    self.left[link as usize] = 0.0;
                }
            }
        }
    }
}
