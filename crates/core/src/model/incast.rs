//! The measured cost of many connections to one receiver (incast; Django, JPDC '21, sections 2.3 and 4.1).
//!
//! In a run, a number of connections send the same number of bytes each to one receiver, at once. Of steady connections, the
//! time is that of their bytes at the measured goodput. The switch port to the receiver buffers a number of packets. Runs with
//! the same buffer and the same number of connections are of one *kind*, and count by their median.
//!
//! - *Reference.* All times are relative to the fastest kind with the fewest connections. The reference contains the
//!   start-up time of a run, and the burst that the link's shaper admits.
//! - *Rate of the link.* The bytes of a kind beyond those of the reference, divided by the time beyond it, are a rate.
//!   The rate of the link is the greatest of these rates. Among rates within `EQUALITY_TOLERANCE` of the greatest, the
//!   one of the kind with the most connections is used, because it is the most accurate.
//! - *Stall.* The stall of a kind is its time beyond the time of its bytes at that rate: senders wait for timeouts,
//!   and the link idles. A stall below `NOISE_FRACTION` of the total time counts as zero.
//! - *Utilization.* On a link of another rate, the bytes take another time, but the stall is the same: buffers and
//!   windows are in packets, and timeouts in seconds, on any link. The utilization of a link is the time of the bytes
//!   divided by that time plus the stall.
//! - *Fit.* Beyond the number of connections with the best mean over all buffers, the utilization does not rise. It
//!   does not fall with a larger buffer. If medians violate this, the fit is the middle of the smallest and the
//!   greatest value that satisfy it.
//! - *Interpolation.* Between measured kinds, the utilization is linear in connections and in packets. Below the
//!   minimum and above the maximum number of connections, it is constant. Buffers outside the measured range give no
//!   result.

use std::collections::BTreeMap;

use crate::units::Rate;

/// Rates, or utilizations, within this relative distance count as equal.
const EQUALITY_TOLERANCE: f64 = 0.02;

/// The fraction of a time that counts as zero.
const NOISE_FRACTION: f64 = 0.01;

/// One measured run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IncastRun {
    /// Buffer of the switch port to the receiver, in full packets: 1 to [`Incast::MAX_PACKETS`].
    pub buffer: u32,
    /// Number of connections that send at once: 1 to [`Incast::MAX_CONNECTIONS`].
    pub connections: u32,
    /// Bytes of each connection: at least 1, the same in all runs.
    pub bytes: f64,
    /// The fraction of packets that the port dropped: 0 or more, and below 1.
    pub loss: f64,
    /// Bytes of all connections divided by the time until the last connection completed, in bytes per second: above
    /// 0.
    pub goodput: f64,
}

/// Why runs are rejected. Runs are numbered by their position in the list.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum IncastError {
    /// The list of runs is empty.
    #[error("no runs; expected at least one")]
    NoRuns,
    /// A value of a run is out of bounds.
    #[error("run {run}: `{field}` is out of bounds")]
    OutOfBounds {
        /// Position of the run.
        run: usize,
        /// `buffer`, `connections`, `bytes`, `loss` or `goodput`.
        field: &'static str,
    },
    /// The bytes of a connection differ from those of the first run.
    #[error("run {0}: bytes of a connection differ from those of the first run")]
    UnequalBytes(usize),
    /// A kind contains no run, although other runs have its buffer, and other runs its number of connections.
    #[error(
        "no run with a buffer of {buffer} packets and {connections} connections; expected every combination"
    )]
    MissingRuns {
        /// Buffer in packets.
        buffer: u32,
        /// Number of connections.
        connections: u32,
    },
}

/// The measured kinds: each buffer with each number of connections.
#[derive(Debug, Clone, PartialEq)]
pub struct Incast {
    bytes: f64,
    /// Rate of the link in bytes per second.
    link_rate: f64,
    /// Buffers in packets, rising.
    buffers: Vec<u32>,
    connections: Vec<u32>,
    /// Medians by buffer, then by connections: stalls in seconds, and losses.
    stalls: Vec<f64>,
    losses: Vec<f64>,
}

impl Incast {
    /// Maximum buffer, in packets.
    pub const MAX_PACKETS: u32 = 1_000_000;
    /// Maximum number of connections.
    pub const MAX_CONNECTIONS: u32 = 65_536;

