//! Runs `weir ctl applications` and `weir ctl application register`: applications and their traffic of unmodified programs.

use serde_json::{Value, json};
use weir_client::Coordinator;
use weir_console::failure::Failure;

use super::{object_path, print_list};
use crate::args;

/// Columns of `weir ctl applications`.
const APPLICATIONS: &[&str] = &["id", "service", "model", "level", "traffic", "hosts"];

/// Lists the applications. The column `traffic` has their cgroups, slices, pods and ports.
pub(super) fn list(args: &args::Ctl, coordinator: &Coordinator) -> Result<(), Failure> {
    let mut list = coordinator.get("/v1/applications")?;
    for application in list.as_array_mut().into_iter().flatten() {
        describe_traffic(application);
    }
    print_list(args, APPLICATIONS, list)
}

/// Replaces the object of an application's traffic by a list of its parts, and the list of its hosts.
fn describe_traffic(application: &mut Value) {
    let traffic = application["traffic"].take();
    if traffic.is_null() {
        return;
    }
    let parts = |key: &str| traffic[key].as_array().cloned().unwrap_or_default();
    let mut names: Vec<Value> = [parts("cgroups"), parts("slices")].concat();
    let of_pods = parts("pods");
    names.extend(of_pods.iter().filter_map(Value::as_str).map(|uid| Value::from(format!("pod/{uid}"))));
    names.extend(parts("ports").iter().map(|port| Value::from(format!("port/{port}"))));
    application["traffic"] = names.into();
    application["hosts"] = traffic["hosts"].clone();
}

/// Registers an application, or replaces the traffic of a registered one.
pub(super) fn register(
    coordinator: &Coordinator,
    application: &args::RegisterApplication,
) -> Result<(), Failure> {
    let mut body = json!({});
    for (key, value) in [("service", &application.service), ("model", &application.model)] {
        if let Some(value) = value {
            body[key] = value.as_str().into();
        }
    }
    if let Some(traffic) = traffic(application)? {
        body["traffic"] = traffic;
    }
    coordinator.put(&object_path("applications", &application.id), &body)?;
    Ok(())
}

/// The traffic of a registration; none if the options name none.
fn traffic(application: &args::RegisterApplication) -> Result<Option<Value>, Failure> {
    let args::RegisterApplication { cgroups, slices, pods, ports, hosts, no_traffic, .. } = application;
    if *no_traffic {
        return Ok(Some(json!({})));
    }
    if cgroups.is_empty() && slices.is_empty() && pods.is_empty() && ports.is_empty() {
        return match hosts[..] {
            [] => Ok(None),
            _ => Err(Failure::input(
                "--hosts: no traffic is given; expected --cgroup, --slice, --pod or --port, too",
            )),
        };
    }
    let mut traffic = json!({ "cgroups": cgroups, "slices": slices, "pods": pods, "ports": ports });
    if !hosts.is_empty() {
        traffic["hosts"] = json!(hosts);
    }
    Ok(Some(traffic))
}
