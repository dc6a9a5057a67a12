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
fn assert_refused(text: &str, parts: &[&str]) {
    let error = parse(text).expect_err("refused");
    for part in parts {
        assert!(error.contains(part), "{error} lacks {part}");
    }
}

const HEAD: &str = "weir-wide-area = 1\nregions = [\"a\", \"b\"]\n";

/// Two regions. The link from `a` to `b` is the given text, from line 3 on.
fn area_with_link(link: &str) -> String {
    format!(
        "{HEAD}[[link]]\nfrom = \"a\"\nto = \"b\"\n{link}\n[[link]]\nfrom = \"b\"\nto = \"a\"\nrate = \"1Mbit\"\n"
    )
}

#[test]
fn documented_wide_area_example_is_read() {
    let text = DOCUMENT.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let area = parse(text).unwrap();
    assert_eq!(area.regions(), ["east", "west"]);
    let rates: Vec<String> =
        area.samples(area.link_between(0, 1).unwrap()).iter().map(ToString::to_string).collect();
    assert_eq!(rates, ["40Mbit", "90Mbit", "120Mbit"]);
    assert_eq!((area.change_interval().get(), area.correlation()), (10.0, 0.9));
    assert!((area.bandwidth_history().median_seconds_per_byte(0) * 90e6 / 8.0 - 1.0).abs() < 1e-12);
    assert!(area.is_variable());
}

#[test]
fn wide_area_example_has_the_rates_of_siphon_table_1() {
    let table = parse(TABLE_1).unwrap();
    let rate = |from: &str, to: &str| {
        let place = |name: &str| table.regions().iter().position(|region| region == name).unwrap();
        table.samples(table.link_between(place(from), place(to)).unwrap())[0].to_string()
    };
    // Table 1: rows are sources.
    assert_eq!(rate("oregon", "tokyo"), "250Mbit");
    assert_eq!(rate("tokyo", "oregon"), "83.8Mbit");
    assert_eq!(rate("taiwan", "carolina"), "35.8Mbit");
    assert!(!table.is_variable());
    let cloud = parse(PRIVATE_CLOUD).unwrap();
    assert_eq!(cloud.regions(), ["victoria", "toronto", "montreal"]);
    assert!((0..6).all(|link| cloud.samples(link).len() == 100));
}

#[test]
fn wide_area_errors_name_the_place() {
    assert_refused(
        &area_with_link("samples = [\"1Mbit\",\n\"-3Mbit\"]"),
        &["w:7: field `link 1 samples`: `\"-3Mbit\"`", "0 or more"],
    );
    assert_refused(
        &area_with_link("samples = [\"NaNMbit\"]"),
        &["w:6: field `link 1 samples`", "a number of 0 or more"],
    );
    assert_refused(
        &area_with_link("samples = [\"1Mbit\", \"0bit\"]"),
        &["w:6: field `link 1 samples`: `\"0bit\"`", "1bit to 8000Tbit"],
    );
    assert_refused(&area_with_link("samples = []"), &["w:6: field `link 1 samples`: `[]`", "at least one"]);
    assert_refused(
        &area_with_link("samples = [90]"),
        &["w:6: field `link 1 samples`: `90`", "a rate with a unit"],
    );
    assert_refused(
        &area_with_link("rate = \"1Mbit\"\nsamples = [\"1Mbit\"]"),
        &["w:7", "either `rate` or `samples`"],
    );
    assert_refused(
        &area_with_link(""),
        &["w:3: field `link 1 samples`: `nothing`", "either `rate` or `samples`"],
    );
    assert_refused(&area_with_link("rate = \"1bps\""), &["w:6: field `link 1 rate`", "ambiguous"]);
    assert_refused(&area_with_link("rate = \"1Mbit\"\nlatency = 3"), &["w:7: field `link 1 key`: `latency`"]);
    let link =
        |from: &str, to: &str| format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"1Mbit\"\n");
    let area_with_links = |links: &[(&str, &str)]| {
        format!("{HEAD}{}", links.iter().map(|(from, to)| link(from, to)).collect::<String>())
    };
    assert_refused(
        &area_with_links(&[("a", "c")]),
        &["w:5: field `link 1 to`: `\"c\"`", "one of the regions a, b"],
    );
    assert_refused(
        &area_with_links(&[("a", "b")]),
        &["field `link`: `nothing from `b` to `a``", "from each region to each other"],
    );
    assert_refused(
        &area_with_links(&[("a", "b"), ("a", "b"), ("b", "a")]),
        &["w:9: field `link 2 to`", "second link from the same region"],
    );
    assert_refused(&area_with_links(&[("a", "a")]), &["w:5: field `link 1 to`", "from a region to itself"]);
    assert_refused(
        &area_with_links(&[("a", "b"), ("b", "a")]).replace("\"b\"]", "\"a\"]"),
        &["w:2: field `regions`", "two regions are named `a`"],
    );
    assert_refused(
        "weir-wide-area = 1\nregions = [\"a\"]\nlink = []\n",
        &["w:2: field `regions`", "2 to 32"],
    );
    assert_refused(
        "weir-wide-area = 1\nregions = [\"a\", \"a\"]\nlink = []\n",
        &["w:2", "two regions are named `a`"],
    );
    assert_refused(
        "weir-wide-area = 1\nregions = [\"a b\", \"c\"]\nlink = []\n",
        &["w:2", "region name `a b`"],
    );
    assert_refused("weir-wide-area = 2\n", &["w:1: field `weir-wide-area`: `2`", "version 1"]);
    let area_with_key =
        |line: &str| area_with_link("rate = \"1Mbit\"").replace("regions", &format!("{line}\nregions"));
    assert_refused(
        &area_with_key("change-interval = \"0s\""),
        &["w:2: field `change-interval`", "1ms to 1e6s"],
    );
    assert_refused(
        &area_with_key("correlation = 1"),
        &["w:2: field `correlation`: `1`", "from 0 up to, but not including, 1"],
    );
    assert_refused(&area_with_key("correlation = nan"), &["w:2: field `correlation`: `nan`"]);
    assert_refused(&" ".repeat(MAX_FILE_BYTES + 1), &["w:1: field `file`"]);
}

proptest! {
    #[test]
    fn wide_area_reader_does_not_panic_on_random_input(text in "[a-z\\[\\]=\" \n0-9.-]{0,200}", cut in 0..2000usize) {
        let _ = parse(&text);
        let _ = parse(&format!("{HEAD}{text}"));
        let _ = parse(TABLE_1.get(..cut).unwrap_or(TABLE_1));
    }
}
