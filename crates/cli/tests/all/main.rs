//! Tests that need no privileges and measure no rates.

#[cfg(target_os = "linux")]
mod agent;
#[cfg(target_os = "linux")]
#[path = "../../../tls/tests/all/certificates.rs"]
mod certificates;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod cluster;
mod combinations;
#[path = "../common/mod.rs"]
mod common;
#[cfg(target_os = "linux")]
mod deploy;
mod documents;
mod examples;
mod fabric_replays;
mod failures;
#[cfg(target_os = "linux")]
mod gates;
mod incast;
mod jobs;
#[cfg(target_os = "linux")]
mod joins;
mod matching;
mod output_columns;
mod pictures;
mod predict;
mod problems_of_replays;
#[cfg(target_os = "linux")]
mod profile;
#[cfg(target_os = "linux")]
mod python;
mod reference;
mod regions;
#[cfg(target_os = "linux")]
mod relay;
#[cfg(target_os = "linux")]
mod relay_coordinator;
#[cfg(target_os = "linux")]
mod relay_page;
mod reproduce;
mod results;
mod resume;
mod saba;
mod serve;
mod services;
mod share;
mod test_files;
mod traces;
mod tree;
#[cfg(target_os = "linux")]
mod tutorials;
mod version;
