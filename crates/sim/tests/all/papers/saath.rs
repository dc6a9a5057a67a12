//! Jajoo et al., "Saath: Speeding up CoFlows by Exploiting the Spatial Dimension", CoNEXT '17.

use weir_core::model::{PortSide, Workload, WorkloadChange};
use weir_sim::{Observer, Snapshot};

use crate::common::{
    assert_near, bytes, check_ccts, coflow, mean, replay_at_unit_rate, replay_ccts, replay_with, time,
    timed_event, workload,
};

/// Records when a coflow changes its queue.
struct QueueRecorder {
    id: u64,
    changes: Vec<(f64, usize)>,
}

impl QueueRecorder {
    fn record(id: u64, workload: &Workload, policy: &str) -> Vec<(f64, usize)> {
        let mut queues = QueueRecorder { id, changes: Vec::new() };
        replay_with(workload, policy, 1.0, 0.0, &mut queues).unwrap();
        queues.changes
    }
}

impl Observer for QueueRecorder {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        for &slot in snapshot.active() {
            let queue = snapshot.allocation().class(slot);
            if snapshot.coflow(slot).id == self.id && self.changes.last().is_none_or(|&(_, q)| q != queue) {
                self.changes.push((snapshot.now(), queue));
            }
        }
        true
    }
}

#[track_caller]
fn assert_queues(found: &[(f64, usize)], expected: &[(f64, usize)]) {
    let queues = |list: &[(f64, usize)]| list.iter().map(|&(_, queue)| queue).collect::<Vec<_>>();
    let times = |list: &[(f64, usize)]| list.iter().map(|&(at, _)| at).collect::<Vec<_>>();
    assert_eq!(queues(found), queues(expected), "found {found:?}, expected {expected:?}");
    assert_near(&times(found), &times(expected), 1e-9, "times of queues");
}

/// C2 sends from P1 to P3, the others from one of these ports each. Every flow has its own receiver.
fn figure_1() -> Workload {
    workload(
        9,
        vec![
            coflow(1, 0.0, &[(0, 3, 1.0)]),
            coflow(2, 0.0, &[(0, 4, 1.0), (1, 5, 1.0), (2, 6, 1.0)]),
            coflow(3, 0.0, &[(1, 7, 1.0)]),
            coflow(4, 0.0, &[(2, 8, 1.0)]),
        ],
    )
}

#[test]
fn figure_1_uncoordinated_ports_are_out_of_sync() {
    for sharing in ["aalo", "aalo:sharing=strict", "aalo:at=both", "aalo:at=both:sharing=strict"] {
        check_ccts(&figure_1(), sharing, &[1.0, 2.0, 2.0, 2.0]);
    }
    assert_eq!(mean(&replay_ccts(&figure_1(), "aalo")), 1.75);
}

#[test]
fn figure_1_saath_finds_the_optimum() {
    check_ccts(&figure_1(), "saath", &[1.0, 2.0, 1.0, 1.0]);
    assert_eq!(mean(&replay_ccts(&figure_1(), "saath")), 1.25);
    // Without least-contention-first, all-or-none alone gives the same result: P1 is busy, so C2 is skipped.
    check_ccts(&figure_1(), "saath:lcof=off", &[1.0, 2.0, 1.0, 1.0]);
}

/// Three coflows; each pair shares one of three ports.
fn figure_4() -> Workload {
    workload(
        9,
        vec![
            coflow(1, 0.0, &[(0, 3, 1.0), (1, 4, 1.0)]),
            coflow(2, 0.0, &[(1, 5, 1.0), (2, 6, 1.0)]),
            coflow(3, 0.0, &[(0, 7, 1.0), (2, 8, 1.0)]),
        ],
    )
}

#[test]
fn figure_4_all_or_none_alone_leaves_ports_idle() {
    check_ccts(&figure_4(), "saath:work-conservation=off", &[1.0, 2.0, 3.0]);
}

#[test]
fn figure_4_work_conservation_uses_idle_ports() {
    check_ccts(&figure_4(), "saath", &[1.0, 2.0, 2.0]);
    assert!((mean(&replay_ccts(&figure_4(), "saath")) - 5.0 / 3.0).abs() < 1e-9);
}

