//! Families in which single flows, training jobs and wide shuffles share one switch.

use weir_core::model::{CoflowSpec, FlowSpec};
use weir_core::units::Bytes;
use weir_trace::generate::FlowSizes;

use super::super::goal::Yardstick;
use super::periodic::{Pattern, PeriodicJob, job_coflows};
use super::random::Random;
use super::single_flows::{
    self, LONG_INTERVAL, Length, PORT_GBIT, PORTS, SHORT_INTERVALS, describe_sizes, fast_ports_case,
    port_rate,
};
use super::{Family, Goal, describe_interval, format_interval, seconds};

/// The share of a port's capacity of each kind.
const LOAD: f64 = 0.25;

/// The time in which coflows arrive, in seconds.
const SECONDS: f64 = 0.2;

/// Training jobs, their rounds and their period in seconds.
const JOBS: usize = 2;
const ROUNDS: usize = 5;
const PERIOD: f64 = SECONDS / ROUNDS as f64;

/// The fewest mappers, and reducers, of a shuffle; the most are all ports.
const MIN_WIDTH: usize = 8;

/// The mean size of a reducer in bytes, and the deviation of the logarithm of a shuffle's sizes.
const MEAN_REDUCER: f64 = 20e6;
const SIGMA: f64 = 1.0;

/// All of these families.
pub fn families<'a>() -> Vec<Family<'a>> {
    let first = Goal { against: Yardstick::BestRival, max_mean: 1.0, max_each: None };
    let mut families: Vec<Family<'a>> =
        SHORT_INTERVALS.iter().map(|&interval| family(interval, first)).collect();
    families.push(family(LONG_INTERVAL, Goal::over("fair", 1.0)));
    families
}

fn family<'a>(interval: f64, goal: Goal) -> Family<'a> {
    let name = format!("Mixture, interval {}", format_interval(interval));
    let description = format!(
        "Three kinds of coflows on {PORTS} ports of {PORT_GBIT} Gbit/s in {:.0} ms, each with about a quarter of a port's capacity: single \
         flows with the sizes of web search; a ring and an all-to-all of all ports that send {:.0} ms in each period of {:.0} ms; and \
         shuffles between {MIN_WIDTH} to {PORTS} mappers and reducers with lognormal sizes of mean {:.0} MB by reducer. {} \
         Times are those of all coflows. {}",
        1e3 * SECONDS,
        1e3 * PERIOD * LOAD / JOBS as f64,
        1e3 * PERIOD,
        MEAN_REDUCER / 1e6,
        describe_sizes(FlowSizes::WebSearch),
        describe_interval(interval),
    );
    Family::generated(name, description, move |seed| Ok(fast_ports_case(coflows(seed), interval)))
        .with_goals(vec![goal])
}

fn coflows(seed: u64) -> Vec<CoflowSpec> {
    let mut random = Random::new(seed);
    // Jobs come first, since their coflows refer to each other by position.
    let mut coflows = job_coflows(&jobs(&mut random), ROUNDS);
    coflows.extend(single_flows::coflows(FlowSizes::WebSearch, LOAD, Length::Seconds(SECONDS), &mut random));
    coflows.extend(shuffles(&mut random));
    (1..).zip(&mut coflows).for_each(|(id, coflow)| coflow.id = id);
    coflows
}

/// A ring and an all-to-all of all ports.
fn jobs(random: &mut Random) -> Vec<PeriodicJob> {
    let transfer = PERIOD * LOAD / JOBS as f64;
    let job = |pattern| PeriodicJob {
        hosts: (0..PORTS).collect(),
        pattern,
        compute: PERIOD - transfer,
        transfer,
        start: random.between(0.0, PERIOD),
    };
    [Pattern::Ring, Pattern::AllToAll].map(job).into()
}

/// Shuffles with Poisson arrivals.
fn shuffles(random: &mut Random) -> Vec<CoflowSpec> {
    let mean_width = (MIN_WIDTH + PORTS as usize) as f64 / 2.0;
    let mean_gap = MEAN_REDUCER * mean_width / (LOAD * f64::from(PORTS) * port_rate().get());
    let mut coflows = Vec::new();
    let mut now = 0.0;
    while now <= SECONDS {
        let [mappers, reducers] = [choose_ports(random), choose_ports(random)];
        let bytes = MEAN_REDUCER * random.lognormal(SIGMA) / mappers.len() as f64;
        let bytes = Bytes::new(bytes).unwrap_or(Bytes::ZERO);
        let pairs = mappers.iter().flat_map(|&src| reducers.iter().map(move |&dst| (src, dst)));
        let flows = pairs.map(|(src, dst)| FlowSpec::new(src, dst, bytes)).collect();
        coflows.push(CoflowSpec::new(0, seconds(now), flows));
        now -= mean_gap * libm::log(random.uniform());
    }
    coflows
}

/// Distinct ports, as many as a shuffle has on one side.
fn choose_ports(random: &mut Random) -> Vec<u32> {
    let mut ports: Vec<u32> = (0..PORTS).collect();
    random.shuffle(&mut ports);
    ports.truncate(MIN_WIDTH + random.position(PORTS as usize - MIN_WIDTH + 1));
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_valid_and_have_all_kinds() {
        for family in families() {
            let workload = &family.cases(&(1..2)).unwrap()[0].workload;
            assert_eq!(workload.check(), Ok(()), "{}", family.name);
            let count =
                |is_kind: fn(&CoflowSpec) -> bool| workload.coflows.iter().filter(|c| is_kind(c)).count();
            assert_eq!(count(|coflow| coflow.job.is_some()), JOBS * ROUNDS);
            assert!(count(|coflow| coflow.flows.len() == 1) > 1000);
            assert!(count(|coflow| coflow.job.is_none() && coflow.flows.len() >= MIN_WIDTH * MIN_WIDTH) > 10);
        }
    }

    #[test]
    fn each_kind_uses_about_a_quarter_of_the_ports() {
        let capacity = SECONDS * f64::from(PORTS) * port_rate().get();
        // Means over seeds, since shuffles are few.
        let seeds = 50;
        let mut loads = [0.0; 2];
        for seed in 0..seeds {
            for coflow in coflows(seed) {
                let kind = usize::from(coflow.job.is_none() && coflow.flows.len() > 1);
                loads[kind] += coflow.total_bytes() / capacity / seeds as f64;
            }
        }
        // Jobs and single flows together, then shuffles: 40 of them in a workload, with a deviation of 1.4 of their sizes.
        let [short, wide] = loads;
        assert!((short - 2.0 * LOAD).abs() < 0.01, "{short}");
        assert!(
            (wide - LOAD).abs() < 4.0 * LOAD * (1.0f64 + 1.4 * 1.4).sqrt() / (40.0 * seeds as f64).sqrt(),
            "{wide}"
        );
    }
}
