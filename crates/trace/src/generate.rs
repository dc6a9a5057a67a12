//! Generates random workloads, identical on every platform for the same seed.
//!
//! A [`WorkloadSpec`] mixes kinds of coflows. Each [`CoflowKind`] has distributions of the numbers of mappers and reducers
//! and of the sizes of reducers. [`Resolution`] defines how sizes and arrivals are rounded. Mappers and reducers are on
//! uniformly chosen ports; no two mappers of a coflow share a port, nor do two reducers. Each kind gets its share of the
//! coflows as exactly as integers allow, in random order, so small workloads have the same fraction of the heavy tail as
//! large ones.
//!
//! The generator is ChaCha with 8 rounds, and logarithms and powers come from `libm`. Neither the platform's mathematics
//! nor the order of a hash map affects the result.

mod cdf;
mod distribution;
mod flow_sizes;
mod load;
mod options;
mod preset;
mod resolution;

use std::fmt;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Time};

use crate::bounds::{Limits, MAX_BYTES, MAX_SECONDS};
use crate::coflow_benchmark::TraceUnit;
use crate::shuffle;

pub use cdf::Cdf;
pub use distribution::{ArrivalProcess, Distribution, Skew};
pub use flow_sizes::FlowSizes;
pub use load::{Incasts, Load};
pub use options::{CdfError, GeneratorOptions};
pub use preset::Preset;
pub use resolution::Resolution;

/// Parameters of a workload to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadSpec {
    /// Number of ports of the fabric.
    pub ports: u32,
    /// Number of coflows; their ids count from 1.
    pub coflows: usize,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The distribution of the gaps between arrivals; the first arrival is at 0.
    pub arrival: ArrivalProcess,
    /// The rounding of arrivals.
    pub arrival_resolution: Resolution,
    /// The rounding of reducers' sizes.
    pub size_resolution: Resolution,
    /// The kinds of coflows, at least one.
    pub kinds: Vec<CoflowKind>,
    /// The sizes of reducers, instead of those of the kinds. No port then sends to itself.
    pub sizes: Option<Cdf>,
    /// Multiplies all arrivals so that ports have this mean load until the last one.
    pub load: Option<Load>,
    /// Incasts until the last arrival, with ids after the others.
    pub incasts: Option<Incasts>,
}

impl Default for WorkloadSpec {
    /// 100 coflows of the default kind on 50 ports, one each second on average.
    fn default() -> WorkloadSpec {
        WorkloadSpec {
            ports: 50,
            coflows: 100,
            seed: 1,
            arrival: ArrivalProcess::Poisson { mean: Time::new(1.0).unwrap_or(Time::ZERO) },
            arrival_resolution: Resolution::Weir,
            size_resolution: Resolution::Weir,
            kinds: vec![CoflowKind::default()],
            sizes: None,
            load: None,
            incasts: None,
        }
    }
}

/// A kind of coflow.
#[derive(Debug, Clone, PartialEq)]
pub struct CoflowKind {
    /// Its share of the coflows, relative to the shares of the other kinds.
    pub share: f64,
    /// Number of mappers of a coflow; rounded, and limited to 1 to the number of ports.
    pub mappers: Distribution,
    /// Number of reducers of a coflow; rounded, and limited to 1 to the number of ports.
    pub reducers: Distribution,
    /// Mean size of a coflow's reducers, in megabytes.
    pub mean_megabytes: Distribution,
    /// The differences between the sizes of a coflow's reducers.
    pub skew: Skew,
}

impl Default for CoflowKind {
    /// 1 to 10 mappers and reducers, 1 MB to 1 GB, no skew.
    fn default() -> CoflowKind {
        let width = Distribution::Uniform { min: 1.0, max: 10.0 };
        let size = Distribution::LogNormal { median: 10.0, sigma: 1.5, min: 1.0, max: 1000.0 };
        CoflowKind { share: 1.0, mappers: width, reducers: width, mean_megabytes: size, skew: Skew::None }
    }
}

