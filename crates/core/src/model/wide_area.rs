//! A wide area: regions, and a link from each of them to each other whose bandwidth changes by chance.
//!
//! Siphon, ATC '18, section 3.1: links between datacenters are short, and what they carry is unpredictable; what a region
//! itself sends and receives is not short (the "dumb bell"). So a link is all that two regions have between them, each way
//! on its own, and nothing else limits a transfer.
//!
//! [`WideArea`] is how the world is, and drivers draw from it what links carry over time. [`Past`] is what a policy is
//! given: measurements of the past, and nothing of now or later.

use std::collections::BTreeSet;

use crate::units::{Rate, Time};

/// Regions, and what the links between them carry.
#[derive(Debug, Clone, PartialEq)]
pub struct WideArea {
    regions: Vec<String>,
    /// In the order of links: from the first region to all others, from the second, and so on. Samples in rising order.
    links: Vec<Vec<Rate>>,
    holds: Time,
    correlation: f64,
}

/// A link as it is described: its ends, and measurements of its bandwidth.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The region that sends, as a place in the list of regions.
    pub from: usize,
    /// The region that receives.
    pub to: usize,
    /// At least one; from [`WideArea::SLOWEST`] to [`WideArea::FASTEST`].
    pub samples: Vec<Rate>,
}

/// What is wrong with a wide area. Links are named by their place in the list that was given.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WideAreaError {
    /// Too few regions, or too many.
    #[error("{0} regions: expected 2 to {most}", most = WideArea::MAX_REGIONS)]
    Regions(usize),
    /// A name that is none.
    #[error("region `{0}`: expected a name of 1 to 64 characters, none blank or a control character")]
    Name(String),
    /// Two regions of one name.
    #[error("region `{0}` is there twice: expected distinct names")]
    Twice(String),
    /// A link that names a region that is not there.
    #[error("link {0} names a region that is not there")]
    Unknown(usize),
    /// A link from a region to itself.
    #[error("link {0} leads from a region to itself: expected two regions, for nothing inside one is short")]
    Loop(usize),
    /// A second link from one region to another.
    #[error("link {0} is there twice: expected one from a region to another")]
    Again(usize),
    /// Nobody measured a link.
    #[error("link {0} has no samples: expected at least one")]
    Empty(usize),
    /// A sample out of bounds.
    #[error("sample {sample} of link {link} is {rate}: expected 1bit to 8000Tbit")]
    Sample {
        /// The link.
        link: usize,
        /// Which of its samples, from 0.
        sample: usize,
        /// The sample.
        rate: Rate,
    },
    /// A pair of regions without a link.
    #[error("no link leads from `{from}` to `{to}`: expected one from each region to each other")]
    Disconnected {
        /// The region that would send.
        from: String,
        /// The region that would receive.
        to: String,
    },
    /// How long a bandwidth holds.
    #[error("a bandwidth holds for {0}: expected 1ms to 1e6s")]
    Holds(Time),
    /// How much a bandwidth is like the one before.
    #[error("a correlation of {0}: expected a number from 0 up to, but not including, 1")]
    Correlation(f64),
}

impl WideArea {
    /// The most regions.
    pub const MAX_REGIONS: usize = 32;
    /// The least bandwidth: one bit a second.
    pub const SLOWEST: Rate = Rate::of(0.125);
    /// The greatest bandwidth.
    pub const FASTEST: Rate = Rate::of(1e15);

    /// A wide area of these regions, with a link from each to each other. A bandwidth holds for `holds`; then all links have another,
    /// which is as likely to be any of their samples. `correlation` says how much it is like the one before: 0 is not at all.
    ///
    /// # Errors
    /// The first thing that does not hold together.
    pub fn new(
        regions: Vec<String>,
        measured: Vec<Measured>,
        holds: Time,
        correlation: f64,
    ) -> Result<WideArea, WideAreaError> {
        check_names(&regions)?;
        if !(1e-3..=1e6).contains(&holds.get()) {
            return Err(WideAreaError::Holds(holds));
        }
        if !(0.0..1.0).contains(&correlation) {
            return Err(WideAreaError::Correlation(correlation));
        }
        let count = regions.len();
        let mut area = WideArea { regions, links: vec![Vec::new(); count * (count - 1)], holds, correlation };
        for (place, link) in measured.into_iter().enumerate() {
            if link.from >= count || link.to >= count {
                return Err(WideAreaError::Unknown(place));
            }
            let number = area.link(link.from, link.to).ok_or(WideAreaError::Loop(place))?;
            if link.samples.is_empty() {
                return Err(WideAreaError::Empty(place));
            }
            let wrong =
                |rate: &Rate| !(WideArea::SLOWEST.get()..=WideArea::FASTEST.get()).contains(&rate.get());
            if let Some(sample) = link.samples.iter().position(wrong) {
                return Err(WideAreaError::Sample { link: place, sample, rate: link.samples[sample] });
            }
            let slot = &mut area.links[number as usize];
            if !slot.is_empty() {
                return Err(WideAreaError::Again(place));
            }
            *slot = link.samples;
            slot.sort_unstable_by(|a, b| a.get().total_cmp(&b.get()));
        }
        match area.links.iter().position(Vec::is_empty) {
            None => Ok(area),
            Some(link) => {
                let (from, to) = area.ends(link as u32);
                let name = |region: usize| area.regions[region].clone();
                Err(WideAreaError::Disconnected { from: name(from), to: name(to) })
            }
        }
    }

