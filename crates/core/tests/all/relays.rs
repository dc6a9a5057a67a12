//! Instructions for relays: relays that follow them give flows the rates that the engine gives.

use std::collections::BTreeMap;

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::engine::{DecidesOver, Engine, Links};
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, ServiceNames, Trunks, WideArea};
use weir_core::policy;
use weir_core::units::{Bytes, Rate, Time};
use weir_core::wide_area::relays::{GroupPath, HopFlow, RelayedCoflow, hop_schedules};
use weir_core::wide_area::{ServiceOrder, WaitingCoflow, flow_groups};
use weir_core::wide_area_policy::WideAreaPolicy;

/// The bandwidth of each link, in bytes per second.
const RATE: f64 = 100.0;

/// Three ports in each of three regions.
const PORTS: u32 = 9;

fn area() -> WideArea {
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    let samples = vec![Rate::new(RATE).unwrap()];
    let measured = pairs.map(|(from, to)| LinkMeasurement { from, to, samples: samples.clone() });
    let names = ["a", "b", "c"].map(str::to_owned);
    WideArea::new(names.into(), measured.into(), Time::new(1.0).unwrap(), 0.0).unwrap()
}

/// The bytes of a coflow by link and receiving port, of which each region has three.
type FlowBytes = BTreeMap<(u32, u32), u32>;

fn to_spec(id: u64, flows: &FlowBytes, area: &WideArea) -> CoflowSpec {
    let flow = |(&(link, receiver), &bytes): (&(u32, u32), &u32)| {
        let (from, to) = area.link_ends(link);
        FlowSpec::new(3 * from as u32, 3 * to as u32 + receiver, Bytes::new(bytes.into()).unwrap())
    };
    CoflowSpec::new(id, Time::ZERO, flows.iter().map(flow).collect())
}

/// The rates of an engine under a policy, by coflow, link and receiving port.
fn engine_rates(coflows: &[FlowBytes], area: &WideArea, policy: &str) -> BTreeMap<(u64, u32, usize), f64> {
    let trunks = Trunks::between_regions(area, PORTS, BTreeMap::new());
    let fabric = Fabric::from_port_rates(trunks.port_rates());
    let links = Links { fabric, trunks: Some(trunks), goodput: None, decides_over: DecidesOver::Links };
    let mut engine = Engine::new(links, policy::build(policy).unwrap(), &ServiceNames::default()).unwrap();
    let slots: Vec<u32> = coflows
        .iter()
        .enumerate()
        .map(|(index, flows)| {
            engine.release_coflow(&to_spec(index as u64, flows, area), index, 0.0, &mut Vec::new())
        })
        .collect();
    engine.schedule(0.0).unwrap();
    let mut rates = BTreeMap::new();
    for (seq, slot) in (0..).zip(slots) {
        let coflow = engine.network().coflow(slot);
        for flow in 0..coflow.width() as u32 {
            let receiver = coflow.flow_ports(flow).1 as usize;
            let link = engine.flow_trunks(slot, flow).next().unwrap();
            rates.insert((seq, link, receiver), engine.network().rate(slot, flow));
        }
    }
    rates
}

/// A coflow for relays: its groups are its receiving ports.
fn to_relayed(seq: u64, flows: &FlowBytes, area: &WideArea, groups: bool) -> RelayedCoflow {
    let port = |&(link, receiver): &(u32, u32)| 3 * area.link_ends(link).1 + receiver as usize;
    let mut sizes = [0.0; PORTS as usize];
    flows.iter().for_each(|(key, &bytes)| sizes[port(key)] += f64::from(bytes));
    let path = |key: &(u32, u32)| GroupPath {
        group: port(key),
        direct_link: key.0,
        links: [Some(key.0), None],
        fraction: 1.0,
    };
    RelayedCoflow {
        seq,
        group_order: groups.then(|| flow_groups::order_largest_first(&sizes)),
        paths: flows.keys().map(path).collect(),
    }
}

fn to_waiting(seq: u64, flows: &FlowBytes) -> WaitingCoflow {
    let mut by_link: BTreeMap<u32, f64> = BTreeMap::new();
    flows.iter().for_each(|(&(link, _), &bytes)| *by_link.entry(link).or_default() += f64::from(bytes));
    WaitingCoflow { seq, remaining_bytes: by_link.into_iter().collect() }
}

fn any_coflows() -> impl Strategy<Value = Vec<FlowBytes>> {
    prop::collection::vec(prop::collection::btree_map((0..6u32, 0..3u32), 1..1000u32, 1..8), 1..6)
}

proptest! {
    #![proptest_config(config_with_cases(200))]

    #[test]
    fn relay_hops_reproduce_the_rates_of_the_engine(coflows in any_coflows(), way in 0..3usize) {
        let area = area();
        let past = area.bandwidth_history();
        let (policy, groups) = [("mrtf", false), ("mrtf:groups=on", true), ("siphon:samples=20", false)][way];
        let waiting: Vec<WaitingCoflow> = (0..).zip(&coflows).map(|(seq, flows)| to_waiting(seq, flows)).collect();
        let order = WideAreaPolicy::new(policy).unwrap().decide_order(&waiting, &past);
        let relayed: Vec<RelayedCoflow> =
            (0..).zip(&coflows).map(|(seq, flows)| to_relayed(seq, flows, &area, groups)).collect();
        let rates = engine_rates(&coflows, &area, policy);
        let mut served = 0;
        for hop in hop_schedules(&past, &order, &relayed) {
            // All flows want as much as they can get, so the first level has the whole link.
            let first = &hop.priority_levels[0].flows;
            for (seq, path) in first {
                let rate = rates[&(*seq, path.direct_link, path.group)];
                prop_assert!((rate - RATE / first.len() as f64).abs() < 1e-6, "{}: {}", policy, rate);
                served += 1;
            }
        }
        prop_assert_eq!(rates.values().filter(|rate| **rate > 1e-6).count(), served);
    }
}

/// A flow by a relay is at both of its hops, in the same turn, with the share of its bytes that goes that way.
#[test]
fn relayed_flows_appear_at_both_hops() {
    let past = area().bandwidth_history();
    let link = |from, to| past.link_between(from, to).unwrap();
    let (ab, bc, ac) = (link(0, 1), link(1, 2), link(0, 2));
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
        hop.priority_levels.iter().map(|level| level.flows.clone()).collect()
    };
    assert_eq!(told.len(), 3);
    assert_eq!(flows(0, 2), [vec![(8, second.paths[0])], vec![(7, first.paths[0])]]);
    assert_eq!(flows(0, 1), [vec![(7, first.paths[1])]]);
    assert_eq!(flows(1, 2), flows(0, 1));
    let turns = told.iter().map(|hop| hop.priority_levels.iter().map(|level| level.turn).collect());
    assert_eq!(turns.collect::<Vec<Vec<usize>>>(), [vec![1], vec![0, 1], vec![1]]);
}
