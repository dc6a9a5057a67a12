//! Rates that the engine computes where policies leave them open, against exact ones in rational numbers.

use std::collections::BTreeMap;

use crate::common::config_with_cases;
use num_rational::BigRational;
use proptest::prelude::*;
use weir_core::engine::{DecidesOver, Engine, Links};
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, ServiceNames, TopologyTemplate, Trunks};
use weir_core::policy;
use weir_core::units::{Bytes, Rate, Time};

/// The rate of ports; all capacities of links are whole numbers.
const PORT_RATE: f64 = 5040.0;

const QUEUES: usize = 3;

/// A queue, and the ports of flows.
type QueuedFlows = (usize, Vec<(u32, u32)>);

/// A network of up to 8 hosts: on one switch without spines.
#[derive(Debug, Clone)]
struct Network {
    spines: u32,
    leaves: u32,
    oversubscription: f64,
    /// By coflow: its queue, and its flows.
    coflows: Vec<QueuedFlows>,
    /// Maximum rates of flows, by position of the coflow, and by that of the flow.
    max_rates: Vec<(prop::sample::Index, prop::sample::Index, u32)>,
    /// Flows that end after the first schedule, one by one: positions among the live flows.
    ends: Vec<prop::sample::Index>,
}

fn any_network() -> impl Strategy<Value = Network> {
    (0u32..3, 2u32..=4, 1u32..=4).prop_flat_map(|(spines, leaves, oversubscription)| {
        let flow = (0..2 * leaves, 0..2 * leaves);
        let coflow = (0..QUEUES, prop::collection::vec(flow, 1..5));
        let coflows = prop::collection::vec(coflow, 1..5);
        let ends = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
        let max_rate = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..6000u32);
        let max_rates = prop_oneof![Just(Vec::new()), prop::collection::vec(max_rate, 1..5)];
        (coflows, max_rates, ends).prop_map(move |(coflows, max_rates, ends)| Network {
            spines,
            leaves,
            oversubscription: oversubscription.into(),
            coflows,
            max_rates,
            ends,
        })
    })
}

impl Network {
    fn specs(&self) -> Vec<CoflowSpec> {
        let spec = |(id, coflow): (u64, &QueuedFlows)| {
            let (queue, flows) = coflow;
            // All flows of a coflow are equal, so that its size is in its queue.
            let size = 1000.0 * 10f64.powi(*queue as i32) / flows.len() as f64 * 0.5;
            let flow = |&(src, dst): &(u32, u32)| FlowSpec::new(src, dst, Bytes::new(size).unwrap());
            CoflowSpec::new(id, Time::ZERO, flows.iter().map(flow).collect())
        };
        let mut specs: Vec<CoflowSpec> = (0..).zip(&self.coflows).map(spec).collect();
        for (coflow, _, max_rate) in &self.max_rates {
            let max_rate = Rate::new(f64::from(*max_rate).max(1.0)).unwrap();
            specs[coflow.index(self.coflows.len())].max_flow_rate = Some(max_rate);
        }
        specs
    }

    fn engine(&self, policy: &str) -> Engine {
        let rate = Rate::new(PORT_RATE).unwrap();
        let template = TopologyTemplate::LeafSpine {
            spines: self.spines,
            leaves: self.leaves,
            hosts: 2,
            rate,
            oversubscription: self.oversubscription,
        };
        let specs = self.specs();
        let trunks = (self.spines > 0).then(|| Trunks::new(template.build().unwrap(), 1).unwrap());
        // Under `fair`, each flow with a maximum rate crosses a link that no other crosses.
        let trunks =
            trunks.map(|trunks| if policy == "fair" { trunks.with_flow_limits(&specs) } else { trunks });
        let fabric = Fabric::big_switch(2 * self.leaves, rate);
        let links = Links { fabric, trunks, goodput: None, decides_over: DecidesOver::Links };
        let mut engine =
            Engine::new(links, policy::build(policy).unwrap(), &ServiceNames::default()).unwrap();
        for (position, spec) in specs.iter().enumerate() {
            engine.release_coflow(spec, position, 0.0, &mut Vec::new());
        }
        for (coflow, flow, max_rate) in self.max_rates.iter().filter(|_| policy != "fair") {
            let slot = coflow.index(self.coflows.len()) as u32;
            let flow = flow.index(engine.network().coflow(slot).width()) as u32;
            engine.set_flow_max_rate(slot, flow, Some((*max_rate).into()));
        }
        engine
    }
}

fn rational(value: f64) -> BigRational {
    BigRational::from_float(value).unwrap()
}

fn whole(value: usize) -> BigRational {
    rational(value as f64)
}

/// A live flow: its coflow, its number there, its links with the sending one first, and its queue.
struct LiveFlow {
    slot: u32,
    flow: u32,
    links: Vec<usize>,
    queue: usize,
    max_rate: Option<BigRational>,
    rate: BigRational,
}

fn live_flows(engine: &Engine, network: &Network) -> Vec<LiveFlow> {
    let mut flows = Vec::new();
    for &slot in engine.network().active_coflows() {
        let coflow = engine.network().coflow(slot);
        flows.extend(coflow.live_flows().map(|flow| LiveFlow {
            slot,
            flow,
            links: coflow.flow_links(flow).collect(),
            queue: network.coflows[coflow.id as usize].0,
            max_rate: engine.flow_max_rate(slot, flow).map(rational),
            rate: whole(0),
        }));
    }
    flows
}

