//! Collects measurements of the bandwidth of links, and finds links whose bandwidth has changed.
//!
//! The order of coflows uses all samples, since bandwidth is random. Paths use the last few: if the bandwidth of a link changes, flows
//! avoid the link within seconds.
//!
//! Several relays of a region can send over one link, at the same time or in turn. The bandwidth of a link is therefore the bytes that all
//! its relays sent while data waited, divided by the time in which data waited at any of them.

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

/// The number of recent samples below which the recent bandwidth is the configured one, or that of all samples if it is higher.
const MIN_RECENT_SAMPLES: usize = 3;

/// How long samples are recent, in seconds. No data waits on a link that paths avoid, so nothing measures a bandwidth that has risen. After
/// this time, paths use the link again.
const MAX_RECENT_AGE: f64 = 60.0;

/// The relative change of a link's recent bandwidth after which paths are chosen again.
const MAX_CHANGE: f64 = 0.2;

/// Whether the recent bandwidth of a link has changed.
pub(super) fn has_changed(former: &BandwidthHistory, recent: &BandwidthHistory) -> bool {
    (0..recent.links() as u32).any(|link| {
        let ratio = recent.median_seconds_per_byte(link) / former.median_seconds_per_byte(link);
        !(1.0 / (1.0 + MAX_CHANGE)..=1.0 + MAX_CHANGE).contains(&ratio)
    })
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
    /// The number of samples since the start and since the last time without samples, at most [`RECENT_SAMPLES`].
    recent: usize,
    /// The time of the last sample.
    sampled_at: f64,
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
            recent: 0,
            sampled_at: 0.0,
            is_unstored: false,
            bytes: 0.0,
            seconds: 0.0,
            measured_until: f64::NEG_INFINITY,
            reported_at: BTreeMap::new(),
        }
    }

    /// Adds a sample in place of the first one, if there is no room. O(samples).
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

    /// The samples of the recent bandwidth, rising.
    fn recent(&self) -> Vec<Rate> {
        let by_rate = |a: &Rate, b: &Rate| a.get().total_cmp(&b.get());
        if self.recent >= MIN_RECENT_SAMPLES {
            let mut recent: Vec<Rate> = self.samples.iter().rev().take(self.recent).copied().collect();
            recent.sort_by(by_rate);
            return recent;
        }
        let median = |samples: &[Rate]| samples[(samples.len() - 1) / 2];
        let is_faster = by_rate(&median(&self.configured), &median(&self.sorted)).is_gt();
        if is_faster { self.configured.clone() } else { self.sorted.clone() }
    }

    /// Ends the interval: its mean rate is a sample. Returns whether the recent samples have changed.
    fn add_sample(&mut self, now: f64) -> bool {
        let (bytes, seconds) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.seconds));
        if seconds <= 0.0 {
            let is_old = self.recent > 0 && now - self.sampled_at > MAX_RECENT_AGE;
            if is_old {
                self.recent = 0;
            }
            return is_old;
        }
        self.push(bytes / seconds);
        self.recent = (self.recent + 1).min(RECENT_SAMPLES);
        self.sampled_at = now;
        self.is_unstored = true;
        true
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
        self.advance(now);
        self.links[link as usize].add(relays, rate, now);
    }

    /// Ends the interval when its time has passed.
    pub fn advance(&mut self, now: f64) {
        if now - self.last_sample_at < SAMPLE_INTERVAL {
            return;
        }
        self.last_sample_at = now;
        for link in &mut self.links {
            self.are_new |= link.add_sample(now);
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

    /// Adds samples that were measured before the start. They do not count as recent.
    pub fn restore(&mut self, link: u32, samples: &[u64]) {
        samples.iter().for_each(|&rate| self.links[link as usize].push(rate as f64));
    }
}
