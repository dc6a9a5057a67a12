//! The reader of relays' first lines does not panic on any input, and accepted lines are read again as the same line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_relay::hello::Hello;

fuzz_target!(|input: &[u8]| {
    let Ok(hello) = Hello::parse(input) else { return };
    let line = hello.encode();
    assert_eq!(Hello::parse(line.trim_end().as_bytes()), Ok(hello));
});
