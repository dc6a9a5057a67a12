//! Random small workloads at all rates: no outcome of any policy is better than a lower bound.
//!
//! Flows of a few bytes on fast links that start late take so little time that rounding shows.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::{CoflowSpec, PortSide, Workload, WorkloadChange};
use weir_core::policy::{self, all};
use weir_sim::lower_bound::LowerBounds;
use weir_sim::{NoObserver, Outcome, ReplayOptions, replay};

use crate::campaign::seeds;
use crate::common::{assert_near, coflow, options, replay_with_options, time, timed_event, workload};

/// Parameters that change decisions or the data structures behind them, in addition to the defaults of all policies.
const VARIANTS: &[&str] = &[
    "scf:by=length",
    "srtf:time=flow",
    "varys:deadlines=on",
    "aalo:at=both",
    "aalo:sharing=strict",
    "aalo:start=1kB:growth=2:queues=4:sharing=turns:turn=1ms",
    "django:connections=4",
    "saath:per-flow=off",
    "saath:start=1kB:growth=2:queues=4:d=inf",
    "saath:work-conservation=off",
    "philae:thin=1:pilots=0.5",
    "gittins:prior=0.1",
    "gittins:index=las",
    "weir:turns=0:pilots=0s",
    "weir:turns=0.3:pilots=0s",
    "weir:sizes=known",
    "weir:prior=on",
    "siphon:samples=20",
    "mrtf:groups=on",
];

struct Draw(ChaCha8Rng);

impl Draw {
    /// A number from 0 to below 1.
    fn part(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / (u64::from(u32::MAX) + 1) as f64
    }

    fn chance(&mut self, part: f64) -> bool {
        self.part() < part
    }

    /// A whole number below `limit`.
    fn below(&mut self, limit: u32) -> u32 {
        self.0.next_u32() % limit
    }

    fn choose<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u32) as usize]
    }

    /// A number from `low` to `high` with a uniform logarithm.
    fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.part())
    }

    /// A duration of whole nanoseconds, in seconds.
    fn duration(&mut self, low: f64, high: f64) -> f64 {
        (self.log_uniform(low, high) * 1e9).round() / 1e9
    }

    /// Bytes of a flow that takes up to some seconds: a whole number, or one with a fraction.
    fn size(&mut self, rate: f64) -> f64 {
        let size = self.log_uniform(1.0, (rate * 3.0).max(1500.0));
        if self.chance(0.8) { size.round() } else { size }
    }

    fn coflow(&mut self, id: u64, first: f64, ports: u32, rate: f64) -> CoflowSpec {
        let arrival = if self.chance(0.5) { first } else { first + self.duration(1e-9, 1.0) };
        let width = 1 + self.below(4);
        let flows: Vec<(u32, u32, f64)> =
            (0..width).map(|_| (self.below(ports), self.below(ports), self.size(rate))).collect();
        let mut coflow = coflow(id, arrival, &flows);
        for flow in &mut coflow.flows {
            if self.chance(0.1) {
                flow.data_delay = time(self.duration(1e-9, 1.0));
            }
        }
        coflow.weight = self.choose(&[1.0, 1.0, 2.0]);
        coflow.deadline = self.chance(0.3).then(|| time(self.duration(1e-9, 3.0)));
        coflow
    }

    fn workload(&mut self, rate: f64) -> Workload {
        let ports = 2 + self.below(4);
        let first = if self.chance(0.3) { 0.0 } else { self.duration(1e-6, 1e4) };
        let count = 1 + u64::from(self.below(4));
        let coflows = (1..=count).map(|id| self.coflow(id, first, ports, rate)).collect();
        let mut all = workload(ports, coflows);
        if self.chance(0.1) {
            let last = all.coflows.len() - 1;
            all.coflows[last].parents = (0..last).collect();
        }
        if self.chance(0.2) {
            self.add_events(&mut all, first);
        }
        all
    }

    /// Coflows with flows from one sender. Their deadline is the time in which the sender can send all bytes.
    fn workload_of_one_sender(&mut self, rate: f64) -> Workload {
        let first = if self.chance(0.3) { 0.0 } else { self.duration(1e-6, 1e4) };
        let count = 1 + u64::from(self.below(3));
        let mut coflows: Vec<CoflowSpec> = Vec::new();
        for id in 0..count {
            let width = 1 + self.below(3);
            let flows: Vec<(u32, u32, f64)> = (1..=width).map(|dst| (0, dst, self.size(rate))).collect();
            coflows.push(coflow(id, first, &flows));
        }
        let total: f64 = coflows.iter().map(CoflowSpec::total_bytes).sum();
        coflows.iter_mut().for_each(|coflow| coflow.deadline = Some(time(total / rate)));
        workload(4, coflows)
    }

    fn add_events(&mut self, all: &mut Workload, first: f64) {
        let coflow = self.below(all.coflows.len() as u32) as usize;
        let flow = self.below(all.coflows[coflow].flows.len() as u32) as usize;
        let (start, pause) = (self.duration(1e-9, 1.0), self.duration(1e-9, 1.0));
        let (start, end) = (first + start, first + start + pause);
        let (port, side) = (self.below(all.ports), self.choose(&[PortSide::Send, PortSide::Receive]));
        match self.below(3) {
            0 => all.events.push(timed_event(start, WorkloadChange::RestartFlow { coflow, flow })),
            1 => {
                let until = time(end);
                all.events.push(timed_event(start, WorkloadChange::DelayFlow { coflow, flow, until }));
            }
            _ => {
                for (at, factor) in [(start, self.choose(&[0.0, 0.3])), (end, 1.0)] {
                    all.events.push(timed_event(at, WorkloadChange::PortRate { port, side, factor }));
                }
            }
        }
    }
}

