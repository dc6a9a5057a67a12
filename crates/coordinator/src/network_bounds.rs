//! Checks of services and their bandwidths against the network: whether links carry all minima (admission), and whether rates of all
//! services can be computed.
//!
//! All links guarantee the same minima, so the narrowest link decides whether they can.

use std::collections::BTreeMap;

use weir_core::model::LinkBudget;
use weir_core::rounding;
use weir_core::units::Rate;

use crate::control_plane::{DivisionSize, NetworkLinks};
use crate::service_bandwidth::{BandwidthError, ServiceBandwidth};

/// What a network can hold.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkBounds {
    narrowest_link: Option<NarrowestLink>,
    division_size: DivisionSize,
}

/// The link of which services divide the least.
#[derive(Debug, Clone, PartialEq)]
struct NarrowestLink {
    /// The link and its rate.
    name: String,
    /// What services divide of it.
    services: Rate,
}

impl NetworkBounds {
    /// The bounds of the links of hosts, which have these names, and of the link groups between switches that hosts can fill.
    /// `divides_links`: whether an allocator divides these links.
    pub fn new<'a>(
        links: &NetworkLinks,
        host_names: impl IntoIterator<Item = &'a str>,
        budget: &LinkBudget,
        divides_links: bool,
    ) -> NetworkBounds {
        let trunks = links.contended_trunks();
        let hosts = links.host_links().len();
        let divided_links = if divides_links { 2 * hosts + trunks.len() } else { 0 };
        // A free slot has a rate of zero.
        let named_links =
            links.host_links().iter().zip(host_names).filter(|(link, _)| link.send > Rate::ZERO);
        let host_links = named_links.flat_map(|(link, name)| {
            [(link.send, format!("the link out of {name}")), (link.recv, format!("the link into {name}"))]
        });
        let trunks = trunks.into_iter().map(|(name, rate)| (rate, format!("the links {name}")));
        let narrowest =
            host_links.chain(trunks).min_by(|(one, _), (other, _)| one.get().total_cmp(&other.get()));
        let narrowest_link = narrowest.map(|(rate, name)| NarrowestLink {
            name: format!("{name} ({rate})"),
            services: budget.services(rate),
        });
        NetworkBounds { narrowest_link, division_size: DivisionSize::new(hosts, divided_links) }
    }

    /// Checks that the minima of all services fit into every link, and that rates can be computed for this number of services.
    ///
    /// # Errors
    /// [`BandwidthError::LinkExceeded`] or [`BandwidthError::TooManyServices`].
    pub fn check(
        &self,
        services: usize,
        bandwidths: &BTreeMap<String, ServiceBandwidth>,
    ) -> Result<(), BandwidthError> {
        self.division_size.check(services, bandwidths.values())?;
        self.narrowest_link.as_ref().map_or(Ok(()), |link| link.check(bandwidths))
    }
}

impl NarrowestLink {
    /// Checks that the minima of all services fit into every link.
    fn check(&self, bandwidths: &BTreeMap<String, ServiceBandwidth>) -> Result<(), BandwidthError> {
        let minima: Vec<(&str, Rate)> = bandwidths
            .iter()
            .filter_map(|(name, bandwidth)| Some((&**name, Rate::new(bandwidth.link_min())?)))
            .filter(|(_, min)| *min > Rate::ZERO)
            .collect();
        let sum: f64 = minima.iter().map(|(_, min)| min.get()).sum();
        if sum <= self.services.get() * (1.0 + rounding::CAPACITY) {
            return Ok(());
        }
        let minima: Vec<String> = minima.iter().map(|(name, min)| format!("{name} {min}")).collect();
        Err(BandwidthError::LinkExceeded {
            sum: Rate::new(sum).unwrap_or(Rate::ZERO),
            minima: minima.join(", "),
            services: self.services,
            link: self.name.clone(),
        })
    }
}
