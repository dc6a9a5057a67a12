//! Computes the statistics by which publications describe traces.

use weir_core::model::{CoflowSpec, Workload, WorkloadError};
use weir_core::units::Bytes;

use crate::coflow_benchmark::TraceUnit;
use crate::dag;

/// The maximum width of a narrow coflow in Table 1 of Saath (CoNEXT '17).
pub const NARROW: usize = 10;

/// The percentages of the percentiles in [`Description::widths`].
pub const PERCENTAGES: [u8; 8] = [0, 25, 50, 75, 90, 95, 99, 100];

/// Sums of fractional flow sizes are equal up to this relative difference.
const CLOSE: f64 = 1e-9;

/// Statistics of a workload. Unless stated, shares are fractions of the number of coflows, from 0 to 1. All shares of an
/// empty workload are 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Number of ports of the fabric.
    pub ports: u32,
    /// Number of coflows.
    pub coflows: usize,
    /// Number of flows, including those without bytes.
    pub flows: usize,
    /// Bytes of all flows.
    pub bytes: f64,
    /// The earliest arrival, in seconds.
    pub first_arrival: f64,
    /// The latest arrival, in seconds.
    pub last_arrival: f64,
    /// Percentiles (nearest rank, at [`PERCENTAGES`]) of the coflows' widths in flows.
    pub widths: [usize; PERCENTAGES.len()],
    /// Share of coflows with one flow.
    pub single: f64,
    /// Share of coflows with several flows, all of equal length.
    pub equal: f64,
    /// Share of coflows with flows of different lengths.
    pub unequal: f64,
    /// Shares of bins 1 to 4 of Table 1; see [`bin`].
    pub bins: [f64; 4],
    /// Saath's Fig. 2b: the distribution over coflows of the standard deviation of flow lengths divided by their mean. Each
    /// point is a value, and the share of coflows with at most that value.
    pub deviations: Vec<(f64, f64)>,
    /// Bytes to send, by port.
    pub send: Load,
    /// Bytes to receive, by port.
    pub receive: Load,
    /// Fraction of the bytes whose source and destination are the same port.
    pub same_port: f64,
    /// Number of flows without bytes.
    pub empty_flows: usize,
    /// Number of events.
    pub events: usize,
    /// Number of services of coflows.
    pub services: usize,
    /// Number of applications of all services.
    pub applications: usize,
    /// Number of coflows in the longest chain of parents: 1 without dependencies.
    pub depth: usize,
}

/// The distribution of bytes over ports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The port with the most bytes; the first if several are equal.
    pub busiest: u32,
    /// The bytes of that port.
    pub max: f64,
    /// The mean over all ports.
    pub mean: f64,
}

/// The size that separates the bins of Table 1: 100 MB, in the trace's megabytes.
pub fn threshold(unit: TraceUnit) -> Bytes {
    Bytes::new(100.0 * unit.bytes()).unwrap_or(Bytes::ZERO)
}

/// The bin, from 1 to 4, of a coflow in Table 1 of Saath (CoNEXT '17), with 100 MB as the `threshold`:
///
/// |                | width <= 10 | width > 10 |
/// |----------------|-------------|------------|
/// | size <= 100 MB | 1           | 2          |
/// | size > 100 MB  | 3           | 4          |
///
/// A coflow's width is its number of flows: mappers times reducers. With this definition the public trace's shares are
/// 46.8, 21.7, 4.8 and 26.8 percent, and 23.4 percent of its coflows have width 1; the paper has 23 (Fig. 2) and 23.5
/// percent (Fig. 13). Fig. 11 of the paper has shares only in the plot, not in its text.
pub fn bin(width: usize, bytes: f64, threshold: Bytes) -> u8 {
    // Rounding: 100 MB in three parts sum to slightly more than 100 MB.
    let large = bytes > threshold.get() * (1.0 + CLOSE);
    1 + u8::from(width > NARROW) + 2 * u8::from(large)
}

