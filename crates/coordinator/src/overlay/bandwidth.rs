//! Collects measurements of the bandwidth of links, and finds links whose bandwidth has changed.
//!
//! The order of coflows uses all samples, since bandwidth is random. Paths use the last few: if the bandwidth of a link changes, flows
//! avoid the link within seconds. The last samples count until there are others, also after a pause of the data and after a restart.
//!
//! Nothing measures a link that paths avoid. So paths try it again, as if it had its configured bandwidth, after a minute with data that
//! takes a detour instead. If the bandwidth has not risen, the time until the next trial doubles.
//!
//! Several relays of a region can send over one link, at the same time or in turn. The bandwidth of a link is therefore the bytes that all
//! its relays sent while data waited, divided by the time in which data waited at any of them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use weir_core::model::{BandwidthHistory, WideArea};
use weir_core::units::Rate;

use super::REPORT_INTERVAL;
use crate::config::MAX_LINK_SAMPLES;

/// Time between two samples of a link, in seconds.
const SAMPLE_INTERVAL: f64 = 1.0;

/// The longest time for which a measurement counts, in seconds: a relay reports in every interval.
const MAX_MEASURED: f64 = 2.0 * REPORT_INTERVAL.as_secs_f64();

/// The number of last measured samples whose median is the recent bandwidth.
const RECENT_SAMPLES: usize = 5;

/// The number of measured samples below which the recent bandwidth is the configured one, or that of all samples if it is higher. A trial
/// needs as many.
const MIN_RECENT_SAMPLES: usize = 3;

/// How long data avoids a link, without a sample of it, until paths try the link again, in seconds. The time doubles with each trial that
/// measures no higher bandwidth, up to the maximum.
const MIN_RETRY_TIME: f64 = 60.0;
const MAX_RETRY_TIME: f64 = 960.0;

/// The relative change of a link's recent bandwidth after which paths are chosen again.
const MAX_CHANGE: f64 = 0.2;

/// Whether the recent bandwidth of a link has changed.
pub(super) fn has_changed(former: &BandwidthHistory, recent: &BandwidthHistory) -> bool {
    (0..recent.links() as u32).any(|link| {
        let ratio = recent.median_seconds_per_byte(link) / former.median_seconds_per_byte(link);
        !(1.0 / (1.0 + MAX_CHANGE)..=1.0 + MAX_CHANGE).contains(&ratio)
    })
}

/// How the data between the regions at the ends of a link uses the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkUse {
    /// There is no data.
    Idle,
    /// All data takes the link.
    Direct,
    /// Some data takes a detour.
    Avoided,
}

/// Samples of all links.
pub(super) struct LinkSamples {
    links: Vec<Link>,
    last_sample_at: f64,
    are_new: bool,
}

struct Link {
    /// The configured bandwidth first. At most [`MAX_LINK_SAMPLES`]: older ones are dropped.
    samples: VecDeque<Rate>,
    /// The samples, rising.
    sorted: Vec<Rate>,
    /// The configured samples, rising, and how many of them are among the samples.
    configured: Vec<Rate>,
    configured_count: usize,
    /// The number of measured samples among the last ones, at most [`RECENT_SAMPLES`]; after a trial, those since its start.
    measured: usize,
    /// How long data has avoided the link since the last sample, in seconds.
    avoided_seconds: f64,
    /// How long data avoids the link until the next trial, in seconds.
    retry_time: f64,
    trial: Option<Trial>,
    /// Whether there are samples that [`LinkSamples::take_unstored`] has not returned.
    is_unstored: bool,
    /// Bytes that relays sent in this interval while data waited.
    bytes: f64,
    /// The time of this interval in which data waited, in seconds.
    seconds: f64,
    /// The end of the last measurement with waiting data; negative infinity before the first.
    measured_until: f64,
    /// Times of the last reports, by sending and receiving relay.
    reported_at: BTreeMap<(u16, u16), f64>,
}

