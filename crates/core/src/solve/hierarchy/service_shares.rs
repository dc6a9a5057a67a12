//! Weights, excess weights and guarantees of services, validated.

use crate::rounding;

/// An invalid service, link or class.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HierarchyError {
    /// A weight is out of range.
    #[error(
        "service {service}: weight {weight} is out of range; expected a number from 1e-9 to 1e9{}",
        if *zero_allowed { ", or 0" } else { "" }
    )]
    InvalidWeight {
        /// The service's number.
        service: usize,
        /// The weight.
        weight: f64,
        /// Whether 0 is allowed.
        zero_allowed: bool,
    },
    /// A list does not have one entry for each service.
    #[error("{list}: {len} entries; expected {expected}, one for each service")]
    WrongLength {
        /// The list.
        list: &'static str,
        /// Its length.
        len: usize,
        /// Number of services.
        expected: usize,
    },
    /// A capacity is out of range.
    #[error("link {link}: capacity {capacity} B/s is out of range; expected a number from 0 to 1e30")]
    InvalidCapacity {
        /// The link's number.
        link: usize,
        /// The capacity, in bytes per second.
        capacity: f64,
    },
    /// A guarantee is negative or not finite.
    #[error(
        "link {link}, service {service}: guarantee {rate} B/s is invalid; expected a finite number of 0 or more"
    )]
    InvalidGuarantee {
        /// The link's number.
        link: u32,
        /// The service's number.
        service: usize,
        /// The guarantee, in bytes per second.
        rate: f64,
    },
    /// A link and service have two guarantees.
    #[error("link {link}, service {service}: second guarantee; expected at most one")]
    DuplicateGuarantee {
        /// The link's number.
        link: u32,
        /// The service's number.
        service: usize,
    },
    /// Guarantees on a link exceed its capacity.
    #[error(
        "link {link}: guarantees sum to {guaranteed} B/s; expected at most the capacity of {capacity} B/s"
    )]
    GuaranteesExceedCapacity {
        /// The link's number.
        link: usize,
        /// The sum of the guarantees, in bytes per second.
        guaranteed: f64,
        /// The capacity, in bytes per second.
        capacity: f64,
    },
    /// Unknown service.
    #[error("service {service} does not exist; expected a number below {services}")]
    UnknownService {
        /// The number given.
        service: usize,
        /// Number of services.
        services: usize,
    },
    /// Unknown link.
    #[error("link {link} does not exist; expected a number below {links}")]
    UnknownLink {
        /// The number given.
        link: u32,
        /// Number of links.
        links: usize,
    },
    /// A path has no links.
    #[error("path has no links; expected one or more")]
    NoLinks,
    /// A path crosses a link twice.
    #[error("path crosses link {link} twice; expected each link once")]
    RepeatedLink {
        /// The link's number.
        link: u32,
    },
    /// A demand is negative or NaN.
    #[error("demand {demand} B/s is invalid; expected a number of 0 or more, or infinity")]
    InvalidDemand {
        /// The demand, in bytes per second.
        demand: f64,
    },
    /// A count exceeds the range of the numbers that represent it.
    #[error("too many {counted}; expected at most {max}")]
    TooMany {
        /// The counted objects.
        counted: &'static str,
        /// The limit.
        max: u32,
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
pub struct ServiceShares {
    excess_weights: Vec<f64>,
    /// The guaranteed fraction, 0 to 1, of each service on every link that `guarantees` does not name.
    guaranteed_fractions: Option<Vec<f64>>,
    /// Sorted by link and service.
    guarantees: Vec<Guarantee>,
}

impl ServiceShares {
    /// Shares by weights alone: bandwidth that a service does not use is divided by the same weights.
    ///
    /// # Errors
    /// [`HierarchyError::InvalidWeight`] for a weight outside 1e-9 to 1e9.
    pub fn weighted(weights: &[f64]) -> Result<ServiceShares, HierarchyError> {
        check_weights(weights, false)?;
        Ok(ServiceShares {
            excess_weights: weights.to_vec(),
            guaranteed_fractions: None,
            guarantees: Vec::new(),
        })
    }

    /// Fig. 5: each service is guaranteed the fraction of every link that is its weight divided by the sum of all weights.
    /// Unused bandwidth is divided by excess weights; a service with excess weight 0 gets none.
    ///
    /// # Errors
    /// [`HierarchyError::InvalidWeight`] for a weight outside 1e-9 to 1e9; an excess weight can also be 0.
    /// [`HierarchyError::WrongLength`] if the lists differ in length.
    pub fn with_excess(weights: &[f64], excess: &[f64]) -> Result<ServiceShares, HierarchyError> {
        check_weights(weights, false)?;
        check_weights(excess, true)?;
        if excess.len() != weights.len() {
            let (len, expected) = (excess.len(), weights.len());
            return Err(HierarchyError::WrongLength { list: "excess weights", len, expected });
        }
        let all: f64 = weights.iter().sum();
        let guaranteed_fractions = weights.iter().map(|weight| weight / all).collect();
        Ok(ServiceShares {
            excess_weights: excess.to_vec(),
            guaranteed_fractions: Some(guaranteed_fractions),
            guarantees: Vec::new(),
        })
    }

    /// Guaranteed rates on single links, 0 elsewhere. Unused bandwidth is divided by excess weights.
    /// [`super::HierarchicalMaxMin`] checks the rates against the capacities.
    ///
    /// # Errors
    /// [`HierarchyError::InvalidWeight`] for an excess weight that is neither 0 nor from 1e-9 to 1e9, and the errors of
    /// [`ServiceShares::with_link_guarantees`].
    pub fn with_guarantees(
        guarantees: Vec<Guarantee>,
        excess: &[f64],
    ) -> Result<ServiceShares, HierarchyError> {
        check_weights(excess, true)?;
        ServiceShares { excess_weights: excess.to_vec(), guaranteed_fractions: None, guarantees: Vec::new() }
            .with_link_guarantees(guarantees)
    }

    /// Replaces the guarantees on every link that `guarantees` names; the rates of services without an entry are 0.
    ///
    /// # Errors
    /// [`HierarchyError::UnknownService`] for an unknown service; [`HierarchyError::InvalidGuarantee`] for a rate that is
    /// negative or not finite; [`HierarchyError::DuplicateGuarantee`] for two guarantees of one link and service.
    pub fn with_link_guarantees(
        self,
        mut guarantees: Vec<Guarantee>,
    ) -> Result<ServiceShares, HierarchyError> {
        let ServiceShares { excess_weights, guaranteed_fractions, .. } = self;
        for &Guarantee { link, service, rate } in &guarantees {
            if service >= excess_weights.len() {
                return Err(HierarchyError::UnknownService { service, services: excess_weights.len() });
            }
            if !(rate >= 0.0 && rate.is_finite()) {
                return Err(HierarchyError::InvalidGuarantee { link, service, rate });
            }
        }
        guarantees.sort_unstable_by_key(|g| (g.link, g.service));
        for pair in guarantees.windows(2) {
            if (pair[0].link, pair[0].service) == (pair[1].link, pair[1].service) {
                let Guarantee { link, service, .. } = pair[0];
                return Err(HierarchyError::DuplicateGuarantee { link, service });
            }
        }
        Ok(ServiceShares { excess_weights, guaranteed_fractions, guarantees })
    }

    /// Number of services.
    pub fn service_count(&self) -> usize {
        self.excess_weights.len()
    }

    pub(super) fn excess_weight(&self, service: usize) -> f64 {
        self.excess_weights[service]
    }

    /// Whether any service has a guarantee.
    pub(super) fn has_guarantees(&self) -> bool {
        self.guaranteed_fractions.is_some() || !self.guarantees.is_empty()
    }

    /// Computes a link's guarantees for a new capacity. Guaranteed rates that sum to more than the capacity are all reduced
    /// by one factor; guarantees that are fractions of the link change with its capacity in any case.
    pub(super) fn update_link_guarantees(
        &self,
        link: usize,
        capacity: f64,
        row: &mut [f64],
    ) -> Result<(), HierarchyError> {
        check_capacity(link, capacity)?;
        let rates = self.guarantees_on(link);
        if rates.is_empty() {
            let fractions = self.guaranteed_fractions.iter().flatten();
            row.iter_mut().zip(fractions).for_each(|(guarantee, fraction)| *guarantee = fraction * capacity);
            return Ok(());
        }
        let sum: f64 = rates.iter().map(|guarantee| guarantee.rate).sum();
        let factor = if sum > capacity { capacity / sum } else { 1.0 };
        rates.iter().for_each(|guarantee| row[guarantee.service] = guarantee.rate * factor);
        Ok(())
    }

    /// The guarantees by link and service, for links of these capacities.
    pub(super) fn guarantee_table(&self, capacities: &[f64]) -> Result<Vec<f64>, HierarchyError> {
        for (link, &capacity) in capacities.iter().enumerate() {
            check_capacity(link, capacity)?;
        }
        let services = self.service_count();
        let mut table: Vec<f64> = match &self.guaranteed_fractions {
            Some(fractions) => {
                capacities.iter().flat_map(|c| fractions.iter().map(move |fraction| fraction * c)).collect()
            }
            None => vec![0.0; capacities.len() * services],
        };
        for link_guarantees in self.guarantees.chunk_by(|a, b| a.link == b.link) {
            let (link, links) = (link_guarantees[0].link, capacities.len());
            let at = link as usize;
            if at >= links {
                return Err(HierarchyError::UnknownLink { link, links });
            }
            let row = &mut table[at * services..(at + 1) * services];
            row.fill(0.0);
            link_guarantees.iter().for_each(|guarantee| row[guarantee.service] = guarantee.rate);
            check_guarantee_sum(at, capacities[at], row)?;
        }
        Ok(table)
    }

    /// The guaranteed rates on a link.
    fn guarantees_on(&self, link: usize) -> &[Guarantee] {
        let from = self.guarantees.partition_point(|guarantee| (guarantee.link as usize) < link);
        let until = self.guarantees.partition_point(|guarantee| guarantee.link as usize <= link);
        &self.guarantees[from..until]
    }
}

fn check_capacity(link: usize, capacity: f64) -> Result<(), HierarchyError> {
    if (0.0..=MAX_CAPACITY).contains(&capacity) {
        Ok(())
    } else {
        Err(HierarchyError::InvalidCapacity { link, capacity })
    }
}

fn check_guarantee_sum(link: usize, capacity: f64, guarantees: &[f64]) -> Result<(), HierarchyError> {
    let guaranteed: f64 = guarantees.iter().sum();
    // Computed fractions can sum to slightly more than the capacity.
    if guaranteed > capacity * (1.0 + rounding::PARTS) {
        return Err(HierarchyError::GuaranteesExceedCapacity { link, guaranteed, capacity });
    }
    Ok(())
}

fn check_weights(weights: &[f64], zero_allowed: bool) -> Result<(), HierarchyError> {
    for (service, &weight) in weights.iter().enumerate() {
        if !((1e-9..=1e9).contains(&weight) || (zero_allowed && weight == 0.0)) {
            return Err(HierarchyError::InvalidWeight { service, weight, zero_allowed });
        }
    }
    Ok(())
}
