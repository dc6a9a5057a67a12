//! Bounds the memory and time of a computation of limits, which grow with the number of links and maxima that flows cross, times the number
//! of services.

use super::service_flow::MAX_FLOWS;
use crate::service_bandwidth::{BandwidthError, ServiceBandwidth};

/// Maximum number of cells: links and maxima that flows can share, times services. At most 62 services fit on all networks of the maximum
/// size. A computation with all cells takes gigabytes, and seconds, for which orders wait.
const MAX_CELLS: usize = 1 << 23;

/// Maximum number of maxima that flows share: each flow crosses at most three, of the service and of both hosts, and a maximum that one
/// flow crosses is not part of the solver's network. There are at most [`MAX_FLOWS`] flows of connections, and as many of UDP.
const MAX_SHARED_MAXIMA: usize = 3 * (2 * MAX_FLOWS) / 2;

/// The network of a computation of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DivisionSize {
    hosts: usize,
    /// Number of links that the allocator divides; 0 without an allocator.
    links: usize,
}

impl DivisionSize {
    /// A network of this number of hosts, and of links that the allocator divides.
    pub fn new(hosts: usize, links: usize) -> DivisionSize {
        DivisionSize { hosts, links }
    }

    /// The number of links and maxima that flows can share.
    pub fn rows<'a>(&self, bandwidths: impl IntoIterator<Item = &'a ServiceBandwidth>) -> usize {
        let maxima = |bandwidth: &ServiceBandwidth| {
            usize::from(bandwidth.max.is_some()) + bandwidth.max_per_host.map_or(0, |_| 2 * self.hosts)
        };
        self.links + bandwidths.into_iter().map(maxima).sum::<usize>().min(MAX_SHARED_MAXIMA)
    }

    /// Checks that limits can be computed for this number of services, of which some have these bandwidths.
    ///
    /// # Errors
    /// [`BandwidthError::TooManyServices`].
    pub fn check<'a>(
        &self,
        services: usize,
        bandwidths: impl IntoIterator<Item = &'a ServiceBandwidth>,
    ) -> Result<(), BandwidthError> {
        let rows = self.rows(bandwidths);
        match MAX_CELLS.checked_div(rows) {
            Some(max_services) if services > max_services => {
                Err(BandwidthError::TooManyServices { services, rows, max_services })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::units::Rate;

    use super::*;

    const MAX_PER_HOST: ServiceBandwidth =
        ServiceBandwidth { min: None, max: None, min_per_host: None, max_per_host: Some(Rate::ZERO) };

    #[test]
    fn services_times_links_and_maxima_are_bounded() {
        let size = DivisionSize::new(1000, 2000);
        assert_eq!((size.check(4096, []), size.rows([])), (Ok(()), 2000));
        let both = ServiceBandwidth { max: Some(Rate::ZERO), ..MAX_PER_HOST };
        let services = (1 << 23) / 6001;
        assert_eq!(size.check(services, [&both, &MAX_PER_HOST]), Ok(()));
        let refused =
            BandwidthError::TooManyServices { services: services + 1, rows: 6001, max_services: services };
        assert_eq!(size.check(services + 1, [&both, &MAX_PER_HOST]), Err(refused));
        // Flows share no more maxima than this.
        assert_eq!(size.rows(&[MAX_PER_HOST; 62]), 2000 + 49_152);
        // Without an allocator and maxima, nothing is computed.
        assert_eq!(DivisionSize::new(10_000, 0).check(4096, []), Ok(()));
    }

    #[test]
    fn networks_of_the_maximum_size_have_room_for_the_services_of_all_queues_but_one() {
        use crate::config::{MAX_HOSTS, MAX_SWITCH_LINKS};
        let size = DivisionSize::new(MAX_HOSTS, 2 * MAX_HOSTS + MAX_SWITCH_LINKS);
        assert_eq!(size.check(62, &[MAX_PER_HOST; 62]), Ok(()));
    }
}
