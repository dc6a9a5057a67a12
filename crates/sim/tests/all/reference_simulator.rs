//! The engine against a reference simulator, written directly from the definitions of the policies. Every
//! flow has its bytes and rate, and every schedule is computed from scratch.

mod aalo;
mod clock;
mod comparison;
mod connections;
mod django;
mod event_loop;
mod gittins;
mod incast;
mod max_min;
mod network;
mod ordered;
mod pfp;
mod philae;
mod regions;
mod saath;
mod sincronia;
mod weir;

use aalo::{AaloParameters, AaloTurn};
use clock::Clock;
use django::{DjangoParameters, DjangoState};
use gittins::{GittinsIndex, GittinsState};
use incast::GoodputCurve;
pub use network::TestNetwork;
use ordered::SortKey;
use philae::{PhilaeParameters, Samples};
use regions::{RegionNetwork, UNLIMITED_RATE};
use saath::SaathParameters;
use weir::{WeirParameters, WeirState};
use weir_core::model::{BitSet, CoflowSpec, Workload};

/// Residual port capacity below this is rounding error.
const TOLERANCE: f64 = 1e-9;
/// Events closer than this are simultaneous.
const RATE_TOLERANCE: f64 = 1e-9;
/// Relative rounding error of a time.
const CLOCK_TOLERANCE: f64 = 1e-14;

#[derive(Debug, Clone, Copy, PartialEq)]
enum FlowPhase {
    Unreleased,
    Waiting,
    Live,
    Completed,
}

#[derive(Debug, Clone)]
struct Flow {
    /// Its links: the sending side of a port, the receiving side, and trunks. Links are numbered in this order.
    src: usize,
    dst: usize,
    trunks: Vec<usize>,
    /// Whether it stays inside a region.
    is_local: bool,
    /// Whether it stays inside a region in which a port is down.
    is_blocked: bool,
    reducer: u32,
    size: f64,
    /// The size, as far as the policy knows.
    expected_size: f64,
    sent_bytes: f64,
    rate: f64,
    /// The part of the rate that MADD set.
    madd_rate: f64,
    /// The rate by the last schedule.
    scheduled_rate: f64,
    phase: FlowPhase,
    /// Time at which its data is available; before the coflow's release, the delay after the release.
    available_at: f64,
    withheld_until: f64,
    end: f64,
}

impl Flow {
    /// Whether it completes once its data exists and, inside a region, its ports are up.
    fn takes_no_time(&self) -> bool {
        self.size == 0.0 || self.is_local
    }

    fn links(&self) -> impl Iterator<Item = usize> {
        [self.src, self.dst].into_iter().chain(self.trunks.iter().copied())
    }

    /// Bytes that remain, as far as the policy knows.
    fn remaining(&self) -> f64 {
        (self.expected_size - self.sent_bytes).max(0.0)
    }

    fn take_rate(&mut self, rate: f64, left: &mut [f64]) {
        self.rate += rate;
        self.links().for_each(|link| left[link] -= rate);
    }
}

#[derive(Debug, Clone)]
struct Coflow {
    arrival: f64,
    deadline: f64,
    weight: f64,
    /// In service order: by ports; a second flow between the same ports comes in a second round of its sender.
    flows: Vec<Flow>,
    /// Indices in the workload.
    spec_order: Vec<usize>,
    parents: Vec<usize>,
    release_number: Option<usize>,
    end: Option<f64>,
    queue: Option<usize>,
    deadline_at: f64,
    completed_lengths: Vec<f64>,
    admitted: Option<bool>,
    /// Bytes that restarted flows had sent before.
    lost_bytes: f64,
    /// Whether flows have other paths since the last schedule.
    has_moved: bool,
    /// Whether a flow became live or lost bytes since the last schedule, but not at the release.
    has_new_flow: bool,
}

