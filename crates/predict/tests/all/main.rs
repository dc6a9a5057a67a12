//! Tests of the predictor.

mod classifiers;
mod data;
#[path = "../../../trace/tests/all/edits.rs"]
mod edits;
mod model;
