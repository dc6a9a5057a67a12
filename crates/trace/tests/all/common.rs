//! Random workloads, and base traces for edits.

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use weir_core::model::{CoflowSpec, FlowSpec, PortSide, ServiceNames, TimedEvent, Workload, WorkloadChange};
use weir_core::units::{Bytes, Time};
use weir_trace::{Trace, TraceOptions, TraceUnit, read_from};

/// Reads a text in either format.
pub fn read_trace(text: &str, unit: TraceUnit) -> Result<Trace, String> {
    read_from(text.as_bytes(), "t", &TraceOptions { unit, ..TraceOptions::default() })
        .map_err(|e| e.to_string())
}

/// Short decimal numbers, as people write them, and numbers with many digits.
fn any_number(max: f64) -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => (0_u32..2000).prop_map(f64::from),
        1 => (0_u32..2_000_000).prop_map(|n| f64::from(n) / 1000.0),
        2 => (0.0..1.0).prop_map(move |part: f64| part * max),
        1 => 1e-9..1e-3,
        1 => Just(0.0),
    ]
}

pub fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![any_number(1e12), any_number(1000.0).prop_map(|mb| mb * 1e6), Just(5e-324), Just(3e-310)]
        .prop_map(|b| Bytes::new(b).unwrap())
}

pub fn any_time() -> impl Strategy<Value = Time> {
    prop_oneof![any_number(1e9), any_number(1000.0).prop_map(|ms| ms / 1e3), Just(5e-324)]
        .prop_map(|s| Time::new(s).unwrap())
}

fn any_unit() -> impl Strategy<Value = TraceUnit> {
    prop_oneof![Just(TraceUnit::MB), Just(TraceUnit::MiB)]
}

/// Distinct ids in random order.
fn distinct_ids(count: usize) -> impl Strategy<Value = Vec<u64>> {
    let id = prop_oneof![0_u64..50, any::<u64>()];
    btree_set(id, count).prop_map(|ids| ids.into_iter().collect::<Vec<_>>()).prop_shuffle()
}

/// A workload that the coflow-benchmark format can express, and its unit.
pub fn benchmark_workload() -> impl Strategy<Value = (TraceUnit, Workload)> {
    (any_unit(), 1_u32..6, 0_usize..6).prop_flat_map(|(unit, ports, count)| {
        // Few ports, so that they repeat within mappers, within reducers and between them.
        let coflow = (any_number(1e11), vec(0..ports, 1..5), vec((0..ports, any_number(1e8)), 1..6));
        (distinct_ids(count), vec(coflow, count)).prop_map(move |(ids, coflows)| {
            let coflows = ids.into_iter().zip(coflows).map(|(id, (ms, mappers, reducers))| {
                let mut flows = Vec::new();
                for &src in &mappers {
                    for &(dst, megabytes) in &reducers {
                        let bytes_per_mapper =
                            Bytes::new(megabytes * unit.bytes() / mappers.len() as f64).unwrap();
                        flows.push(FlowSpec::new(src, dst, bytes_per_mapper));
                    }
                }
                CoflowSpec::new(id, Time::new(ms / 1e3).unwrap(), flows)
            });
            (
                unit,
                Workload {
                    ports,
                    coflows: coflows.collect(),
                    events: Vec::new(),
                    names: ServiceNames::default(),
                },
            )
        })
    })
}

fn any_flows(ports: u32) -> impl Strategy<Value = Vec<FlowSpec>> {
    let release = || prop_oneof![3 => Just(Time::ZERO), 1 => any_time()];
    let flow = move || {
        (0..ports, 0..ports, any_bytes(), release()).prop_map(|(src, dst, bytes, release)| FlowSpec {
            data_delay: release,
            ..FlowSpec::new(src, dst, bytes)
        })
    };
    let shuffle = (vec(0..ports, 1..5), vec((0..ports, any_bytes()), 1..5), release());
    let shuffle = shuffle.prop_map(|(mappers, reducers, release)| {
        let pairs = mappers.iter().flat_map(|&src| reducers.iter().map(move |&r| (src, r)));
        pairs
            .map(|(src, (dst, bytes))| FlowSpec { data_delay: release, ..FlowSpec::new(src, dst, bytes) })
            .collect()
    });
    prop_oneof![vec(flow(), 1..6), shuffle]
}