/// C1 uses two of the four ports of C2.
fn figure_5() -> Workload {
    workload(
        12,
        vec![
            coflow(1, 0.0, &[(2, 4, 20.0), (3, 5, 20.0)]),
            coflow(2, 0.0, &[(0, 6, 20.0), (1, 7, 20.0), (2, 8, 20.0), (3, 9, 20.0)]),
        ],
    )
}

#[test]
fn figure_5_queue_transition_is_faster_by_per_flow_thresholds() {
    // The threshold is the bandwidth times 4 t.
    let first_change = |policy: &str| QueueRecorder::record(2, &figure_5(), policy)[1];
    for by_total in ["aalo:start=4B", "aalo:start=4B:at=both", "saath:start=4B:per-flow=off"] {
        assert_queues(&[first_change(by_total)], &[(2.0, 1)]);
    }
    assert_queues(&[first_change("saath:start=4B")], &[(1.0, 1)]);
    // C1 has two flows, so its per-flow threshold is 2 t. Its total bytes reach the threshold at the same
    // time.
    assert_queues(&[QueueRecorder::record(1, &figure_5(), "saath:start=4B")[1]], &[(2.0, 1)]);
}

/// C1 is short and uses both ports; C2 and C3 are longer and use one each.
fn two_ports(sizes: [f64; 3]) -> Workload {
    let [both, one, other] = sizes;
    workload(
        6,
        vec![
            coflow(1, 0.0, &[(0, 2, both), (1, 3, both)]),
            coflow(2, 0.0, &[(0, 4, one)]),
            coflow(3, 0.0, &[(1, 5, other)]),
        ],
    )
}

#[test]
fn figure_8_least_contention_is_not_always_best() {
    let w = two_ports([1.0, 2.5, 2.5]);
    check_ccts(&w, "saath", &[3.5, 2.5, 2.5]);
    assert!((mean(&replay_ccts(&w, "saath")) - 8.5 / 3.0).abs() < 1e-9);
    // The order by size is optimal here.
    for policy in ["scf", "srtf", "varys", "saath:lcof=off"] {
        check_ccts(&w, policy, &[1.0, 3.5, 3.5]);
    }
}

#[test]
fn figure_17_shortest_first_is_not_always_best() {
    let w = two_ports([5.0, 6.0, 7.0]);
    // The figure's durations are port durations: C1 is the shortest although it has the most bytes.
    for policy in ["scf:by=length", "srtf", "srtf:time=flow", "varys"] {
        check_ccts(&w, policy, &[5.0, 11.0, 12.0]);
    }
    assert!((mean(&replay_ccts(&w, "srtf")) - 28.0 / 3.0).abs() < 1e-9);
    // With contention counted, t k is 10 for C1, and 6 and 7 for the others (appendix A).
    check_ccts(&w, "lwtf", &[12.0, 6.0, 7.0]);
    assert!((mean(&replay_ccts(&w, "lwtf")) - 25.0 / 3.0).abs() < 1e-9);
}

#[test]
fn section_4_2_d2_all_flows_get_the_rate_of_the_slowest() {
    // P0 sends two flows of C1, so each of C1's three flows gets a half. C2 gets the residual capacity of P1.
    let w = workload(
        8,
        vec![
            coflow(1, 0.0, &[(0, 2, 1.0), (0, 3, 1.0), (1, 4, 1.0)]),
            coflow(2, 0.0, &[(1, 5, 1.0), (1, 6, 1.0), (1, 7, 1.0)]),
        ],
    );
    let out = replay_at_unit_rate(&w, "saath:lcof=off");
    assert_near(&out.coflows[0].flow_ends, &[2.0, 2.0, 2.0], 1e-9, "C1");
    // 1/6 each until 2, then 1/3 each for the remaining 2/3.
    assert_near(&out.coflows[1].flow_ends, &[4.0, 4.0, 4.0], 1e-9, "C2");
    // With available=full, C2 must wait for the whole of P1. Work conservation gives its half to the first
    // flow.
    let out = replay_at_unit_rate(&w, "saath:lcof=off:available=full");
    assert_near(&out.coflows[1].flow_ends, &[2.0, 4.0, 4.0], 1e-9, "C2, full ports only");
}

