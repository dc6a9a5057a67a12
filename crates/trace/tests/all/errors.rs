//! Errors name the place, the value and the expected input.

use std::path::Path;

use crate::common::read_trace;
use crate::error_cases::check_error_cases;
use weir_trace::{Limits, TraceOptions, TraceUnit, read, read_from};

fn error_of(text: &str) -> String {
    match read_trace(text, TraceUnit::MB) {
        Ok(trace) => panic!("{text:?} was read as {trace:?}"),
        Err(error) => error,
    }
}

#[test]
fn trace_errors_name_line_field_value_and_expectation() {
    let read = |text: &str| read_trace(text, TraceUnit::MB);
    check_error_cases("coflow_benchmark", "5 1\n", read);
    check_error_cases("weir_trace", "weir-trace 1\nports 4\n", read);
}

#[test]
fn lengths_and_numbers_of_names_are_limited() {
    let long = error_of(&format!("weir-trace 1\nports 1\ncoflow 1 service={}\n", "x".repeat(101)));
    assert!(long.starts_with("t:3: field `service`: `xxx") && long.contains("1 to 100 letters"), "{long}");
    let coflow = |id: u32| format!("coflow {id} service=s{id}\nflow 0 0 1B\n");
    let many = error_of(&format!("weir-trace 1\nports 1\n{}", (0..=4096).map(coflow).collect::<String>()));
    assert!(many.starts_with("t:8195: field `application`: `default`"), "{many}");
    assert!(many.contains("at most 4096 applications"), "{many}");
}

#[test]
fn coflow_benchmark_is_lenient_about_white_space() {
    let plain = read_trace("5 1\n1 0 1 0 1 1:1.5\n", TraceUnit::MB).unwrap();
    for text in ["5 1\r\n1 0 1 0 1 1:1.5\r\n", "5 1  \n1 0 1 0\t1 1:1.5 \n\n \r\n\n", "5 1\n1 0 1 0 1 1:1.5"]
    {
        assert_eq!(read_trace(text, TraceUnit::MB).unwrap(), plain);
    }
}

#[test]
fn reader_sorts_events_and_drops_comments() {
    let text = "weir-trace 1 # header\n\n  ports 2 # ports\nevent 9s restart coflow=4 flow=1\n\
                event 1s port=1 side=both rate=0\ncoflow 4 # no keys\nshuffle 0,1 1:3MB release=1s\n";
    let workload = read_trace(text, TraceUnit::MB).unwrap().workload;
    let times: Vec<f64> = workload.events.iter().map(|e| e.time.get()).collect();
    assert_eq!(times, [1.0, 9.0]);
    assert_eq!(workload.coflows[0].flows.len(), 2);
    assert!(workload.coflows[0].flows.iter().all(|f| f.bytes.get() == 1.5e6 && f.data_delay.get() == 1.0));
}

#[test]
fn limits_are_checked_before_allocation() {
    let limits = Limits { max_flows: 10, max_line_bytes: 200, ..Limits::default() };
    let error = |text: &str| {
        read_from(text.as_bytes(), "t", &TraceOptions { limits, ..TraceOptions::default() })
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let own_trace = |line: &str| format!("weir-trace 1\nports 9\ncoflow 1\nflow 0 0 1B\n{line}");
    for (text, start) in [
        ("9 11".to_owned(), "t:1: field `coflows`: `11`"),
        ("9 1\n1 0 11 0".to_owned(), "t:2: field `mappers`: `11 x 1 flows after 0`"),
        ("9 1\n1 0 3 0 1 2 4 0:1".to_owned(), "t:2: field `reducers`: `3 x 4 flows after 0`"),
        ("9 2\n1 0 1 0 1 0:1\n2 0 2 0 1 5 0:1".to_owned(), "t:3: field `reducers`: `2 x 5 flows after 1`"),
        (own_trace(&"flow 0 0 1B\n".repeat(10)), "t:14: field `flows`: `11`"),
        (own_trace("shuffle 0,1 0:1B,1:1B,2:1B,3:1B,4:1B"), "t:5: field `flows`: `11`"),
        (own_trace("coflow 2 parents=1,3,4,5,6,7,8,9,10,11,12"), "t:5: field `parents`: `11`"),
        (own_trace(&"event 1s port=0 side=send rate=0\n".repeat(11)), "t:15: field `event`: `11`"),
    ] {
        let error = error(&text);
        assert!(error.starts_with(start) && error.contains("at most 10"), "{error}");
        assert!(error.contains("--max-flows"), "{error}");
    }
    let long = error(&format!("9 1\n{}", "1 ".repeat(200)));
    assert!(long.starts_with("t:2: field `line`: `1 1 1 1") && long.contains("at most 200 bytes"), "{long}");
    assert!(
        read_from(
            format!("9 0\n{}\n", " ".repeat(199)).as_bytes(),
            "t",
            &TraceOptions { limits, ..TraceOptions::default() }
        )
        .is_ok()
    );
}

#[test]
fn overlong_line_is_rejected_before_it_is_read_fully() {
    let limits = Limits { max_line_bytes: 1000, ..Limits::default() };
    let endless = std::io::BufReader::new(std::io::repeat(b'1'));
    let error =
        read_from(endless, "t", &TraceOptions { limits, ..TraceOptions::default() }).unwrap_err().to_string();
    assert!(error.contains("a line of at most 1000 bytes"), "{error}");
}

#[test]
fn error_values_are_shortened_to_one_line() {
    let error = error_of(&format!("{}\u{7}\u{1b}[31m 4", "9".repeat(50)));
    assert!(error.contains(r"99\u{7}\u{1b}[31m`"), "{error}");
    let error = error_of("\u{feff}\u{feff}5 1\n");
    assert!(
        error.starts_with("t:1: field `ports`: `\\u{feff}5`: expected a number of ports from 1 to 65536"),
        "{error}"
    );
    let error = error_of(&"9".repeat(5000));
    assert!(error.len() < 300, "{error}");
    let bytes = read_from(&b"5 1\n\xff\xfe"[..], "t", &TraceOptions::default()).unwrap_err();
    assert!(bytes.to_string().starts_with("t:2: field `line`"), "{bytes}");
    assert!(bytes.to_string().ends_with("expected UTF-8 text"), "{bytes}");
}

#[test]
fn unreadable_files_are_named_in_errors() {
    let read = |path: &Path| read(path, &TraceOptions::default()).unwrap_err().to_string();
    let missing = read(Path::new("no/such/trace.txt"));
    assert!(missing.starts_with("no/such/trace.txt: cannot be read: "), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().display().to_string();
    assert!(read(folder.path()).starts_with(&format!("{name}: cannot be read: ")));
}

#[test]
fn units_reject_other_spellings() {
    assert_eq!("MiB".parse::<TraceUnit>(), Ok(TraceUnit::MiB));
    assert_eq!(TraceUnit::MB.to_string().parse::<TraceUnit>(), Ok(TraceUnit::MB));
    let error = "mb".parse::<TraceUnit>().unwrap_err().to_string();
    assert_eq!(error, "`mb` is not a trace unit: expected MB (10^6 bytes) or MiB (2^20 bytes)");
}