fn any_coflow(ports: u32) -> impl Strategy<Value = CoflowSpec> {
    let weight = prop_oneof![Just(1.0), 1e-9..1e9_f64];
    let job_position = (option::of(any::<u64>()), option::of(any::<u32>()), option::of(any::<u32>()));
    let computing = (any_time(), any_time(), any_time());
    let times = (any_time(), option::of(any_time()), option::of(any_time()), computing);
    let name_indices = (0..4_u32, 0..3_u32);
    (times, weight, job_position, name_indices, any_flows(ports)).prop_map(
        |(times, weight, (job, stage, wave), owner, flows)| {
            let (service, application) = owner;
            let (arrival, deadline, max_transfer_time, computing) = times;
            let (compute_before, overlapped_compute, compute_after) = computing;
            let plain = CoflowSpec::new(0, arrival, flows);
            let owned = CoflowSpec { service, application, ..plain };
            let timed = CoflowSpec { deadline, max_transfer_time, ..owned };
            let computing = CoflowSpec { compute_before, overlapped_compute, compute_after, ..timed };
            CoflowSpec { weight, job, stage, wave, ..computing }
        },
    )
}

fn any_event(ports: u32, coflows: Vec<usize>) -> impl Strategy<Value = TimedEvent> {
    let side = prop_oneof![Just(PortSide::Send), Just(PortSide::Receive), Just(PortSide::Both)];
    let port = (0..ports, side, prop_oneof![Just(0.0), Just(0.5), 0.0..1e6_f64]);
    let flow = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), option::of(any_time()));
    (any_time(), port, flow, any::<bool>()).prop_map(move |(at, (port, side, factor), flow, on_port)| {
        if on_port || coflows.is_empty() {
            return TimedEvent { time: at, change: WorkloadChange::PortRate { port, side, factor } };
        }
        let coflow = flow.0.index(coflows.len());
        let position = flow.1.index(coflows[coflow]);
        let what = match flow.2 {
            None => WorkloadChange::RestartFlow { coflow, flow: position },
            Some(until) => {
                let until = if until < at { at } else { until };
                WorkloadChange::DelayFlow { coflow, flow: position, until }
            }
        };
        TimedEvent { time: at, change: what }
    })
}

/// Names services and applications, which were drawn as numbers, in the order of their first use.
fn assign_names(mut coflows: Vec<CoflowSpec>) -> (Vec<CoflowSpec>, ServiceNames) {
    let mut names = ServiceNames::empty();
    let name_of =
        |number: u32| if number == 0 { ServiceNames::DEFAULT.to_owned() } else { format!("name-{number}") };
    for coflow in &mut coflows {
        let numbers = names.intern(&name_of(coflow.service), &name_of(coflow.application));
        (coflow.service, coflow.application) = numbers.expect("a few names fit");
    }
    let names = if coflows.is_empty() { ServiceNames::default() } else { names };
    (coflows, names)
}

/// Any workload within the limits.
pub fn any_workload() -> impl Strategy<Value = Workload> {
    (1_u32..8, 0_usize..6).prop_flat_map(|(ports, count)| {
        let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        let edges = vec(any::<u64>(), count);
        (distinct_ids(count), vec(any_coflow(ports), count), order, edges).prop_flat_map(
            move |(ids, mut coflows, order, edges)| {
                // A parent precedes its child in `order`, which differs from the order of the file.
                for (rank, &child) in order.iter().enumerate() {
                    coflows[child].id = ids[child];
                    let earlier = order[..rank].iter().filter(|&&p| edges[child] >> p & 1 == 1);
                    coflows[child].parents = earlier.copied().collect();
                }
                let lengths: Vec<usize> = coflows.iter().map(|c| c.flows.len()).collect();
                vec(any_event(ports, lengths), 0..5).prop_map(move |mut events| {
                    events.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
                    let (coflows, names) = assign_names(coflows.clone());
                    Workload { ports, coflows, events, names }
                })
            },
        )
    })
}
