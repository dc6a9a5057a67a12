//! An experiment: coflows, a network, and the results of policies as records and tables.
//!
//! The command line and the Python package run experiments, and print or keep the same results.

pub mod comparison;
pub mod descriptions;
pub mod embedded_network;
pub mod explanation;
pub mod jobs;
mod links;
pub mod metrics;
pub mod network;
pub mod options;
mod port_placement;
pub mod results;
pub mod rows;
pub mod services;
pub mod source;
pub mod summary_table;
pub mod tables;
pub mod unused_keys;
pub mod varied_params;
