//! No input makes the reader of policy trees panic.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weir_trace::tree::read_from;

fuzz_target!(|input: &[u8]| {
    // Sensitivity tables in files of their own are not found.
    let _ = read_from(input, "input", Path::new("no/such/folder"), None);
});
