//! Reads the parameters of the control plane.

use std::ops::RangeInclusive;

use weir_core::model::LinkBudget;
use weir_core::netshare::MEASUREMENT_PERIOD;
use weir_core::saba::Fraction;
use weir_fields::{FileError, TableFields, Value};
use weir_proto::{MAX_LEASE, NetworkTable};

use super::QueueAssignment;
use crate::control_plane::Settings;

/// Reads the keys of the control plane's parameters.
pub(super) fn read_settings(fields: &mut TableFields<'_>) -> Result<Settings, FileError> {
    let default = Settings::default();
    let interval = read_time(fields, "interval", 0.001..=10.0, "a time from 1ms to 10s", default.interval)?;
    // A host that misses one order has to receive the next one within its lease.
    let lease = read_time(
        fields,
        "lease",
        2.0 * interval..=MAX_LEASE.as_secs_f64(),
        "a time from two intervals to 60s",
        default.lease.max(10.0 * interval).min(MAX_LEASE.as_secs_f64()),
    )?;
    let keep_completed =
        read_time(fields, "keep-completed", 0.0..=1e6, "a time of at most 277h", default.keep_completed)?;
    let reserve = match fields.optional("reserve") {
        None => default.reserve,
        Some(value) => {
            let reserve = fields.read_number(&value)?;
            if !(0.001..=0.5).contains(&reserve) {
                return Err(fields.value_error(&value, "a fraction of every link, from 0.001 to 0.5"));
            }
            reserve
        }
    };
    Ok(Settings { interval, lease, reserve, keep_completed, ..default })
}

/// Reads the parts of links. Where Saba leaves a part of every link to others, that part is for packets without a class.
pub(super) fn read_budget(
    fields: &TableFields<'_>,
    unclassified: Option<Value<'_>>,
    queues: QueueAssignment,
) -> Result<LinkBudget, FileError> {
    let Some(value) = unclassified else { return Ok(LinkBudget::DEFAULT) };
    if matches!(queues, QueueAssignment::Applications(saba) if saba.settings.c_saba < Fraction::ALL) {
        return Err(fields.value_error(
            &value,
            "no `unclassified`, since `share` of `[saba]` leaves the rest to packets without a class",
        ));
    }
    let fraction = fields.read_number(&value)?;
    LinkBudget::DEFAULT
        .with_unclassified(fraction)
        .ok_or_else(|| fields.value_error(&value, "a fraction of every link, from 0.001 to 0.999"))
}

/// Reads a time, in seconds. `expected` describes `range` in errors.
pub(super) fn read_time(
    fields: &mut TableFields<'_>,
    key: &'static str,
    range: RangeInclusive<f64>,
    expected: &str,
    default: f64,
) -> Result<f64, FileError> {
    let Some(value) = fields.optional(key) else { return Ok(default) };
    let time = fields.read_time(&value)?.get();
    if range.contains(&time) { Ok(time) } else { Err(fields.value_error(&value, expected)) }
}

/// Reads whether UDP is throttled. Throttling requires addresses of senders, and orders at least as frequent as measurements.
pub(super) fn read_throttling(
    fields: &TableFields<'_>,
    value: Option<Value<'_>>,
    addresses: &NetworkTable<u32>,
    interval: f64,
) -> Result<bool, FileError> {
    let Some(value) = value else { return Ok(false) };
    if !fields.read_bool(&value)? {
        return Ok(false);
    }
    if addresses.is_empty() {
        return Err(fields.value_error(&value, "false, or addresses of hosts in `[address]`"));
    }
    if interval > MEASUREMENT_PERIOD.get() {
        return Err(fields.value_error(&value, "false, or an `interval` of at most 50ms"));
    }
    Ok(true)
}

/// Checks the requirements of the allocator: queues of services, and orders at least as frequent as measurements of demand.
pub(super) fn check_allocator(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    queues: QueueAssignment,
    interval: f64,
) -> Result<(), FileError> {
    if queues != QueueAssignment::Services {
        return Err(
            fields.value_error(value, "false, or `queues = \"services\"`, which the allocator requires")
        );
    }
    if interval > MEASUREMENT_PERIOD.get() {
        return Err(fields.value_error(value, "false, or an `interval` of at most 50ms"));
    }
    Ok(())
}
