//! Errors name the place, the value and the expected input.

use std::path::Path;

use crate::common::read_trace;
use weir_trace::{Limits, TraceUnit, read, read_from};

fn error_of(text: &str) -> String {
    match read_trace(text, TraceUnit::MB) {
        Ok(trace) => panic!("{text:?} was read as {trace:?}"),
        Err(error) => error,
    }
}

/// Checks the start of each text's error and a part of it.
fn check_errors(cases: &[(&str, &str, &str)]) {
    for (text, start, part) in cases {
        let error = error_of(text);
        assert!(error.starts_with(start) && error.contains(part), "{text:?} gave {error:?}");
    }
}

#[test]
fn error_messages_are_complete() {
    let error = error_of("150 2\n1 0 1 22 1 65:1.0\n2 5 1 3 3 1:1 2:2 4:-4.0\n");
    assert_eq!(error, "t:3: field `reducer 3 size`: `-4.0`: expected a size of 0 or more megabytes");
}

#[test]
fn name_errors_name_the_line() {
    let long = format!("weir-trace 1\nports 1\ncoflow 1 service={}\n", "x".repeat(101));
    let mut many = "weir-trace 1\nports 1\n".to_owned();
    for id in 0..=4096 {
        many.push_str(&format!("coflow {id} service=s{id}\nflow 0 0 1B\n"));
    }
    check_errors(&[
        ("weir-trace 1\nports 1\ncoflow 1 service=\n", "t:3: field `service`: ``", "1 to 100 letters"),
        ("weir-trace 1\nports 1\ncoflow 1 application=a/b\n", "t:3: field `application`: `a/b`", "letters"),
        ("weir-trace 1\nports 1\ncoflow 1 service=a service=b\n", "t:3: field `service`: `b`", "once"),
        (&long, "t:3: field `service`: `xxx", "1 to 100 letters"),
        (&many, "t:8195: field `application`: `default`", "at most 4096 applications"),
    ]);
}