/// Raises all rates together, each up to its cap, and stops the flows of each link that is full. A flow's links from `first_link`
/// on limit it.
fn fill(capacities: &[BigRational], flows: &mut [LiveFlow], first_link: usize, caps: &[Option<BigRational>]) {
    let mut left = capacities.to_vec();
    let mut open: Vec<usize> = (0..flows.len()).filter(|&at| caps[at] != Some(whole(0))).collect();
    while !open.is_empty() {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        open.iter().for_each(|&at| {
            flows[at].links[first_link..].iter().for_each(|&link| *counts.entry(link).or_default() += 1);
        });
        let shares = counts.iter().map(|(&link, &count)| left[link].clone() / whole(count));
        let rises = open.iter().filter_map(|&at| Some(caps[at].clone()? - &flows[at].rate));
        let step = shares.chain(rises).min().expect("every flow crosses a link");
        for &at in &open {
            flows[at].rate += &step;
            flows[at].links[first_link..].iter().for_each(|&link| left[link] -= &step);
        }
        open.retain(|&at| {
            caps[at].as_ref() != Some(&flows[at].rate)
                && flows[at].links[first_link..].iter().all(|&link| left[link] > whole(0))
        });
    }
}

/// Queues at senders: each queue's share goes to its first coflow, and the links after the senders share their capacity max-min.
/// Residual capacity goes to the flows in the order of queues and coflows. Under strict priority, only the first queue has a share.
fn share_by_queues(capacities: &[BigRational], flows: &mut [LiveFlow], is_strict: bool) {
    let weight = |queue: usize| whole(QUEUES - queue);
    // The first coflow of each queue of each sender. Coflows are in the order of release.
    let mut heads: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    flows.iter().for_each(|flow| {
        heads.entry((flow.links[0], flow.queue)).or_insert(flow.slot);
    });
    let cap = |flow: &LiveFlow| {
        let src = flow.links[0];
        let queues = || heads.keys().filter(|head| head.0 == src).map(|head| head.1);
        let is_served = !is_strict || queues().all(|queue| queue >= flow.queue);
        if heads[&(src, flow.queue)] != flow.slot || !is_served {
            return whole(0);
        }
        let total: BigRational = if is_strict { weight(flow.queue) } else { queues().map(weight).sum() };
        let of_coflow = flows.iter().filter(|other| (other.slot, other.links[0]) == (flow.slot, src));
        let share = &capacities[src] * weight(flow.queue) / total / whole(of_coflow.count());
        flow.max_rate.clone().map_or(share.clone(), |max_rate| share.min(max_rate))
    };
    let caps: Vec<Option<BigRational>> = flows.iter().map(|flow| Some(cap(flow))).collect();
    fill(capacities, flows, 1, &caps);
    let mut left = capacities.to_vec();
    flows.iter().for_each(|flow| flow.links.iter().for_each(|&link| left[link] -= &flow.rate));
    let mut order: Vec<usize> = (0..flows.len()).collect();
    order.sort_by_key(|&at| flows[at].queue);
    for at in order {
        let room = flows[at].max_rate.iter().map(|max_rate| max_rate - &flows[at].rate);
        let rate = flows[at].links.iter().map(|&link| left[link].clone()).chain(room).min();
        let rate = rate.expect("it crosses links");
        flows[at].links.iter().for_each(|&link| left[link] -= &rate);
        flows[at].rate += rate;
    }
}

/// Compares the rates after a first schedule, and after each end of a flow.
fn check_rates(
    network: &Network,
    policy: &str,
    share: impl Fn(&[BigRational], &mut [LiveFlow]),
) -> Result<(), TestCaseError> {
    let mut engine = network.engine(policy);
    for end in network.ends.iter().map(Some).chain([None]) {
        engine.schedule(0.0).unwrap();
        let capacities: Vec<BigRational> =
            engine.network().fabric().capacities().iter().map(|&capacity| rational(capacity)).collect();
        let mut flows = live_flows(&engine, network);
        share(&capacities, &mut flows);
        for LiveFlow { slot, flow, rate, .. } in &flows {
            let found = rational(engine.flow_rate(*slot, *flow));
            let error = if found > *rate { found.clone() - rate } else { rate - found.clone() };
            prop_assert!(error < rational(1e-11 * PORT_RATE), "{policy}: {found} instead of {rate}");
        }
        if let (Some(end), false) = (end, flows.is_empty()) {
            let LiveFlow { slot, flow, .. } = flows[end.index(flows.len())];
            engine.close_flow(slot, flow, 1.0, 0.0);
            if engine.network().coflow(slot).is_completed() {
                engine.remove_coflow(slot, 0.0);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config_with_cases(10_000))]

    #[test]
    fn max_min_rates_are_exact(network in any_network()) {
        let unlimited = |flows: &[LiveFlow]| vec![None; flows.len()];
        check_rates(&network, "fair", |capacities, flows| {
            let caps = unlimited(flows);
            fill(capacities, flows, 0, &caps);
        })?;
    }

    #[test]
    fn rates_of_queues_at_senders_are_exact(network in any_network(), is_strict in any::<bool>()) {
        let sharing = if is_strict { "strict" } else { "weighted" };
        let policy = format!("aalo+:start=1000B:growth=10:queues=3:sharing={sharing}");
        check_rates(&network, &policy, |capacities, flows| share_by_queues(capacities, flows, is_strict))?;
    }
}
