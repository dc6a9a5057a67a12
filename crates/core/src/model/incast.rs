//! What too many connections to one receiver cost, as it was measured (Django, JPDC '21, sections 2.3 and 4.1).
//!
//! In a run some connections send so many bytes each to one receiver, at once, through a switch whose port holds so many packets. Runs
//! with one buffer and one number of connections are of one *kind*; what counts is their median.
//!
//! - All times are measured from that of the quickest kind with the fewest connections, which has what a run takes to begin, and gains
//!   by what the link's shaper lets through at once. The bytes that a kind has more, over the time that it takes more, are a rate.
//!   The link's is the greatest of them; among those less than `NEARLY` below it, that with the most connections, which is the surest.
//! - A kind's *stall* is what it takes longer than its bytes do at that rate: senders wait for their timeouts, and the link idles. What
//!   is less than `NOISE` of the whole time is none.
//! - On a link of another rate bytes take another time, and the stall stays what it was: buffers and windows are packets, and
//!   timeouts are seconds, on any link. The *part* of a link that is carried is the time of the bytes over that time and the stall's.
//! - From the number of connections on that is best for the whole of the data, the part does not rise with more; nor does it fall
//!   with a larger buffer. Where medians do, it is in the middle between the least and the greatest values that such a fit may have there.
//! - Between measured kinds it is linear in connections and in packets. Beyond the most connections it stays as it is; buffers that are
//!   smaller or larger than all that were measured have none.

use std::collections::BTreeMap;

use crate::units::Rate;

/// Rates, or parts of a link, that are this near may be one.
const NEARLY: f64 = 0.02;

/// What of a time is not told from nothing.
const NOISE: f64 = 0.01;

/// A run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IncastRun {
    /// What the switch's port to the receiver holds, in full packets: 1 to [`Incast::MAX_PACKETS`].
    pub buffer: u32,
    /// How many connections send at once: 1 to [`Incast::MAX_CONNECTIONS`].
    pub connections: u32,
    /// What each of them sends, in bytes: from 1 on, the same in all runs.
    pub bytes: f64,
    /// The part of the packets that the port dropped: from 0 up to, but not including, 1.
    pub loss: f64,
    /// All bytes over the time until the last connection was done, in bytes per second: above 0.
    pub goodput: f64,
}

/// Why runs say nothing. Runs are named by their place in the list that was given.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum IncastError {
    /// There is none.
    #[error("no runs: expected at least one")]
    Empty,
    /// A number out of bounds.
    #[error("run {run}: {what} out of bounds")]
    Bounds {
        /// The run.
        run: usize,
        /// `buffer`, `connections`, `bytes`, `loss` or `goodput`.
        what: &'static str,
    },
    /// Other bytes than in the first run.
    #[error("run {0} has other bytes for each connection than the first")]
    Bytes(usize),
    /// No run of a kind, where its buffer and its number of connections both have others.
    #[error("no run with a buffer of {buffer} packets and {connections} connections")]
    Missing {
        /// The buffer.
        buffer: u32,
        /// How many connections.
        connections: u32,
    },
}

/// Kinds of runs: each buffer with each number of connections.
#[derive(Debug, Clone, PartialEq)]
pub struct Incast {
    bytes: f64,
    /// In bytes per second.
    link: f64,
    /// Rising.
    buffers: Vec<u32>,
    connections: Vec<u32>,
    /// Medians by buffer and, inside, by connections: stalls in seconds, and losses.
    stalls: Vec<f64>,
    losses: Vec<f64>,
}

impl Incast {
    /// The largest buffer, in packets.
    pub const MAX_PACKETS: u32 = 1_000_000;
    /// The most connections.
    pub const MAX_CONNECTIONS: u32 = 65_536;

