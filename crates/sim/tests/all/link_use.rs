//! Tests the utilization of links over time.

use crate::cables::any_failures;
use crate::common::{
    WorkloadFeatures, assert_near, cases, coflow, options, replay_at_unit_rate, timed_event, workload,
};
use proptest::prelude::*;
use weir_core::engine::DecidesOver;
use weir_core::model::{PortSide, WorkloadChange};
use weir_core::policy;
use weir_sim::outcome::LinkUse;
use weir_sim::{NoObserver, Observer, Outcome, ReplayOptions, Snapshot, replay};

/// The lengths of the parts of the time. The last part ends at the makespan.
fn part_lengths(used: &LinkUse, makespan: f64) -> Vec<f64> {
    let parts = used.send.first().map_or(0, Vec::len);
    let mut lengths = vec![used.part_seconds; parts];
    if let Some(last) = lengths.last_mut() {
        *last = makespan - (parts - 1) as f64 * used.part_seconds;
    }
    lengths
}

/// The seconds in which a link was busy.
fn busy_seconds(parts: &[f64], lengths: &[f64]) -> f64 {
    parts.iter().zip(lengths).map(|(part, length)| part * length).sum()
}

/// Checks that no link exceeds its capacity in a part of the time, and, if capacities are constant, that the parts add up to the
/// utilization of the whole time.
pub fn check_link_use(outcome: &Outcome, interval: f64, has_constant_capacities: bool) -> Result<(), String> {
    let used = outcome.link_use.as_ref().ok_or("no utilization")?;
    let lengths = part_lengths(used, outcome.makespan);
    // The last schedule is at most an interval after the makespan.
    let latest = outcome.makespan + interval + 1e-6;
    if lengths.len() > 128 || (latest > 1e-4 && used.part_seconds * 64.0 > latest) {
        return Err(format!("{} parts of {} s", lengths.len(), used.part_seconds));
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
    check_link_use(&outcome, 0.0, true).unwrap();
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
fn many_links_have_fewer_parts() {
    // 2^17 links of 32 parts have 2^22 values.
    let all = workload(1 << 16, vec![coflow(1, 0.0, &[(0, 1, 2.0)])]);
    let used = replay_at_unit_rate(&all, "fifo").link_use.unwrap();
    let parts = used.send[0].len();
    assert!((16..=32).contains(&parts), "{parts} parts");
    assert!(used.send[0].iter().all(|part| (part - 1.0).abs() < 1e-6), "{:?}", used.send[0]);
}

#[test]
fn outcome_has_no_link_use_unless_it_is_kept() {
    let all = workload(2, vec![coflow(1, 0.0, &[(0, 1, 2.0)])]);
    let options = ReplayOptions { keep_link_use: false, ..options(1.0, 0.0) };
    let outcome = replay(&all, policy::build("fair").unwrap(), &options, &mut NoObserver).unwrap();
    assert_eq!(outcome.link_use, None);
}

/// A flow between two schedules.
struct SendingFlow {
    coflow: usize,
    flow: usize,
    rate: f64,
    links: Vec<usize>,
}

/// Records the rates of all flows and the capacities of all links. Links are sending sides, receiving sides, then trunks.
#[derive(Default)]
struct RateRecorder {
    /// The capacities before the first schedule, which an event can cause that changes them.
    nominal_rates: Vec<f64>,
    schedules: Vec<(f64, Vec<SendingFlow>, Vec<f64>)>,
}

impl Observer for RateRecorder {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let ports = snapshot.fabric().ports();
        // The position of a link with the workload's numbers of ports.
        let position = |link: usize| match link {
            link if link < ports => snapshot.workload_port(link as u32) as usize,
            link if link < 2 * ports => ports + snapshot.workload_port((link - ports) as u32) as usize,
            link => link,
        };
        let mut flows = Vec::new();
        for &slot in snapshot.active() {
            let coflow = snapshot.coflow(slot);
            for flow in coflow.live_flows() {
                flows.push(SendingFlow {
                    coflow: coflow.workload_index,
                    flow: coflow.spec_index(flow) as usize,
                    rate: snapshot.rate(slot, flow),
                    links: snapshot.flow_links(slot, flow).map(position).collect(),
                });
            }
        }
        let by_position = |in_order: &mut dyn Iterator<Item = f64>| {
            let mut capacities = vec![0.0; snapshot.nominal_rates().len()];
            in_order.enumerate().for_each(|(link, capacity)| capacities[position(link)] = capacity);
            capacities
        };
        self.nominal_rates = by_position(&mut snapshot.nominal_rates().iter().copied());
        let capacities = by_position(&mut snapshot.link_capacities());
        self.schedules.push((snapshot.now(), flows, capacities));
        self.schedules.len() < 20_000
    }
}

impl RateRecorder {
    /// The utilization by link in a part of the time: the integral of all rates, divided by that of the capacity.
    fn utilization(&self, outcome: &Outcome, from: f64, to: f64) -> Vec<f64> {
        let links = self.nominal_rates.len();
        let (mut bytes, mut capacity_bytes) = (vec![0.0; links], vec![0.0; links]);
        let first = (0.0, Vec::new(), self.nominal_rates.clone());
        let schedules: Vec<_> = std::iter::once(&first).chain(&self.schedules).collect();
        for (at, (start, flows, capacities)) in schedules.iter().enumerate() {
            let end = schedules.get(at + 1).map_or(f64::INFINITY, |next| next.0);
            let seconds = |end: f64| (end.min(to) - start.max(from)).max(0.0);
            capacity_bytes.iter_mut().zip(capacities).for_each(|(sum, rate)| *sum += rate * seconds(end));
            for SendingFlow { coflow, flow, rate, links } in flows {
                let flow_end = outcome.coflows[*coflow].flow_ends[*flow];
                links.iter().for_each(|&link| bytes[link] += rate * seconds(end.min(flow_end)));
            }
        }
        let quotient = |(bytes, of): (f64, f64)| if of > 0.0 { bytes / of } else { 0.0 };
        bytes.into_iter().zip(capacity_bytes).map(quotient).collect()
    }
}

proptest! {
    #![proptest_config(cases(40))]

    /// Under changes of ports, cables and flows, with policies that set rates and with every transport.
    #[test]
    fn utilization_of_every_part_equals_the_integral_of_rates(
        (workload, network) in any_failures(WorkloadFeatures::ALL),
        interval in prop::sample::select(vec![0.0, 0.5]),
        policy in prop::sample::select(vec!["fair", "saath", "varys", "aalo", "aalo:at=both", "weir"]),
        decides_over in prop::sample::select(vec![DecidesOver::Links, DecidesOver::Ports]),
    ) {
        let mut recorder = RateRecorder::default();
        let mut options = network.options(interval);
        options.network.decides_over = decides_over;
        let outcome = replay(&workload, policy::build(policy).unwrap(), &options, &mut recorder)
            .map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?;
        prop_assume!(outcome.makespan > 0.0 && !recorder.schedules.is_empty());
        let used = outcome.link_use.as_ref().unwrap();
        let found = [&used.send[..], &used.recv, &used.trunks].concat();
        for (part, length) in part_lengths(used, outcome.makespan).into_iter().enumerate() {
            let start = part as f64 * used.part_seconds;
            let end = start + length;
            let expected = recorder.utilization(&outcome, start, end);
            for (link, (found, expected)) in found.iter().zip(&expected).enumerate() {
                // A rounding error in a time is multiplied by the rate.
                let rounding = 1e-6 + 1e-11 * outcome.makespan / length;
                prop_assert!(
                    (found[part] - expected).abs() <= rounding,
                    "{}: link {} in part {}: found {}, expected {}", policy, link, part, found[part], expected
                );
            }
        }
    }
}
