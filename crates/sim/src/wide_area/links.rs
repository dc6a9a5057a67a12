//! Computes the rate of each transfer on each link, and advances transfers.

use weir_core::solve::{FlowClass, max_min};
use weir_core::wide_area::{LeafShare, ServiceOrder, WaitingCoflow, flow_groups};

use super::GroupOrder;

/// A part of a flow on its path, over one or two links.
#[derive(Debug, Clone)]
pub struct Transfer {
    pub group: usize,
    /// Its index in the group.
    pub place: usize,
    pub links: [Option<u32>; 2],
    /// Remaining bytes, above 0.
    pub left: f64,
    /// Bytes per second.
    pub rate: f64,
}

/// An active coflow.
#[derive(Debug, Clone)]
pub struct Active {
    /// Its index among the demands.
    pub index: usize,
    /// The number of coflows that arrived before it.
    pub seq: u64,
    /// Its leaf in a policy tree.
    pub leaf: u32,
    /// The order inside it.
    pub inside: GroupOrder,
    /// Its groups in the order of service.
    pub groups: Vec<usize>,
    pub transfers: Vec<Transfer>,
}

impl Active {
    /// The coflow as a policy sees it.
    pub fn waiting(&self, links: usize) -> WaitingCoflow {
        let mut left = vec![0.0; links];
        for transfer in &self.transfers {
            transfer.links.iter().flatten().for_each(|&link| left[link as usize] += transfer.left);
        }
        let left = (0..).zip(left).filter(|(_, bytes)| *bytes > 0.0).collect();
        WaitingCoflow { seq: self.seq, leaf: self.leaf, remaining_bytes: left }
    }
}

/// The order of groups with these sizes.
pub fn order(sizes: &[f64], inside: GroupOrder) -> Vec<usize> {
    let mut order = flow_groups::order_largest_first(sizes);
    if inside == GroupOrder::SmallestFirst {
        order.reverse();
    }
    order
}

/// The links and the order of service.
pub struct Links {
    /// As places among those that are active.
    turns: ServiceOrder,
    /// What is left of each link.
    left: Vec<f64>,
    /// What is left of the parts of all.
    spare: Vec<f64>,
}

impl Links {
    pub fn new(links: usize) -> Links {
        Links { turns: ServiceOrder::MaxMin, left: vec![0.0; links], spare: Vec::new() }
    }

    /// Sets the order of service, as indices of active coflows. No coflow may leave until the next call.
    pub fn set(&mut self, turns: ServiceOrder) {
        self.turns = turns;
    }

    /// Whether the end of a transfer changes the shares of links.
    pub fn are_divided(&self) -> bool {
        matches!(self.turns, ServiceOrder::Weighted(_))
    }

    /// Sets all rates.
    pub fn assign(&mut self, active: &mut [Active], rates: &[f64]) {
        active.iter_mut().flat_map(|coflow| &mut coflow.transfers).for_each(|transfer| transfer.rate = 0.0);
        match &self.turns {
            ServiceOrder::MaxMin => {
                self.left.copy_from_slice(rates);
                share(active.iter_mut().flat_map(|coflow| &mut coflow.transfers).collect(), &mut self.left);
            }
            ServiceOrder::InOrder(order) => {
                self.left.copy_from_slice(rates);
                in_order(order, active, &mut self.left);
            }
            ServiceOrder::Weighted(shares) => {
                self.spare.clear();
                self.spare.resize(rates.len(), 0.0);
                for one in shares {
                    for ((left, rate), part) in self.left.iter_mut().zip(rates).zip(&one.link_fractions) {
                        *left = rate * part;
                    }
                    serve(one, active, &mut self.left);
                    self.spare.iter_mut().zip(&self.left).for_each(|(spare, left)| *spare += left);
                }
                for one in shares {
                    serve(one, active, &mut self.spare);
                }
            }
        }
    }
}

/// Gives the coflows of one share more of what is left.
fn serve(one: &LeafShare, active: &mut [Active], left: &mut [f64]) {
    match &one.order {
        Some(order) => in_order(order, active, left),
        None => {
            let mut own = vec![false; active.len()];
            one.coflows.iter().for_each(|&place| own[place] = true);
            let own = active.iter_mut().zip(own).filter(|(_, own)| *own);
            share(own.flat_map(|(coflow, _)| &mut coflow.transfers).collect(), left);
        }
    }
}

fn in_order(order: &[usize], active: &mut [Active], left: &mut [f64]) {
    for &place in order {
        let coflow = &mut active[place];
        if coflow.inside == GroupOrder::Concurrent {
            share(coflow.transfers.iter_mut().collect(), left);
            continue;
        }
        for group in &coflow.groups {
            let of_group = coflow.transfers.iter_mut().filter(|transfer| transfer.group == *group);
            share(of_group.collect(), left);
        }
    }
}