/// An invalid specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: `{value}`: expected {expected}")]
pub struct WorkloadSpecError {
    /// The parameter.
    pub field: String,
    /// Its value.
    pub value: String,
    /// The expected value.
    pub expected: String,
}

impl WorkloadSpecError {
    fn new(
        field: impl fmt::Display,
        value: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> WorkloadSpecError {
        let value = weir_fields::format_value(&value.to_string());
        WorkloadSpecError { field: field.to_string(), value, expected: expected.to_string() }
    }
}

impl WorkloadSpec {
    /// Checks the parameters, as far as possible without generating.
    ///
    /// # Errors
    /// For the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), WorkloadSpecError> {
        if !(1..=Workload::MAX_PORTS).contains(&self.ports) {
            let expected = format!("1 to {}", Workload::MAX_PORTS);
            return Err(WorkloadSpecError::new("ports", self.ports, expected));
        }
        self.arrival.check()?;
        let needs_gaps = self.load.is_some() || self.incasts.is_some();
        if self.coflows == 0 {
            return Err(WorkloadSpecError::new("coflows", 0, "1 or more"));
        }
        if self.coflows == 1 && needs_gaps {
            let expected = "2 or more, since a load needs time between arrivals";
            return Err(WorkloadSpecError::new("coflows", 1, expected));
        }
        if self.sizes.is_some() && self.ports == 1 {
            return Err(WorkloadSpecError::new("ports", 1, "2 or more, since no port sends to itself"));
        }
        self.load.map_or(Ok(()), |load| load.check("load"))?;
        if needs_gaps && matches!(self.arrival, ArrivalProcess::Burst) {
            return Err(WorkloadSpecError::new(
                "arrival",
                "burst",
                "arrivals at different times, for a load",
            ));
        }
        self.incasts.map_or(Ok(()), |incasts| incasts.check(self.ports))?;
        if self.kinds.is_empty() {
            return Err(WorkloadSpecError::new("kinds", "none", "at least one kind of coflow"));
        }
        for kind in &self.kinds {
            if !(kind.share > 0.0 && kind.share <= 1e9) {
                return Err(WorkloadSpecError::new("share", kind.share, "a number above 0, up to 1e9"));
            }
            kind.mappers.check("mappers")?;
            kind.reducers.check("reducers")?;
            kind.mean_megabytes.check("size")?;
            kind.skew.check()?;
        }
        Ok(())
    }
}

