use crate::engine::Engine;
use crate::model::{CompletedFlow, Slot};
use crate::policy::test_engine::{self, engine, release};

/// Completes flows until `now`, schedules, and returns the rates of a coflow's flows, in the order of ports.
fn rates(engine: &mut Engine, slot: Slot, now: f64) -> Vec<f64> {
    let mut completed: Vec<CompletedFlow> = Vec::new();
    engine.complete_flows_until(now, &mut completed);
    engine.schedule(now).unwrap();
    test_engine::rates(engine, slot)
}

#[test]
fn pilot_is_served_before_the_other_flows_of_its_coflow() {
    // One sender, four receivers: one pilot. It takes the whole sender; the others wait.
    let mut engine = engine("philae:thin=1", 5);
    let slot = release(&mut engine, 1, &[(0, 1, 2.0), (0, 2, 2.0), (0, 3, 2.0), (0, 4, 2.0)], 0.0);
    assert_eq!(rates(&mut engine, slot, 0.0), [1.0, 0.0, 0.0, 0.0]);
    // The pilot completes at 2: sampled. Three flows share the sender.
    assert_eq!(rates(&mut engine, slot, 2.0)[1..], [1.0 / 3.0; 3]);
}

#[test]
fn pilots_are_spread_over_the_least_busy_ports() {
    // Half of four flows are pilots. Flow (0, 2) is first; then sender 0 and receiver 2 have a pilot, so (1, 3) is the second. Work
    // conservation finds no residual capacity.
    let mut engine = engine("philae:thin=1:pilots=0.5", 4);
    let slot = release(&mut engine, 1, &[(0, 2, 5.0), (0, 3, 5.0), (1, 2, 5.0), (1, 3, 5.0)], 0.0);
    assert_eq!(rates(&mut engine, slot, 0.0), [1.0, 0.0, 0.0, 1.0]);
}

#[test]
fn thin_coflow_goes_before_pilots_and_pilots_before_sampled_coflows() {
    let mut engine = engine("philae:thin=1", 3);
    // The first flow is the pilot, and completes at 1. Then one of two flows is left: sampled.
    let sampled = release(&mut engine, 1, &[(0, 1, 1.0), (0, 2, 9.0)], 0.0);
    assert_eq!(rates(&mut engine, sampled, 0.0), [1.0, 0.0]);
    assert_eq!(rates(&mut engine, sampled, 1.0)[1..], [1.0]);
    // A coflow in sampling takes the sender for its pilot.
    let sampling = release(&mut engine, 2, &[(0, 1, 5.0), (0, 2, 5.0)], 1.0);
    assert_eq!(rates(&mut engine, sampling, 1.0), [1.0, 0.0]);
    assert_eq!(rates(&mut engine, sampled, 1.0)[1..], [0.0]);
    // A thin coflow takes it from the pilot.
    let thin = release(&mut engine, 3, &[(0, 2, 100.0)], 1.0);
    assert_eq!(rates(&mut engine, thin, 1.0), [1.0]);
    assert_eq!(rates(&mut engine, sampling, 1.0), [0.0, 0.0]);
}

#[test]
fn sampled_coflows_are_ordered_by_estimated_size_times_contention() {
    let run = |policy: &str| {
        let mut engine = engine(policy, 9);
        // Port 0 sends the pilot of a until 4, and that of b until 5.
        let a = release(&mut engine, 1, &[(0, 1, 4.0), (0, 2, 4.0)], 0.0);
        let b = release(&mut engine, 2, &[(0, 3, 1.0), (0, 4, 1.0), (0, 5, 1.0)], 0.0);
        rates(&mut engine, a, 0.0);
        rates(&mut engine, a, 4.0);
        rates(&mut engine, a, 5.0);
        // The pilots of c and d go to ports 3 and 1. Their other flows share port 4 with b.
        release(&mut engine, 3, &[(6, 3, 50.0), (6, 4, 50.0)], 5.0);
        release(&mut engine, 4, &[(7, 1, 50.0), (7, 4, 50.0)], 5.0);
        [rates(&mut engine, a, 5.0)[1], rates(&mut engine, b, 5.0)[1]]
    };
    // Estimated bytes that remain: 2 * 4 - 4 = 4 of a, and 3 * 1 - 1 = 2 of b. Contention: a with b only; b with a, c and d.
    assert_eq!(run("philae:thin=1:order=size"), [0.0, 0.5]);
    // Products: 4 * 1 and 2 * 3.
    assert_eq!(run("philae:thin=1"), [1.0, 0.0]);
}
