//! Loads the bandwidths of services that clients have set. The configuration may have changed since then: bandwidths that queues, orders or
//! links can no longer hold are noted as unfit, and the configured ones apply.

use std::collections::BTreeMap;

use weir_core::netshare::MEASUREMENT_PERIOD;
use weir_proto::MAX_CLASSES;

use super::Override;
use super::unfit::UnfitRecords;
use crate::config::{Config, QueueAssignment};
use crate::network_bounds::NetworkBounds;
use crate::service_bandwidth::{BandwidthBody, BandwidthKey, ServiceBandwidth};
use crate::store::{Store, Table};

/// Key of the bandwidths of services that clients set in the store's [`Table::Settings`].
pub(super) const BANDWIDTHS_KEY: &str = "bandwidths";

/// The kind of the records.
const KIND: &str = "bandwidth of service";

/// The bandwidths of services, configured or set by a client.
///
/// # Errors
/// The store cannot be read, or the record is damaged.
pub(super) fn load_bandwidths(
    config: &Config,
    store: &Store,
    unfit: &mut UnfitRecords,
) -> Result<BTreeMap<String, ServiceBandwidth>, String> {
    let stored: Option<BTreeMap<String, Override<BandwidthBody>>> =
        store.get(Table::Settings, BANDWIDTHS_KEY).map_err(|error| error.to_string())?;
    let mut bandwidths = config.bandwidths.clone();
    // Queues of applications use no bandwidths.
    if config.queues != QueueAssignment::Services {
        return Ok(bandwidths);
    }
    let mut changed = BTreeMap::new();
    for (name, stored) in stored.unwrap_or_default() {
        let configured = config.bandwidths.get(&name).copied().unwrap_or_default();
        let body = stored.value_for((&configured).into());
        let bandwidth = ServiceBandwidth::try_from(&body).map_err(|error| {
            let reason = format!("service {name}: {error}");
            store.damaged_record(Table::Settings, BANDWIDTHS_KEY, reason).to_string()
        })?;
        // Services that the configuration no longer has use none.
        if bandwidth != configured && config.names.service_number(&name).is_some() {
            changed.insert(name, bandwidth);
        }
    }
    remove_unenforceable_bandwidths(config, &mut changed, unfit);
    bandwidths.extend(changed);
    bandwidths.retain(|_, bandwidth| !bandwidth.is_unset());
    if bandwidths == config.bandwidths || bandwidths.is_empty() {
        return Ok(bandwidths);
    }
    let names = config.hosts.iter().map(|host| &*host.name);
    let bounds =
        NetworkBounds::new(&config.network_links(), names, &config.settings.budget, config.allocator);
    match bounds.check(config.names.services(), &bandwidths) {
        Ok(()) => Ok(bandwidths),
        // Links, services, or other bandwidths of the configuration have changed.
        Err(error) => {
            unfit.note(KIND, "all", error);
            Ok(config.bandwidths.clone())
        }
    }
}

/// Removes the stored bandwidths that are invalid, or that orders or queues cannot hold.
fn remove_unenforceable_bandwidths(
    config: &Config,
    stored: &mut BTreeMap<String, ServiceBandwidth>,
    unfit: &mut UnfitRecords,
) {
    stored.retain(|service, bandwidth| {
        // An earlier version accepted it.
        let valid = bandwidth.check();
        if let Err(error) = &valid {
            unfit.note(KIND, service, error);
        }
        valid.is_ok()
    });
    if !config.can_limit_services() {
        for (service, bandwidth) in stored.iter_mut().filter(|(_, bandwidth)| bandwidth.has_max()) {
            let interval = config.settings.interval;
            let reason = format!("interval of {interval} s; expected at most {} s", MEASUREMENT_PERIOD.get());
            unfit.note(KIND, service, reason);
            bandwidth.set(BandwidthKey::Max, None);
            bandwidth.set(BandwidthKey::MaxPerHost, None);
        }
    }
    if config.names.services() <= MAX_CLASSES {
        return;
    }
    let mut free_queues = MAX_CLASSES - 1 - config.bandwidths.len();
    stored.retain(|service, bandwidth| {
        if bandwidth.is_unset() || config.bandwidths.contains_key(service) {
            return true;
        }
        if free_queues == 0 {
            let reason = "no separate queue is left for the service; expected at most 62 services with a minimum or maximum";
            unfit.note(KIND, service, reason);
            return false;
        }
        free_queues -= 1;
        true
    });
}