/// Paths use a link that they avoided, as if it had a higher bandwidth.
struct Trial {
    /// The recent bandwidth before.
    former: Rate,
    /// The number of samples since the start.
    samples: usize,
}

/// The lower median of rising rates; at least one.
fn median(rates: &[Rate]) -> Rate {
    rates[(rates.len() - 1) / 2]
}

fn by_rate(a: &Rate, b: &Rate) -> Ordering {
    a.get().total_cmp(&b.get())
}

impl Link {
    /// A link with these configured samples, rising.
    fn new(sorted: Vec<Rate>) -> Link {
        // Later samples replace the first ones, which are therefore not sorted.
        let mut samples: Vec<(u32, Rate)> = (0..).zip(sorted.iter().copied()).collect();
        samples.sort_by_key(|(index, _)| index.wrapping_mul(0x9e37_79b1));
        Link {
            samples: samples.into_iter().map(|(_, rate)| rate).collect(),
            configured_count: sorted.len(),
            configured: sorted.clone(),
            sorted,
            measured: 0,
            avoided_seconds: 0.0,
            retry_time: MIN_RETRY_TIME,
            trial: None,
            is_unstored: false,
            bytes: 0.0,
            seconds: 0.0,
            measured_until: f64::NEG_INFINITY,
            reported_at: BTreeMap::new(),
        }
    }

    /// Adds a measured sample in place of the first one, if there is no room. O(samples).
    fn push(&mut self, bytes_per_second: f64) {
        let (min, max) = (WideArea::MIN_BANDWIDTH.get(), WideArea::MAX_BANDWIDTH.get());
        let sample = Rate::new(bytes_per_second.clamp(min, max));
        let sample = sample.expect("the bounds of bandwidth are valid rates");
        let place = |sorted: &[Rate], rate: Rate| sorted.partition_point(|other| other.get() < rate.get());
        if self.samples.len() >= MAX_LINK_SAMPLES
            && let Some(first) = self.samples.pop_front()
        {
            self.sorted.remove(place(&self.sorted, first));
            self.configured_count = self.configured_count.saturating_sub(1);
        }
        self.samples.push_back(sample);
        self.sorted.insert(place(&self.sorted, sample), sample);
        self.measured = (self.measured + 1).min(RECENT_SAMPLES);
    }

    /// Adds the rate since the last report.
    fn add(&mut self, relays: (u16, u16), rate: Option<u64>, now: f64) {
        let last = self.reported_at.insert(relays, now);
        let seconds =
            last.map_or(REPORT_INTERVAL.as_secs_f64(), |last| (now - last).clamp(0.0, MAX_MEASURED));
        let Some(rate) = rate else { return };
        self.bytes += rate as f64 * seconds;
        self.seconds += now - self.measured_until.max(now - seconds);
        self.measured_until = now;
    }

    /// The samples of the recent bandwidth, rising: the last measured ones. If there are too few or paths try the link, those of the
    /// configuration or all samples if their median is higher.
    fn recent(&self) -> Vec<Rate> {
        let mut last: Vec<Rate> = self.samples.iter().rev().take(self.measured).copied().collect();
        last.sort_by(by_rate);
        let is_measured = last.len() >= MIN_RECENT_SAMPLES;
        if is_measured && self.trial.is_none() {
            return last;
        }
        let mut highest = &self.sorted;
        for other in std::iter::once(&self.configured).chain(is_measured.then_some(&last)) {
            if by_rate(&median(other), &median(highest)).is_gt() {
                highest = other;
            }
        }
        highest.clone()
    }