#[test]
fn coflow_benchmark_errors_name_the_line() {
    check_errors(&[
        ("", "t:1: field `ports`: `end of file`", "weir-trace 1"),
        ("hello\n", "t:1: field `ports`: `hello`", "1 to 65536"),
        ("\u{feff}\u{feff}5 1\n", "t:1: field `ports`: `\\u{feff}5`", "1 to 65536"),
        ("0 0", "t:1: field `ports`: `0`", "1 to 65536"),
        ("65537 0", "t:1: field `ports`: `65537`", "1 to 65536"),
        ("+5 0", "t:1: field `ports`: `+5`", ""),
        ("5", "t:1: field `coflows`: `end of line`", "whole number"),
        ("5 -1", "t:1: field `coflows`: `-1`", "whole number"),
        ("5 1 9", "t:1: field `after the last field`: `9`", "end of line"),
        ("5 99999999999999999999", "t:1: field `coflows`", "whole number"),
        ("5 18446744073709551615", "t:1: field `coflows`", "--max-flows"),
        ("5 2\n1 0 1 0 1 1:1\n", "t:3: field `coflow 2 of 2`: `end of file`", "<id>"),
        ("5 1\n\n", "t:2: field `id`: `end of line`", "<id>"),
        (
            "5 1\n1 0 1 0 1 1:1\n2 0 1 0 1 1:1\n",
            "t:3: field `after the last coflow`",
            "the first line states 1 coflows",
        ),
        ("5 1\nx 0 1 0 1 1:1\n", "t:2: field `id`: `x`", "whole number"),
        ("5 1\n1\n", "t:2: field `arrival`: `end of line`", "milliseconds"),
        ("5 1\n1 -1 1 0 1 1:1\n", "t:2: field `arrival`: `-1`", "milliseconds"),
        ("5 1\n1 -0 1 0 1 1:1\n", "t:2: field `arrival`: `-0`", "milliseconds"),
        ("5 1\n1 nan 1 0 1 1:1\n", "t:2: field `arrival`: `nan`", "milliseconds"),
        ("5 1\n1 1e400 1 0 1 1:1\n", "t:2: field `arrival`: `1e400`", "milliseconds"),
        ("5 1\n1 1e13 1 0 1 1:1\n", "t:2: field `arrival`: `1e13`", "1e12 milliseconds"),
        ("5 1\n1 0 0 1 1:1\n", "t:2: field `mappers`: `0`", "1 or more"),
        ("5 1\n1 0 2 0\n", "t:2: field `mapper 2`: `end of line`", "0 to 4"),
        ("5 1\n1 0 2 0 5 1 1:1\n", "t:2: field `mapper 2`: `5`", "0 to 4"),
        ("5 1\n1 0 1 0\n", "t:2: field `reducers`: `end of line`", "1 or more"),
        ("5 1\n1 0 1 0 0\n", "t:2: field `reducers`: `0`", "1 or more"),
        ("5 1\n1 0 1 0 1.5\n", "t:2: field `reducers`: `1.5`", "1 or more"),
        ("5 1\n1 0 1 0 2 1:1\n", "t:2: field `reducer 2`: `end of line`", "<port>:<MB>"),
        ("5 1\n1 0 1 0 1 11\n", "t:2: field `reducer 1`: `11`", "<port>:<MB>"),
        ("5 1\n1 0 1 0 1 5:1\n", "t:2: field `reducer 1 port`: `5`", "0 to 4"),
        ("5 1\n1 0 1 0 1 1:\n", "t:2: field `reducer 1 size`: ``", "megabytes"),
        ("5 1\n1 0 1 0 1 1:inf\n", "t:2: field `reducer 1 size`: `inf`", "megabytes"),
        ("5 1\n1 0 1 0 1 1:1:1\n", "t:2: field `reducer 1 size`: `1:1`", "megabytes"),
        ("5 1\n1 0 1 0 1 1:1e-300\n", "t:2: field `reducer 1 size`: `1e-300`", "1e-12"),
        ("5 1\n1 0 1 0 1 1:1e300\n", "t:2: field `reducer 1 size`: `1e300`", "2^53"),
        ("5 1\n1 0 1 0 2 1:8e9 2:8e9\n", "t:2: field `reducer sizes`", "2^53"),
        ("5 1\n1 0 1 0 1 1:1 1:1\n", "t:2: field `after the last field`: `1:1`", "end of line"),
        ("5 2\n7 0 1 0 1 1:1\n7 0 1 0 1 1:1\n", "t:3: field `id`: `7`", "line 2 has it"),
        ("5 1\n1 0 18446744073709551615 0", "t:2: field `mappers`", "--max-flows"),
        ("5 1\n1 0 2 0 1 9223372036854775808 0:1", "t:2: field `reducers`", "--max-flows"),
    ]);
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
fn own_format_errors_name_the_line() {
    const LINE_3: &str = "t:3: field ";
    let after_header: &[(&str, &str, &str)] = &[
        ("flow 0 1 5MB", "`line`: `a flow without a coflow`", "`coflow` before"),
        ("banana", "`line`: `banana`", "`coflow`, `flow`"),
        ("ports 4", "`ports`: `a second `ports` line`", ""),
        ("coflow", "`id`: `end of line`", "whole number"),
        ("coflow x", "`id`: `x`", "below 2^64"),
        ("coflow 1", "`coflow`: `1`", "`flow` or `shuffle`"),
        ("coflow 1 arrival", "`key`: `arrival`", "<key>=<value>"),
        ("coflow 1 colour=red", "`key`: `colour`", "arrival, weight"),
        ("coflow 1 job=1 job=2", "`job`: `2`", "`job` once"),
        ("coflow 1 arrival=5", "`arrival`: `5`", "unit"),
        ("coflow 1 arrival=-5s", "`arrival`: `-5s`", "unit"),
        ("coflow 1 arrival=1e10s", "`arrival`: `1e10s`", "at most 1e9"),
        ("coflow 1 weight=0", "`weight`: `0`", "1e-9 to 1e9"),
        ("coflow 1 weight=NaN", "`weight`: `NaN`", "1e-9 to 1e9"),
        ("coflow 1 stage=4294967296", "`stage`: `4294967296`", "below 2^32"),
        ("coflow 1 parents=", "`parent 1`: ``", "whole number"),
        ("coflow 1 parents=2,x", "`parent 2`: `x`", "whole number"),
        ("coflow 1 parents=1", "`parent 1`: `1`", "its own parent"),
        ("coflow 1 parents=2,3,2", "`parents`: `2`", "each parent once"),
        ("coflow 1 parents=5\nflow 0 0 1B", "`parent 1`: `5`", "id of a coflow"),
        ("event", "`time`: `end of line`", "5s"),
        ("event 5s", "`event`: `end of line`", "`restart`, `late`"),
        ("event 5s explode", "`event`: `explode`", "`restart`, `late`"),
        ("event 5s port=9 side=send rate=1", "`port`: `9`", "0 to 3"),
        ("event 5s port=1 side=up rate=1", "`side`: `up`", "send, receive or both"),
        ("event 5s port=1 side=send", "`rate`: `end of line`", "rate="),
        ("event 5s port=1 side=send rate=-1", "`rate`: `-1`", "0e0 to 1e6"),
        ("event 5s restart coflow=1 flow=0", "`coflow`: `1`", "id of a coflow"),
        ("event 5s late coflow=1 flow=0 until=4s", "`until`: `4s`", "5s or later"),
    ];
    for (line, start, part) in after_header {
        let text = format!("weir-trace 1\nports 4\n{line}\n");
        check_errors(&[(&text, &format!("{LINE_3}{start}"), part)]);
    }
    let in_coflow: &[(&str, &str, &str)] = &[
        ("flow 0", "`destination`: `end of line`", "0 to 3"),
        ("flow 4 0 1B", "`source`: `4`", "0 to 3"),
        ("flow 0 1 100", "`size`: `100`", "unit"),
        ("flow 0 1 1e17B", "`size`: `1e17B`", "2^53"),
        ("flow 0 1 1B 2B", "`key`: `2B`", "release"),
        ("flow 0 1 1B release=x", "`release`: `x`", "unit"),
        ("shuffle 0,9 1:1B", "`mapper 2`: `9`", "0 to 3"),
        ("shuffle 0,1", "`reducers`: `end of line`", "<port>:<size>"),
        ("shuffle 0,1 1:1B,2", "`reducer 2`: `2`", "<port>:<size>"),
        ("shuffle 0,1 1:1B,7:1B", "`reducer 2 port`: `7`", "0 to 3"),
        ("shuffle 0,1 1:1", "`reducer 1 size`: `1`", "unit"),
        ("flow 0 0 1B\ncoflow 1", "`id`: `1`", "line 3 has it"),
        ("flow 0 0 1B\nevent 1s restart coflow=1 flow=1", "`flow`: `1`", "1 flows"),
    ];
    for (line, start, part) in in_coflow {
        let text = format!("weir-trace 1\nports 4\ncoflow 1\n{line}\n");
        let number = if line.contains('\n') { 5 } else { 4 };
        check_errors(&[(&text, &format!("t:{number}: field {start}"), part)]);
    }
    check_errors(&[
        ("weir-trace", "t:1: field `version`: `end of line`", "weir-trace 1"),
        ("weir-trace 2\nports 4", "t:1: field `version`: `2`", "only supported version"),
        ("weir-traces 1\nports 4", "t:1: field `header`: `weir-traces`", "weir-trace 1"),
        ("weir-trace 1 x\nports 4", "t:1: field `after the last field`: `x`", ""),
        ("weir-trace 1\n# only a comment\n", "t:3: field `ports`: `end of file`", "ports <number>"),
        ("weir-trace 1\nports 0\n", "t:2: field `ports`: `0`", "1 to 65536"),
        ("weir-trace 1\ncoflow 1\n", "t:2: field `ports`: `coflow`", "before anything else"),
    ]);
}

#[test]
fn cycle_error_lists_only_coflows_of_the_cycle() {
    let text = "weir-trace 1\nports 1\ncoflow 1 parents=2\nflow 0 0 1B\ncoflow 2 parents=3\nflow 0 0 1B\n\
                coflow 3 parents=2\nflow 0 0 1B\n";
    let expected = "t:5: field `parents`: `2 depends on 3 depends on 2`: expected no cycle of parents";
    assert_eq!(error_of(text), expected);
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
        read_from(text.as_bytes(), "t", TraceUnit::MB, &limits).map(|_| ()).unwrap_err().to_string()
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
    assert!(read_from(format!("9 0\n{}\n", " ".repeat(199)).as_bytes(), "t", TraceUnit::MB, &limits).is_ok());
}

#[test]
fn overlong_line_is_rejected_before_it_is_read_fully() {
    let limits = Limits { max_line_bytes: 1000, ..Limits::default() };
    let endless = std::io::BufReader::new(std::io::repeat(b'1'));
    let error = read_from(endless, "t", TraceUnit::MB, &limits).unwrap_err().to_string();
    assert!(error.contains("a line of at most 1000 bytes"), "{error}");
}

#[test]
fn error_values_are_shortened_to_one_line() {
    let error = error_of(&format!("{}\u{7}\u{1b}[31m 4", "9".repeat(50)));
    assert!(error.contains(r"99\u{7}\u{1b}[31m`"), "{error}");
    let error = self::error_of(&"9".repeat(5000));
    assert!(error.len() < 300, "{error}");
    let bytes = read_from(&b"5 1\n\xff\xfe"[..], "t", TraceUnit::MB, &Limits::default()).unwrap_err();
    assert!(bytes.to_string().starts_with("t:2: field `line`"), "{bytes}");
    assert!(bytes.to_string().ends_with("expected UTF-8 text"), "{bytes}");
}

#[test]
fn unreadable_files_are_named_in_errors() {
    let read = |path: &Path| read(path, TraceUnit::MB, &Limits::default()).unwrap_err().to_string();
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