/// Generates the workload of a specification, with megabytes of this `unit`.
///
/// # Errors
/// If a parameter is out of its range, or the workload exceeds the maximum number of flows, time or bytes.
pub fn generate(
    spec: &WorkloadSpec,
    unit: TraceUnit,
    limits: &Limits,
) -> Result<Workload, WorkloadSpecError> {
    spec.check()?;
    if spec.coflows > limits.max_flows {
        let expected = limits.expected_at_most("flows, of which a coflow has one or more");
        return Err(WorkloadSpecError::new("coflows", spec.coflows, expected));
    }
    let mut rng = SeededRng(ChaCha8Rng::seed_from_u64(spec.seed));
    let mut kinds = assign_kinds(spec);
    rng.shuffle(&mut kinds);

    let mut senders: Vec<u32> = (0..spec.ports).collect();
    let mut receivers = senders.clone();
    let mut coflows = Vec::new();
    let mut seconds = Vec::new();
    let (mut now, mut flow_count, mut total_bytes) = (0.0, 0_usize, 0.0);
    for (position, &kind) in kinds.iter().enumerate() {
        let kind = &spec.kinds[kind];
        if position > 0 {
            now += spec.arrival.sample_gap(&mut rng);
        }
        seconds.push(now);
        let flows = sample_flows(spec, kind, unit, &mut senders, &mut receivers, &mut rng, &mut |flows| {
            flow_count = flow_count.saturating_add(flows);
            flow_count <= limits.max_flows
        });
        let Some(flows) = flows else {
            let value = format!("{flow_count} flows by coflow {}", position + 1);
            return Err(WorkloadSpecError::new("coflows", value, limits.expected_at_most("flows")));
        };
        let coflow = CoflowSpec::new(position as u64 + 1, Time::ZERO, flows);
        total_bytes += coflow.total_bytes();
        if coflow.flows.is_empty() || total_bytes >= MAX_BYTES {
            let value = format!("2^53 bytes by coflow {}", position + 1);
            return Err(WorkloadSpecError::new("size", value, "less than 2^53 bytes in total"));
        }
        coflows.push(coflow);
    }
    // Until the last arrival, all coflows but the last one arrive, on average, at the load.
    let until_last = total_bytes * coflows.len().saturating_sub(1) as f64 / coflows.len().max(1) as f64;
    let factor =
        spec.load.filter(|_| now > 0.0).map_or(1.0, |load| load.seconds(until_last, spec.ports) / now);
    for (coflow, seconds) in coflows.iter_mut().zip(&seconds) {
        let arrival = Time::new(spec.arrival_resolution.round_time(seconds * factor));
        coflow.arrival = arrival.filter(|arrival| arrival.get() <= MAX_SECONDS).ok_or_else(|| {
            let expected = format!("arrivals up to {MAX_SECONDS:e} seconds");
            WorkloadSpecError::new("arrival", spec.arrival, expected)
        })?;
    }
    if let Some(incasts) = &spec.incasts {
        let mut rng = SeededRng(ChaCha8Rng::seed_from_u64(spec.seed));
        rng.0.set_stream(2);
        let (first_id, rounding) = (coflows.len() as u64 + 1, (spec.arrival_resolution, unit));
        let max_flows = limits.max_flows - flow_count;
        coflows.extend(incasts.coflows(spec.ports, now * factor, first_id, max_flows, rounding, &mut rng)?);
        coflows.sort_by(|a, b| a.arrival.get().total_cmp(&b.arrival.get()));
    }
    let workload =
        Workload { ports: spec.ports, coflows, events: Vec::new(), names: ServiceNames::default() };
    let bytes: f64 = workload.coflows.iter().map(CoflowSpec::total_bytes).sum();
    match bytes < MAX_BYTES {
        true => Ok(workload),
        false => Err(WorkloadSpecError::new("incast size", bytes, "less than 2^53 bytes in total")),
    }
}

/// The flows of a coflow, unless there are too many for `reserve`; none if a size is infinite.
fn sample_flows(
    spec: &WorkloadSpec,
    kind: &CoflowKind,
    unit: TraceUnit,
    senders: &mut [u32],
    receivers: &mut [u32],
    rng: &mut SeededRng,
    reserve: &mut impl FnMut(usize) -> bool,
) -> Option<Vec<FlowSpec>> {
    let separate = spec.sizes.is_some();
    let m = sample_width(&kind.mappers, spec.ports - u32::from(separate), rng);
    let max_reducers = if separate { spec.ports - m as u32 } else { spec.ports };
    let r = sample_width(&kind.reducers, max_reducers, rng);
    if !reserve(m * r) {
        return None;
    }
    let mappers = rng.choose(senders, m);
    let ports = match separate {
        // The other ports follow the chosen ones.
        true => rng.choose(&mut senders[m..], r),
        false => rng.choose(receivers, r),
    };
    let mean = match &spec.sizes {
        Some(sizes) => sizes.sample(rng.uniform()) / unit.bytes(),
        None => kind.mean_megabytes.sample(rng),
    };
    let mut factors = kind.skew.factors(r, rng);
    rng.shuffle(&mut factors);
    let reducers: Option<Vec<(u32, Bytes)>> = ports
        .iter()
        .zip(factors)
        .map(|(&port, factor)| {
            let bytes = spec.size_resolution.round_size(mean * factor, unit);
            Some((port, Bytes::new(bytes / m as f64)?))
        })
        .collect();
    let mut flows = Vec::new();
    if let Some(reducers) = reducers {
        flows.reserve(m * r);
        shuffle::push_flows(&mut flows, &mappers, &reducers, Time::ZERO);
    }
    Some(flows)
}

