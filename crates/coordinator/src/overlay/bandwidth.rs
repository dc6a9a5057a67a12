//! Collects measurements of the bandwidth of links, and finds links whose bandwidth has changed.
//!
//! The order of coflows uses all samples, since bandwidth is random. Paths use the last few: if the bandwidth of a link changes, flows
//! avoid the link within seconds.
//!
//! Several relays of a region can send over one link, at the same time or in turn. The bandwidth of a link is therefore the bytes that all
//! its relays sent while data waited, divided by the time in which data waited at any of them.

use std::collections::{BTreeMap, VecDeque};

use weir_core::model::wide_area::LinkMeasurement;
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

/// The number of measured samples below which the recent bandwidth is the configured one.
const MIN_RECENT_SAMPLES: usize = 3;

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
    /// The number of measured samples, at most [`RECENT_SAMPLES`].
    measured: usize,
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
    fn new(samples: VecDeque<Rate>) -> Link {
        let (bytes, seconds, measured_until) = (0.0, 0.0, f64::NEG_INFINITY);
        Link { samples, measured: 0, bytes, seconds, measured_until, reported_at: BTreeMap::new() }
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

    /// The samples of the recent bandwidth.
    fn recent(&self) -> impl Iterator<Item = Rate> {
        let earlier = self.samples.len() - self.measured;
        let is_measured = self.measured >= MIN_RECENT_SAMPLES;
        let range = if is_measured { earlier..self.samples.len() } else { 0..earlier };
        self.samples.range(range).copied()
    }

    /// Ends the interval: its mean rate is a sample. Returns whether there is one.
    fn add_sample(&mut self) -> bool {
        let (bytes, seconds) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.seconds));
        if seconds <= 0.0 {
            return false;
        }
        let (min, max) = (WideArea::MIN_BANDWIDTH.get(), WideArea::MAX_BANDWIDTH.get());
        let sample = Rate::new((bytes / seconds).clamp(min, max));
        self.samples.push_back(sample.expect("the bounds of bandwidth are valid rates"));
        if self.samples.len() > MAX_LINK_SAMPLES {
            self.samples.pop_front();
        }
        self.measured = (self.measured + 1).min(RECENT_SAMPLES);
        true
    }
}

impl LinkSamples {
    /// The configured bandwidths as samples.
    pub fn new(area: &WideArea) -> LinkSamples {
        // Later samples replace the first ones, and those of an area are sorted.
        let shuffle = |&(index, _): &(u32, Rate)| index.wrapping_mul(0x9e37_79b1);
        let link = |link| {
            let mut samples: Vec<(u32, Rate)> = (0..).zip(area.samples(link).iter().copied()).collect();
            samples.sort_by_key(shuffle);
            Link::new(samples.into_iter().map(|(_, rate)| rate).collect())
        };
        let links = (0..area.links() as u32).map(link).collect();
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
            self.are_new |= link.add_sample();
        }
    }

    /// Whether samples were added since the last call.
    pub fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.are_new)
    }

    /// All samples.
    pub fn history(&self, area: &WideArea) -> BandwidthHistory {
        Self::to_history(area, self.links.iter().map(|link| link.samples.iter().copied().collect()))
    }

    /// The samples of the recent bandwidth.
    pub fn recent_history(&self, area: &WideArea) -> BandwidthHistory {
        Self::to_history(area, self.links.iter().map(|link| link.recent().collect()))
    }

    fn to_history(area: &WideArea, samples: impl Iterator<Item = Vec<Rate>>) -> BandwidthHistory {
        let measurement = |(number, samples): (u32, Vec<Rate>)| {
            let (from, to) = area.link_ends(number);
            LinkMeasurement { from, to, samples }
        };
        let measurements = (0..).zip(samples).map(measurement).collect();
        let measured = WideArea::new(area.regions().to_vec(), measurements, area.change_interval(), 0.0);
        measured.expect("regions are unchanged, and samples are within the bounds").bandwidth_history()
    }
}