    /// Computes the stalls and losses of these runs.
    ///
    /// # Errors
    /// The first [`IncastError`] found: no runs, a value out of bounds, unequal bytes, or a kind without runs.
    pub fn new(runs: &[IncastRun]) -> Result<Incast, IncastError> {
        let bytes = runs.first().ok_or(IncastError::NoRuns)?.bytes;
        let mut kinds: BTreeMap<(u32, u32), Vec<&IncastRun>> = BTreeMap::new();
        for (position, run) in runs.iter().enumerate() {
            let bounds = [
                ("buffer", (1..=Incast::MAX_PACKETS).contains(&run.buffer)),
                ("connections", (1..=Incast::MAX_CONNECTIONS).contains(&run.connections)),
                ("bytes", (1.0..=1e15).contains(&run.bytes)),
                ("loss", (0.0..1.0).contains(&run.loss)),
                ("goodput", (1e-6..=1e15).contains(&run.goodput)),
            ];
            if let Some(&(field, _)) = bounds.iter().find(|(_, fits)| !fits) {
                return Err(IncastError::OutOfBounds { run: position, field });
            }
            if run.bytes != bytes {
                return Err(IncastError::UnequalBytes(position));
            }
            kinds.entry((run.buffer, run.connections)).or_default().push(run);
        }
        let distinct = |mut all: Vec<u32>| {
            all.sort_unstable();
            all.dedup();
            all
        };
        let buffers = distinct(kinds.keys().map(|kind| kind.0).collect());
        let connections = distinct(kinds.keys().map(|kind| kind.1).collect());
        let (mut goodputs, mut losses) = (Vec::new(), Vec::new());
        for &buffer in &buffers {
            for &connections in &connections {
                let missing = IncastError::MissingRuns { buffer, connections };
                let runs = kinds.get(&(buffer, connections)).ok_or(missing)?;
                goodputs.push(median(runs.iter().map(|run| run.goodput).collect()));
                losses.push(median(runs.iter().map(|run| run.loss).collect()));
            }
        }
        let columns = connections.len();
        let total_bytes = |at: usize| bytes * f64::from(connections[at % columns]);
        let times: Vec<f64> =
            goodputs.iter().enumerate().map(|(at, goodput)| total_bytes(at) / goodput).collect();
        let base_time = times.iter().step_by(columns).copied().fold(f64::INFINITY, f64::min);
        let link = estimate_link_rate(&connections, &times, bytes, base_time);
        let stall = |(at, time): (usize, &f64)| {
            let stall = time - base_time - (total_bytes(at) - total_bytes(0)) / link;
            if stall > NOISE_FRACTION * time { stall } else { 0.0 }
        };
        let stalls = times.iter().enumerate().map(stall).collect();
        Ok(Incast { bytes, link_rate: link, buffers, connections, stalls, losses })
    }

    /// Bytes that each connection sent.
    pub fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Rate of the measured link, in bytes per second of payload.
    pub fn link_rate(&self) -> f64 {
        self.link_rate
    }

    /// The measured buffers in packets, rising.
    pub fn buffers(&self) -> &[u32] {
        &self.buffers
    }

    /// The measured numbers of connections, rising.
    pub fn connections(&self) -> &[u32] {
        &self.connections
    }

    /// The goodput of a link of this rate, through a port with this buffer in packets. `None` if the buffer is
    /// outside the measured range.
    ///
    /// O(kinds + maximum number of connections).
    pub fn goodput(&self, buffer: u32, rate: Rate) -> Option<Goodput> {
        let above = self.buffers.iter().position(|&known| known >= buffer)?;
        let below = if self.buffers[above] == buffer { above } else { above.checked_sub(1)? };
        let above_weight = match f64::from(self.buffers[above] - self.buffers[below]) {
            0.0 => 0.0,
            gap_packets => f64::from(buffer - self.buffers[below]) / gap_packets,
        };
        let utilizations = self.fit_monotonic(&self.utilizations(rate));
        let (mut all_utilizations, mut all_losses) = (Vec::new(), Vec::new());
        for connections in 1..=*self.connections.last().expect("`Incast::new` refuses an empty list of runs")
        {
            let interpolate_buffers = |values: &[f64]| {
                let [low, high] = [below, above]
                    .map(|row| self.interpolate_connections(self.row(values, row), connections));
                low + (high - low) * above_weight
            };
            all_utilizations.push(interpolate_buffers(&utilizations));
            all_losses.push(interpolate_buffers(&self.losses));
        }
        Some(Goodput { utilizations: all_utilizations, losses: all_losses })
    }

    /// The error of the interpolation between buffers, for a link of this rate.
    ///
    /// Each buffer between two others is left out and computed from the others. The result is the mean absolute
    /// difference of utilizations; `None` with fewer than three buffers.
    pub fn interpolation_error(&self, rate: Rate) -> Option<f64> {
        let utilizations = self.utilizations(rate);
        let (mut sum, mut count) = (0.0, 0.0);
        for excluded in 1..self.buffers.len().saturating_sub(1) {
            let others = self.without_buffer(excluded);
            let goodput =
                others.goodput(self.buffers[excluded], rate).expect("the buffer is between two others");
            for (&connections, &part) in self.connections.iter().zip(self.row(&utilizations, excluded)) {
                sum += (goodput.utilization(connections as usize) - part).abs();
                count += 1.0;
            }
        }
        (count > 0.0).then(|| sum / count)
    }

    /// The utilizations of a link of this rate, from the medians.
    fn utilizations(&self, rate: Rate) -> Vec<f64> {
        let columns = self.connections.len();
        let utilization = |(at, stall): (usize, &f64)| {
            let time = self.bytes * f64::from(self.connections[at % columns]) / rate.get();
            // Relative to the infinite time on a link of rate 0, a stall is zero.
            if *stall > 0.0 && time.is_finite() { time / (time + stall) } else { 1.0 }
        };
        self.stalls.iter().enumerate().map(utilization).collect()
    }

