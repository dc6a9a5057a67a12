//! Malformed input: readers return a trace that survives a round trip, or an error.

use crate::common::{any_workload, benchmark_workload};
use crate::property_settings::config_with_cases;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use weir_trace::{Format, Limits, TraceOptions, coflow_benchmark, format, read_from};

const LIMITS: Limits = Limits { max_flows: 2000, max_line_bytes: 1 << 16, max_decompressed_bytes: 1 << 24 };

/// Reads the input. If that succeeds, writes the trace and reads it again.
fn read_without_panic(input: &[u8]) {
    let Ok(trace) = read_from(input, "t", &TraceOptions { limits: LIMITS, ..TraceOptions::default() }) else {
        return;
    };
    let mut out = Vec::new();
    match trace.format {
        Format::CoflowBenchmark(unit) => coflow_benchmark::write(&trace.workload, unit, &mut out),
        _ => format::write(&trace.workload, &trace.port_names, &mut out),
    }
    .expect("what was read can be written");
    // Written lines may be longer than the lines that were read.
    let limits = Limits { max_line_bytes: 1 << 26, ..LIMITS };
    let again = read_from(&out[..], "t", &TraceOptions { limits, ..TraceOptions::default() })
        .expect("a written trace can be read");
    let is_equal = again.workload == trace.workload && again.port_names == trace.port_names;
    assert!(is_equal, "{}", String::from_utf8_lossy(&out));
}

/// Keywords of the formats, and boundary numbers.
fn any_word() -> impl Strategy<Value = &'static str> {
    select(vec![
        "0",
        "1",
        "2",
        "3",
        "-1",
        "-0",
        "+1",
        "1e9",
        "1e12",
        "1e308",
        "1e999",
        "1e-320",
        "0.1",
        ".",
        "NaN",
        "inf",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
        "9007199254740992",
        "0:1",
        "1:0.1",
        "1:1e-12",
        "2:9e9",
        "1:1:1",
        "1,",
        ",",
        "0,1",
        "0,0,0",
        "1:3MB",
        "0:1B,1:0.3B",
        "0:1e-320B,0:1B",
        "5s",
        "1ms",
        "5MB",
        "0.1kB",
        "9007199254740991B",
        "coflow",
        "flow",
        "shuffle",
        "event",
        "ports",
        "weir-trace",
        "restart",
        "late",
        "parents=1",
        "parents=2,1",
        "arrival=0.1s",
        "weight=1e-9",
        "job=1",
        "deadline=1us",
        "release=0.3ms",
        "coflow=1",
        "flow=0",
        "until=7s",
        "port=0",
        "side=both",
        "rate=0.1",
        "=",
        "#",
        "é",
    ])
}

#[derive(Debug, Clone)]
enum Damage {
    Cut(Index),
    Swap(Index, Index),
    Replace(Index, &'static str),
    Insert(Index, &'static str),
    Remove(Index),
    Byte(Index, u8),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        1 => any::<Index>().prop_map(Damage::Cut),
        3 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Damage::Swap(a, b)),
        6 => (any::<Index>(), any_word()).prop_map(|(at, word)| Damage::Replace(at, word)),
        2 => (any::<Index>(), any_word()).prop_map(|(at, word)| Damage::Insert(at, word)),
        2 => any::<Index>().prop_map(Damage::Remove),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
    ]
}

/// Damages the words of a text; line ends count as words.
fn apply_damage(text: &[u8], damages: &[Damage]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text).replace('\n', " \n ");
    let mut words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    for damage in damages.iter().filter(|_| !text.is_empty()) {
        let count = words.len().max(1);
        match damage {
            _ if words.is_empty() => break,
            Damage::Cut(at) => words.truncate(at.index(count).max(count / 2)),
            Damage::Swap(a, b) => words.swap(a.index(count), b.index(count)),
            Damage::Replace(at, word) => words[at.index(count)] = word,
            Damage::Insert(at, word) => words.insert(at.index(count), word),
            Damage::Remove(at) => drop(words.remove(at.index(count))),
            Damage::Byte(..) => (),
        }
    }
    let mut bytes = words.join(" ").into_bytes();
    for damage in damages {
        if let (Damage::Byte(at, byte), false) = (damage, bytes.is_empty()) {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
    }
    bytes
}

proptest! {
    #![proptest_config(config_with_cases(1500))]

    #[test]
    fn readers_survive_random_bytes(input in prop::collection::vec(any::<u8>(), 0..300)) {
        read_without_panic(&input);
    }

    #[test]
    fn readers_survive_random_words(words in prop::collection::vec(prop_oneof![3 => any_word(), 1 => Just("\n")], 0..60)) {
        let words = words.join(" ");
        read_without_panic(words.as_bytes());
        read_without_panic(format!("2 2\n{words}").as_bytes());
        read_without_panic(format!("weir-trace 1\nports 3\ncoflow 1\n{words}").as_bytes());
    }

    #[test]
    fn damaged_coflow_benchmark_trace_round_trips_or_is_rejected(
        (unit, workload) in benchmark_workload(),
        damages in prop::collection::vec(any_damage(), 0..4),
    ) {
        let mut text = Vec::new();
        coflow_benchmark::write(&workload, unit, &mut text).expect("such a workload can be written");
        read_without_panic(&apply_damage(&text, &damages));
    }

    #[test]
    fn damaged_own_format_trace_round_trips_or_is_rejected(workload in any_workload(), damages in prop::collection::vec(any_damage(), 0..4)) {
        let mut text = Vec::new();
        format::write(&workload, &[], &mut text).expect("such a workload can be written");
        read_without_panic(&apply_damage(&text, &damages));
    }
}

#[test]
fn readers_survive_every_truncation() {
    let own =
        b"weir-trace 1\nports 3\ncoflow 7 arrival=1.5s parents=8\nshuffle 0,1 1:48MB,2:1B release=1ms\n\
                coflow 8 weight=2\nflow 0 0 0B\nevent 5s late coflow=7 flow=3 until=6s\n";
    let public = b"9 2\n1 0 2 0 1 2 1:65.0 2:0.5\n7 10833.25 1 2 1 2:0.0\n";
    for text in [&own[..], &public[..]] {
        (0..=text.len()).for_each(|end| read_without_panic(&text[..end]));
    }
}

/// Sizes for which the split over mappers rounds in every direction.
#[test]
fn sizes_survive_rounding_in_the_split_over_mappers() {
    for m in 1..=40 {
        for size in ["0.1", "1e-12", "3.0000000000000004e-12", "0.7", "9e9", "123456.789", "1e-7"] {
            let mappers = vec!["1"; m].join(" ");
            read_without_panic(format!("2 1\n1 0.1 {m} {mappers} 3 0:{size} 0:{size} 0:{size}\n").as_bytes());
            let mappers = vec!["1"; m].join(",");
            let own = format!("weir-trace 1\nports 2\ncoflow 1\nshuffle {mappers} 0:{size}B,0:{size}B\n");
            read_without_panic(own.as_bytes());
        }
    }
}
