//! Collects measurements of the bandwidth of links.
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

/// Samples of all links.
pub(super) struct LinkSamples {
    links: Vec<Link>,
    last_sample_at: f64,
}

struct Link {
    /// The configured bandwidth first. At most [`MAX_LINK_SAMPLES`]: older ones are dropped.
    samples: VecDeque<Rate>,
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
        Link { samples, bytes, seconds, measured_until, reported_at: BTreeMap::new() }
    }

    /// Adds the rate since the last report.
    fn add(&mut self, relays: (u16, u16), rate: Option<u64>, now: f64) {
        let last = self.reported_at.insert(relays, now);
        let seconds = last.map_or(REPORT_INTERVAL.as_secs_f64(), |last| (now - last).clamp(0.0, MAX_MEASURED));
        let Some(rate) = rate else { return };
        self.bytes += rate as f64 * seconds;
        self.seconds += now - self.measured_until.max(now - seconds);
        self.measured_until = now;
    }

    /// Ends the interval: its mean rate is a sample.
    fn add_sample(&mut self) {
        let (bytes, seconds) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.seconds));
        if seconds <= 0.0 {
            return;
        }
        let (min, max) = (WideArea::MIN_BANDWIDTH.get(), WideArea::MAX_BANDWIDTH.get());
        let sample = Rate::new((bytes / seconds).clamp(min, max));
        self.samples.push_back(sample.expect("the bounds of bandwidth are valid rates"));
        if self.samples.len() > MAX_LINK_SAMPLES {
            self.samples.pop_front();
        }
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
        LinkSamples { links: (0..area.links() as u32).map(link).collect(), last_sample_at: 0.0 }
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
        self.links.iter_mut().for_each(Link::add_sample);
    }

    /// All samples.
    pub fn history(&self, area: &WideArea) -> BandwidthHistory {
        let measurement = |(number, link): (u32, &Link)| {
            let (from, to) = area.link_ends(number);
            LinkMeasurement { from, to, samples: link.samples.iter().copied().collect() }
        };
        let measurements = (0..).zip(&self.links).map(measurement).collect();
        let measured = WideArea::new(area.regions().to_vec(), measurements, area.change_interval(), 0.0);
        measured.expect("regions are unchanged, and samples are within the bounds").bandwidth_history()
    }
}
