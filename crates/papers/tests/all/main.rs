//! Tests of the papers' evaluations, one module for each paper.

mod lockstep;
mod lockstep_fabric;
mod saba;