    /// What these runs say.
    ///
    /// # Errors
    /// The first thing that keeps them from saying something.
    pub fn new(runs: &[IncastRun]) -> Result<Incast, IncastError> {
        let bytes = runs.first().ok_or(IncastError::Empty)?.bytes;
        let mut kinds: BTreeMap<(u32, u32), Vec<&IncastRun>> = BTreeMap::new();
        for (place, run) in runs.iter().enumerate() {
            let bounds = [
                ("buffer", (1..=Incast::MAX_PACKETS).contains(&run.buffer)),
                ("connections", (1..=Incast::MAX_CONNECTIONS).contains(&run.connections)),
                ("bytes", (1.0..=1e15).contains(&run.bytes)),
                ("loss", (0.0..1.0).contains(&run.loss)),
                ("goodput", (1e-6..=1e15).contains(&run.goodput)),
            ];
            if let Some(&(what, _)) = bounds.iter().find(|(_, fits)| !fits) {
                return Err(IncastError::Bounds { run: place, what });
            }
            if run.bytes != bytes {
                return Err(IncastError::Bytes(place));
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
                let missing = IncastError::Missing { buffer, connections };
                let runs = kinds.get(&(buffer, connections)).ok_or(missing)?;
                goodputs.push(median(runs.iter().map(|run| run.goodput).collect()));
                losses.push(median(runs.iter().map(|run| run.loss).collect()));
            }
        }
        let columns = connections.len();
        let all = |at: usize| bytes * f64::from(connections[at % columns]);
        let times: Vec<f64> = goodputs.iter().enumerate().map(|(at, goodput)| all(at) / goodput).collect();
        let first = times.iter().step_by(columns).copied().fold(f64::INFINITY, f64::min);
        let link = link(&connections, &times, bytes, first);
        let stall = |(at, time): (usize, &f64)| {
            let stall = time - first - (all(at) - all(0)) / link;
            if stall > NOISE * time { stall } else { 0.0 }
        };
        let stalls = times.iter().enumerate().map(stall).collect();
        Ok(Incast { bytes, link, buffers, connections, stalls, losses })
    }

    /// What each connection sent, in bytes.
    pub fn bytes(&self) -> f64 {
        self.bytes
    }

    /// What the link itself carried, in bytes per second of payload.
    pub fn link(&self) -> f64 {
        self.link
    }

    /// The buffers that were measured, in packets, rising.
    pub fn buffers(&self) -> &[u32] {
        &self.buffers
    }

    /// The numbers of connections that were measured, rising.
    pub fn connections(&self) -> &[u32] {
        &self.connections
    }

    /// What of a link of this rate is carried through a port that holds so many packets; nothing if that is less, or more, than
    /// all that was measured. O(kinds + most connections).
    pub fn goodput(&self, buffer: u32, rate: Rate) -> Option<Goodput> {
        let above = self.buffers.iter().position(|&known| known >= buffer)?;
        let below = if self.buffers[above] == buffer { above } else { above.checked_sub(1)? };
        let share = match f64::from(self.buffers[above] - self.buffers[below]) {
            0.0 => 0.0,
            apart => f64::from(buffer - self.buffers[below]) / apart,
        };
        let parts = self.fitted(&self.parts(rate));
        let (mut all_parts, mut all_losses) = (Vec::new(), Vec::new());
        for connections in 1..=*self.connections.last().expect("`Incast::new` refuses an empty list of runs")
        {
            let at = |values: &[f64]| {
                let [low, high] = [below, above].map(|row| self.along(self.row(values, row), connections));
                low + (high - low) * share
            };
            all_parts.push(at(&parts));
            all_losses.push(at(&self.losses));
        }
        Some(Goodput { parts: all_parts, losses: all_losses })
    }

    /// The error of the interpolation between buffers, for a link of this rate: each buffer between two others is left out
    /// and computed from the others. The mean absolute difference of parts; `None` with fewer than three buffers.
    pub fn interpolation_error(&self, rate: Rate) -> Option<f64> {
        let all = self.parts(rate);
        let (mut sum, mut count) = (0.0, 0.0);
        for out in 1..self.buffers.len().saturating_sub(1) {
            let others = self.without(out);
            let goodput = others.goodput(self.buffers[out], rate).expect("the buffer is between two others");
            for (&connections, &part) in self.connections.iter().zip(self.row(&all, out)) {
                sum += (goodput.part(connections as usize) - part).abs();
                count += 1.0;
            }
        }
        (count > 0.0).then(|| sum / count)
    }

    /// The parts of a link of this rate that the medians say.
    fn parts(&self, rate: Rate) -> Vec<f64> {
        let columns = self.connections.len();
        let part = |(at, stall): (usize, &f64)| {
            let time = self.bytes * f64::from(self.connections[at % columns]) / rate.get();
            // Next to the infinite time of a link without a rate, a stall is nothing.
            if *stall > 0.0 && time.is_finite() { time / (time + stall) } else { 1.0 }
        };
        self.stalls.iter().enumerate().map(part).collect()
    }

