//! What services are entitled to, checked.

/// Why services, links or classes were refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HierarchyError {
    /// A weight outside of what is sensible.
    #[error("service {service}: weight {weight}: expected a number from 1e-9 to 1e9{}", if *zero { ", or 0" } else { "" })]
    Weight {
        /// The service's number.
        service: usize,
        /// What was given.
        weight: f64,
        /// Whether 0 would be accepted.
        zero: bool,
    },
    /// Lists that belong together have different lengths.
    #[error("{what}: {given} entries: expected {expected}, one for each service")]
    Length {
        /// The list.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The number of services.
        expected: usize,
    },
    /// A capacity that is none.
    #[error("link {link}: capacity {capacity}: expected a number from 0 to 1e30")]
    Capacity {
        /// The link's number.
        link: usize,
        /// What was given.
        capacity: f64,
    },
    /// A guarantee that is none.
    #[error("link {link}, service {service}: guarantee {rate}: expected a finite number, not negative")]
    Guarantee {
        /// The link's number.
        link: u32,
        /// The service's number.
        service: usize,
        /// What was given.
        rate: f64,
    },
    /// The same link and service have two guarantees.
    #[error("link {link}, service {service}: a second guarantee: expected one")]
    SecondGuarantee {
        /// The link's number.
        link: u32,
        /// The service's number.
        service: usize,
    },
    /// More is guaranteed than there is.
    #[error(
        "link {link}: guarantees of {guaranteed} B/s together: expected at most its capacity of {capacity} B/s"
    )]
    Overbooked {
        /// The link's number.
        link: usize,
        /// Their sum.
        guaranteed: f64,
        /// What the link carries.
        capacity: f64,
    },
    /// No such service.
    #[error("service {service}: expected a number below {services}")]
    Service {
        /// What was given.
        service: usize,
        /// How many there are.
        services: usize,
    },
    /// No such link.
    #[error("link {link}: expected a number below {links}")]
    Link {
        /// What was given.
        link: u32,
        /// How many there are.
        links: usize,
    },
    /// A path that crosses nothing.
    #[error("path without links: expected one or more")]
    NoLinks,
    /// A path that goes in a circle.
    #[error("path with link {link} twice: expected each link once")]
    Twice {
        /// The link's number.
        link: u32,
    },
    /// A demand that is none.
    #[error("demand {demand}: expected a number that is not negative, or infinity")]
    Demand {
        /// What was given.
        demand: f64,
    },
    /// More than numbers are made for.
    #[error("too many {what}: expected at most {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: u32,
    },
}

/// Bytes per second; far beyond any link, and sums of any number of links are finite.
const MAX_CAPACITY: f64 = 1e30;

/// A service's guarantee on one link, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guarantee {
    /// The link's number.
    pub link: u32,
    /// The service's number.
    pub service: usize,
    /// In bytes per second.
    pub rate: f64,
}

/// How links are shared between services: guarantees first, what is left over by excess weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    excess: Vec<f64>,
    /// Of each service, the part of every link that is guaranteed, out of 1, where `guarantees` has nothing of the link.
    parts: Option<Vec<f64>>,
    /// Sorted by link and service.
    guarantees: Vec<Guarantee>,
}

impl Shares {
    /// By weights alone: what a service does not use is divided by the same weights.
    ///
    /// # Errors
    /// A weight outside of 1e-9 to 1e9.
    pub fn weighted(weights: &[f64]) -> Result<Shares, HierarchyError> {
        check_weights(weights, false)?;
        Ok(Shares { excess: weights.to_vec(), parts: None, guarantees: Vec::new() })
    }

    /// Fig. 5: each service is guaranteed its weight's part of every link, out of all services, and what is left over of
    /// that is divided by excess weights. A service with excess weight 0 gets none of it.
    ///
    /// # Errors
    /// A weight outside of 1e-9 to 1e9, or 0 for excess; as many excess weights as weights are expected.
    pub fn with_excess(weights: &[f64], excess: &[f64]) -> Result<Shares, HierarchyError> {
        check_weights(weights, false)?;
        check_weights(excess, true)?;
        if excess.len() != weights.len() {
            let (given, expected) = (excess.len(), weights.len());
            return Err(HierarchyError::Length { what: "excess weights", given, expected });
        }
        let all: f64 = weights.iter().sum();
        let parts = weights.iter().map(|weight| weight / all).collect();
        Ok(Shares { excess: excess.to_vec(), parts: Some(parts), guarantees: Vec::new() })
    }

    /// Rates guaranteed on single links; where none is, zero. What is left over is divided by excess weights.
    /// Whether the links can carry them is checked when the links are known.
    ///
    /// # Errors
    /// An excess weight that is neither 0 nor from 1e-9 to 1e9; an unknown service; a rate that is negative or not
    /// finite; two guarantees for one link and service.
    pub fn with_guarantees(guarantees: Vec<Guarantee>, excess: &[f64]) -> Result<Shares, HierarchyError> {
        check_weights(excess, true)?;
        Shares { excess: excess.to_vec(), parts: None, guarantees: Vec::new() }.guaranteeing(guarantees)
    }

