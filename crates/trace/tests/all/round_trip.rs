//! Written workloads read back as equal workloads, in both formats.

use crate::common::{any_workload, benchmark_workload, read_trace};
use crate::public_trace::public_trace;
use proptest::prelude::*;
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Time};
use weir_trace::{Format, TraceOptions, TraceUnit, WriteError, coflow_benchmark, format, read};

fn write_benchmark(workload: &Workload, unit: TraceUnit) -> Result<String, WriteError> {
    let mut out = Vec::new();
    coflow_benchmark::write(workload, unit, &mut out)?;
    Ok(String::from_utf8(out).expect("the writer writes text"))
}

fn write_own_format(workload: &Workload) -> String {
    let mut out = Vec::new();
    format::write(workload, &[], &mut out).expect("this workload can be written");
    String::from_utf8(out).expect("the writer writes text")
}

proptest! {
    #[test]
    fn coflow_benchmark_round_trips((unit, workload) in benchmark_workload()) {
        let text = write_benchmark(&workload, unit).expect("such a workload can be written");
        let trace = read_trace(&text, unit).expect("what is written can be read");
        prop_assert_eq!(trace.format, Format::CoflowBenchmark(unit));
        prop_assert_eq!(trace.workload, workload);
    }

    #[test]
    fn own_format_round_trips(workload in any_workload()) {
        let text = write_own_format(&workload);
        let trace = read_trace(&text, TraceUnit::MB).expect("what is written can be read");
        prop_assert_eq!(trace.format, Format::Weir);
        prop_assert_eq!(&trace.workload, &workload, "{}", text);
        prop_assert_eq!(write_own_format(&trace.workload), text);
    }

    #[test]
    fn own_format_round_trips_benchmark_workloads((_, workload) in benchmark_workload()) {
        let trace = read_trace(&write_own_format(&workload), TraceUnit::MB).expect("what is written can be read");
        prop_assert_eq!(trace.workload, workload);
    }

    /// The public format stores a workload exactly, or returns an error.
    #[test]
    fn coflow_benchmark_writes_exactly_or_returns_an_error(workload in any_workload()) {
        if let Ok(text) = write_benchmark(&workload, TraceUnit::MiB) {
            let trace = read_trace(&text, TraceUnit::MiB).expect("what is written can be read");
            prop_assert_eq!(trace.workload, workload);
        }
    }
}

#[test]
fn public_trace_round_trips_byte_for_byte() {
    let Some(path) = public_trace() else { return };
    let text = std::fs::read_to_string(&path).expect("the file can be read");
    for unit in [TraceUnit::MB, TraceUnit::MiB] {
        let trace = read(&path, &TraceOptions { unit, ..TraceOptions::default() })
            .expect("the public trace can be read");
        assert_eq!(trace.workload.flow_count(), 706_397);
        let back = write_benchmark(&trace.workload, unit).expect("it can be written");
        assert!(back == text, "the bytes differ in {unit}");

        let own = write_own_format(&trace.workload);
        let again = read_trace(&own, TraceUnit::MB).expect("it can be read in the own format");
        assert!(again.workload == trace.workload);
        assert!(own.len() < 2 * text.len(), "shuffles are written on one line each: {}", own.len());
    }
}

#[test]
fn written_numbers_use_the_public_trace_notation() {
    let text = "3 2\n1 0 2 0 1 2 1:65.0 2:0.5\n7 10833.25 1 2 1 2:0.0\n";
    let trace = read_trace(text, TraceUnit::MiB).unwrap();
    assert_eq!(write_benchmark(&trace.workload, TraceUnit::MiB).unwrap(), text);
    let flows = &trace.workload.coflows[0].flows;
    let mib = |n: f64| Bytes::new(n * 1_048_576.0).unwrap();
    let expected = [(0, 1, mib(32.5)), (0, 2, mib(0.25)), (1, 1, mib(32.5)), (1, 2, mib(0.25))];
    assert_eq!(*flows, expected.map(|(s, d, b)| FlowSpec::new(s, d, b)));
    assert_eq!(trace.workload.coflows[1].arrival, Time::new(10.83325).unwrap());
}

