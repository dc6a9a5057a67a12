//! Computes the statistics by which publications describe traces.

use weir_core::model::{CoflowSpec, Workload, WorkloadError};
use weir_core::units::Bytes;

use crate::coflow_benchmark::TraceUnit;
use crate::dag;

/// The maximum width of a narrow coflow in Table 1 of Saath (CoNEXT '17).
pub const MAX_NARROW_WIDTH: usize = 10;

/// The percentages of the percentiles in [`WorkloadStatistics::width_percentiles`].
pub const PERCENTILES: [u8; 8] = [0, 25, 50, 75, 90, 95, 99, 100];

/// Sums of fractional flow sizes are equal up to this relative difference.
const ROUNDING_TOLERANCE: f64 = 1e-9;

/// Statistics of a workload. Unless stated, shares are fractions of the number of coflows, from 0 to 1. All shares of an
/// empty workload are 0.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadStatistics {
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
    /// Percentiles (nearest rank, at [`PERCENTILES`]) of the coflows' widths in flows.
    pub width_percentiles: [usize; PERCENTILES.len()],
    /// Share of coflows with one flow.
    pub single_flow_share: f64,
    /// Share of coflows with several flows, all of equal length.
    pub equal_flows_share: f64,
    /// Share of coflows with flows of different lengths.
    pub unequal_flows_share: f64,
    /// Shares of bins 1 to 4 of Table 1; see [`saath_bin`].
    pub bin_shares: [f64; 4],
    /// Saath's Fig. 2b: the distribution over coflows of the standard deviation of flow lengths divided by their mean. Each
    /// point is a value, and the share of coflows with at most that value.
    pub deviation_distribution: Vec<(f64, f64)>,
    /// Bytes to send, by port.
    pub send_load: Load,
    /// Bytes to receive, by port.
    pub receive_load: Load,
    /// Fraction of the bytes whose source and destination are the same port.
    pub same_port_fraction: f64,
    /// Number of flows without bytes.
    pub empty_flows: usize,
    /// Number of events.
    pub events: usize,
    /// Number of services of coflows.
    pub services: usize,
    /// Number of applications of all services.
    pub applications: usize,
    /// Number of coflows in the longest chain of parents: 1 without dependencies.
    pub longest_chain: usize,
}

/// The distribution of bytes over ports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The port with the most bytes; the first if several are equal.
    pub busiest_port: u32,
    /// The bytes of that port.
    pub max_bytes: f64,
    /// The mean over all ports.
    pub mean_bytes: f64,
}

/// The size that separates the bins of Table 1: 100 MB, in the trace's megabytes.
pub fn bin_threshold(unit: TraceUnit) -> Bytes {
    Bytes::new(100.0 * unit.bytes()).unwrap_or(Bytes::ZERO)
}

/// The bin, from 1 to 4, of a coflow in Table 1 of Saath (CoNEXT '17), with 100 MB as the `size_threshold`:
///
/// |                | width <= 10 | width > 10 |
/// |----------------|-------------|------------|
/// | size <= 100 MB | 1           | 2          |
/// | size > 100 MB  | 3           | 4          |
///
/// A coflow's width is its number of flows: mappers times reducers. With this definition the public trace's shares are
/// 46.8, 21.7, 4.8 and 26.8 percent, and 23.4 percent of its coflows have width 1; the paper has 23 (Fig. 2) and 23.5
/// percent (Fig. 13). Fig. 11 of the paper has shares only in the plot, not in its text.
pub fn saath_bin(width: usize, bytes: f64, size_threshold: Bytes) -> u8 {
    // Rounding: 100 MB in three parts sum to slightly more than 100 MB.
    let large = bytes > size_threshold.get() * (1.0 + ROUNDING_TOLERANCE);
    1 + u8::from(width > MAX_NARROW_WIDTH) + 2 * u8::from(large)
}

impl WorkloadStatistics {
    /// Computes the statistics of `workload`. `bin_threshold` is the size that separates the bins of Table 1 (see [`bin_threshold`]).
    ///
    /// # Errors
    /// If the workload is inconsistent.
    pub fn new(workload: &Workload, bin_threshold: Bytes) -> Result<WorkloadStatistics, WorkloadError> {
        workload.check()?;
        let coflows = &workload.coflows;
        let count = coflows.len();
        let share = |subset: usize| {
            if count == 0 { 0.0 } else { subset as f64 / count as f64 }
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
            bins[usize::from(saath_bin(width, coflow.total_bytes(), bin_threshold)) - 1] += 1;
            let deviation = deviation(coflow);
            single += usize::from(width == 1);
            equal += usize::from(width > 1 && deviation == 0.0);
            widths.push(width);
            deviations.push(deviation);
        }
        widths.sort_unstable();

        let arrivals = || coflows.iter().map(|c| c.arrival.get());
        let bytes: f64 = coflows.iter().map(CoflowSpec::total_bytes).sum();
        Ok(WorkloadStatistics {
            ports: workload.ports,
            coflows: count,
            flows: workload.flow_count(),
            bytes,
            first_arrival: if count == 0 { 0.0 } else { arrivals().fold(f64::INFINITY, f64::min) },
            last_arrival: arrivals().fold(0.0, f64::max),
            width_percentiles: PERCENTILES.map(|percent| percentile(&widths, percent)),
            single_flow_share: share(single),
            equal_flows_share: share(equal),
            unequal_flows_share: share(count - single - equal),
            bin_shares: bins.map(share),
            deviation_distribution: distribution(deviations),
            send_load: port_load(&send),
            receive_load: port_load(&receive),
            same_port_fraction: if bytes == 0.0 { 0.0 } else { same_port / bytes },
            empty_flows,
            events: workload.events.len(),
            services: workload.names.services(),
            applications: workload.names.application_count(),
            // `check` has refused cycles.
            longest_chain: dag::topological_order(coflows).map_or(0, |order| dag::depth(coflows, &order)),
        })
    }
}

/// The standard deviation of a coflow's flow lengths divided by their mean; 0 if they are equal.
fn deviation(coflow: &CoflowSpec) -> f64 {
    let lengths = || coflow.flows.iter().map(|f| f.bytes.get());
    let (min, max) = (lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max));
    if max - min <= ROUNDING_TOLERANCE * max {
        return 0.0;
    }
    let count = coflow.flows.len() as f64;
    let mean = coflow.total_bytes() / count;
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

fn port_load(bytes: &[f64]) -> Load {
    let mut load = Load { busiest_port: 0, max_bytes: 0.0, mean_bytes: 0.0 };
    for (port, &bytes) in (0..).zip(bytes) {
        if bytes > load.max_bytes {
            (load.busiest_port, load.max_bytes) = (port, bytes);
        }
    }
    load.mean_bytes = bytes.iter().sum::<f64>() / bytes.len() as f64;
    load
}