    /// The names of the regions.
    pub fn regions(&self) -> &[String] {
        &self.regions
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// The link from one region to another; none from a region to itself.
    pub fn link(&self, from: usize, to: usize) -> Option<u32> {
        between(self.regions.len(), from, to)
    }

    /// The regions that a link leads from and to.
    pub fn ends(&self, link: u32) -> (usize, usize) {
        ends(self.regions.len(), link)
    }

    /// The samples of a link, in rising order.
    pub fn samples(&self, link: u32) -> &[Rate] {
        &self.links[link as usize]
    }

    /// The mean of a link's samples, in bytes per second.
    pub fn mean(&self, link: u32) -> f64 {
        let samples = self.samples(link);
        samples.iter().map(|rate| rate.get()).sum::<f64>() / samples.len() as f64
    }

    /// How long a bandwidth holds.
    pub fn holds(&self) -> Time {
        self.holds
    }

    /// How much a bandwidth is like the one before, from 0 to 1.
    pub fn correlation(&self) -> f64 {
        self.correlation
    }

    /// Whether some link's bandwidth changes.
    pub fn changes(&self) -> bool {
        self.links.iter().any(|samples| samples.first() != samples.last())
    }

    /// The region of a port, if `ports` ports are spread evenly over the regions, neighbours together.
    pub fn region(&self, port: u32, ports: u32) -> usize {
        (u64::from(port) * self.regions.len() as u64 / u64::from(ports)) as usize
    }

    /// What was measured so far.
    pub fn past(&self) -> Past {
        let regions = self.regions.len();
        let links = self.links.iter().map(|samples| samples.iter().map(|rate| 1.0 / rate.get()).collect());
        Past { regions, links: links.collect() }
    }
}

/// The number of the link from one of so many regions to another.
fn between(regions: usize, from: usize, to: usize) -> Option<u32> {
    let place = match to {
        to if to < from => to,
        to if to > from => to - 1,
        _ => return None,
    };
    Some((from * (regions - 1) + place) as u32)
}

/// The ends of a link between two of so many regions.
fn ends(regions: usize, link: u32) -> (usize, usize) {
    let others = regions - 1;
    let (from, place) = (link as usize / others, link as usize % others);
    (from, if place < from { place } else { place + 1 })
}

fn check_names(regions: &[String]) -> Result<(), WideAreaError> {
    if !(2..=WideArea::MAX_REGIONS).contains(&regions.len()) {
        return Err(WideAreaError::Regions(regions.len()));
    }
    let mut seen = BTreeSet::new();
    for name in regions {
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if !(1..=64).contains(&name.chars().count()) || name.contains(odd) {
            return Err(WideAreaError::Name(name.clone()));
        }
        if !seen.insert(name) {
            return Err(WideAreaError::Twice(name.clone()));
        }
    }
    Ok(())
}

/// What a policy knows of the links: how long a byte took on each of them when it was measured. What links carry now is not in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    regions: usize,
    /// Seconds a byte, falling; at least one for each link, all above zero and finite.
    links: Vec<Vec<f64>>,
}

impl Past {
    /// How many regions there are.
    pub fn regions(&self) -> usize {
        self.regions
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// The link from one region to another; none from a region to itself.
    pub fn link(&self, from: usize, to: usize) -> Option<u32> {
        between(self.regions, from, to)
    }

    /// The regions that a link leads from and to.
    pub fn ends(&self, link: u32) -> (usize, usize) {
        ends(self.regions, link)
    }

    /// How long a byte took on a link each time that it was measured, in seconds, in falling order.
    pub fn slowness(&self, link: u32) -> &[f64] {
        &self.links[link as usize]
    }

    /// How long a byte took on a link at the median, in seconds; the slower of two in the middle.
    pub fn median(&self, link: u32) -> f64 {
        let slowness = self.slowness(link);
        slowness[(slowness.len() - 1) / 2]
    }
}
