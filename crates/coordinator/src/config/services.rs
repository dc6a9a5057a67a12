//! Reads the services with their applications, weights and bandwidths.

use std::collections::BTreeMap;

use weir_core::model::ServiceNames;
use weir_fields::{FileError, TableFields, Value};
use weir_trace::{MAX_WEIGHT, MIN_WEIGHT};

use super::check_name;
use crate::service_bandwidth::{BandwidthError, BandwidthKey, ServiceBandwidth};

/// Services with their applications, weights and bandwidths.
#[derive(Default)]
pub(super) struct ServiceTables {
    pub names: ServiceNames,
    pub weights: BTreeMap<String, f64>,
    pub excess: BTreeMap<String, f64>,
    pub bandwidths: BTreeMap<String, ServiceBandwidth>,
}

pub(super) fn read_services(
    fields: &TableFields<'_>,
    value: Option<Value<'_>>,
    has_allocator: bool,
) -> Result<ServiceTables, FileError> {
    let Some(value) = value else { return Ok(ServiceTables::default()) };
    const EXPECTED_APPLICATIONS: &str = "a list of names";
    let (mut names, mut weights, mut excess) = (ServiceNames::empty(), BTreeMap::new(), BTreeMap::new());
    let mut bandwidths = BTreeMap::new();
    for (name, mut service) in fields.read_tables(&value, |name| format!("service {name} "))? {
        check_name(&service, "name", name)?;
        if let Some(value) = service.optional("weight") {
            let weight = service.read_number(&value)?;
            if !(MIN_WEIGHT..=MAX_WEIGHT).contains(&weight) {
                let expected = format!("a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}");
                return Err(service.value_error(&value, &expected));
            }
            weights.insert(name.to_owned(), weight);
        }
        if let Some(value) = service.optional("excess") {
            let excess_weight = service.read_number(&value)?;
            if !has_allocator {
                return Err(service.value_error(
                    &value,
                    "no excess weight, or `allocator = true`, since queues ignore excess weights",
                ));
            }
            if excess_weight != 0.0 && !(MIN_WEIGHT..=MAX_WEIGHT).contains(&excess_weight) {
                let expected = format!("0, or a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}");
                return Err(service.value_error(&value, &expected));
            }
            excess.insert(name.to_owned(), excess_weight);
        }
        let bandwidth = read_bandwidth(&mut service)?;
        if !bandwidth.is_unset() {
            bandwidths.insert(name.to_owned(), bandwidth);
        }
        let applications = match service.optional("applications") {
            None => Vec::new(),
            Some(value) => service.read_list(&value, EXPECTED_APPLICATIONS)?,
        };
        service.finish()?;
        let mut number = |application: &str| {
            let expected = format!("at most {} applications in total", ServiceNames::MAX_APPLICATIONS);
            names
                .intern(name, application)
                .ok_or_else(|| service.key_error("applications", application, &expected))
        };
        // The default application, for coflows without an application.
        number(ServiceNames::DEFAULT)?;
        for value in applications {
            let application = service.read_string(&value, "the name of an application")?;
            if !ServiceNames::is_name(application) {
                return Err(service.value_error(&value, ServiceNames::NAME_RULE));
            }
            number(application)?;
        }
    }
    if names.services() == 0 {
        return Err(fields.value_error(&value, "at least one `[service.NAME]`"));
    }
    Ok(ServiceTables { names, weights, excess, bandwidths })
}

/// Reads the minimum and maximum bandwidth of a service.
fn read_bandwidth(service: &mut TableFields<'_>) -> Result<ServiceBandwidth, FileError> {
    let mut bandwidth = ServiceBandwidth::default();
    for key in BandwidthKey::ALL {
        if let Some(value) = service.optional(key.name()) {
            bandwidth.set(key, Some(service.read_rate(&value)?));
        }
    }
    match bandwidth.check() {
        Err(BandwidthError::Invalid { key, value, expected }) => {
            Err(service.key_error(key, &value, &expected))
        }
        _ => Ok(bandwidth),
    }
}