/// The names of all policies, and the variants.
fn policies() -> Vec<&'static str> {
    all().map(|entry| entry.name).chain(VARIANTS.iter().copied()).collect()
}

/// The rate of ports in bytes per second.
fn draw_rate(draw: &mut Draw) -> f64 {
    draw.choose(&[1e6, 1e7, 1e8, 1e9, 1e10, 2.5e10, 1e11, 4e11, 8e11]) / 8.0
}

fn try_replay(all: &Workload, policy: &str, options: &ReplayOptions) -> Result<Outcome, String> {
    let built = policy::build(policy).map_err(|error| error.to_string())?;
    replay(all, built, options, &mut NoObserver).map_err(|error| error.to_string())
}

/// Checks each policy on a workload. The results name the policies that fail, and why.
fn check_policies(
    policies: &[&str],
    check: impl Fn(&str) -> Result<(), String>,
) -> impl Iterator<Item = String> {
    let failures =
        policies.iter().filter_map(|policy| check(policy).err().map(|error| format!("{policy}: {error}")));
    failures.collect::<Vec<_>>().into_iter()
}

/// Calls `check` with each seed in as many threads as there are processors. Fails with the first messages that it returns.
fn check_seeds(seeds: impl Iterator<Item = u64>, check: impl Fn(u64) -> Vec<String> + Sync) {
    let seeds: Vec<u64> = seeds.collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let check_part = |part: &[u64]| -> Vec<String> {
        let of_seed =
            |&seed: &u64| check(seed).into_iter().map(move |failure| format!("seed {seed}, {failure}"));
        part.iter().flat_map(of_seed).take(20).collect()
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let parts = seeds.chunks(seeds.len().div_ceil(threads).max(1));
        let running: Vec<_> = parts.map(|part| scope.spawn(|| check_part(part))).collect();
        running.into_iter().flat_map(|part| part.join().expect("a check does not panic")).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn no_policy_violates_a_bound_at_any_rate() {
    let policies = policies();
    check_seeds(seeds(2_000, 1_000_000), |seed| {
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
        let (rate, interval) = (draw_rate(&mut draw), draw.choose(&[0.0, 1e-6, 8e-3]));
        let all = draw.workload(rate);
        let options = options(rate, interval);
        let bounds = LowerBounds::new(&all, &options);
        let check = |policy: &str| {
            let outcome = try_replay(&all, policy, &options)?;
            bounds.check(&outcome).map_err(|error| error.to_string())
        };
        check_policies(&policies, check).collect()
    });
}

#[test]
fn deadlines_that_are_met_exactly_are_met() {
    let policies = policies();
    check_seeds(seeds(1_000, 50_000), |seed| {
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
        let rate = draw_rate(&mut draw);
        // All flows have one sender, which is busy until the last one ends, under every policy.
        let all = draw.workload_of_one_sender(rate);
        let check = |policy: &str| {
            let outcome = try_replay(&all, policy, &options(rate, 0.0))?;
            match outcome.coflows.iter().find(|coflow| coflow.met_deadline() != Some(true)) {
                Some(late) => Err(format!("coflow {} ended at {}", late.id, late.end)),
                None => Ok(()),
            }
        };
        check_policies(&policies, check).collect()
    });
}

#[test]
fn short_flow_on_a_fast_link_takes_its_bytes_divided_by_the_rate() {
    let all = workload(2, vec![coflow(1, 20.088081, &[(0, 1, 25800.0)])]);
    for policy in policies() {
        let outcome = replay_with_options(&all, policy, &options(1.25e10, 0.0));
        // 2.064 us, as exact as the time of the end.
        assert_near(&[outcome.coflows[0].end], &[20.088083064], 1e-15, policy);
    }
}

#[test]
fn flow_of_800_ms_meets_a_deadline_of_800_ms() {
    let mut all = workload(2, vec![coflow(1, 0.0, &[(0, 1, 1e8)])]);
    all.coflows[0].deadline = Some(time(0.8));
    for policy in policies() {
        let outcome = replay_with_options(&all, policy, &options(1.25e8, 0.0));
        assert_near(&[outcome.coflows[0].end], &[0.8], 1e-15, policy);
        assert_eq!(outcome.coflows[0].met_deadline(), Some(true), "{policy}");
    }
}

#[test]
fn short_flow_after_a_long_one_is_exact() {
    // Flow 0 has sent 12.5 TB at 100 Gbit/s when the data of flow 1 exists: 100 bytes to a port of 1 Mbit/s.
    let mut all = workload(4, vec![coflow(1, 0.0, &[(0, 1, 2e13), (2, 3, 100.0)])]);
    all.coflows[0].flows[1].data_delay = time(1000.0);
    let slow = WorkloadChange::PortRate { port: 3, side: PortSide::Receive, factor: 1e-5 };
    all.events = vec![timed_event(0.0, slow)];
    for policy in ["weir", "weir:turns=0:pilots=0s", "philae", "gittins", "varys", "fair"] {
        let outcome = replay_with_options(&all, policy, &options(1.25e10, 0.0));
        assert_near(&outcome.coflows[0].flow_ends[1..], &[1000.0008], 1e-15, policy);
    }
}
