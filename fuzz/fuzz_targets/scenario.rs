//! The reader of scenarios does not panic on any input, and accepted scenarios are consistent.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weir_trace::scenario::read_from;

fuzz_target!(|input: &[u8]| {
    // Fabric files that the input refers to do not exist.
    let Ok(scenario) = read_from(input, "input", Path::new("no/such/folder")) else { return };
    scenario.check().expect("what was read is consistent");
});
