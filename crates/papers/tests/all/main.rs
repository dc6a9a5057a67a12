//! Tests of the papers' evaluations, one module for each paper.

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
#[path = "../../../core/tests/all/common.rs"]
mod common;
mod lockstep;
mod saba;