impl Description {
    /// Computes the statistics of `workload`. `threshold` is the size that separates the bins of Table 1 (see [`threshold`]).
    ///
    /// # Errors
    /// If the workload is inconsistent.
    pub fn new(workload: &Workload, threshold: Bytes) -> Result<Description, WorkloadError> {
        workload.check()?;
        let coflows = &workload.coflows;
        let count = coflows.len();
        let share = |of: usize| {
            if count == 0 { 0.0 } else { of as f64 / count as f64 }
        };

        let ports = workload.ports as usize;
        let (mut send, mut receive) = (vec![0.0; ports], vec![0.0; ports]);
        let (mut same_port, mut empty_flows) = (0.0, 0);
        for flow in coflows.iter().flat_map(|c| &c.flows) {
            let bytes = flow.bytes.get();
            send[flow.src as usize] += bytes;
            receive[flow.dst as usize] += bytes;
            if flow.src == flow.dst {
                same_port += bytes;
            }
            empty_flows += usize::from(bytes == 0.0);
        }

        let mut bins = [0; 4];
        let mut widths = Vec::with_capacity(count);
        let mut deviations = Vec::with_capacity(count);
        let (mut single, mut equal) = (0, 0);
        for coflow in coflows {
            let width = coflow.flows.len();
            bins[usize::from(bin(width, coflow.bytes(), threshold)) - 1] += 1;
            let deviation = deviation(coflow);
            single += usize::from(width == 1);
            equal += usize::from(width > 1 && deviation == 0.0);
            widths.push(width);
            deviations.push(deviation);
        }
        widths.sort_unstable();

        let arrivals = || coflows.iter().map(|c| c.arrival.get());
        let bytes: f64 = coflows.iter().map(CoflowSpec::bytes).sum();
        Ok(Description {
            ports: workload.ports,
            coflows: count,
            flows: workload.flows(),
            bytes,
            first_arrival: if count == 0 { 0.0 } else { arrivals().fold(f64::INFINITY, f64::min) },
            last_arrival: arrivals().fold(0.0, f64::max),
            widths: PERCENTAGES.map(|percent| percentile(&widths, percent)),
            single: share(single),
            equal: share(equal),
            unequal: share(count - single - equal),
            bins: bins.map(share),
            deviations: distribution(deviations),
            send: load(&send),
            receive: load(&receive),
            same_port: if bytes == 0.0 { 0.0 } else { same_port / bytes },
            empty_flows,
            events: workload.events.len(),
            services: workload.names.services(),
            applications: workload.names.count(),
            // `check` has refused cycles.
            depth: dag::order(coflows).map_or(0, |order| dag::depth(coflows, &order)),
        })
    }
}

/// The standard deviation of a coflow's flow lengths divided by their mean; 0 if they are equal.
fn deviation(coflow: &CoflowSpec) -> f64 {
    let lengths = || coflow.flows.iter().map(|f| f.bytes.get());
    let (least, most) = (lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max));
    if most - least <= CLOSE * most {
        return 0.0;
    }
    let count = coflow.flows.len() as f64;
    let mean = coflow.bytes() / count;
    let variance = lengths().map(|l| (l / mean - 1.0).powi(2)).sum::<f64>() / count;
    variance.sqrt()
}

/// The nearest-rank percentile of sorted values.
fn percentile(sorted: &[usize], percent: u8) -> usize {
    let rank = (sorted.len() * usize::from(percent)).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Each distinct value, and the share of values up to it.
fn distribution(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (position, value) in values.into_iter().enumerate() {
        let share = (position + 1) as f64 / count;
        match points.last_mut() {
            Some(last) if last.0 == value => last.1 = share,
            _ => points.push((value, share)),
        }
    }
    points
}

fn load(bytes: &[f64]) -> Load {
    let mut load = Load { busiest: 0, max: 0.0, mean: 0.0 };
    for (port, &bytes) in (0..).zip(bytes) {
        if bytes > load.max {
            (load.busiest, load.max) = (port, bytes);
        }
    }
    load.mean = bytes.iter().sum::<f64>() / bytes.len() as f64;
    load
}
