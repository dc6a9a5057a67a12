//! Incast measurements in CSV: valid files, and errors with their places.

use crate::error_cases::check_error_cases;
use proptest::prelude::*;
use weir_trace::incast::{IncastMeasurements, MAX_RUNS, read_from};

const DOCUMENT: &str = include_str!("../../../../docs/incast-format.md");
const SMALL: &str = include_str!("../../../../examples/incast/cost-64kB.csv");
const LARGE: &str = include_str!("../../../../examples/incast/cost-512kB.csv");
const SMALL_MARKED: &str = include_str!("../../../../examples/incast/cost-64kB-marks.csv");
const LARGE_MARKED: &str = include_str!("../../../../examples/incast/cost-512kB-marks.csv");

const HEAD: &str =
    "buffer_packets,connections,bytes,congestion,marks_packets,run,loss,goodput_bit_per_s,mean_s,last_s\n";

fn parse(text: &str) -> Result<IncastMeasurements, String> {
    read_from(text.as_bytes(), "i").map_err(|error| error.to_string())
}

#[track_caller]
fn assert_refused(text: &str, parts: &[&str]) {
    let error = parse(text).expect_err("refused");
    for part in parts {
        assert!(error.contains(part), "{error} lacks {part}");
    }
}

#[test]
fn documented_incast_example_is_read() {
    let text = DOCUMENT.split("```csv\n").nth(1).unwrap().split("```").next().unwrap();
    let measured = parse(text).unwrap();
    assert_eq!(measured.to_string(), "reno, with marks from 20 packets on");
    let incast = measured.incast;
    assert_eq!((incast.buffers(), incast.connections()), (&[50][..], &[1, 8, 16][..]));
    assert_eq!(incast.bytes(), 64000.0);
    assert!((incast.link_rate() * 8.0 - 96e6).abs() < 1.0, "{}", incast.link_rate());
}

#[test]
fn shipped_incast_measurements_have_the_documented_settings() {
    let marked = "reno, with marks from 20 packets on";
    for (text, bytes, most, tcp) in [
        (SMALL, 64e3, 200, "cubic"),
        (LARGE, 512e3, 100, "cubic"),
        (SMALL_MARKED, 64e3, 200, marked),
        (LARGE_MARKED, 512e3, 100, marked),
    ] {
        let measured = parse(text).unwrap();
        assert_eq!(measured.to_string(), tcp);
        let incast = measured.incast;
        assert_eq!(incast.buffers(), [25, 50, 75, 100, 150, 250]);
        assert_eq!((incast.bytes(), incast.connections().last()), (bytes, Some(&most)));
        // Payload rate of a link of 100 Mbit/s: 1,448 of 1,514 bytes. Kinds less than 2 % below the fastest
        // count as full rate.
        let part = incast.link_rate() * 8.0 / (100e6 * 1448.0 / 1514.0);
        assert!((0.98..1.002).contains(&part), "{part}");
        let best = |buffer| incast.goodput(buffer, "100Mbit".parse().unwrap()).unwrap().best_connections();
        let all = [25, 50, 75, 100, 150, 250].map(best);
        println!("{tcp}, {bytes} bytes: {all:?}");
        assert!(all.is_sorted() && all[5] >= 2 * all[0], "{all:?}");
    }
}

#[test]
fn a_file_without_a_last_end_of_line_is_read() {
    assert!(parse(&format!("{HEAD}50,1,64000,cubic,,1,0,96e6,0.1,0.2")).is_ok());
}

#[test]
fn column_for_starts_is_optional() {
    let head = HEAD.trim_end();
    let together = parse(&format!("{head},starts\n50,1,64000,cubic,,1,0,96e6,0.1,0.2,together\n")).unwrap();
    assert_eq!(together, parse(&format!("{HEAD}50,1,64000,cubic,,1,0,96e6,0.1,0.2\n")).unwrap());
    // A steady run may contain no completed connection.
    let steady = parse(&format!("{head},starts\n50,1,64000,cubic,,1,0,96e6,,,steady\n")).unwrap();
    assert!(steady.is_steady);
    assert_eq!(steady.to_string(), "cubic, steady connections");
}

#[test]
fn starts_are_checked() {
    let parse = |lines: &str| parse(&format!("{},starts\n{lines}", HEAD.trim_end()));
    let run = |starts: &str| format!("50,1,64000,cubic,,1,0,96e6,0.1,0.2{starts}\n");
    let refused = |lines: &str| parse(lines).expect_err("refused");
    assert_eq!(refused(&run("")), "i:2: field `starts`: `end of line`: expected a value");
    assert_eq!(refused(&run(",later")), "i:2: field `starts`: `later`: expected together or steady");
    assert_eq!(
        refused(&(run(",steady") + &run(",together"))),
        "i:3: field `starts`: `together`: expected steady, as in all lines before"
    );
    let empty = "50,1,64000,cubic,,1,0,96e6,,0.2,together\n";
    assert_eq!(refused(empty), "i:2: field `mean_s`: ``: expected a number of zero or more");
}

#[test]
fn incast_errors_name_line_field_and_value() {
    let line = "50,1,64000,cubic,,1,0,96e6,0.1,0.2\n";
    check_error_cases("incast", &format!("{HEAD}{line}"), parse);
    assert_refused("", &["i:1: field `columns`: `end of file`: expected buffer_packets,connections"]);
    assert_refused(&format!("{HEAD}{}", "1".repeat(2000)), &["i:2: field `line`", "at most 1024 bytes"]);
    let many = format!("{HEAD}{}", line.repeat(MAX_RUNS + 1));
    assert_refused(&many, &["at most 100000 runs"]);
}

proptest! {
    #[test]
    fn incast_reader_does_not_panic_on_random_input(text in "([0-9a-z.,-]{0,12},?){0,9}\n", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&format!("{HEAD}{text}"));
        let _ = read_from(&bytes[..], "i");
    }
}