#[test]
fn section_4_2_d3_thresholds_grow() {
    // Two flows: S/2, S E/2, S E^2/2 = 1, 3, 9, with four queues.
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 2, 20.0), (1, 3, 15.0)])]);
    let queues = QueueRecorder::record(1, &w, "saath:start=2B:growth=3:queues=4");
    assert_queues(&queues, &[(0.0, 0), (1.0, 1), (3.0, 2), (9.0, 3)]);
    // By total bytes: 2, 6, 18 at two bytes a second.
    let queues = QueueRecorder::record(1, &w, "saath:start=2B:growth=3:queues=4:per-flow=off");
    assert_queues(&queues, &[(0.0, 0), (1.0, 1), (3.0, 2), (9.0, 3)]);
    let one = workload(4, vec![coflow(1, 0.0, &[(0, 2, 20.0), (0, 3, 20.0)])]);
    // Each flow sends half a byte a second.
    let queues = QueueRecorder::record(1, &one, "saath:start=2B:growth=3:queues=4");
    assert_queues(&queues, &[(0.0, 0), (2.0, 1), (6.0, 2), (18.0, 3)]);
}

#[test]
fn section_4_2_d4_work_conservation_comes_before_the_next_queue() {
    // At 3, C1 is in the second queue. C2 arrives in the first and passes all-or-none. C3, also in the first,
    // fails it at P0, and gets P2 by work conservation before C1 is considered.
    let w = workload(
        12,
        vec![
            coflow(1, 0.0, &[(1, 6, 4.0), (2, 7, 4.0)]),
            coflow(2, 3.0, &[(0, 8, 1.0)]),
            coflow(3, 3.0, &[(0, 9, 1.0), (2, 10, 1.0)]),
        ],
    );
    let out = replay_at_unit_rate(&w, "saath:start=2B:growth=100:d=inf:lcof=off");
    assert_near(&out.coflows[2].flow_ends, &[5.0, 4.0], 1e-9, "C3");
    assert_near(&out.coflows[1].flow_ends, &[4.0], 1e-9, "C2");
    // C1 uses P1 until 4 by work conservation, and P2 from 4 to 5.
    assert_near(&out.coflows[0].flow_ends, &[4.0, 5.0], 1e-9, "C1");
}

/// C1 needs two ports. On each of them a short coflow arrives every second until 20.
fn starvation_workload() -> Workload {
    let mut coflows = vec![coflow(1, 0.0, &[(0, 2, 1.0), (1, 3, 1.0)])];
    for second in 0..20 {
        coflows.push(coflow(100 + second, second as f64, &[(0, 4, 1.0)]));
        coflows.push(coflow(200 + second, second as f64, &[(1, 5, 1.0)]));
    }
    workload(6, coflows)
}

#[test]
fn section_4_2_d5_an_expired_deadline_ends_starvation() {
    assert_near(
        &replay_ccts(&starvation_workload(), "saath:start=4B:d=inf")[..1],
        &[21.0],
        1e-9,
        "no deadlines",
    );
    // Alone in its queue when it arrives: d C_q t = 1 * 1 * 4 s, and 2 s if t is that of one of its two
    // flows.
    assert_near(&replay_ccts(&starvation_workload(), "saath:start=4B:d=1")[..1], &[5.0], 1e-9, "d = 1");
    assert_near(&replay_ccts(&starvation_workload(), "saath:start=4B:d=2")[..1], &[9.0], 1e-9, "d = 2");
    assert_near(
        &replay_ccts(&starvation_workload(), "saath:start=4B:d=1:time=flow")[..1],
        &[3.0],
        1e-9,
        "time=flow",
    );
}

#[test]
fn section_4_2_d5_deadline_grows_with_the_coflows_in_the_queue() {
    let mut w = starvation_workload();
    // Three coflows wait in its queue when it arrives: d C_q t = 1 * 4 * 4 s.
    w.coflows[0].arrival = time(0.5);
    w.coflows.push(coflow(300, 0.0, &[(5, 1, 100.0)]));
    let found = replay_ccts(&w, "saath:start=4B:d=1")[0];
    assert_near(&[found], &[17.0], 0.051, "deadline at 16.5");
}

