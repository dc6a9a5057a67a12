//! The reader of predictors does not panic on any input, and accepted input survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_predict::file::{read_from, write};

fuzz_target!(|input: &[u8]| {
    let Ok(model) = read_from(input, "input") else { return };
    let mut text = Vec::new();
    write(&model, &mut text).expect("memory takes everything");
    let again = read_from(&text[..], "output").expect("what was written can be read");
    let mut twice = Vec::new();
    write(&again, &mut twice).expect("memory takes everything");
    assert!(text == twice);
});
