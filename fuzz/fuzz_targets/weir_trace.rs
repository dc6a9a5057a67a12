//! The reader of Weir's own format does not panic on any input, and accepted input survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_trace::{Limits, format};

/// A valid header, so that the fuzzer does not have to discover it.
const START: &[u8] = b"weir-trace 1\nports 9\n";

fuzz_target!(|input: &[u8]| {
    let limits = Limits { max_flows: 10_000, max_line_bytes: 1 << 16, ..Limits::default() };
    for input in [input.to_vec(), [START, input].concat()] {
        let Ok(workload) = format::read(&input[..], "input", &limits) else { continue };
        let mut text = Vec::new();
        format::write(&workload, &mut text).expect("what was read can be written");
        let limits = Limits { max_line_bytes: 1 << 26, ..limits };
        let again = format::read(&text[..], "output", &limits);
        assert!(again.expect("what was written can be read") == workload);
    }
});