/// Assigns the coflows of a workload to `services` services of `applications` applications each, in random order and as
/// evenly as integers allow. `seed` can be the one that generated the workload. Nothing else about the coflows changes.
///
/// # Errors
/// If a number is 0, or there are more than [`ServiceNames::MAX_APPLICATIONS`] applications in total.
pub fn assign_services(
    workload: &mut Workload,
    services: usize,
    applications: usize,
    seed: u64,
) -> Result<(), WorkloadSpecError> {
    let max_applications = ServiceNames::MAX_APPLICATIONS;
    for (field, count) in [("services", services), ("applications", applications)] {
        if count == 0 || services.saturating_mul(applications) > max_applications {
            return Err(WorkloadSpecError::new(
                field,
                count,
                format!("at least 1, and at most {max_applications} in total"),
            ));
        }
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1);
    let mut application_indices: Vec<usize> =
        (0..workload.coflows.len()).map(|i| i % (services * applications)).collect();
    SeededRng(rng).shuffle(&mut application_indices);
    let mut names = ServiceNames::empty();
    let name_of = |prefix: &str, number: usize, count: usize| match count {
        1 => ServiceNames::DEFAULT.to_owned(),
        _ => format!("{prefix}-{}", number + 1),
    };
    for (coflow, application_index) in workload.coflows.iter_mut().zip(application_indices) {
        let service = name_of("service", application_index % services, services);
        let application = name_of("application", application_index / services, applications);
        let numbers = names.intern(&service, &application);
        (coflow.service, coflow.application) =
            numbers.expect("`services * applications` is at most `MAX_APPLICATIONS`");
    }
    workload.names = if workload.coflows.is_empty() { ServiceNames::default() } else { names };
    Ok(())
}

fn sample_width(distribution: &Distribution, ports: u32, rng: &mut SeededRng) -> usize {
    // In range after the clamp, because samples are finite.
    distribution.sample(rng).round().clamp(1.0, f64::from(ports)) as usize
}

/// The kind of each coflow. Quotas are rounded down, and the largest remainders get the rest.
fn assign_kinds(spec: &WorkloadSpec) -> Vec<usize> {
    let sum: f64 = spec.kinds.iter().map(|k| k.share).sum();
    let exact_quota = |kind: usize| spec.kinds[kind].share / sum * spec.coflows as f64;
    let mut kinds = Vec::with_capacity(spec.coflows);
    for kind in 0..spec.kinds.len() {
        let quota = exact_quota(kind).floor() as usize;
        kinds.extend(std::iter::repeat_n(kind, quota.min(spec.coflows - kinds.len())));
    }
    let mut by_remainder: Vec<usize> = (0..spec.kinds.len()).collect();
    by_remainder.sort_by(|&a, &b| exact_quota(b).fract().total_cmp(&exact_quota(a).fract()));
    let unassigned = spec.coflows - kinds.len();
    kinds.extend(by_remainder.into_iter().cycle().take(unassigned));
    kinds
}

/// A random number generator that uses only operations with identical results on every platform.
struct SeededRng(ChaCha8Rng);

impl SeededRng {
    /// A uniform number from 0 up to, but not including, 1.
    fn uniform(&mut self) -> f64 {
        const BITS: u32 = f64::MANTISSA_DIGITS;
        (self.0.next_u64() >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64
    }

    /// A uniform integer below `bound`; the bias is at most one part in 2^32 for any bound that fits in memory here.
    fn uniform_below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// A sample of the standard normal distribution (Box and Muller).
    fn standard_normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * libm::log(radius)).sqrt() * libm::cos(std::f64::consts::TAU * angle)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.uniform_below(last + 1));
        }
    }

    /// `count` random elements of `items`, sorted. Any order of `items` gives a uniform choice.
    fn choose(&mut self, items: &mut [u32], count: usize) -> Vec<u32> {
        for position in 0..count {
            let other = position + self.uniform_below(items.len() - position);
            items.swap(position, other);
        }
        let mut chosen = items[..count].to_vec();
        chosen.sort_unstable();
        chosen
    }
}