#[test]
fn coflow_benchmark_writer_rejects_unsupported_features() {
    let flow = |src, dst, mb: f64| FlowSpec::new(src, dst, Bytes::new(mb * 1e6).unwrap());
    let with = |flows: Vec<FlowSpec>, change: fn(&mut CoflowSpec)| {
        let mut coflow = CoflowSpec::new(9, Time::ZERO, flows);
        change(&mut coflow);
        let workload =
            Workload { ports: 4, coflows: vec![coflow], events: Vec::new(), names: ServiceNames::default() };
        write_benchmark(&workload, TraceUnit::MB).map_err(|e| e.to_string())
    };
    let one = || vec![flow(0, 1, 1.0)];
    assert!(with(one(), |_| ()).is_ok());
    for (result, part) in [
        (with(vec![flow(0, 1, 1.0), flow(1, 2, 1.0)], |_| ()), "every mapper to every reducer"),
        (with(vec![flow(0, 2, 1.0), flow(1, 2, 2.0)], |_| ()), "every mapper to every reducer"),
        (with(one(), |c| c.weight = 2.0), "a weight"),
        (with(one(), |c| c.deadline = Some(Time::ZERO)), "a deadline"),
        (with(one(), |c| c.job = Some(1)), "a job"),
        (with(one(), |c| c.stage = Some(1)), "a stage"),
        (with(one(), |c| c.wave = Some(1)), "a wave"),
        (with(one(), |c| c.compute_before = Time::new(1.0).unwrap()), "computes before"),
        (with(one(), |c| c.overlapped_compute = Time::new(1.0).unwrap()), "computes during"),
        (with(one(), |c| c.compute_after = Time::new(1.0).unwrap()), "computes after"),
        (with(one(), |c| c.max_transfer_time = Some(Time::new(1.0).unwrap())), "limits the time"),
        (with(one(), |c| c.flows[0].data_delay = Time::new(1.0).unwrap()), "released later"),
        (with(one(), |c| c.arrival = Time::new(2e9).unwrap()), "beyond 1e9 s"),
        (with(one(), |c| c.flows[0].bytes = Bytes::new(1e17).unwrap()), "2^53"),
        (with(one(), |c| c.flows.clear()), "has no flows"),
    ] {
        let error = result.expect_err(part);
        assert!(error.contains(part) && error.contains("coflow 9"), "{error}");
    }
}

#[test]
fn the_public_format_has_no_services() {
    let text = "weir-trace 1\nports 2\ncoflow 5\nflow 0 1 1MB\ncoflow 1 application=sort\nflow 0 1 1MB\n";
    let trace = read_trace(text, TraceUnit::MB).unwrap();
    let error = write_benchmark(&trace.workload, TraceUnit::MB).unwrap_err().to_string();
    assert_eq!(error, "coflow 1 cannot be written in this format: it has a service or an application");
}

#[test]
fn services_and_applications_round_trip() {
    let text = "weir-trace 1\nports 2\ncoflow 1 arrival=0s service=ads application=sort\nflow 0 1 1MB\n\
                coflow 2 arrival=0s service=ads\nflow 0 1 1MB\ncoflow 3 arrival=0s\nflow 0 1 1MB\n";
    let workload = read_trace(text, TraceUnit::MB).unwrap().workload;
    let owners: Vec<(u32, u32)> = workload.coflows.iter().map(|c| (c.service, c.application)).collect();
    assert_eq!(owners, [(0, 0), (0, 1), (1, 0)]);
    assert_eq!((workload.names.service(0), workload.names.service(1)), ("ads", "default"));
    assert_eq!(workload.names.applications(0), ["sort", "default"]);
    assert_eq!(write_own_format(&workload), text);
}

#[test]
fn writer_rejects_names_that_would_be_renumbered() {
    let text = "weir-trace 1\nports 1\ncoflow 1 service=a\nflow 0 0 1B\ncoflow 2 service=b\nflow 0 0 1B\n";
    let mut workload = read_trace(text, TraceUnit::MB).unwrap().workload;
    workload.coflows.reverse();
    let error = format::write(&workload, &[], Vec::new()).unwrap_err().to_string();
    assert!(error.contains("not in the order of their first coflows"), "{error}");
}

#[test]
fn own_format_writer_rejects_workloads_that_cannot_round_trip() {
    let flow = FlowSpec::new(0, 0, Bytes::ZERO);
    let mut twice = CoflowSpec::new(1, Time::ZERO, vec![flow]);
    twice.parents = vec![1, 1];
    let coflows = vec![twice, CoflowSpec::new(2, Time::ZERO, vec![flow])];
    let workload = Workload { ports: 1, coflows, events: Vec::new(), names: ServiceNames::default() };
    let error = format::write(&workload, &[], Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "coflow 1 cannot be written in this format: it names its parent 2 twice");
}

#[test]
fn documented_trace_example_round_trips() {
    let document = include_str!("../../../../docs/trace-format.md");
    let example: Vec<&str> = document
        .lines()
        .skip_while(|line| *line != "    weir-trace 1")
        .map_while(|line| line.strip_prefix("    "))
        .collect();
    let workload = read_trace(&example.join("\n"), TraceUnit::MB).unwrap().workload;
    let coflow = workload.coflows.iter().find(|coflow| coflow.id == 7).unwrap();
    let parents: Vec<u64> = coflow.parents.iter().map(|&at| workload.coflows[at].id).collect();
    assert_eq!((parents, coflow.flows.len(), workload.events.len()), (vec![4, 5], 6, 3));
}
