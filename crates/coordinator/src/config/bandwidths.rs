//! Checks services and their minimum and maximum bandwidths against the rest of the configuration.

use std::collections::BTreeMap;

use weir_core::model::ServiceNames;
use weir_core::netshare::MEASUREMENT_PERIOD;
use weir_fields::{FileError, TableFields};

use super::QueueAssignment;
use crate::control_plane::{NetworkLinks, Settings};
use crate::network_bounds::NetworkBounds;
use crate::service_bandwidth::ServiceBandwidth;
use crate::service_queues::ServiceQueues;

/// Checks that queues and rates can hold the bandwidths of services, that all links carry the minima, and that rates can be computed for
/// all services. `links` computes the network.
pub(super) fn check_bandwidths<'a>(
    fields: &TableFields<'_>,
    (names, bandwidths): (&ServiceNames, &BTreeMap<String, ServiceBandwidth>),
    (queues, has_allocator): (QueueAssignment, bool),
    settings: &Settings,
    host_names: impl IntoIterator<Item = &'a str>,
    links: impl FnOnce() -> NetworkLinks,
) -> Result<(), FileError> {
    let refused = |name: &str, found: &str, expected: &str| {
        Err(fields.key_error("service", &format!("{name}: {found}"), expected))
    };
    if queues != QueueAssignment::Services {
        return match bandwidths.keys().next() {
            Some(name) => {
                refused(name, "bandwidth", "none, or `queues = \"services\"`, which bandwidths require")
            }
            None => Ok(()),
        };
    }
    let with_max = bandwidths.iter().find(|(_, bandwidth)| bandwidth.has_max());
    if let Some((name, _)) = with_max.filter(|_| settings.interval > MEASUREMENT_PERIOD.get()) {
        return refused(name, "maximum bandwidth", "none, or an `interval` of at most 50ms");
    }
    check_queues(fields, names, bandwidths)?;
    if bandwidths.is_empty() && !has_allocator {
        return Ok(());
    }
    let bounds = NetworkBounds::new(&links(), host_names, &settings.budget, has_allocator);
    bounds.check(names.services(), bandwidths).map_err(|error| {
        let (found, expected) = error.found_and_expected();
        fields.key_error("service", &found, &expected)
    })
}

/// Checks that each service with a minimum or maximum has a separate queue.
fn check_queues(
    fields: &TableFields<'_>,
    names: &ServiceNames,
    bandwidths: &BTreeMap<String, ServiceBandwidth>,
) -> Result<(), FileError> {
    let Err(required) = ServiceQueues::assign(names, |name| bandwidths.contains_key(name)) else {
        return Ok(());
    };
    let found = format!("{} services with a minimum or maximum", required.len());
    let expected = format!("at most 62, since each needs a separate queue; found {}", required.join(", "));
    Err(fields.key_error("service", &found, &expected))
}
