//! Prints the demo trace that ships with Weir:
//! `cargo run -p weir-trace --example demo_trace > examples/demo.txt`.

use std::error::Error;
use std::io;

use weir_trace::generate::{Preset, generate};
use weir_trace::{Limits, TraceUnit, coflow_benchmark};

/// The seed of the shipped trace.
const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let workload = generate(&Preset::Small.spec(SEED), TraceUnit::MB, &Limits::default())?;
    coflow_benchmark::write(&workload, TraceUnit::MB, io::stdout().lock())?;
    Ok(())
}