    /// Ends an interval of this many seconds: its mean rate is a sample. Returns whether the recent samples have changed.
    fn end_interval(&mut self, elapsed: f64, link_use: LinkUse) -> bool {
        let (bytes, seconds) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.seconds));
        if seconds > 0.0 {
            self.add_sample(bytes / seconds);
            return true;
        }
        match link_use {
            // Later data has the bandwidth that was measured last.
            LinkUse::Idle => self.trial.take().is_some(),
            LinkUse::Direct => false,
            LinkUse::Avoided => {
                self.avoided_seconds += elapsed;
                let is_due = self.trial.is_none() && self.avoided_seconds > self.retry_time;
                if is_due {
                    self.avoided_seconds = 0.0;
                    self.trial = Some(Trial { former: median(&self.recent()), samples: 0 });
                }
                is_due
            }
        }
    }

    fn add_sample(&mut self, bytes_per_second: f64) {
        self.push(bytes_per_second);
        (self.avoided_seconds, self.is_unstored) = (0.0, true);
        let Some(trial) = &mut self.trial else { return };
        trial.samples += 1;
        if trial.samples < MIN_RECENT_SAMPLES {
            return;
        }
        let former = trial.former.get();
        (self.measured, self.trial) = (MIN_RECENT_SAMPLES, None);
        let has_risen = median(&self.recent()).get() > former * (1.0 + MAX_CHANGE);
        self.retry_time =
            if has_risen { MIN_RETRY_TIME } else { (self.retry_time * 2.0).min(MAX_RETRY_TIME) };
    }
}

impl LinkSamples {
    /// The configured bandwidths as samples.
    pub fn new(area: &WideArea) -> LinkSamples {
        let links = (0..area.links() as u32).map(|link| Link::new(area.samples(link).to_vec())).collect();
        LinkSamples { links, last_sample_at: 0.0, are_new: false }
    }

    /// Adds the rate that one relay measured to another one since its last report; none if no data waited.
    pub fn add(&mut self, link: u32, relays: (u16, u16), rate: Option<u64>, now: f64) {
        self.links[link as usize].add(relays, rate, now);
    }

    /// Whether the time of the interval has passed.
    pub fn is_due(&self, now: f64) -> bool {
        now - self.last_sample_at >= SAMPLE_INTERVAL
    }

    /// Ends the interval. `uses`: how data uses each link.
    pub fn end_interval(&mut self, now: f64, uses: &[LinkUse]) {
        let elapsed = now - std::mem::replace(&mut self.last_sample_at, now);
        for (link, &link_use) in self.links.iter_mut().zip(uses) {
            self.are_new |= link.end_interval(elapsed, link_use);
        }
    }

    /// Whether recent samples have changed since the last call.
    pub fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.are_new)
    }

    /// All samples.
    pub fn history(&self, area: &WideArea) -> BandwidthHistory {
        BandwidthHistory::new(area.regions().len(), self.links.iter().map(|link| link.sorted.iter().copied()))
    }

    /// The samples of the recent bandwidth.
    pub fn recent_history(&self, area: &WideArea) -> BandwidthHistory {
        BandwidthHistory::new(area.regions().len(), self.links.iter().map(|link| link.recent().into_iter()))
    }

    /// The measured samples of links with new ones since the last call, in bytes per second and in order of time.
    pub fn take_unstored(&mut self) -> Vec<(u32, Vec<u64>)> {
        let unstored = |(number, link): (u32, &mut Link)| {
            let rates = link.samples.iter().skip(link.configured_count);
            // The lowest bandwidth is less than a byte per second.
            let measured = || rates.map(|rate| rate.get().round().max(1.0) as u64).collect();
            std::mem::take(&mut link.is_unstored).then(|| (number, measured()))
        };
        (0..).zip(&mut self.links).filter_map(unstored).collect()
    }

    /// Returns the samples of a link from the next [`LinkSamples::take_unstored`] again.
    pub fn keep_unstored(&mut self, link: u32) {
        self.links[link as usize].is_unstored = true;
    }

    /// Adds samples that were measured before the start.
    pub fn restore(&mut self, link: u32, samples: &[u64]) {
        samples.iter().for_each(|&rate| self.links[link as usize].push(rate as f64));
    }
}