/// Gives transfers more of what is left of links, max-min.
fn share(mut transfers: Vec<&mut Transfer>, left: &mut [f64]) {
    let links: Vec<Vec<u32>> =
        transfers.iter().map(|transfer| transfer.links.iter().flatten().copied().collect()).collect();
    let classes: Vec<FlowClass<'_>> = links.iter().map(|links| FlowClass { links, flows: 1.0 }).collect();
    let rates = max_min(left, &classes);
    for ((transfer, rate), links) in transfers.iter_mut().zip(rates).zip(&links) {
        transfer.rate += rate;
        for &link in links {
            left[link as usize] = (left[link as usize] - rate).max(0.0);
        }
    }
    // What rounding leaves of a link is nothing.
    for (transfer, links) in transfers.iter().zip(&links) {
        for &link in links {
            if left[link as usize] < transfer.rate * 1e-9 {
                left[link as usize] = 0.0;
            }
        }
    }
}

/// The time until the first transfer ends, in seconds; infinite if none ends.
pub fn first_end(active: &[Active]) -> f64 {
    let transfers = active.iter().flat_map(|coflow| &coflow.transfers);
    transfers.filter(|t| t.rate > 0.0).map(|t| t.left / t.rate).fold(f64::INFINITY, f64::min)
}

/// Advances time by `step` seconds. Calls `ended` with each transfer that ends, and whether it is the last part of its flow.
/// Removes ended transfers, and coflows without transfers.
pub fn advance(
    active: &mut Vec<Active>,
    step: f64,
    carried: &mut [f64],
    mut ended: impl FnMut(&Active, &Transfer, bool),
) {
    for coflow in active.iter_mut() {
        let mut over = Vec::new();
        for (at, transfer) in coflow.transfers.iter_mut().enumerate() {
            if transfer.rate == 0.0 {
                continue;
            }
            // What would end within a nanosecond has ended.
            let ends = transfer.left / transfer.rate <= step * (1.0 + 1e-12) + 1e-9;
            let bytes = if ends { transfer.left } else { transfer.rate * step };
            transfer.links.iter().flatten().for_each(|&link| carried[link as usize] += bytes);
            transfer.left -= bytes;
            if ends {
                over.push(at);
            }
        }
        for &at in over.iter().rev() {
            let transfer = coflow.transfers.remove(at);
            let same = |other: &Transfer| (other.group, other.place) == (transfer.group, transfer.place);
            let last = !coflow.transfers.iter().any(same);
            ended(coflow, &transfer, last);
        }
    }
    active.retain(|coflow| !coflow.transfers.is_empty());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_core::model::wide_area::LinkMeasurement;
    use weir_core::model::{BandwidthHistory, WideArea};
    use weir_core::units::{Rate, Time};
    use weir_core::wide_area::relays::{
        GroupPath, HopClass, HopFlow, HopSchedule, RelayedCoflow, hop_schedules,
    };

    use super::*;

    const RATE: f64 = 100.0;

    fn past() -> BandwidthHistory {
        let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        let samples = vec![Rate::new(RATE).unwrap()];
        let measured = pairs.map(|(from, to)| LinkMeasurement { from, to, samples: samples.clone() });
        let names = ["a", "b", "c"].map(str::to_owned);
        WideArea::new(names.into(), measured.into(), Time::new(1.0).unwrap(), 0.0)
            .unwrap()
            .bandwidth_history()
    }

    /// Up to five coflows of up to three groups; each flow goes directly.
    fn arb_active() -> impl Strategy<Value = Vec<Active>> {
        let flows = prop::collection::btree_set((0..3usize, 0..6u32), 1..8);
        let coflow = (flows, any::<bool>(), Just([2, 0, 1]).prop_shuffle());
        prop::collection::vec(coflow, 1..6).prop_map(|all| {
            let one = |(seq, (flows, grouped, groups)): (
                u64,
                (std::collections::BTreeSet<_>, bool, [usize; 3]),
            )| {
                let transfer = |(place, (group, link))| Transfer {
                    group,
                    place,
                    links: [Some(link), None],
                    left: 1.0,
                    rate: 0.0,
                };
                Active {
                    index: 0,
                    seq,
                    leaf: 0,
                    inside: if grouped { GroupOrder::LargestFirst } else { GroupOrder::Concurrent },
                    groups: groups.to_vec(),
                    transfers: flows.into_iter().enumerate().map(transfer).collect(),
                }
            };
            (0..).zip(all).map(one).collect()
        })
    }

    fn carried(coflow: &Active) -> RelayedCoflow {
        let way = |transfer: &Transfer| {
            let pair = transfer.links[0].expect("it has a way");
            GroupPath { group: transfer.group, direct_link: pair, links: transfer.links, fraction: 1.0 }
        };
        let order = (coflow.inside != GroupOrder::Concurrent).then(|| coflow.groups.clone());
        RelayedCoflow {
            seq: coflow.seq,
            group_order: order,
            paths: coflow.transfers.iter().map(way).collect(),
        }
    }

    /// What a relay gives the flows of a hop that all want as much as they can get: its first turn has everything.
    fn served(hop: &HopSchedule) -> Vec<(HopFlow, f64)> {
        let of_class = |class: &HopClass| {
            let first = &class.priority_levels[0].flows;
            let each = RATE * class.weight / first.len() as f64;
            first.iter().map(|flow| (*flow, each)).collect::<Vec<_>>()
        };
        hop.classes.iter().flat_map(of_class).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Relays that follow their instructions give flows the rates of the simulator.
        #[test]
        fn relay_hops_reproduce_simulated_rates(mut active in arb_active(), way in 0..3, parts in prop::collection::vec(1..9u32, 2)) {
            let past = past();
            let all: Vec<usize> = (0..active.len()).rev().collect();
            let turns = match way {
                0 => ServiceOrder::MaxMin,
                1 => ServiceOrder::InOrder(all),
                _ => {
                    // Every other coflow is the second leaf's, which shares.
                    let own = |leaf: usize| (0..active.len()).rev().filter(|at| at % 2 == leaf).collect::<Vec<_>>();
                    let uses = |leaf: usize, link: usize| {
                        let flows = own(leaf).into_iter().flat_map(|at| &active[at].transfers);
                        flows.into_iter().any(|transfer| transfer.links[0] == Some(link as u32))
                    };
                    let share = |leaf: usize| {
                        let part = |link| {
                            let wanted = [0, 1].map(|leaf| if uses(leaf, link) { f64::from(parts[leaf]) } else { 0.0 });
                            let sum: f64 = wanted.iter().sum();
                            if sum > 0.0 { wanted[leaf] / sum } else { 0.0 }
                        };
                        let order = (leaf == 0).then(|| own(leaf));
                        LeafShare { coflows: own(leaf), order, link_fractions: (0..6).map(part).collect() }
                    };
                    ServiceOrder::Weighted(vec![share(0), share(1)])
                }
            };
            let told = hop_schedules(&past, &turns, &active.iter().map(carried).collect::<Vec<_>>());
            let mut links = Links::new(6);
            links.set(turns);
            links.assign(&mut active, &[RATE; 6]);
            let mut expected = 0;
            for hop in &told {
                let link = past.link_between(hop.region, hop.next_region);
                prop_assert!((hop.classes.iter().map(|class| class.weight).sum::<f64>() - 1.0).abs() < 1e-9);
                for ((seq, way), rate) in served(hop) {
                    let coflow = active.iter().find(|coflow| coflow.seq == seq).unwrap();
                    let mut same = coflow.transfers.iter().filter(|t| t.group == way.group && t.links[0] == link);
                    let found = same.next().unwrap().rate;
                    prop_assert!((found - rate).abs() < 1e-6, "{} and {}", found, rate);
                    expected += 1;
                }
            }
            let moving = active.iter().flat_map(|coflow| &coflow.transfers).filter(|t| t.rate > 1e-6).count();
            prop_assert_eq!(moving, expected);
        }
    }

    /// A flow by a relay is at both of its hops, in the same turn, with the share of its bytes that goes that way.
    #[test]
    fn relayed_flows_appear_at_both_hops() {
        let past = past();
        let (ab, bc, ac) = (
            past.link_between(0, 1).unwrap(),
            past.link_between(1, 2).unwrap(),
            past.link_between(0, 2).unwrap(),
        );
        let way = |links, share| GroupPath { group: 0, direct_link: ac, links, fraction: share };
        let first = RelayedCoflow {
            seq: 7,
            group_order: None,
            paths: vec![way([Some(ac), None], 0.75), way([Some(ab), Some(bc)], 0.25)],
        };
        let second = RelayedCoflow { seq: 8, group_order: None, paths: vec![way([Some(ac), None], 1.0)] };
        let told = hop_schedules(&past, &ServiceOrder::InOrder(vec![1, 0]), &[first.clone(), second.clone()]);
        let flows = |from, to| -> Vec<Vec<HopFlow>> {
            let hop = told.iter().find(|hop| (hop.region, hop.next_region) == (from, to)).unwrap();
            hop.classes[0].priority_levels.iter().map(|level| level.flows.clone()).collect()
        };
        assert_eq!(told.len(), 3);
        assert_eq!(flows(0, 2), [vec![(8, second.paths[0])], vec![(7, first.paths[0])]]);
        assert_eq!(flows(0, 1), [vec![(7, first.paths[1])]]);
        assert_eq!(flows(1, 2), flows(0, 1));
        let turns =
            told.iter().map(|hop| hop.classes[0].priority_levels.iter().map(|level| level.turn).collect());
        assert_eq!(turns.collect::<Vec<Vec<usize>>>(), [vec![1], vec![0, 1], vec![1]]);
    }
}
