//! The reader of the coflow-benchmark format does not panic on any input, and accepted input survives a round
//! trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_trace::{Limits, TraceOptions, TraceUnit, coflow_benchmark};

fuzz_target!(|input: &[u8]| {
    let limits = Limits { max_flows: 10_000, max_line_bytes: 1 << 16, ..Limits::default() };
    for unit in [TraceUnit::MB, TraceUnit::MiB] {
        let mut options = TraceOptions { unit, limits, ..TraceOptions::default() };
        let Ok(workload) = coflow_benchmark::read(input, "input", &options) else { return };
        let mut text = Vec::new();
        coflow_benchmark::write(&workload, unit, &mut text).expect("what was read can be written");
        options.limits.max_line_bytes = 1 << 26;
        let again = coflow_benchmark::read(&text[..], "output", &options);
        assert!(again.expect("what was written can be read") == workload);
    }
});
