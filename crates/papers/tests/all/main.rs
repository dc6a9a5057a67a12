//! Tests of the papers' evaluations, one module for each paper.

mod saba;
