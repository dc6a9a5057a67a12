//! Tests the utilization of links over time.

use crate::common::{assert_near, coflow, options, replay_at_unit_rate, timed_event, workload};
use weir_core::model::{PortSide, WorkloadChange};
use weir_core::policy;
use weir_sim::outcome::LinkUse;
use weir_sim::{NoObserver, Outcome, ReplayOptions, replay};

/// The lengths of the parts of the time.
fn part_lengths(used: &LinkUse, makespan: f64) -> Vec<f64> {
    let parts = used.send.first().map_or(0, Vec::len);
    (0..parts).map(|part| (makespan - part as f64 * used.part_seconds).min(used.part_seconds)).collect()
}

/// The seconds in which a link was busy.
fn busy_seconds(parts: &[f64], lengths: &[f64]) -> f64 {
    parts.iter().zip(lengths).map(|(part, length)| part * length).sum()
}

/// Checks that no link exceeds its capacity in a part of the time, and, if capacities are constant, that the parts add up to the
/// utilization of the whole time.
pub fn check_link_use(outcome: &Outcome, has_constant_capacities: bool) -> Result<(), String> {
    let used = outcome.link_use.as_ref().ok_or("no utilization")?;
    let lengths = part_lengths(used, outcome.makespan);
    if lengths.len() > 128 || (outcome.makespan > 1e-4 && lengths.len() < 64) {
        return Err(format!("{} parts", lengths.len()));
    }
    let sides = [
        (&used.send, &outcome.send_utilization),
        (&used.recv, &outcome.recv_utilization),
        (&used.trunks, &outcome.trunk_utilization),
    ];
    for (links, means) in sides {
        if links.len() != means.len() {
            return Err(format!("{} links instead of {}", links.len(), means.len()));
        }
        for (link, (parts, mean)) in links.iter().zip(means).enumerate() {
            // A rounding error in a time is multiplied by the rate.
            let rounding = 1e-6 + 1e-12 * outcome.makespan / used.part_seconds;
            if let Some(part) = parts.iter().find(|part| !(0.0..=1.0 + rounding).contains(*part)) {
                return Err(format!("link {link} has a utilization of {part}"));
            }
            let found = busy_seconds(parts, &lengths) / outcome.makespan;
            if has_constant_capacities && (found - mean).abs() > rounding && outcome.makespan > 0.0 {
                return Err(format!("link {link} has a mean utilization of {found} instead of {mean}"));
            }
        }
    }
    Ok(())
}

#[test]
fn parts_show_when_links_were_busy() {
    // Under FIFO, port 0 sends from 0 to 3, and port 1 receives from 0 to 2 and, after the second coflow, from 6 to 8.
    let all = workload(
        2,
        vec![coflow(1, 0.0, &[(0, 1, 2.0)]), coflow(2, 0.0, &[(0, 0, 1.0)]), coflow(3, 6.0, &[(1, 1, 2.0)])],
    );
    let outcome = replay_at_unit_rate(&all, "fifo");
    check_link_use(&outcome, true).unwrap();
    let used = outcome.link_use.unwrap();
    let lengths = part_lengths(&used, outcome.makespan);
    let between = |parts: &[f64], from: f64, to: f64| {
        let parts = parts.iter().zip(&lengths).enumerate();
        let inside = parts.filter(|(part, _)| {
            let start = *part as f64 * used.part_seconds;
            (from..to).contains(&start)
        });
        inside.map(|(_, (part, length))| part * length).sum::<f64>()
    };
    let slack = 2.0 * used.part_seconds;
    let found = [
        between(&used.send[0], 0.0, 3.0 + slack),
        between(&used.send[0], 3.0 + slack, 9.0),
        between(&used.recv[1], 0.0, 2.0 + slack),
        between(&used.recv[1], 2.0 + slack, 6.0 - slack),
        between(&used.recv[1], 6.0 - slack, 9.0),
    ];
    assert_near(&found, &[3.0, 0.0, 2.0, 0.0, 2.0], 1e-6, "seconds");
}

#[test]
fn slow_port_is_busy_at_its_lower_capacity() {
    let mut all = workload(2, vec![coflow(1, 0.0, &[(0, 1, 2.0)])]);
    let slow = WorkloadChange::PortRate { port: 0, side: PortSide::Send, factor: 0.25 };
    all.events = vec![timed_event(0.0, slow)];
    let used = replay_at_unit_rate(&all, "fair").link_use.unwrap();
    assert!(used.send[0].iter().all(|part| (part - 1.0).abs() < 1e-6), "{used:?}");
    assert!(used.recv[1].iter().all(|part| (part - 0.25).abs() < 1e-6), "{used:?}");
}

#[test]
fn outcome_has_no_link_use_unless_it_is_kept() {
    let all = workload(2, vec![coflow(1, 0.0, &[(0, 1, 2.0)])]);
    let options = ReplayOptions { keep_link_use: false, ..options(1.0, 0.0) };
    let outcome = replay(&all, policy::build("fair").unwrap(), &options, &mut NoObserver).unwrap();
    assert_eq!(outcome.link_use, None);
}
