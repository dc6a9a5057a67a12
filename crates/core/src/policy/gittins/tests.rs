use crate::engine::Engine;
use crate::model::{CompletedFlow, PortSide};
use crate::policy::test_engine::{fast_engine as engine, rates_gb as rates, release_gb as release};

/// Completes flows and coflows until `now`, and schedules.
fn run_until(engine: &mut Engine, now: f64) {
    let mut completed: Vec<CompletedFlow> = Vec::new();
    engine.complete_flows_until(now, &mut completed);
    for done in completed {
        let coflow = engine.network().coflow(done.slot);
        if coflow.is_completed() {
            engine.remove_coflow(done.slot, now);
        }
    }
    engine.schedule(now).unwrap();
    engine.next_wakeup(now).unwrap();
}

#[test]
fn least_attained_service_goes_first() {
    let mut engine = engine("gittins:index=las", 3);
    let old = release(&mut engine, 1, &[(0, 1, 50.0), (0, 2, 50.0)], 0.0);
    run_until(&mut engine, 0.0);
    assert_eq!(rates(&engine, old), [0.5, 0.5]);
    // After 4 s, the old coflow has used its sender for 4 s, and a new one for 0 s.
    let new = release(&mut engine, 2, &[(0, 1, 500.0)], 4.0);
    run_until(&mut engine, 4.0);
    assert_eq!((rates(&engine, new), rates(&engine, old)), (vec![1.0], vec![0.0, 0.0]));
    // After 6 s more, the new coflow has used its sender for longer.
    run_until(&mut engine, 10.0);
    assert_eq!((rates(&engine, new), rates(&engine, old)), (vec![0.0], vec![0.5, 0.5]));
}

#[test]
fn coflow_of_learned_size_continues_near_its_end() {
    // One coflow of 10 s completes. The second one has attained 5 s when the third is released.
    let second_rate = |policy: &str| {
        let mut engine = engine(policy, 2);
        release(&mut engine, 1, &[(0, 1, 10.0)], 0.0);
        run_until(&mut engine, 0.0);
        run_until(&mut engine, 10.0);
        let second = release(&mut engine, 2, &[(0, 1, 10.0)], 10.0);
        run_until(&mut engine, 10.0);
        release(&mut engine, 3, &[(0, 1, 10.0)], 15.0);
        run_until(&mut engine, 15.0);
        rates(&engine, second)[0]
    };
    // By the learned size, about 1 / 10 for a new coflow, and at least 1 / 6 for one that has attained 5 s.
    assert_eq!(second_rate("gittins:prior=0.000001"), 1.0);
    assert_eq!(second_rate("gittins:index=las"), 0.0);
}

#[test]
fn slow_port_does_not_raise_the_attained_service_of_sent_bytes() {
    let mut engine = engine("gittins:index=las", 3);
    // The first coflow sends 4 bytes in 4 s.
    let first = release(&mut engine, 1, &[(0, 2, 50.0)], 0.0);
    run_until(&mut engine, 0.0);
    run_until(&mut engine, 4.0);
    // The second coflow takes port 2 until it has sent 8 bytes.
    let second = release(&mut engine, 2, &[(1, 2, 50.0)], 4.0);
    run_until(&mut engine, 4.0);
    assert_eq!((rates(&engine, first), rates(&engine, second)), (vec![0.0], vec![1.0]));
    run_until(&mut engine, 12.0);
    // At a quarter of its capacity, port 0 needs 20 s for 5 bytes. They still count for 5 s, and those of the second coflow for 8 s.
    engine.scale_port(0, PortSide::Send, 0.25, 12.0);
    run_until(&mut engine, 12.0);
    run_until(&mut engine, 16.2);
    assert_eq!(rates(&engine, first), [0.25]);
}
