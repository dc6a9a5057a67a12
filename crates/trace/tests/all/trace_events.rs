//! Tests the writer of trace events.

use serde_json::{Value, json};
use weir_trace::trace_events::{EventWriter, Track};

#[test]
fn consecutive_slices_do_not_overlap_after_rounding() {
    let times: Vec<f64> = (0..200).map(|step| f64::from(step) / 7.0 + 1.0 / 3.0).collect();
    let mut file = Vec::new();
    let mut out = EventWriter::new(&mut file);
    let track = Track { group: 1, number: 0 };
    times.windows(2).for_each(|two| out.slice(track, "rule", [two[0], two[1]], &json!({})));
    out.finish().unwrap();
    let all: Value = serde_json::from_slice(&file).unwrap();
    let nanos = |event: &Value, field: &str| (event[field].as_f64().unwrap() * 1e3).round();
    let slices = all["traceEvents"].as_array().unwrap();
    assert_eq!(slices.len(), times.len() - 1);
    for two in slices.windows(2) {
        assert_eq!(nanos(&two[0], "ts") + nanos(&two[0], "dur"), nanos(&two[1], "ts"));
    }
}