    fn row<'a>(&self, values: &'a [f64], row: usize) -> &'a [f64] {
        &values[row * self.connections.len()..(row + 1) * self.connections.len()]
    }

    /// The first of the columns with the greatest mean utilization.
    fn best_column(&self, utilizations: &[f64]) -> usize {
        let columns = self.connections.len();
        let sum = |column: usize| utilizations.iter().skip(column).step_by(columns).sum::<f64>();
        let columns = (0..columns).rev();
        columns
            .max_by(|&a, &b| sum(a).total_cmp(&sum(b)))
            .expect("`Incast::new` refuses an empty list of runs")
    }

    /// Utilizations that do not rise with connections from the best number on, and do not fall with buffers.
    fn fit_monotonic(&self, utilizations: &[f64]) -> Vec<f64> {
        let (rows, columns) = (self.buffers.len(), self.connections.len());
        let best = self.best_column(utilizations);
        let mut fitted = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                let (from, to) = if column < best { (column, column) } else { (best, columns - 1) };
                let value = |row: usize, column: usize| utilizations[row * columns + column];
                let over = (row..rows).flat_map(|row| (from..=column).map(move |column| (row, column)));
                let under = (0..=row).flat_map(|row| (column..=to).map(move |column| (row, column)));
                let min_value = over.map(|(row, column)| value(row, column)).fold(f64::INFINITY, f64::min);
                let max_value = under.map(|(row, column)| value(row, column)).fold(0.0, f64::max);
                fitted.push((min_value + max_value) / 2.0);
            }
        }
        fitted
    }

    /// The value for a number of connections, interpolated between the measured numbers.
    fn interpolate_connections(&self, values: &[f64], connections: u32) -> f64 {
        let points = self.connections.iter().zip(values).map(|(&n, &value)| (f64::from(n), value));
        interpolate(&points.collect::<Vec<_>>(), f64::from(connections))
    }

    fn without_buffer(&self, excluded: usize) -> Incast {
        let columns = self.connections.len();
        let cut =
            |values: &[f64]| [&values[..excluded * columns], &values[(excluded + 1) * columns..]].concat();
        let mut buffers = self.buffers.clone();
        buffers.remove(excluded);
        Incast { buffers, stalls: cut(&self.stalls), losses: cut(&self.losses), ..self.clone() }
    }
}

/// The goodput of a receiving port, by the number of connections to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Goodput {
    /// By number of connections, from 1.
    utilizations: Vec<f64>,
    losses: Vec<f64>,
}

impl Goodput {
    /// The fraction of the port's rate that this number of connections gets: above 0, and at most 1.
    pub fn utilization(&self, connections: usize) -> f64 {
        Goodput::value_at(&self.utilizations, connections).unwrap_or(1.0)
    }

    /// The fraction of packets that the port drops.
    pub fn loss(&self, connections: usize) -> f64 {
        Goodput::value_at(&self.losses, connections).unwrap_or(0.0)
    }

    /// Whether the utilization is below 1 for any number of connections.
    pub fn has_reduction(&self) -> bool {
        self.utilizations.iter().any(|&part| part < 1.0)
    }

    /// The maximum number of connections whose utilization is within two hundredths of the best one.
    pub fn best_connections(&self) -> usize {
        let best = self.utilizations.iter().copied().fold(0.0, f64::max);
        1 + self.utilizations.iter().rposition(|&part| part >= (1.0 - EQUALITY_TOLERANCE) * best).expect(
            "utilizations are numbers from 0 to 1 for one or more connections, so a greatest one exists",
        )
    }

    /// Above the maximum number of connections, the value of the maximum holds.
    fn value_at(values: &[f64], connections: usize) -> Option<f64> {
        values.get(connections.checked_sub(1)?.min(values.len() - 1)).copied()
    }
}

/// The median: the middle value, or the mean of the two middle values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

/// Rate of a link whose kinds take these `times`. `first` is the time of the fastest kind with the fewest
/// connections.
fn estimate_link_rate(connections: &[u32], times: &[f64], bytes: f64, base_time: f64) -> f64 {
    let columns = connections.len();
    let rate = |(at, time): (usize, &f64)| {
        let more = bytes * f64::from(connections[at % columns] - connections[0]);
        (at % columns, more / (time - base_time))
    };
    let rates: Vec<(usize, f64)> = times
        .iter()
        .enumerate()
        .filter(|(at, time)| at % columns > 0 && **time > base_time)
        .map(rate)
        .collect();
    let greatest = rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
    let near = rates.into_iter().filter(|&(_, rate)| rate >= greatest * (1.0 - EQUALITY_TOLERANCE));
    let most_accurate = near.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    // With a single number of connections, no differences exist.
    most_accurate.map_or(bytes * f64::from(connections[0]) / base_time, |(_, rate)| rate)
}

/// Interpolates linearly between points with rising x. Outside the points, the nearest value holds.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|point| point.0 < x);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some(&(_, y)), None) | (None, Some(&(_, y))) => y,
        (None, None) => f64::NAN,
    }
}
