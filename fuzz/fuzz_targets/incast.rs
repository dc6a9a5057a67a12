//! The readers of incast measurements (goodput tables and training data of the predictor) do not panic on any
//! input.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(weir_trace::incast::IncastMeasurements { incast, .. }) =
        weir_trace::incast::read_from(input, "input")
    {
        for &buffer in incast.buffers() {
            let goodput =
                incast.goodput(buffer, "1Gbit".parse().expect("a rate")).expect("the buffer was measured");
            for connections in [1, 10, 1_000_000] {
                assert!((0.0..=1.0).contains(&goodput.utilization(connections)));
            }
        }
    }
    let _ = weir_predict::data::read_from(input, "input");
});