impl Coflow {
    /// A coflow that has not arrived. Its flows, over these paths, are in the order `places`.
    fn new(
        spec: &CoflowSpec,
        places: Vec<usize>,
        paths: &[Vec<u32>],
        ports: usize,
        are_regions: bool,
        policy: &Policy,
    ) -> Coflow {
        let flow = |&i: &usize| Flow {
            src: spec.flows[i].src as usize,
            dst: ports + spec.flows[i].dst as usize,
            trunks: paths[i].iter().map(|&trunk| 2 * ports + trunk as usize).collect(),
            is_local: are_regions && paths[i].is_empty(),
            is_blocked: false,
            reducer: spec.flows[i].reducer,
            size: spec.flows[i].bytes.get(),
            expected_size: policy.expected_size(spec.flows[i].bytes.get()),
            sent_bytes: 0.0,
            rate: 0.0,
            madd_rate: 0.0,
            scheduled_rate: 0.0,
            phase: FlowPhase::Unreleased,
            available_at: spec.flows[i].data_delay.get(),
            withheld_until: 0.0,
            end: 0.0,
        };
        Coflow {
            arrival: spec.arrival.get(),
            deadline: spec.deadline.map_or(f64::INFINITY, |d| d.get()),
            weight: spec.weight,
            flows: places.iter().map(flow).collect(),
            spec_order: places,
            parents: spec.parents.clone(),
            release_number: None,
            end: None,
            queue: None,
            deadline_at: f64::INFINITY,
            completed_lengths: Vec::new(),
            admitted: None,
            lost_bytes: 0.0,
            has_moved: false,
            has_new_flow: false,
        }
    }

    fn live_flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|f| f.phase == FlowPhase::Live)
    }

    fn has_waiting_flows(&self) -> bool {
        self.flows.iter().any(|f| f.phase == FlowPhase::Waiting)
    }

    fn remaining_over(&self, link: usize) -> f64 {
        self.live_flows().filter(|f| f.links().any(|l| l == link)).map(Flow::remaining).sum()
    }

    fn live_count_over(&self, link: usize) -> usize {
        self.live_flows().filter(|f| f.links().any(|l| l == link)).count()
    }

    /// Whether one of the links that `counts` carries live flows of both.
    fn shares_link(&self, other: &Coflow, counts: impl Fn(usize) -> bool) -> bool {
        let mut links = self.live_flows().flat_map(Flow::links).filter(|&link| counts(link));
        links.any(|link| other.live_count_over(link) > 0)
    }
}

#[derive(Debug, Clone)]
enum Policy {
    Saath(SaathParameters),
    Varys {
        deadlines: bool,
    },
    /// MADD and backfilling in an order of coflows.
    Ordered(SortKey),
    Aalo(AaloParameters),
    /// Max-min between all flows over all links.
    Fair,
    Sincronia,
    Pfp,
    Django(DjangoParameters),
    Mrtf {
        largest_group_first: bool,
    },
    Gittins(GittinsIndex),
    Philae(PhilaeParameters),
    Weir(WeirParameters),
}

/// A policy by its name in the engine, and in the reference simulator.
type Variant = (String, Policy);

impl Policy {
    /// Whether flows of a coflow to different ports stay separate between regions.
    fn separates_receivers(&self) -> bool {
        matches!(self, Policy::Fair | Policy::Mrtf { largest_group_first: true })
    }

    /// The bytes in the engine for each byte here, and the bytes per second for each byte per second.
    fn byte_scale(&self) -> f64 {
        if matches!(self, Policy::Gittins(_) | Policy::Weir(_)) { gittins::BYTE_SCALE } else { 1.0 }
    }

    /// Whether, without an interval, rounding decides if a turn starts at its time or with the next wake-up, 1e-6 s later.
    fn depends_on_turn_ends(&self) -> bool {
        matches!(self, Policy::Weir(weir) if weir.has_turns())
    }

    /// The size of a flow as far as the policy knows at the start.
    fn expected_size(&self, size: f64) -> f64 {
        match self {
            Policy::Weir(weir) if !weir.knows_sizes() => weir::DEFAULT_ESTIMATE,
            _ => size,
        }
    }
}

/// The trunks from a time on.
#[derive(Debug, Clone)]
pub struct Epoch {
    pub time: f64,
    pub capacities: Vec<f64>,
    /// The trunks that coflows contend for.
    pub contended_trunks: BitSet,
    /// By coflow and flow of the workload: the trunks of its path.
    pub paths: Vec<Vec<Vec<u32>>>,
}

