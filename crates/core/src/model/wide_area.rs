//! A wide area: regions, and a link with randomly changing bandwidth between every two of them.
//!
//! Siphon, ATC '18, section 3.1: links between datacenters are the bottlenecks, and their bandwidth is unpredictable.
//! Regions themselves have enough capacity for sending and receiving (the "dumb bell"). So each ordered pair of
//! regions has one link, and no other resource limits a transfer.
//!
//! Drivers draw the bandwidth of links over time from [`WideArea`]. Policies receive [`BandwidthHistory`]: past measurements, but
//! no current or future bandwidth.

use std::collections::BTreeSet;
use std::ops::Deref;

use super::link_history::LinkHistory;
use crate::units::{Rate, Time};

/// Regions, and the bandwidth of the links between them.
#[derive(Debug, Clone, PartialEq)]
pub struct WideArea {
    regions: Vec<String>,
    /// Samples by link, rising. Links are sorted: from the first region to all others, from the second, and so on.
    links: Vec<Vec<Rate>>,
    change_interval: Time,
    correlation: f64,
}

/// The ends of a link, and measurements of its bandwidth.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkMeasurement {
    /// Position of the sending region.
    pub from: usize,
    /// Position of the receiving region.
    pub to: usize,
    /// Measured bandwidths: at least one; from [`WideArea::MIN_BANDWIDTH`] to [`WideArea::MAX_BANDWIDTH`].
    pub samples: Vec<Rate>,
}

/// Why a wide area is invalid. Links are numbered by their position in the list.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WideAreaError {
    /// The number of regions is out of bounds.
    #[error("number of regions is {0}; expected 2 to {max}", max = WideArea::MAX_REGIONS)]
    RegionCount(usize),
    /// A name is malformed.
    #[error(
        "region name `{0}` is invalid; expected 1 to 64 characters without blanks and control characters"
    )]
    InvalidName(String),
    /// Two regions have the same name.
    #[error("two regions are named `{0}`; expected distinct names")]
    DuplicateRegion(String),
    /// A link refers to a region that does not exist.
    #[error("link {number}: region does not exist; expected one of `regions`", number = .0 + 1)]
    UnknownRegion(usize),
    /// A link leads from a region to itself.
    #[error(
        "link {number} leads from a region to itself; expected two different regions, because capacity inside a region is unlimited",
        number = .0 + 1
    )]
    SelfLink(usize),
    /// Two links lead from the same region to the same other region.
    #[error("link {number}: second link from the same region to the same region; expected one", number = .0 + 1)]
    DuplicateLink(usize),
    /// A link has no samples.
    #[error("link {number} has no samples; expected at least one", number = .0 + 1)]
    NoSamples(usize),
    /// A sample is out of bounds.
    #[error("link {}: sample {} is {rate}; expected 1bit to 8000Tbit", .link + 1, .sample + 1)]
    SampleOutOfBounds {
        /// Position of the link.
        link: usize,
        /// Position of the sample, from 0.
        sample: usize,
        /// The sample.
        rate: Rate,
    },
    /// No link leads from one region to another.
    #[error("no link from `{from}` to `{to}`; expected one from each region to each other region")]
    Disconnected {
        /// The sending region.
        from: String,
        /// The receiving region.
        to: String,
    },
    /// The time between changes of bandwidth is out of bounds.
    #[error("time between bandwidth changes is {0}; expected 1ms to 1e6s")]
    ChangeInterval(Time),
    /// The correlation is out of bounds.
    #[error("correlation is {0}; expected a number from 0 up to, but not including, 1")]
    Correlation(f64),
}

impl WideArea {
    /// Maximum number of regions.
    pub const MAX_REGIONS: usize = 32;
    /// Minimum bandwidth: 1 bit/s.
    pub const MIN_BANDWIDTH: Rate = Rate::from_valid(0.125);
    /// Maximum bandwidth.
    pub const MAX_BANDWIDTH: Rate = Rate::from_valid(1e15);

    /// Checks the names of regions.
    ///
    /// # Errors
    /// If there are too few or too many, or one is invalid or repeated.
    pub fn check_regions(regions: &[String]) -> Result<(), WideAreaError> {
        if !(2..=WideArea::MAX_REGIONS).contains(&regions.len()) {
            return Err(WideAreaError::RegionCount(regions.len()));
        }
        let mut seen = BTreeSet::new();
        for name in regions {
            let is_blank_or_control = |c: char| c.is_whitespace() || c.is_control();
            if !(1..=64).contains(&name.chars().count()) || name.contains(is_blank_or_control) {
                return Err(WideAreaError::InvalidName(name.clone()));
            }
            if !seen.insert(name) {
                return Err(WideAreaError::DuplicateRegion(name.clone()));
            }
        }
        Ok(())
    }

