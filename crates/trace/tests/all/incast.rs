//! Incast measurements in CSV: valid files, and errors with their places.

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
fn incast_errors_name_line_field_and_value() {
    assert_refused("", &["i:1: field `columns`", "end of file", "buffer_packets,connections"]);
    assert_refused("a,b\n", &["i:1: field `columns`: `a,b`"]);
    assert_refused(HEAD, &["field `run`", "at least one"]);
    let with_second_line = |line: &str| format!("{HEAD}50,1,64000,cubic,,1,0,96e6,0.1,0.2\n{line}\n");
    for (line, parts) in [
        ("50,1", &["i:3: field `bytes`: `end of line`: expected a value"][..]),
        ("50,1,64000,cubic,,1,0,96e6,0.1,0.2,7", &["i:3: field `after the last field`: `7`"]),
        (
            "-1,1,64000,cubic,,1,0,96e6,0.1,0.2",
            &["i:3: field `buffer_packets`: `-1`: expected a whole number"],
        ),
        (
            "0,1,64000,cubic,,1,0,96e6,0.1,0.2",
            &["i:3: field `buffer_packets`: `0`: expected 1 to 1000000 packets"],
        ),
        (
            "50,70000,64000,cubic,,1,0,96e6,0.1,0.2",
            &["i:3: field `connections`: `70000`: expected 1 to 65536"],
        ),
        (
            "50,1,64001,cubic,,1,0,96e6,0.1,0.2",
            &["i:3: field `bytes`: `64001`: expected 64000, as in all lines"],
        ),
        ("50,1,64000,cubic,,x,0,96e6,0.1,0.2", &["i:3: field `run`: `x`"]),
        ("50,1,64000,cubic,,1,1,96e6,0.1,0.2", &["i:3: field `loss`: `1`: expected a number from 0"]),
        ("50,1,64000,cubic,,1,nan,96e6,0.1,0.2", &["i:3: field `loss`: `nan`"]),
        ("50,1,64000,cubic,,1,0,0,0.1,0.2", &["i:3: field `goodput_bit_per_s`: `0`: expected 8e-6 to 8e15"]),
        ("50,1,64000,cubic,,1,0,96e6,inf,0.2", &["i:3: field `mean_s`: `inf`"]),
        (
            "50,1,64000,reno,,1,0,96e6,0.1,0.2",
            &["i:3: field `congestion`: `reno`: expected cubic, as in all lines"],
        ),
        ("50,1,64000,a b,,1,0,96e6,0.1,0.2", &["i:3: field `congestion`: `a b`: expected 1 to 15 letters"]),
        ("50,1,64000,,,1,0,96e6,0.1,0.2", &["i:3: field `congestion`: ``: expected 1 to 15 letters"]),
        (
            "50,1,64000,cubic,20,1,0,96e6,0.1,0.2",
            &["i:3: field `marks_packets`: `20`: expected nothing, as in all"],
        ),
        ("50,1,64000,cubic,0,1,0,96e6,0.1,0.2", &["i:3: field `marks_packets`: `0`: expected 1 to 1000000"]),
        ("", &["i:3: field `buffer_packets`: ``"]),
        (
            "60,2,64000,cubic,,1,0,96e6,0.1,0.2",
            &["field `run`", "no run with a buffer of 50 and 2 connections"],
        ),
    ] {
        assert_refused(&with_second_line(line), parts);
    }
    assert_refused(&format!("{HEAD}{}", "1".repeat(2000)), &["i:2: field `line`", "at most 1024 bytes"]);
    let line = "50,1,64000,cubic,,1,0,96e6,0.1,0.2\n";
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
