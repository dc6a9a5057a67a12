//! Wide areas in TOML: valid files, and errors with their places.

use proptest::prelude::*;
use weir_core::model::WideArea;
use weir_trace::wide_area::{MAX_FILE_BYTES, read_from};

const DOCUMENT: &str = include_str!("../../../../docs/wide-area-format.md");
const TABLE_1: &str = include_str!("../../../../examples/wide-area/table-1.toml");
const PRIVATE_CLOUD: &str = include_str!("../../../../examples/wide-area/private-cloud.toml");

fn parse(text: &str) -> Result<WideArea, String> {
    read_from(text.as_bytes(), "w").map_err(|error| error.to_string())
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let error = parse(text).expect_err("refused");
    for part in parts {
        assert!(error.contains(part), "{error} lacks {part}");
    }
}

const HEAD: &str = "weir-wide-area = 1\nregions = [\"a\", \"b\"]\n";

/// Two regions. The link from `a` to `b` is the given text, from line 3 on.
fn with(link: &str) -> String {
    format!(
        "{HEAD}[[link]]\nfrom = \"a\"\nto = \"b\"\n{link}\n[[link]]\nfrom = \"b\"\nto = \"a\"\nrate = \"1Mbit\"\n"
    )
}

#[test]
fn documented_wide_area_example_is_read() {
    let text = DOCUMENT.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let area = parse(text).unwrap();
    assert_eq!(area.regions(), ["east", "west"]);
    let rates: Vec<String> = area.samples(area.link(0, 1).unwrap()).iter().map(ToString::to_string).collect();
    assert_eq!(rates, ["40Mbit", "90Mbit", "120Mbit"]);
    assert_eq!((area.holds().get(), area.correlation()), (10.0, 0.9));
    assert!((area.past().median(0) * 90e6 / 8.0 - 1.0).abs() < 1e-12);
    assert!(area.changes());
}

#[test]
fn wide_area_example_has_the_rates_of_siphon_table_1() {
    let table = parse(TABLE_1).unwrap();
    let rate = |from: &str, to: &str| {
        let place = |name: &str| table.regions().iter().position(|region| region == name).unwrap();
        table.samples(table.link(place(from), place(to)).unwrap())[0].to_string()
    };
    // Table 1: rows are sources.
    assert_eq!(rate("oregon", "tokyo"), "250Mbit");
    assert_eq!(rate("tokyo", "oregon"), "83.8Mbit");
    assert_eq!(rate("taiwan", "carolina"), "35.8Mbit");
    assert!(!table.changes());
    let cloud = parse(PRIVATE_CLOUD).unwrap();
    assert_eq!(cloud.regions(), ["victoria", "toronto", "montreal"]);
    assert!((0..6).all(|link| cloud.samples(link).len() == 100));
}

#[test]
fn wide_area_errors_name_the_place() {
    refused(
        &with("samples = [\"1Mbit\",\n\"-3Mbit\"]"),
        &["w:7: field `link 1 samples`: `\"-3Mbit\"`", "0 or more"],
    );
    refused(&with("samples = [\"NaNMbit\"]"), &["w:6: field `link 1 samples`", "a number of 0 or more"]);
    refused(
        &with("samples = [\"1Mbit\", \"0bit\"]"),
        &["w:6: field `link 1 samples`: `\"0bit\"`", "1bit to 8000Tbit"],
    );
    refused(&with("samples = []"), &["w:6: field `link 1 samples`: `[]`", "at least one"]);
    refused(&with("samples = [90]"), &["w:6: field `link 1 samples`: `90`", "a rate with a unit"]);
    refused(&with("rate = \"1Mbit\"\nsamples = [\"1Mbit\"]"), &["w:7", "either `rate` or `samples`"]);
    refused(&with(""), &["w:3: field `link 1 samples`: `nothing`", "either `rate` or `samples`"]);
    refused(&with("rate = \"1bps\""), &["w:6: field `link 1 rate`", "ambiguous"]);
    refused(&with("rate = \"1Mbit\"\nlatency = 3"), &["w:7: field `link 1 key`: `latency`"]);
    let link =
        |from: &str, to: &str| format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"1Mbit\"\n");
    let of = |links: &[(&str, &str)]| {
        format!("{HEAD}{}", links.iter().map(|(from, to)| link(from, to)).collect::<String>())
    };
    refused(&of(&[("a", "c")]), &["w:5: field `link 1 to`: `\"c\"`", "one of the regions a, b"]);
    refused(
        &of(&[("a", "b")]),
        &["field `link`: `nothing from `b` to `a``", "from each region to each other"],
    );
    refused(&of(&[("a", "b"), ("a", "b"), ("b", "a")]), &["w:9: field `link 2 to`", "is there twice"]);
    refused(&of(&[("a", "a")]), &["w:5: field `link 1 to`", "from a region to itself"]);
    refused(&of(&[("a", "b"), ("b", "a")]).replace("\"b\"]", "\"a\"]"), &["w:5: field `link 1 to`"]);
    refused("weir-wide-area = 1\nregions = [\"a\"]\nlink = []\n", &["w:2: field `regions`", "2 to 32"]);
    refused(
        "weir-wide-area = 1\nregions = [\"a\", \"a\"]\nlink = []\n",
        &["w:2", "region `a` is there twice"],
    );
    refused("weir-wide-area = 1\nregions = [\"a b\", \"c\"]\nlink = []\n", &["w:2", "region `a b`"]);
    refused("weir-wide-area = 2\n", &["w:1: field `weir-wide-area`: `2`", "version 1"]);
    let timed = |line: &str| with("rate = \"1Mbit\"").replace("regions", &format!("{line}\nregions"));
    refused(&timed("holds = \"0s\""), &["w:2: field `holds`", "1ms to 1e6s"]);
    refused(
        &timed("correlation = 1"),
        &["w:2: field `correlation`: `1`", "from 0 up to, but not including, 1"],
    );
    refused(&timed("correlation = nan"), &["w:2: field `correlation`: `nan`"]);
    refused(&" ".repeat(MAX_FILE_BYTES + 1), &["w:1: field `file`"]);
}

proptest! {
    #[test]
    fn wide_area_reader_does_not_panic_on_random_input(text in "[a-z\\[\\]=\" \n0-9.-]{0,200}", cut in 0..2000usize) {
        let _ = parse(&text);
        let _ = parse(&format!("{HEAD}{text}"));
        let _ = parse(TABLE_1.get(..cut).unwrap_or(TABLE_1));
    }
}
