//! Tests of the predictor.

mod data;
mod machines;
mod model;