#[test]
fn section_4_3_queue_depends_on_the_median_of_finished_flows() {
    // Per-flow thresholds 1, 2, 4. Two flows end at 2; the third began at 1.5. So f_e = 2, m_c = 2 - 0.5,
    // which is between the first two thresholds. At 2.5, m_c reaches the first threshold.
    let mut w = workload(6, vec![coflow(1, 0.0, &[(0, 3, 2.0), (1, 4, 2.0), (2, 5, 3.0)])]);
    w.coflows[0].flows[2].data_delay = time(1.5);
    let on = QueueRecorder::record(1, &w, "saath:start=3B:growth=2:queues=4:requeue=on");
    assert_queues(&on[..3], &[(0.0, 0), (1.0, 1), (2.5, 0)]);
    let off = QueueRecorder::record(1, &w, "saath:start=3B:growth=2:queues=4");
    assert_queues(&off, &[(0.0, 0), (1.0, 1), (2.0, 2)]);
}

#[test]
fn section_4_3_the_median_of_an_even_number_is_between_the_middle_two() {
    // At 2, f_e = (1 + 2) / 2. The flow that began at 1.75 has 1.25 left then, and reaches the first
    // threshold, 1, at 2.25.
    let mut w = workload(6, vec![coflow(1, 0.0, &[(0, 3, 1.0), (1, 4, 2.0), (2, 5, 3.0)])]);
    w.coflows[0].flows[2].data_delay = time(1.75);
    let on = QueueRecorder::record(1, &w, "saath:start=3B:growth=2:queues=4:requeue=on");
    let after: Vec<_> = on.iter().copied().filter(|&(at, _)| at > 1.9).collect();
    assert_queues(&after[..2], &[(2.0, 1), (2.25, 0)]);
}

#[test]
fn section_4_3_the_estimate_counts_flows_without_data() {
    // Per-flow thresholds 1, 2, 4. f_e is 3 from 3 on, and 3.5 from 4.5 on. The second flow is never more
    // than a half short, but the third waits for its data: m_c equals f_e until that flow is live at 5, and
    // reaches 2 at 6.5 and 1 at 7.5.
    let mut w = workload(6, vec![coflow(1, 0.0, &[(0, 3, 3.0), (1, 4, 4.0), (2, 5, 4.0)])]);
    w.coflows[0].flows[1].data_delay = time(0.5);
    w.coflows[0].flows[2].data_delay = time(5.0);
    let policy = "saath:start=3B:growth=2:queues=4:requeue=on";
    let expected = [(0.0, 0), (1.0, 1), (2.0, 2), (6.5, 1), (7.5, 0), (8.5, 3)];
    assert_queues(&QueueRecorder::record(1, &w, policy), &expected);
    // Bytes sent before the data became unavailable count: m_c is 0.5 and then 1, and from 6 on sent bytes
    // count again.
    w.coflows[0].flows[2].data_delay = time(0.0);
    w.events = vec![timed_event(2.5, WorkloadChange::DelayFlow { coflow: 0, flow: 2, until: time(5.0) })];
    assert_queues(&QueueRecorder::record(1, &w, policy), &[(0.0, 0), (1.0, 1), (2.0, 2), (3.0, 0), (6.0, 3)]);
}

#[test]
fn section_4_3_a_coflow_without_its_data_is_not_scheduled() {
    // C1 is first in order, but some of its data arrives at 1: C2 gets the port until then.
    let mut w =
        workload(6, vec![coflow(1, 0.0, &[(0, 3, 2.0), (1, 4, 2.0)]), coflow(2, 0.0, &[(0, 5, 1.0)])]);
    check_ccts(&w, "saath:requeue=on", &[2.0, 3.0]);
    w.coflows[0].flows[1].data_delay = time(1.0);
    check_ccts(&w, "saath:requeue=on", &[3.0, 1.0]);
    // No other coflow uses the port of the live flow, so work conservation serves it.
    w.coflows.pop();
    let out = replay_at_unit_rate(&w, "saath:requeue=on");
    assert_near(&out.coflows[0].flow_ends, &[2.0, 3.0], 1e-9, "C1");
}

