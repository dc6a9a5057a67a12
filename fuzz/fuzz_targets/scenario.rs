//! No input makes the reader of scenarios panic, and what it takes holds together.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weir_trace::scenario::read_from;

fuzz_target!(|input: &[u8]| {
    // Fabrics in files of their own are not found.
    let Ok(scenario) = read_from(input, "input", Path::new("no/such/folder")) else { return };
    scenario.check().expect("what was read holds together");
});
