//! Collects measurements of the bandwidth of links.

use std::collections::{BTreeMap, VecDeque};

use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{BandwidthHistory, WideArea};
use weir_core::units::Rate;

use crate::config::MAX_LINK_SAMPLES;

/// Time between two samples of a link, in seconds.
const SAMPLE_INTERVAL: f64 = 1.0;

/// Samples of all links.
pub(super) struct LinkSamples {
    links: Vec<Link>,
    last_sample_at: f64,
}

struct Link {
    /// The configured bandwidth first. At most [`MAX_LINK_SAMPLES`]: older ones are dropped.
    samples: VecDeque<Rate>,
    /// Rates that relays measured in this interval, by sending and receiving relay.
    rates: BTreeMap<(u16, u16), f64>,
}

impl LinkSamples {
    /// The configured bandwidths as samples.
    pub fn new(area: &WideArea) -> LinkSamples {
        // Later samples replace the first ones, and those of an area are sorted.
        let shuffle = |&(index, _): &(u32, Rate)| index.wrapping_mul(0x9e37_79b1);
        let link = |link| {
            let mut samples: Vec<(u32, Rate)> = (0..).zip(area.samples(link).iter().copied()).collect();
            samples.sort_by_key(shuffle);
            Link { samples: samples.into_iter().map(|(_, rate)| rate).collect(), rates: BTreeMap::new() }
        };
        LinkSamples { links: (0..area.links() as u32).map(link).collect(), last_sample_at: 0.0 }
    }

    /// Adds the rate that one relay measured to another one.
    pub fn add(&mut self, link: u32, relays: (u16, u16), rate: Option<u64>, now: f64) {
        self.advance(now);
        if let Some(rate) = rate {
            self.links[link as usize].rates.insert(relays, rate as f64);
        }
    }

    /// Ends the interval when its time has passed: the sample of a link is the sum of the rates that its relays measured.
    pub fn advance(&mut self, now: f64) {
        if now - self.last_sample_at < SAMPLE_INTERVAL {
            return;
        }
        self.last_sample_at = now;
        for link in self.links.iter_mut().filter(|link| !link.rates.is_empty()) {
            let sum: f64 = std::mem::take(&mut link.rates).into_values().sum();
            let (min, max) = (WideArea::MIN_BANDWIDTH.get(), WideArea::MAX_BANDWIDTH.get());
            let sample = Rate::new(sum.clamp(min, max)).expect("the bounds of bandwidth are valid rates");
            link.samples.push_back(sample);
            if link.samples.len() > MAX_LINK_SAMPLES {
                link.samples.pop_front();
            }
        }
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