#[test]
fn section_4_3_coflow_with_unavailable_data_loses_its_turn() {
    // From 1 to 3, a flow of C1 has no data, so C2 goes first.
    let mut w =
        workload(6, vec![coflow(1, 0.0, &[(0, 3, 4.0), (1, 4, 4.0)]), coflow(2, 0.0, &[(0, 5, 2.0)])]);
    w.events = vec![timed_event(1.0, WorkloadChange::DelayFlow { coflow: 0, flow: 1, until: time(3.0) })];
    check_ccts(&w, "saath:requeue=on", &[6.0, 3.0]);
}

#[test]
fn section_4_3_waves_and_stages_wait_for_their_parents() {
    // Two waves, and a second stage that computes for 0.5 s first.
    let mut w = workload(
        4,
        vec![coflow(3, 0.0, &[(0, 1, 3.0)]), coflow(1, 1.0, &[(0, 1, 1.0)]), coflow(2, 0.0, &[(0, 1, 2.0)])],
    );
    w.coflows[2].parents = vec![1];
    w.coflows[0].parents = vec![1, 2];
    w.coflows[1].compute_after = time(0.25);
    w.coflows[0].compute_before = time(0.5);
    for policy in ["saath:requeue=on", "fair", "varys", "aalo", "sincronia", "pfp"] {
        let out = replay_at_unit_rate(&w, policy);
        let arrivals: Vec<f64> = out.coflows.iter().map(|c| c.released_at).collect();
        assert_near(&arrivals, &[4.75, 1.0, 2.25], 1e-9, policy);
        assert_near(&out.ccts(), &[3.0, 1.0, 2.0], 1e-9, policy);
    }
}

#[test]
fn section_4_3_jobs_of_a_stage_merge_into_one_coflow() {
    let mut w = workload(
        6,
        vec![
            coflow(1, 0.0, &[(0, 3, 1.0)]),
            coflow(2, 1.0, &[(1, 4, 2.0), (1, 5, 1.0)]),
            coflow(3, 0.0, &[(2, 3, 1.0)]),
            coflow(4, 0.0, &[(0, 4, 1.0)]),
        ],
    );
    for index in [0, 1] {
        (w.coflows[index].job, w.coflows[index].stage) = (Some(7), Some(0));
    }
    (w.coflows[2].job, w.coflows[2].stage) = (Some(7), Some(1));
    w.coflows[2].parents = vec![0];
    w.events = vec![timed_event(2.0, WorkloadChange::RestartFlow { coflow: 1, flow: 1 })];
    let merged = w.merge_stages();
    assert_eq!(merged.coflows.len(), 3);
    assert_eq!(merged.coflows[0].id, 1);
    // The data of the stage's second job arrives a second later.
    assert_eq!(merged.coflows[0].arrival, time(0.0));
    assert_eq!(
        merged.coflows[0].flows.iter().map(|f| f.data_delay.get()).collect::<Vec<_>>(),
        [0.0, 1.0, 1.0]
    );
    assert_eq!(merged.coflows[0].flows[2].bytes, bytes(1.0));
    assert_eq!(merged.coflows[1].parents, vec![0]);
    assert_eq!(merged.events[0].change, WorkloadChange::RestartFlow { coflow: 0, flow: 2 });
    merged.check().unwrap();
    // The second stage waits for both jobs of the first.
    let out = replay_at_unit_rate(&merged, "saath:requeue=on");
    assert!(out.coflows[1].released_at >= out.coflows[0].end - 1e-9);
}

#[test]
fn section_4_3_merged_stage_starts_with_its_first_job() {
    let mut w = workload(
        6,
        vec![
            coflow(1, 0.0, &[(0, 3, 1.0)]),
            coflow(2, 9.0, &[(1, 4, 1.0)]),
            coflow(3, 2.0, &[(2, 5, 1.0)]),
            coflow(4, 1.0, &[(0, 5, 1.0)]),
        ],
    );
    w.coflows[0].compute_before = time(10.0);
    (w.coflows[0].deadline, w.coflows[1].deadline) = (Some(time(3.0)), Some(time(7.0)));
    w.coflows[1].flows[0].data_delay = time(0.5);
    for (index, stage) in [0, 0, 1, 1].into_iter().enumerate() {
        (w.coflows[index].job, w.coflows[index].stage) = (Some(7), Some(stage));
    }
    let merged = w.merge_stages();
    let stage = &merged.coflows[0];
    assert_eq!(
        (stage.arrival, stage.compute_before, stage.deadline),
        (time(0.0), time(9.0), Some(time(4.0)))
    );
    let out = replay_at_unit_rate(&merged, "saath:requeue=on");
    assert_near(&[out.coflows[0].released_at], &[9.0], 1e-9, "release");
    assert_near(&out.coflows[0].flow_ends, &[11.0, 10.5], 1e-9, "flows");
    // Without a parent, the second stage arrives with the last of its jobs.
    w.coflows[3].parents = vec![0];
    w.coflows[3].compute_before = time(0.5);
    let merged = w.merge_stages();
    let stage = &merged.coflows[1];
    assert_eq!((stage.arrival, stage.compute_before, &stage.parents), (time(2.0), time(0.0), &vec![0]));
    assert_eq!(stage.flows.iter().map(|f| f.data_delay.get()).collect::<Vec<_>>(), [0.0, 0.5]);
}

