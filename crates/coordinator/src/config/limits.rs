//! Limits for clients of the API.

use weir_core::units::{Bytes, Time};
use weir_fields::{FileError, TableFields, Value};
use weir_proto::MAX_APPLICATIONS;

use super::settings::read_time;
use crate::admission::Quota;
use crate::control_plane::Settings;
use crate::quota::{MAX_CONNECTIONS, ServiceQuota};

/// Limits for clients of the API.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Maximum length of a request's body.
    pub max_body: Bytes,
    /// Maximum duration of a request, including its body.
    pub max_request_duration: Time,
    /// Maximum number of concurrent connections that all clients share.
    pub max_connections: u32,
    /// Maximum number of concurrent connections of one address without a proven identity.
    pub max_connections_per_address: u32,
    /// Maximum number of concurrent connections of one proven identity.
    pub max_connections_per_identity: u32,
    /// Maximum number of events that wait for a slow client.
    pub max_queued_events: u32,
    /// Maximum numbers of objects of one service, for requests of its frameworks.
    pub framework: ServiceQuota,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_body: Bytes::new(4e6).expect("4 MB is a valid size"),
            max_request_duration: Time::new(10.0).expect("10 s is a valid time"),
            max_connections: 1024,
            max_connections_per_address: 512,
            max_connections_per_identity: 512,
            max_queued_events: 1024,
            framework: default_quota(&Settings::default()),
        }
    }
}

impl Limits {
    /// Number of connections that are reserved for each address and for each identity.
    const RESERVED_CONNECTIONS: usize = 8;

    /// Maximum number of concurrent connections over a limit. They can request only the coordinator's health and metrics.
    const MAX_PROBES: usize = 64;

    /// The limits of the API's connections.
    pub fn connection_quota(&self) -> Quota {
        Quota {
            total: self.max_connections as usize,
            reserved: Limits::RESERVED_CONNECTIONS,
            per_address: self.max_connections_per_address as usize,
            per_identity: self.max_connections_per_identity as usize,
            probes: Limits::MAX_PROBES,
        }
    }
}

/// A half of each total for each framework, so that one framework cannot use up all of it.
fn default_quota(settings: &Settings) -> ServiceQuota {
    ServiceQuota {
        coflows: settings.max_coflows.div_ceil(2),
        flows: settings.max_flows.div_ceil(2),
        applications: MAX_APPLICATIONS.div_ceil(2),
        connections: MAX_CONNECTIONS.div_ceil(2),
    }
}

/// Reads the quota of a framework. No quota exceeds its total.
fn read_quota(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    settings: &Settings,
) -> Result<ServiceQuota, FileError> {
    let mut quota_fields = fields.read_table(value, "limits framework ".to_owned())?;
    let default = default_quota(settings);
    let mut count = |key, default, total: usize| read_count(&mut quota_fields, key, default, total as u32);
    let quota = ServiceQuota {
        coflows: count("coflows", default.coflows, settings.max_coflows)? as usize,
        flows: count("flows", default.flows, settings.max_flows)? as usize,
        applications: count("applications", default.applications, MAX_APPLICATIONS)? as usize,
        connections: count("connections", default.connections, MAX_CONNECTIONS)? as usize,
    };
    quota_fields.finish()?;
    Ok(quota)
}

/// Reads a number from 1 to `max`.
fn read_count(
    fields: &mut TableFields<'_>,
    key: &'static str,
    default: usize,
    max: u32,
) -> Result<u32, FileError> {
    let Some(value) = fields.optional(key) else { return Ok(default as u32) };
    let expected = format!("a whole number from 1 to {max}");
    let count = fields.read_u32(&value, &expected)?;
    if (1..=max).contains(&count) { Ok(count) } else { Err(fields.value_error(&value, &expected)) }
}

pub(super) fn read_limits(
    fields: &TableFields<'_>,
    value: Option<Value<'_>>,
    settings: Settings,
) -> Result<(Limits, Settings), FileError> {
    let Some(value) = value else { return Ok((Limits::default(), settings)) };
    let mut limit_fields = fields.read_table(&value, "limits ".to_owned())?;
    let default = Limits::default();
    let mut count =
        |key: &'static str, default: usize, max: u32| read_count(&mut limit_fields, key, default, max);
    let max_coflows = count("coflows", settings.max_coflows, 10_000_000)? as usize;
    let max_flows = count("flows", settings.max_flows, 100_000_000)? as usize;
    let max_connections = count("connections", default.max_connections as usize, 1_000_000)?;
    let max_connections_per_address =
        count("connections-per-address", default.max_connections_per_address as usize, 1_000_000)?;
    let max_connections_per_identity =
        count("connections-per-identity", default.max_connections_per_identity as usize, 1_000_000)?;
    let max_queued_events = count("events", default.max_queued_events as usize, 1_000_000)?;
    let max_body = match limit_fields.optional("body") {
        None => default.max_body,
        Some(value) => {
            let body = limit_fields.read_bytes(&value)?;
            if !(1e3..=1e9).contains(&body.get()) {
                return Err(limit_fields.value_error(&value, "a size from 1kB to 1GB"));
            }
            body
        }
    };
    let max_workload_bytes = match limit_fields.optional("workload") {
        None => settings.max_workload_bytes,
        Some(value) => {
            let workload = limit_fields.read_bytes(&value)?;
            if workload.get() > 1e9 {
                return Err(limit_fields.value_error(&value, "a size of at most 1GB"));
            }
            workload.get() as usize
        }
    };
    let seconds = read_time(
        &mut limit_fields,
        "request",
        0.1..=600.0,
        "a time from 100ms to 10min",
        default.max_request_duration.get(),
    )?;
    let max_request_duration = Time::new(seconds).expect("a time from 100 ms to 10 min is valid");
    let settings = Settings { max_coflows, max_flows, max_workload_bytes, ..settings };
    let framework = match limit_fields.optional("framework") {
        None => default_quota(&settings),
        Some(value) => read_quota(&limit_fields, &value, &settings)?,
    };
    limit_fields.finish()?;
    Ok((
        Limits {
            max_body,
            max_request_duration,
            max_connections,
            max_connections_per_address,
            max_connections_per_identity,
            max_queued_events,
            framework,
        },
        settings,
    ))
}
