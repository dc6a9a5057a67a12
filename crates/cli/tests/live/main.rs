//! Runs tests that create networks or measure rates. `test_lock` decides which of them run concurrently.

#![cfg(target_os = "linux")]

mod abuse;
mod allocator;
mod bandwidths;
mod bed;
#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
#[path = "../../../coordinator/tests/all/certificates.rs"]
mod certificates;
#[path = "../common/mod.rs"]
mod common;
mod crowded_link;
mod evaluations;
mod examples;
mod faults;
#[path = "../../../agent/tests/live/group.rs"]
mod group;
mod host;
mod host_pair;
mod joined_addresses;
#[path = "../../../agent/tests/live/kernel.rs"]
mod kernel;
mod live;
mod ordered_traffic;
mod pod_interfaces;
mod profile;
mod receiver_link;
mod restoration;
mod senders;
mod service_address;
mod short_connections;
mod switch;
mod test_lock;
mod testbed;
mod throttle;
mod tutorial;
mod udp;