    /// The same, but on every link that is named here, these rates are all that is guaranteed.
    ///
    /// # Errors
    /// As of [`Shares::with_guarantees`].
    pub fn guaranteeing(self, mut guarantees: Vec<Guarantee>) -> Result<Shares, HierarchyError> {
        let Shares { excess, parts, .. } = self;
        for &Guarantee { link, service, rate } in &guarantees {
            if service >= excess.len() {
                return Err(HierarchyError::Service { service, services: excess.len() });
            }
            if !(rate >= 0.0 && rate.is_finite()) {
                return Err(HierarchyError::Guarantee { link, service, rate });
            }
        }
        guarantees.sort_unstable_by_key(|g| (g.link, g.service));
        for pair in guarantees.windows(2) {
            if (pair[0].link, pair[0].service) == (pair[1].link, pair[1].service) {
                let Guarantee { link, service, .. } = pair[0];
                return Err(HierarchyError::SecondGuarantee { link, service });
            }
        }
        Ok(Shares { excess, parts, guarantees })
    }

    /// How many services there are.
    pub fn services(&self) -> usize {
        self.excess.len()
    }

    pub(super) fn excess(&self, service: usize) -> f64 {
        self.excess[service]
    }

    /// Whether anything is guaranteed to anybody.
    pub(super) fn guarantees_any(&self) -> bool {
        self.parts.is_some() || !self.guarantees.is_empty()
    }

    /// Computes a link's guarantees from its new capacity. Rates that add up to more than the capacity are all reduced by
    /// one factor; guarantees that are parts of the link change with its capacity in any case.
    pub(super) fn set_row(&self, link: usize, capacity: f64, row: &mut [f64]) -> Result<(), HierarchyError> {
        check_capacity(link, capacity)?;
        let rates = self.rates_on(link);
        if rates.is_empty() {
            let parts = self.parts.iter().flatten();
            row.iter_mut().zip(parts).for_each(|(guarantee, part)| *guarantee = part * capacity);
            return Ok(());
        }
        let sum: f64 = rates.iter().map(|guarantee| guarantee.rate).sum();
        let factor = if sum > capacity { capacity / sum } else { 1.0 };
        rates.iter().for_each(|guarantee| row[guarantee.service] = guarantee.rate * factor);
        Ok(())
    }

    /// All guarantees by link and service, once the links are known.
    pub(super) fn table(&self, capacities: &[f64]) -> Result<Vec<f64>, HierarchyError> {
        for (link, &capacity) in capacities.iter().enumerate() {
            check_capacity(link, capacity)?;
        }
        let services = self.services();
        let mut table: Vec<f64> = match &self.parts {
            Some(parts) => capacities.iter().flat_map(|c| parts.iter().map(move |part| part * c)).collect(),
            None => vec![0.0; capacities.len() * services],
        };
        for of_link in self.guarantees.chunk_by(|a, b| a.link == b.link) {
            let (link, links) = (of_link[0].link, capacities.len());
            let at = link as usize;
            if at >= links {
                return Err(HierarchyError::Link { link, links });
            }
            let row = &mut table[at * services..(at + 1) * services];
            row.fill(0.0);
            of_link.iter().for_each(|guarantee| row[guarantee.service] = guarantee.rate);
            check_booked(at, capacities[at], row)?;
        }
        Ok(table)
    }

    /// The rates that are guaranteed on a link.
    fn rates_on(&self, link: usize) -> &[Guarantee] {
        let from = self.guarantees.partition_point(|guarantee| (guarantee.link as usize) < link);
        let until = self.guarantees.partition_point(|guarantee| guarantee.link as usize <= link);
        &self.guarantees[from..until]
    }
}

fn check_capacity(link: usize, capacity: f64) -> Result<(), HierarchyError> {
    if (0.0..=MAX_CAPACITY).contains(&capacity) {
        Ok(())
    } else {
        Err(HierarchyError::Capacity { link, capacity })
    }
}

fn check_booked(link: usize, capacity: f64, guarantees: &[f64]) -> Result<(), HierarchyError> {
    let guaranteed: f64 = guarantees.iter().sum();
    // Parts that were computed may add up to a rounding error more.
    if guaranteed > capacity * (1.0 + 1e-12) {
        return Err(HierarchyError::Overbooked { link, guaranteed, capacity });
    }
    Ok(())
}

fn check_weights(weights: &[f64], zero: bool) -> Result<(), HierarchyError> {
    for (service, &weight) in weights.iter().enumerate() {
        if !((1e-9..=1e9).contains(&weight) || (zero && weight == 0.0)) {
            return Err(HierarchyError::Weight { service, weight, zero });
        }
    }
    Ok(())
}
