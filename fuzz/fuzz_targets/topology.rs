//! The reader of topologies does not panic on any input, and accepted input survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_trace::topology::{read_from, write};

fuzz_target!(|input: &[u8]| {
    let Ok(topology) = read_from(input, "input") else { return };
    let mut text = Vec::new();
    write(&topology, &mut text).expect("memory takes everything");
    // A short template may expand to more cables than a file may hold.
    if text.len() <= weir_trace::topology::MAX_FILE_BYTES {
        assert!(read_from(&text[..], "output").expect("what was written can be read") == topology);
    }
});