struct ReferenceSimulator<'a> {
    workload: &'a Workload,
    policy: Policy,
    clock: Clock,
    now: f64,
    coflows: Vec<Coflow>,
    links: Vec<f64>,
    contended_trunks: BitSet,
    goodput: Option<&'a GoodputCurve>,
    regions: Option<&'a RegionNetwork>,
    released: usize,
    next_event: usize,
    /// Changes of trunks, in the order of time, and the number of those that have happened.
    epochs: &'a [Epoch],
    next_epoch: usize,
    /// Since the last schedule: whether a coflow was released or completed, or data of a flow appeared or was lost; and whether
    /// the capacity of a link was set.
    flows_changed: bool,
    links_changed: bool,
    /// Whether hosts and switches decided after the coordinator.
    coordinator_is_late: bool,
    /// The order of coflows, for policies that keep it while flows complete.
    order: Vec<usize>,
    /// Saath: the coflows that the last schedule admitted, and the rates of their flows.
    admitted: Vec<(usize, f64)>,
    aalo_turn: AaloTurn,
    django: DjangoState,
    gittins: GittinsState,
    /// By coflow.
    philae: Vec<Samples>,
    weir: WeirState,
    /// Whether two coflows ever had equal deadlines (Saath) or remaining times (Varys) except for rounding
    /// errors, which then decided their order.
    has_ties: bool,
}

/// The flows of a coflow by ports; a second flow between the same ports comes in a second round of its sender.
fn service_order(spec: &CoflowSpec, port_position: impl Fn(u32) -> usize) -> Vec<usize> {
    let mut round = vec![0; spec.flows.len()];
    for (i, flow) in spec.flows.iter().enumerate() {
        let is_same = |&j: &usize| (spec.flows[j].src, spec.flows[j].dst) == (flow.src, flow.dst);
        round[i] = (0..i).filter(is_same).count();
    }
    let mut places: Vec<usize> = (0..spec.flows.len()).collect();
    places.sort_by_key(|&i| {
        let (src, dst) = (port_position(spec.flows[i].src), port_position(spec.flows[i].dst));
        (src, round[i], dst)
    });
    places
}

