//! Tests of the predictor.

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod classifiers;
#[path = "../../../core/tests/all/common.rs"]
mod common;
mod data;
mod edits;
mod model;