#[test]
fn section_4_3_a_failed_port_holds_its_flows_until_it_recovers() {
    let mut w =
        workload(4, vec![coflow(1, 0.0, &[(0, 2, 4.0), (1, 3, 4.0)]), coflow(2, 0.0, &[(1, 3, 1.0)])]);
    let rate =
        |at, factor| timed_event(at, WorkloadChange::PortRate { port: 0, side: PortSide::Both, factor });
    w.events = vec![rate(1.0, 0.0), rate(4.0, 1.0)];
    // From 1 on P0 is not available to C1. Its other flow is served by work conservation, behind C2, and ends
    // at 5; the first flow is served from 4 to 7.
    let out = replay_at_unit_rate(&w, "saath:requeue=on");
    assert_near(&out.coflows[0].flow_ends, &[7.0, 5.0], 1e-9, "C1");
    assert_near(&out.coflows[1].flow_ends, &[2.0], 1e-9, "C2");
}

#[test]
fn section_4_2_d5_deadline_expires_at_a_simultaneous_flow_completion() {
    // C1 starves on P0 and P1. Its deadline is at 4, when one of its two flows between P6 and P7 ends and no
    // other event occurs.
    let mut coflows = vec![coflow(1, 0.0, &[(0, 2, 1.0), (1, 3, 1.0), (6, 7, 4.0), (6, 7, 10.0)])];
    for port in [0, 1] {
        coflows.push(coflow(10 + port, 0.0, &[(port as u32, 4, 0.5)]));
        for second in 0..20 {
            coflows.push(coflow(100 * (1 + port) + second, second as f64 + 0.5, &[(port as u32, 5, 1.0)]));
        }
    }
    for (index, c) in coflows.iter_mut().enumerate().skip(1) {
        // Each flow has its own receiver.
        c.flows[0].dst = 8 + index as u32;
    }
    let out = replay_at_unit_rate(&workload(64, coflows), "saath:start=64B:d=0.0625");
    assert_near(&out.coflows[0].flow_ends[..2], &[5.0, 5.0], 1e-9, "C1");
}

#[test]
fn section_4_3_restarted_flow_counts_zero_sent_bytes() {
    let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 1, 5.0)])]);
    w.events = vec![timed_event(3.0, WorkloadChange::RestartFlow { coflow: 0, flow: 0 })];
    for policy in [
        "saath:start=2B:growth=2:requeue=on",
        "saath:start=2B:growth=2",
        "saath:start=2B:growth=2:per-flow=off",
    ] {
        let queues = QueueRecorder::record(1, &w, policy);
        assert_queues(&queues, &[(0.0, 0), (2.0, 1), (3.0, 0), (5.0, 1), (7.0, 2)]);
    }
}

#[test]
fn section_4_3_sent_bytes_count_while_data_is_unavailable() {
    let mut w = workload(4, vec![coflow(1, 0.0, &[(0, 2, 3.0), (1, 3, 3.0)])]);
    w.coflows[0].flows[1].data_delay = time(1.0);
    w.events = vec![timed_event(2.5, WorkloadChange::DelayFlow { coflow: 0, flow: 0, until: time(5.0) })];
    // The first flow passes the first threshold, 2, at 2; the second does not reach it before 3.
    let queues = QueueRecorder::record(1, &w, "saath:start=4B");
    assert_queues(&queues, &[(0.0, 0), (2.0, 1)]);
}
