//! Reads the services with their applications and weights.

use std::collections::BTreeMap;

use weir_core::model::ServiceNames;
use weir_trace::toml_fields::{TableFields, Value};
use weir_trace::{MAX_WEIGHT, MIN_WEIGHT, TraceError};

use super::check_name;

/// Services with their applications and weights.
#[derive(Default)]
pub(super) struct ServiceTables {
    pub names: ServiceNames,
    pub weights: BTreeMap<String, f64>,
    pub excess: BTreeMap<String, f64>,
}

pub(super) fn read_services(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    has_allocator: bool,
) -> Result<ServiceTables, TraceError> {
    const EXPECTED_APPLICATIONS: &str = "a list of names";
    let (mut names, mut weights, mut excess) = (ServiceNames::empty(), BTreeMap::new(), BTreeMap::new());
    for (name, mut service) in fields.read_tables(value, |name| format!("service {name} "))? {
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
        return Err(fields.value_error(value, "at least one `[service.NAME]`"));
    }
    Ok(ServiceTables { names, weights, excess })
}
