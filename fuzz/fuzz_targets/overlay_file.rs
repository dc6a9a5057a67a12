//! The reader of overlay files does not panic on any input, and accepted files have a bounded number of entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_proto::relay::{MAX_RELAY_COFLOWS, MAX_RELAY_RULES, MAX_RELAYS};
use weir_relay::overlay_file::parse;

fuzz_target!(|input: &str| {
    let Ok(overlay) = parse(input, "overlay.toml") else { return };
    assert!(overlay.relays.len() <= MAX_RELAYS);
    assert!(overlay.coflows.len() <= MAX_RELAY_COFLOWS && overlay.rules.len() <= MAX_RELAY_RULES);
});
