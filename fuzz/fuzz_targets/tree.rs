//! The reader of policy trees does not panic on any input.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weir_trace::tree::read_from;

fuzz_target!(|input: &[u8]| {
    // Sensitivity tables that the input refers to do not exist.
    let _ = read_from(input, "input", Path::new("no/such/folder"), None);
});
