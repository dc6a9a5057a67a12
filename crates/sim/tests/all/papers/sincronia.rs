//! Agarwal et al., "Sincronia: Near-Optimal Network Design for Coflows", SIGCOMM '18.

use weir_core::model::Workload;
use weir_core::policy::sincronia::{CoflowDemand, bssi};

use crate::common::{assert_near, check_ccts, coflow, mean, replay_ccts, workload};

/// C1 has eight unit flows, from each ingress to two egress ports; each other coflow has one of 2 + e.
fn figure_1(e: f64) -> Workload {
    let all: Vec<(u32, u32, f64)> = (0..4).flat_map(|i| [(i, i, 1.0), (i, (i + 1) % 4, 1.0)]).collect();
    let mut coflows = vec![coflow(1, 0.0, &all)];
    coflows.extend((0..4).map(|i| coflow(2 + u64::from(i), 0.0, &[(i, i, 2.0 + e)])));
    workload(4, coflows)
}

/// Durations at ingress ports, then at egress ports.
fn demands(workload: &Workload) -> Vec<CoflowDemand> {
    let ports = workload.ports as usize;
    let bytes_by_port = |flows: &[weir_core::model::FlowSpec]| {
        let mut times = vec![0.0; 2 * ports];
        for flow in flows {
            times[flow.src as usize] += flow.bytes.get();
            times[ports + flow.dst as usize] += flow.bytes.get();
        }
        times.into_iter().enumerate().filter(|(_, t)| *t > 0.0).collect()
    };
    workload
        .coflows
        .iter()
        .map(|c| CoflowDemand { weight: c.weight, link_seconds: bytes_by_port(&c.flows) })
        .collect()
}

#[test]
fn figure_1_order_of_bssi() {
    // Ties between ports go to the ingress side and there to the highest index: C5 is last, then C1.
    for e in [0.01, 0.1, 0.5] {
        assert_eq!(
            bssi(&demands(&figure_1(e)), 8, |link| usize::from(link >= 4)),
            [1, 2, 3, 0, 4],
            "e = {e}"
        );
    }
}

#[test]
fn figure_1_greedy_rates() {
    // C2, C3 and C4 first. Of C1, only the flow between the last ports can send, until 1; then C5 uses these
    // ports alone until 2 + e. C1's flows follow in the order of ports and leave the last ingress to C5
    // first: C5 ends at 3 + e, C1 at 4 + e.
    let e = 0.01;
    check_ccts(&figure_1(e), "sincronia", &[4.0 + e, 2.0 + e, 2.0 + e, 2.0 + e, 3.0 + e]);
    assert_near(&[mean(&replay_ccts(&figure_1(e), "sincronia"))], &[2.61], 1e-9, "mean");
}

#[test]
fn figure_1_varys_puts_the_wide_coflow_first() {
    for e in [0.01, 1e-6] {
        check_ccts(&figure_1(e), "varys", &[2.0, 4.0 + e, 4.0 + e, 4.0 + e, 4.0 + e]);
        assert_near(&[mean(&replay_ccts(&figure_1(e), "varys"))], &[3.6 + 0.8 * e], 1e-9, "mean");
    }
}

#[test]
fn figure_1_optimal() {
    // Among all greedily served orders, the best one has the wide coflow last.
    for e in [0.01, 1e-6] {
        check_ccts(&figure_1(e), "scf", &[4.0 + e, 2.0 + e, 2.0 + e, 2.0 + e, 2.0 + e]);
        let mut means = Vec::new();
        let mut order = vec![0, 1, 2, 3, 4];
        permute(&mut order, 0, &mut |order| {
            let mut w = figure_1(e);
            w.coflows = order.iter().map(|&at| w.coflows[at].clone()).collect();
            means.push(mean(&replay_ccts(&w, "fifo")));
        });
        assert_eq!(means.len(), 120);
        assert_near(&[means.into_iter().fold(f64::INFINITY, f64::min)], &[2.4 + e], 1e-9, "optimum");
    }
}

/// Calls `visit` with every permutation of the items from index `from` on.
fn permute(order: &mut Vec<usize>, from: usize, visit: &mut dyn FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for at in from..order.len() {
        order.swap(from, at);
        permute(order, from + 1, visit);
        order.swap(from, at);
    }
}

#[test]
fn algorithm_1_orders_by_weight() {
    // One port, 1 and 3 bytes: Smith's rule puts the larger w/d first.
    let mut w = workload(4, vec![coflow(1, 0.0, &[(0, 1, 1.0)]), coflow(2, 0.0, &[(0, 2, 3.0)])]);
    check_ccts(&w, "sincronia", &[1.0, 4.0]);
    w.coflows[1].weight = 4.0;
    check_ccts(&w, "sincronia", &[4.0, 3.0]);
}

#[test]
fn section_3_online_order_uses_remaining_bytes() {
    // At 4, C1 has 2 of 6 bytes left and C2 arrives with 3. By remaining bytes C1 continues; by original
    // sizes C2 would preempt it.
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 1, 6.0)]), coflow(2, 4.0, &[(0, 2, 3.0)])]);
    check_ccts(&w, "sincronia", &[6.0, 5.0]);
}
