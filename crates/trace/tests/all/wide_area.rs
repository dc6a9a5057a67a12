//! Wide areas in TOML: valid files, and errors with their places.

use crate::error_cases::check_error_cases;
use proptest::prelude::*;
use weir_core::model::WideArea;
use weir_trace::wide_area::{MAX_FILE_BYTES, read_from};

const DOCUMENT: &str = include_str!("../../../../docs/wide-area-format.md");
const TABLE_1: &str = include_str!("../../../../examples/wide-area/table-1.toml");
const PRIVATE_CLOUD: &str = include_str!("../../../../examples/wide-area/private-cloud.toml");

fn parse(text: &str) -> Result<WideArea, String> {
    read_from(text.as_bytes(), "w").map_err(|error| error.to_string())
}

/// Two regions and the links between them; further keys are at `@`.
const AREA: &str = r#"weir-wide-area = 1
regions = ["a", "b"]
@
[[link]]
from = "a"
to = "b"
rate = "1Mbit"
[[link]]
from = "b"
to = "a"
rate = "2Mbit"
"#;

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
    check_error_cases("wide_area", AREA, parse);
    let error = parse(&" ".repeat(MAX_FILE_BYTES + 1)).unwrap_err();
    assert!(error.starts_with("w:1: field `file`"), "{error}");
}

proptest! {
    #[test]
    fn wide_area_reader_does_not_panic_on_random_input(text in "[a-z\\[\\]=\" \n0-9.-]{0,200}", cut in 0..2000usize) {
        let _ = parse(&text);
        let _ = parse(&format!("weir-wide-area = 1\n{text}"));
        let _ = parse(TABLE_1.get(..cut).unwrap_or(TABLE_1));
    }
}
