//! Tests of the engine: one module per component.

mod campaign;
mod capacity;
mod cases;
mod cluster;
mod common;
mod connections;
mod contended_trunks;
mod detour;
mod engine;
mod even_split;
mod hierarchy;
mod host_reports;
mod incast;
mod lockstep;
mod maxmin;
mod montecarlo;
mod netshare;
mod polynomial;
mod relays;
mod saba_controller;
mod saba_profile;
mod separable;
mod siphon;
mod topology;
mod tree;
mod wfq;
