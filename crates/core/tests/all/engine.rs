//! The engine's interface as a driver calls it.

use crate::capacity::check_rates;
use weir_core::engine::{Engine, Links};
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, ServiceNames};
use weir_core::policy::{self, POLICIES};
use weir_core::units::{Bytes, Rate, Time};

fn coflow_spec(id: u64, flows: &[(u32, u32, f64)]) -> CoflowSpec {
    let flow = |&(src, dst, size): &(u32, u32, f64)| FlowSpec::new(src, dst, Bytes::new(size).unwrap());
    CoflowSpec::new(id, Time::ZERO, flows.iter().map(flow).collect())
}

#[test]
fn completed_coflows_leave_no_engine_state() {
    for entry in POLICIES {
        let fabric = Fabric::big_switch(4, Rate::new(1.0).unwrap());
        let mut engine = Engine::new(
            Links::one_switch(fabric),
            policy::build(entry.name).unwrap(),
            &ServiceNames::default(),
        )
        .unwrap();
        let mut now = 0.0;
        for round in 0..40u64 {
            let mut ended = Vec::new();
            for i in 0..2 {
                let flows = [(0, 2, 1.0), (1, 3, 0.5), (0, 3, 0.25 * (round % 3) as f64)];
                engine.release_coflow(
                    &coflow_spec(2 * round + i, &flows[..2 + i as usize]),
                    0,
                    now,
                    &mut ended,
                );
            }
            engine.schedule(now).unwrap();
            for _ in 0..20 {
                check_rates(&engine).unwrap();
                ended.clear();
                let end = engine.next_completion();
                if end.is_infinite() {
                    break;
                }
                now = end;
                engine.complete_flows_until(now, &mut ended);
                for slot in engine.network().active_coflows().to_vec() {
                    let coflow = engine.network().coflow(slot);
                    if coflow.completed_count() == coflow.width() {
                        engine.remove_coflow(slot, now);
                    }
                }
                engine.schedule(now).unwrap();
            }
            assert!(engine.network().active_coflows().is_empty(), "{}: round {round}", entry.name);
            assert!(engine.network().slots() <= 2, "{}: slots are reused", entry.name);
        }
    }
}