    fn row<'a>(&self, values: &'a [f64], row: usize) -> &'a [f64] {
        &values[row * self.connections.len()..(row + 1) * self.connections.len()]
    }

    /// The column whose parts are best on average, the first of them.
    fn best_column(&self, parts: &[f64]) -> usize {
        let columns = self.connections.len();
        let sum = |column: usize| parts.iter().skip(column).step_by(columns).sum::<f64>();
        let columns = (0..columns).rev();
        columns
            .max_by(|&a, &b| sum(a).total_cmp(&sum(b)))
            .expect("`Incast::new` refuses an empty list of runs")
    }

    /// Parts that do not rise with connections from the best number on, and do not fall with buffers.
    fn fitted(&self, parts: &[f64]) -> Vec<f64> {
        let (rows, columns) = (self.buffers.len(), self.connections.len());
        let best = self.best_column(parts);
        let mut fitted = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                let (from, to) = if column < best { (column, column) } else { (best, columns - 1) };
                let value = |row: usize, column: usize| parts[row * columns + column];
                let over = (row..rows).flat_map(|row| (from..=column).map(move |column| (row, column)));
                let under = (0..=row).flat_map(|row| (column..=to).map(move |column| (row, column)));
                let least = over.map(|(row, column)| value(row, column)).fold(f64::INFINITY, f64::min);
                let most = under.map(|(row, column)| value(row, column)).fold(0.0, f64::max);
                fitted.push((least + most) / 2.0);
            }
        }
        fitted
    }

    /// A value for a number of connections, from those of the numbers that were measured.
    fn along(&self, values: &[f64], connections: u32) -> f64 {
        let points = self.connections.iter().zip(values).map(|(&n, &value)| (f64::from(n), value));
        on_curve(&points.collect::<Vec<_>>(), f64::from(connections))
    }

    fn without(&self, out: usize) -> Incast {
        let columns = self.connections.len();
        let cut = |values: &[f64]| [&values[..out * columns], &values[(out + 1) * columns..]].concat();
        let mut buffers = self.buffers.clone();
        buffers.remove(out);
        Incast { buffers, stalls: cut(&self.stalls), losses: cut(&self.losses), ..self.clone() }
    }
}

/// What a receiving port carries, by how many connections send to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Goodput {
    /// From one connection on.
    parts: Vec<f64>,
    losses: Vec<f64>,
}

impl Goodput {
    /// The part of the port's rate that so many connections get: above 0, and at most 1.
    pub fn part(&self, connections: usize) -> f64 {
        Goodput::at(&self.parts, connections).unwrap_or(1.0)
    }

    /// The part of their packets that the port drops.
    pub fn loss(&self, connections: usize) -> f64 {
        Goodput::at(&self.losses, connections).unwrap_or(0.0)
    }

    /// Whether any number of connections costs something.
    pub fn costs(&self) -> bool {
        self.parts.iter().any(|&part| part < 1.0)
    }

    /// The most connections that get as good as what the best number of them gets, up to two hundredths of it.
    pub fn best(&self) -> usize {
        let best = self.parts.iter().copied().fold(0.0, f64::max);
        1 + self
            .parts
            .iter()
            .rposition(|&part| part >= (1.0 - NEARLY) * best)
            .expect("parts are numbers from 0 to 1 for one or more connections, so one is the greatest")
    }

    /// Beyond the most that were measured, as for these.
    fn at(values: &[f64], connections: usize) -> Option<f64> {
        values.get(connections.checked_sub(1)?.min(values.len() - 1)).copied()
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

/// What a link carries on which kinds take these times, `first` the quickest of those with the fewest connections.
fn link(connections: &[u32], times: &[f64], bytes: f64, first: f64) -> f64 {
    let columns = connections.len();
    let rate = |(at, time): (usize, &f64)| {
        let more = bytes * f64::from(connections[at % columns] - connections[0]);
        (at % columns, more / (time - first))
    };
    let rates: Vec<(usize, f64)> =
        times.iter().enumerate().filter(|(at, time)| at % columns > 0 && **time > first).map(rate).collect();
    let greatest = rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
    let near = rates.into_iter().filter(|&(_, rate)| rate >= greatest * (1.0 - NEARLY));
    let surest = near.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    // With one number of connections only, there is nothing to measure from.
    surest.map_or(bytes * f64::from(connections[0]) / first, |(_, rate)| rate)
}

/// A value on lines between points whose first numbers rise; at either end it stays.
fn on_curve(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|point| point.0 < x);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some(&(_, y)), None) | (None, Some(&(_, y))) => y,
        (None, None) => f64::NAN,
    }
}
