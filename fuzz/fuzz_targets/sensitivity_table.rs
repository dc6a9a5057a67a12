//! The reader of sensitivity tables does not panic on any input, and accepted input survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_trace::sensitivity::parse;

fuzz_target!(|input: &str| {
    let Ok(table) = parse(input, "input") else { return };
    let mut text = Vec::new();
    table.write(&mut text).expect("memory takes everything");
    let text = String::from_utf8(text).expect("the writer writes text");
    assert!(parse(&text, "output").expect("what was written can be read") == table);
});
