//! Weights, excess weights and guarantees of services, validated.

/// An invalid service, link or class.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HierarchyError {
    /// A weight is out of range.
    #[error("service {service}: weight {weight}: expected a number from 1e-9 to 1e9{}", if *zero { ", or 0" } else { "" })]
    Weight {
        /// The service's number.
        service: usize,
        /// The weight.
        weight: f64,
        /// Whether 0 is allowed.
        zero: bool,
    },
    /// A list does not have one entry for each service.
    #[error("{what}: {given} entries: expected {expected}, one for each service")]
    Length {
        /// The list.
        what: &'static str,
        /// Its length.
        given: usize,
        /// Number of services.
        expected: usize,
    },
    /// A capacity is out of range.
    #[error("link {link}: capacity {capacity}: expected a number from 0 to 1e30")]
    Capacity {
        /// The link's number.
        link: usize,
        /// The capacity, in bytes per second.
        capacity: f64,
    },
    /// A guarantee is negative or not finite.
    #[error("link {link}, service {service}: guarantee {rate}: expected a finite number, not negative")]
    Guarantee {
        /// The link's number.
        link: u32,
        /// The service's number.
        service: usize,
        /// The guarantee, in bytes per second.
        rate: f64,
    },
    /// A link and service have two guarantees.
    #[error("link {link}, service {service}: a second guarantee: expected one")]
    SecondGuarantee {
        /// The link's number.
        link: u32,
        /// The service's number.
        service: usize,
    },
    /// Guarantees on a link exceed its capacity.
    #[error(
        "link {link}: guarantees of {guaranteed} B/s together: expected at most its capacity of {capacity} B/s"
    )]
    Overbooked {
        /// The link's number.
        link: usize,
        /// The sum of the guarantees, in bytes per second.
        guaranteed: f64,
        /// The capacity, in bytes per second.
        capacity: f64,
    },
    /// Unknown service.
    #[error("service {service}: expected a number below {services}")]
    Service {
        /// The number given.
        service: usize,
        /// Number of services.
        services: usize,
    },
    /// Unknown link.
    #[error("link {link}: expected a number below {links}")]
    Link {
        /// The number given.
        link: u32,
        /// Number of links.
        links: usize,
    },
    /// A path has no links.
    #[error("path without links: expected one or more")]
    NoLinks,
    /// A path crosses a link twice.
    #[error("path with link {link} twice: expected each link once")]
    Twice {
        /// The link's number.
        link: u32,
    },
    /// A demand is negative or NaN.
    #[error("demand {demand}: expected a number that is not negative, or infinity")]
    Demand {
        /// The demand, in bytes per second.
        demand: f64,
    },
    /// A count exceeds the range of the numbers that represent it.
    #[error("too many {what}: expected at most {most}")]
    TooMany {
        /// The counted objects.
        what: &'static str,
        /// The limit.
        most: u32,
    },
}

/// The maximum capacity, in bytes per second: far above any link, and sums over any number of links are finite.
const MAX_CAPACITY: f64 = 1e30;

/// A service's guarantee on one link, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guarantee {
    /// The link's number.
    pub link: u32,
    /// The service's number.
    pub service: usize,
    /// The rate, in bytes per second.
    pub rate: f64,
}

/// The rule by which services share links: guarantees first, then the unused bandwidth by excess weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    excess: Vec<f64>,
    /// The guaranteed fraction, 0 to 1, of each service on every link that `guarantees` does not name.
    parts: Option<Vec<f64>>,
    /// Sorted by link and service.
    guarantees: Vec<Guarantee>,
}

impl Shares {
    /// Shares by weights alone: bandwidth that a service does not use is divided by the same weights.
    ///
    /// # Errors
    /// [`HierarchyError::Weight`] for a weight outside 1e-9 to 1e9.
    pub fn weighted(weights: &[f64]) -> Result<Shares, HierarchyError> {
        check_weights(weights, false)?;
        Ok(Shares { excess: weights.to_vec(), parts: None, guarantees: Vec::new() })
    }

    /// Fig. 5: each service is guaranteed the fraction of every link that is its weight divided by the sum of all weights.
    /// Unused bandwidth is divided by excess weights; a service with excess weight 0 gets none.
    ///
    /// # Errors
    /// [`HierarchyError::Weight`] for a weight outside 1e-9 to 1e9; an excess weight can also be 0.
    /// [`HierarchyError::Length`] if the lists differ in length.
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

    /// Guaranteed rates on single links, 0 elsewhere. Unused bandwidth is divided by excess weights. [`super::Hierarchy`]
    /// checks the rates against the capacities.
    ///
    /// # Errors
    /// [`HierarchyError::Weight`] for an excess weight that is neither 0 nor from 1e-9 to 1e9, and the errors of
    /// [`Shares::guaranteeing`].
    pub fn with_guarantees(guarantees: Vec<Guarantee>, excess: &[f64]) -> Result<Shares, HierarchyError> {
        check_weights(excess, true)?;
        Shares { excess: excess.to_vec(), parts: None, guarantees: Vec::new() }.guaranteeing(guarantees)
    }

    /// Replaces the guarantees on every link that `guarantees` names; the rates of services without an entry are 0.
    ///
    /// # Errors
    /// [`HierarchyError::Service`] for an unknown service; [`HierarchyError::Guarantee`] for a rate that is negative or not
    /// finite; [`HierarchyError::SecondGuarantee`] for two guarantees of one link and service.
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

    /// Number of services.
    pub fn services(&self) -> usize {
        self.excess.len()
    }

    pub(super) fn excess(&self, service: usize) -> f64 {
        self.excess[service]
    }

    /// Whether any service has a guarantee.
    pub(super) fn guarantees_any(&self) -> bool {
        self.parts.is_some() || !self.guarantees.is_empty()
    }

    /// Computes a link's guarantees for a new capacity. Guaranteed rates that sum to more than the capacity are all reduced
    /// by one factor; guarantees that are fractions of the link change with its capacity in any case.
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

    /// The guarantees by link and service, for links of these capacities.
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

    /// The guaranteed rates on a link.
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
    // Computed fractions can sum to slightly more than the capacity.
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
