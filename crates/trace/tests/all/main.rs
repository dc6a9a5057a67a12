//! Tests of the readers and writers: one module per format.

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod common;
mod compressed;
mod describe;
mod error_cases;
mod errors;
mod flow_sizes;
mod generate;
mod import;
mod incast;
mod jobs;
mod late_times;
mod malformed_input;
#[path = "../../../core/tests/all/common.rs"]
mod property_settings;
mod public_trace;
mod round_trip;
mod scenario;
mod sensitivity;
mod topology;
mod trace_events;
mod tree;
mod wide_area;
