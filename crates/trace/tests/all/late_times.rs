//! Traces that start late, such as at Unix times.

use weir_core::model::{Workload, WorkloadChange};
use weir_core::units::Time;
use weir_fields::FileError;
use weir_trace::{Trace, TraceOptions};

fn read(text: &str, step: Option<f64>) -> Result<Trace, FileError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let step = step.map(|step| Time::new(step).unwrap());
    weir_trace::read(file.path(), &TraceOptions { shift_step: step, ..TraceOptions::default() })
}

fn arrivals(workload: &Workload) -> Vec<f64> {
    workload.coflows.iter().map(|coflow| coflow.arrival.get()).collect()
}

/// Microseconds after a Unix time, which a binary64 in seconds cannot distinguish from their neighbours.
const UNIX_TIMES: &str = "\
weir-trace 1
ports 2
coflow 1 arrival=1700000000.004001s
flow 0 1 1kB
coflow 2 arrival=1700000000004.009ms
flow 0 1 1kB
coflow 3 parents=1
flow 0 1 1kB
event 1700000000.004000003s port=0 side=send rate=0.5
event 1.7e9s port=1 side=send rate=0.5
event 1700000000004002000ns late coflow=2 flow=0 until=1700000000.004500s
";

#[test]
fn unix_times_keep_nanoseconds_after_the_shift() {
    let trace = read(UNIX_TIMES, Some(0.004)).unwrap();
    assert_eq!(trace.time_shift.get(), 1_700_000_000.004);
    assert_eq!(arrivals(&trace.workload), [1e-6, 9e-6, 0.0]);
    let events = &trace.workload.events;
    let times: Vec<f64> = events.iter().map(|event| event.time.get()).collect();
    // The first one is before the origin.
    assert_eq!(times, [0.0, 3e-9, 2e-6]);
    assert!(matches!(events[2].change, WorkloadChange::DelayFlow { until, .. } if until.get() == 0.0005));

    let milliseconds = "2 2\n1 1700000000004.001 1 0 1 1:1\n2 1700000000004.0085 1 0 1 1:1\n";
    let trace = read(milliseconds, Some(1.0)).unwrap();
    assert_eq!(trace.time_shift.get(), 1.7e9);
    assert_eq!(arrivals(&trace.workload), [0.004_001, 0.004_008_5]);
}

#[test]
fn shift_is_a_multiple_of_the_step_and_only_of_traces_that_start_late() {
    let of = |first: &str, step| {
        let text = format!("weir-trace 1\nports 2\ncoflow 1 arrival={first}\nflow 0 1 1kB\n");
        let trace = read(&text, step).unwrap();
        (trace.time_shift.get(), arrivals(&trace.workload)[0])
    };
    assert_eq!(of("1000007s", Some(10.0)), (1_000_000.0, 7.0));
    assert_eq!(of("1000000s", Some(10.0)), (0.0, 1e6));
    assert_eq!(of("1000000000s", None), (0.0, 1e9));
    // One early coflow decides.
    let mixed = UNIX_TIMES.replace("arrival=1700000000.004001s", "arrival=5s");
    let error = read(&mixed, Some(1.0)).unwrap_err().to_string();
    assert!(
        error.ends_with(":5: field `arrival`: `1700000000.00401s`: expected a time of at most 1e9 seconds"),
        "{error}"
    );
}

#[test]
fn times_beyond_the_bound_are_refused_with_their_line() {
    let late = UNIX_TIMES.replace("1700000000004.009ms", "2800000000s");
    let error = read(&late, Some(1.0)).unwrap_err().to_string();
    assert!(
        error.contains(
            ":5: field `arrival`: `2800000000s`: expected a time of at most 1e9 seconds after 1700000000s"
        ),
        "{error}"
    );
    let late = UNIX_TIMES.replace("until=1700000000.004500s", "until=90000000000s");
    let error = read(&late, Some(1.0)).unwrap_err().to_string();
    assert!(
        error.contains(":11: field `until`: `90000000000s`: expected a time of at most 1e9 seconds after"),
        "{error}"
    );
    let error = read(UNIX_TIMES, None).unwrap_err().to_string();
    assert!(
        error.contains(
            ":3: field `arrival`: `1700000000.004001s`: expected a time of at most 1e9 seconds; help: "
        ) && error.ends_with("without --keep-arrivals, may have later times"),
        "{error}"
    );
    let milliseconds = "2 1\n1 1700000000004 1 0 1 1:1\n";
    let error = read(milliseconds, None).unwrap_err().to_string();
    assert!(
        error.contains("`1700000000004`: expected a time of 0 to 1e12 milliseconds; help: a trace"),
        "{error}"
    );
    let error = read(&UNIX_TIMES.replace("1.7e9s", "1e12s"), Some(1.0)).unwrap_err().to_string();
    assert!(error.contains(":10: field `time`: `1e12s`: expected a time of at most 1e11 seconds"), "{error}");
}