impl ReferenceSimulator<'_> {
    fn new<'a>(
        workload: &'a Workload,
        network: &'a TestNetwork,
        policy: Policy,
        interval: f64,
    ) -> ReferenceSimulator<'a> {
        let order = crate::ports::port_positions(workload);
        let port_position = |port: u32| order[port as usize];
        let ports = workload.ports as usize;
        let mut routes = network.trunks.clone();
        let coflows = workload.coflows.iter().enumerate().map(|(index, spec)| {
            let mut paths: Vec<Vec<u32>> = vec![Vec::new(); spec.flows.len()];
            for ((i, path), flow) in (0..).zip(&mut paths).zip(&spec.flows) {
                routes.iter_mut().for_each(|routes| routes.compute_path(flow.src, flow.dst, index, i, path));
                let link = network.regions.as_ref().and_then(|regions| regions.link(flow, workload.ports));
                path.extend(link.map(|link| link as u32));
            }
            let places = service_order(spec, port_position);
            Coflow::new(spec, places, &paths, ports, network.regions.is_some(), &policy)
        });
        let coflows: Vec<Coflow> = coflows.collect();
        let of_trunks = network.trunks.as_ref().map_or(&[][..], |trunks| trunks.capacities());
        let (port_rate, capacities, epochs) = match &network.regions {
            Some(RegionNetwork { epochs, .. }) => (UNLIMITED_RATE, &epochs[0].capacities[..], &epochs[1..]),
            None => (1.0, of_trunks, &network.epochs[..]),
        };
        ReferenceSimulator {
            workload,
            clock: Clock::new(&policy, interval),
            policy,
            now: 0.0,
            coflows,
            contended_trunks: routes.map_or_else(BitSet::default, |mut routes| routes.contended_trunks()),
            links: std::iter::repeat_n(port_rate, 2 * ports).chain(capacities.iter().copied()).collect(),
            goodput: network.goodput.as_ref(),
            regions: network.regions.as_ref(),
            released: 0,
            next_event: 0,
            epochs,
            next_epoch: 0,
            flows_changed: false,
            links_changed: false,
            coordinator_is_late: false,
            order: Vec::new(),
            admitted: Vec::new(),
            aalo_turn: AaloTurn::default(),
            django: DjangoState::default(),
            gittins: GittinsState::default(),
            philae: Vec::new(),
            weir: WeirState::new(workload.coflows.len()),
            has_ties: false,
        }
    }

    /// Whether two coflows share a link that can limit them.
    fn contend(&self, a: usize, b: usize) -> bool {
        let counts = |link: usize| match link.checked_sub(2 * self.workload.ports as usize) {
            None => self.regions.is_none(),
            Some(trunk) => self.regions.is_some() || self.contended_trunks.contains(trunk),
        };
        self.coflows[a].shares_link(&self.coflows[b], counts)
    }

    /// Active coflows in the order of their release.
    fn active(&self) -> Vec<usize> {
        let mut active: Vec<usize> = (0..self.coflows.len())
            .filter(|&c| self.coflows[c].release_number.is_some() && self.coflows[c].end.is_none())
            .collect();
        active.sort_by_key(|&c| self.coflows[c].release_number);
        active
    }

    /// Lets the coordinator decide, or hosts and switches alone, who follow the coordinator's last decision.
    fn schedule(&mut self, by_coordinator: bool) {
        if self.clock.hosts_serve() && !by_coordinator {
            self.serve_as_hosts();
            self.limit_to_goodput();
            return;
        }
        for flow in self.coflows.iter_mut().flat_map(|c| &mut c.flows) {
            (flow.rate, flow.madd_rate) = (0.0, 0.0);
        }
        let mut left = self.links.clone();
        match self.policy.clone() {
            Policy::Saath(saath) if !by_coordinator => self.continue_saath(&saath, &mut left),
            Policy::Saath(saath) => self.schedule_saath(&saath, &mut left),
            Policy::Varys { deadlines } => self.schedule_varys(deadlines, &mut left),
            Policy::Ordered(key) => self.schedule_ordered(key, &mut left),
            Policy::Aalo(aalo) => self.schedule_aalo(&aalo, by_coordinator, &mut left),
            Policy::Fair => self.schedule_fair(),
            Policy::Sincronia => self.schedule_sincronia(by_coordinator, &mut left),
            Policy::Pfp => self.schedule_pfp(&mut left),
            Policy::Django(django) => self.schedule_django(by_coordinator, django),
            Policy::Mrtf { largest_group_first } => self.schedule_mrtf(largest_group_first, &mut left),
            Policy::Gittins(index) => self.schedule_gittins(&index, &mut left),
            Policy::Philae(philae) => self.schedule_philae(&philae, &mut left),
            Policy::Weir(weir) => self.schedule_weir(&weir, &mut left),
        }
        if by_coordinator {
            (self.flows_changed, self.links_changed) = (false, false);
        }
        self.limit_to_goodput();
        self.record_rates();
    }

    /// The highest rate that all live flows of a coflow can have at the same time.
    fn max_equal_rate(&self, c: usize, left: &[f64]) -> f64 {
        let coflow = &self.coflows[c];
        let links = coflow.live_flows().flat_map(Flow::links);
        let rate = links.map(|link| left[link] / coflow.live_count_over(link) as f64);
        rate.fold(f64::INFINITY, f64::min)
    }

    /// All or none: the highest equal rates, if every link has residual capacity. Returns the rate.
    fn assign_equal_rates(&mut self, c: usize, left: &mut [f64]) -> f64 {
        if !self.is_open(c, left) {
            return 0.0;
        }
        let rate = self.max_equal_rate(c, left);
        for flow in self.coflows[c].flows.iter_mut().filter(|f| f.phase == FlowPhase::Live) {
            flow.take_rate(rate, left);
        }
        rate
    }

    /// Gives each flow in turn the residual capacity of its links.
    fn backfill(&mut self, c: usize, left: &mut [f64]) {
        for flow in self.coflows[c].flows.iter_mut().filter(|f| f.phase == FlowPhase::Live) {
            let rate = flow.links().map(|link| left[link]).fold(f64::INFINITY, f64::min);
            if rate > TOLERANCE {
                flow.take_rate(rate, left);
            }
        }
    }
}