    /// Creates a wide area of these regions, with a link between each ordered pair.
    ///
    /// All links change their bandwidth every `change_interval`. Each new bandwidth is one of the samples of the link, with
    /// equal probability. `correlation` is the correlation with the previous bandwidth: 0 is independent.
    ///
    /// # Errors
    /// The first [`WideAreaError`] found.
    pub fn new(
        regions: Vec<String>,
        measurements: Vec<LinkMeasurement>,
        change_interval: Time,
        correlation: f64,
    ) -> Result<WideArea, WideAreaError> {
        WideArea::check_regions(&regions)?;
        if !(1e-3..=1e6).contains(&change_interval.get()) {
            return Err(WideAreaError::ChangeInterval(change_interval));
        }
        if !(0.0..1.0).contains(&correlation) {
            return Err(WideAreaError::Correlation(correlation));
        }
        let count = regions.len();
        let mut area =
            WideArea { regions, links: vec![Vec::new(); count * (count - 1)], change_interval, correlation };
        for (position, link) in measurements.into_iter().enumerate() {
            if link.from >= count || link.to >= count {
                return Err(WideAreaError::UnknownRegion(position));
            }
            let number = area.link_between(link.from, link.to).ok_or(WideAreaError::SelfLink(position))?;
            if link.samples.is_empty() {
                return Err(WideAreaError::NoSamples(position));
            }
            let wrong = |rate: &Rate| {
                !(WideArea::MIN_BANDWIDTH.get()..=WideArea::MAX_BANDWIDTH.get()).contains(&rate.get())
            };
            if let Some(sample) = link.samples.iter().position(wrong) {
                return Err(WideAreaError::SampleOutOfBounds {
                    link: position,
                    sample,
                    rate: link.samples[sample],
                });
            }
            let slot = &mut area.links[number as usize];
            if !slot.is_empty() {
                return Err(WideAreaError::DuplicateLink(position));
            }
            *slot = link.samples;
            slot.sort_unstable_by(|a, b| a.get().total_cmp(&b.get()));
        }
        match area.links.iter().position(Vec::is_empty) {
            None => Ok(area),
            Some(link) => {
                let (from, to) = area.link_ends(link as u32);
                let name = |region: usize| area.regions[region].clone();
                Err(WideAreaError::Disconnected { from: name(from), to: name(to) })
            }
        }
    }

    /// Names of the regions.
    pub fn regions(&self) -> &[String] {
        &self.regions
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// The link from one region to another; `None` from a region to itself.
    pub fn link_between(&self, from: usize, to: usize) -> Option<u32> {
        link_number(self.regions.len(), from, to)
    }

    /// The sending and the receiving region of a link.
    pub fn link_ends(&self, link: u32) -> (usize, usize) {
        ends_of_link(self.regions.len(), link)
    }

    /// The ends of a link, as in `east -> west`.
    pub fn link_name(&self, link: u32) -> String {
        let (from, to) = self.link_ends(link);
        format!("{} -> {}", self.regions[from], self.regions[to])
    }

    /// Samples of a link, rising.
    pub fn samples(&self, link: u32) -> &[Rate] {
        &self.links[link as usize]
    }

    /// Mean of a link's samples, in bytes per second.
    pub fn mean_bandwidth(&self, link: u32) -> f64 {
        let samples = self.samples(link);
        samples.iter().map(|rate| rate.get()).sum::<f64>() / samples.len() as f64
    }

    /// Time between changes of bandwidth.
    pub fn change_interval(&self) -> Time {
        self.change_interval
    }

    /// Correlation of a bandwidth with the previous one, from 0 to 1.
    pub fn correlation(&self) -> f64 {
        self.correlation
    }

    /// Whether the bandwidth of any link changes.
    pub fn is_variable(&self) -> bool {
        self.links.iter().any(|samples| samples.first() != samples.last())
    }

    /// A port rate at which ports limit no transfer between regions: above the sum of the links out of any region, and of
    /// those into it.
    pub(crate) fn unlimited_port_rate(&self) -> Rate {
        let fastest = |link: u32| self.links[link as usize].last().map_or(0.0, |rate| rate.get());
        let all: f64 = (0..self.links.len() as u32).map(fastest).sum();
        Rate::from_valid(2.0 * all)
    }

    /// The region of a port. The `ports` ports are divided evenly among the regions, in contiguous ranges.
    pub fn region_of_port(&self, port: u32, ports: u32) -> usize {
        (u64::from(port) * self.regions.len() as u64 / u64::from(ports)) as usize
    }

    /// The past measurements.
    pub fn bandwidth_history(&self) -> BandwidthHistory {
        BandwidthHistory::new(self.regions.len(), self.links.iter().map(|samples| samples.iter().copied()))
    }
}

/// The number of the link between two regions, if `regions` regions exist.
fn link_number(regions: usize, from: usize, to: usize) -> Option<u32> {
    let place = match to {
        to if to < from => to,
        to if to > from => to - 1,
        _ => return None,
    };
    Some((from * (regions - 1) + place) as u32)
}

/// The ends of a link, if `regions` regions exist.
fn ends_of_link(regions: usize, link: u32) -> (usize, usize) {
    let others = regions - 1;
    let (from, place) = (link as usize / others, link as usize % others);
    (from, if place < from { place } else { place + 1 })
}

/// The [`LinkHistory`] of the links between regions.
#[derive(Debug, Clone, PartialEq)]
pub struct BandwidthHistory {
    regions: usize,
    links: LinkHistory,
}

impl Deref for BandwidthHistory {
    type Target = LinkHistory;

    fn deref(&self) -> &LinkHistory {
        &self.links
    }
}

impl BandwidthHistory {
    /// The measurements of the links between `regions` regions, by number of the link; rising, and at least one of each.
    pub fn new(regions: usize, links: impl Iterator<Item = impl Iterator<Item = Rate>>) -> BandwidthHistory {
        let links = links.map(|samples| samples.map(|rate| 1.0 / rate.get()).collect());
        BandwidthHistory { regions, links: LinkHistory::new(links.collect()) }
    }

    /// Number of regions.
    pub fn regions(&self) -> usize {
        self.regions
    }

    /// The link from one region to another; `None` from a region to itself.
    pub fn link_between(&self, from: usize, to: usize) -> Option<u32> {
        link_number(self.regions, from, to)
    }

    /// The sending and the receiving region of a link.
    pub fn link_ends(&self, link: u32) -> (usize, usize) {
        ends_of_link(self.regions, link)
    }
}
