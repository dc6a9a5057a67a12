//! Families of coflows of one flow, with sizes of published measurements.

use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Rate};
use weir_sim::ReplayOptions;
use weir_trace::generate::FlowSizes;

use super::random::Random;
use super::{Case, Family, Goal, describe_interval, format_interval, seconds};

/// Ports, their rate in Gbit/s, and flows of a workload.
pub const PORTS: u32 = 16;
pub const PORT_GBIT: f64 = 100.0;
const FLOWS: usize = 5000;

/// An interval that is longer than most flows take.
pub const LONG_INTERVAL: f64 = 8e-3;

/// Intervals at which policies decide at every event, or often.
pub const SHORT_INTERVALS: [f64; 2] = [0.0, 10e-6];

/// All of these families.
pub fn families<'a>() -> Vec<Family<'a>> {
    let web_search =
        [(0.3, 1.25), (0.5, 1.4), (0.8, 1.65)].map(|(load, goal)| (FlowSizes::WebSearch, load, Some(goal)));
    let data_mining =
        [(0.3, 1.2), (0.5, 1.3), (0.8, 1.45)].map(|(load, goal)| (FlowSizes::DataMining, load, Some(goal)));
    let others = [FlowSizes::Cache, FlowSizes::Hadoop].map(|sizes| (sizes, 0.5, None));
    let mut families = Vec::new();
    for (sizes, load, goal) in web_search.into_iter().chain(data_mining).chain(others) {
        for interval in SHORT_INTERVALS {
            let over_varys = goal.map(|max_mean| Goal::over("varys", max_mean));
            let over_tcp = (interval == 0.0).then(|| Goal::over("fair", 1.0));
            let goals = over_varys.into_iter().chain(over_tcp).collect();
            families.push(family(sizes, load, interval).with_goals(goals));
        }
    }
    families.push(family(FlowSizes::WebSearch, 0.5, LONG_INTERVAL).with_goals(vec![Goal::over("fair", 1.0)]));
    families
}

/// The family on which variants of `weir` are compared. It has a short interval, so that the first level of attained service and turns
/// follow from bytes.
pub fn for_variants<'a>() -> Family<'a> {
    family(FlowSizes::WebSearch, 0.5, SHORT_INTERVALS[1])
}

fn family<'a>(sizes: FlowSizes, load: f64, interval: f64) -> Family<'a> {
    let name = format!("Single flows, {}, load {load}, interval {}", sizes.name(), format_interval(interval));
    let mut description = format!(
        "{FLOWS} coflows of one flow each between two of {PORTS} ports of {PORT_GBIT} Gbit/s. Arrivals are a Poisson process; the mean \
         load of a port is {load}. {} {}",
        describe_sizes(sizes),
        describe_interval(interval)
    );
    if interval == LONG_INTERVAL {
        description += " The interval is longer than most flows take.";
    }
    Family::generated(name, description, move |seed| {
        let coflows = coflows(sizes, load, Length::Count(FLOWS), &mut Random::new(seed));
        Ok(fast_ports_case(coflows, interval))
    })
}

/// The source and the mean of a distribution, as a part of a family's description.
pub fn describe_sizes(sizes: FlowSizes) -> String {
    let mean = sizes.cdf().mean() / 1e6;
    format!("Sizes of {} have a mean of {mean:.3} MB: {}.", sizes.name(), sizes.source())
}

/// The end of a sequence of arrivals.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// A number of coflows.
    Count(usize),
    /// A time, in seconds.
    Seconds(f64),
}

/// Coflows of one flow with a mean load of each port, by number from 1 on.
pub fn coflows(sizes: FlowSizes, load: f64, length: Length, random: &mut Random) -> Vec<CoflowSpec> {
    let sizes = sizes.cdf();
    let mean_gap = sizes.mean() / (load * f64::from(PORTS) * port_rate().get());
    let mut coflows = Vec::new();
    let mut now = 0.0;
    loop {
        let is_complete = match length {
            Length::Count(count) => coflows.len() >= count,
            Length::Seconds(end) => now > end,
        };
        if is_complete {
            return coflows;
        }
        let src = random.position(PORTS as usize) as u32;
        let dst = (src + 1 + random.position(PORTS as usize - 1) as u32) % PORTS;
        let bytes = Bytes::new(sizes.sample(random.uniform())).unwrap_or(Bytes::ZERO);
        coflows.push(CoflowSpec::new(
            coflows.len() as u64 + 1,
            seconds(now),
            vec![FlowSpec::new(src, dst, bytes)],
        ));
        now -= mean_gap * libm::log(random.uniform());
    }
}

/// The rate of the ports of these families.
pub fn port_rate() -> Rate {
    Rate::new(PORT_GBIT * Rate::GBIT.get()).expect("100 Gbit/s is a valid rate")
}

/// Coflows on one switch with ports of 100 Gbit/s.
pub fn fast_ports_case(coflows: Vec<CoflowSpec>, interval: f64) -> Case {
    let workload = Workload { ports: PORTS, coflows, events: Vec::new(), names: ServiceNames::default() };
    let options =
        ReplayOptions { port_rate: port_rate(), interval: seconds(interval), ..ReplayOptions::default() };
    Case { workload, options }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_load_of_a_port_is_the_given_one() {
        let (load, count) = (0.5, 20_000);
        let coflows = coflows(FlowSizes::Cache, load, Length::Count(count), &mut Random::new(1));
        let bytes: Vec<f64> = coflows.iter().map(CoflowSpec::total_bytes).collect();
        let (sum, end) = (bytes.iter().sum::<f64>(), coflows[count - 1].arrival.get());
        let found = sum / (end * f64::from(PORTS) * port_rate().get());
        let mean = sum / count as f64;
        let variance = bytes.iter().map(|bytes| (bytes - mean).powi(2)).sum::<f64>() / count as f64;
        // Four standard errors: of the sizes, and of the gaps, whose deviation is their mean.
        let tolerance = 4.0 * load * ((variance / mean / mean + 1.0) / count as f64).sqrt();
        assert!((found - load).abs() < tolerance, "{found} ± {tolerance}");
    }

    #[test]
    fn flows_connect_different_ports_and_all_pairs_occur() {
        let coflows = coflows(FlowSizes::Hadoop, 0.5, Length::Count(10_000), &mut Random::new(1));
        let mut pairs: Vec<(u32, u32)> =
            coflows.iter().map(|coflow| (coflow.flows[0].src, coflow.flows[0].dst)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert!(pairs.iter().all(|(src, dst)| src != dst && *dst < PORTS));
        assert_eq!(pairs.len(), (PORTS * (PORTS - 1)) as usize);
    }

    #[test]
    fn workloads_are_valid() {
        for family in families() {
            let workload = &family.cases(&(1..2)).unwrap()[0].workload;
            assert_eq!(workload.check(), Ok(()), "{}", family.name);
            assert_eq!(workload.coflows.len(), FLOWS);
        }
    }
}
