//! Sensitivity tables: round trips, and errors that name the fault.

use crate::error_cases::check_error_cases;
use proptest::prelude::*;
use proptest::sample::Index;
use weir_core::saba::profile::PROFILED_FRACTIONS;
use weir_core::saba::{Fraction, Profile, Sensitivity};
use weir_core::solve::Polynomial;
use weir_core::solve::polynomial::{Degree, MAX_COEFFICIENT};
use weir_core::units::Time;
use weir_trace::sensitivity::{MAX_TABLE_BYTES, Row, SensitivityTable, parse, read};

fn write_table(table: &SensitivityTable) -> String {
    let mut out = Vec::new();
    table.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let coefficient = prop_oneof![
        Just(0.0),
        Just(MAX_COEFFICIENT),
        Just(-MAX_COEFFICIENT),
        Just(5e-324),
        -10.0..10.0f64,
        -1e12..1e12f64,
        (-300.0..12.0f64).prop_map(|e| 10f64.powf(e)),
    ];
    let fraction =
        prop_oneof![Just(1.0), Just(5e-324), 0.001..1.0f64].prop_map(|f| Fraction::new(f).unwrap());
    let row = (
        "[^\\p{Cc}]{1,20}",
        proptest::collection::vec(coefficient, 1..=4),
        proptest::option::of(prop_oneof![Just(1.0), -1e300..1.0f64, -2.0..1.0f64]),
        proptest::collection::vec((fraction, prop_oneof![Just(1e12), 1e-300..1e-200f64, 0.5..50.0f64]), 0..8),
    );
    proptest::collection::vec(row, 0..6).prop_map(|rows| {
        let row = |(i, (name, c, r2, samples)): (usize, (String, Vec<f64>, _, _))| Row {
            name: format!("{i} {name}"),
            sensitivity: Sensitivity::new(Polynomial::new(&c).unwrap()),
            r2,
            samples,
        };
        rows.into_iter().enumerate().map(row).collect()
    })
}

/// Keywords of a table, and boundary numbers.
fn any_word() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "version",
        "name",
        "coefficients",
        "r2",
        "samples",
        "[[application]]",
        "[application]",
        "=",
        "\n",
        "[",
        "]",
        ",",
        "\"a\"",
        "1",
        "0",
        "-1",
        "1.5",
        "nan",
        "-inf",
        "1e999",
        "1e12",
        "9223372036854775808",
        "true",
        "#",
        "\"",
        "'''",
        "[[",
        "{",
        "}",
        "[1, 2]",
        "[[0.5, 2]]",
        "1979-05-27",
        "\u{0}",
        "é",
    ])
}

proptest! {
    #[test]
    fn sensitivity_table_round_trips(rows in any_rows()) {
        let table = SensitivityTable::new(rows).unwrap();
        let written = write_table(&table);
        let back = parse(&written, "t").unwrap();
        prop_assert_eq!(&back, &table, "{}", written);
        prop_assert_eq!(write_table(&back), written);
    }

    #[test]
    fn sensitivity_reader_survives_random_words(words in proptest::collection::vec(any_word(), 0..40)) {
        read_without_panic(&words.join(" "));
    }

    #[test]
    fn sensitivity_reader_survives_damaged_tables(rows in any_rows(), at in any::<Index>(), length in 0..20usize, word in any_word()) {
        let mut text: Vec<char> = write_table(&SensitivityTable::new(rows).unwrap()).chars().collect();
        let at = at.index(text.len());
        let end = (at + length).min(text.len());
        text.splice(at..end, word.chars());
        read_without_panic(&text.into_iter().collect::<String>());
    }

    #[test]
    fn sensitivity_reader_survives_random_characters(characters in any::<String>()) {
        read_without_panic(&characters);
    }
}

/// Reads the input. If that succeeds, writes the table and reads it again.
fn read_without_panic(input: &str) {
    if let Ok(table) = parse(input, "t") {
        assert_eq!(parse(&write_table(&table), "t").expect("what was written can be read"), table);
    }
}

#[test]
fn reads_the_documented_example() {
    let document = include_str!("../../../../docs/sensitivity-table.md");
    let example: String = document
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .map(|line| format!("{line}\n"))
        .collect();
    let table = parse(&example, "t").unwrap();
    assert_eq!(table.rows().len(), 2);
    assert_eq!(table.position("Sort"), Some(1));
    let lr = &table.rows()[0];
    assert_eq!((lr.r2, lr.samples.len()), (Some(0.998), 5));
    assert_eq!(lr.sensitivity.model().coefficients(), &[5.231, -7.966, 3.723, 0.0]);
    // The model is the fit of these samples.
    let points: Vec<_> = lr.samples.iter().map(|(b, d)| (b.get(), *d)).collect();
    let fit = weir_core::solve::polynomial::fit_polynomial(&points, Degree::Quadratic).unwrap();
    for (written, exact) in lr.sensitivity.model().coefficients().iter().zip(fit.polynomial.coefficients()) {
        assert!((written - exact).abs() < 0.0005, "{:?}", fit);
    }
    assert!((fit.r2 - 0.998).abs() < 0.0005, "{fit:?}");
    assert_eq!(write_table(&table).replace("\n\n", "\n"), example);
}

#[test]
fn sensitivity_table_keeps_profiler_samples() {
    let mut job = |b: Fraction| Time::new(3.0 + 1.0 / b.get()).ok_or("no time");
    let profile = Profile::measure(&mut job, &PROFILED_FRACTIONS).unwrap();
    let fit = profile.fit(Degree::Cubic).unwrap();
    let table = SensitivityTable::new(vec![Row::new("job", &profile, &fit)]).unwrap();
    let back = parse(&write_table(&table), "t").unwrap();
    assert_eq!(back.rows()[0].sensitivity, fit.sensitivity);
    assert_eq!((back.rows()[0].r2, back.rows()[0].samples.len()), (Some(fit.r2), 7));
}

#[test]
fn increasing_and_concave_models_are_accepted_and_listed() {
    let table = parse(
        "version = 1\n\
         [[application]]\nname = \"good\"\ncoefficients = [3, -3, 1]\n\
         [[application]]\nname = \"rising\"\ncoefficients = [1, -1, 2]\n\
         [[application]]\nname = \"bent\"\ncoefficients = [3, -1, -1]\n\
         [[application]]\nname = \"both\"\ncoefficients = [1, 1, -1]\n",
        "t",
    )
    .unwrap();
    let concerns: Vec<String> = table.implausible_models().iter().map(ToString::to_string).collect();
    let range = "between no bandwidth and full bandwidth";
    assert_eq!(
        concerns,
        [
            format!("application `rising`: the model rises with the bandwidth somewhere {range}"),
            format!("application `bent`: the model is not convex {range}"),
            format!(
                "application `both`: the model rises with the bandwidth somewhere, and is not convex {range}"
            ),
        ]
    );
}

#[test]
fn sensitivity_table_errors_name_line_field_value_and_expectation() {
    let valid = "version = 1\n[[application]]\nname = \"a\"\ncoefficients = [1]\n";
    check_error_cases("sensitivity", valid, |text| parse(text, "t").map_err(|error| error.to_string()));
}

#[test]
fn sensitivity_reader_rejects_oversized_binary_and_missing_files() {
    let long = " ".repeat(MAX_TABLE_BYTES as usize + 1);
    assert_eq!(
        parse(&long, "t").unwrap_err().to_string(),
        "t:1: field `table`: `16777217 bytes`: expected at most 16777216 bytes"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table.toml");
    assert!(read(&path).unwrap_err().to_string().contains("cannot be read"));
    std::fs::write(&path, b"version = 1 # \xff").unwrap();
    assert!(read(&path).unwrap_err().to_string().ends_with("expected UTF-8"));
    std::fs::write(&path, &long).unwrap();
    assert!(read(&path).unwrap_err().to_string().ends_with("expected at most 16777216 bytes"));
    std::fs::write(&path, "version = 1").unwrap();
    assert_eq!(read(&path).unwrap(), SensitivityTable::default());
    // Deeply nested brackets.
    assert!(parse(&format!("version = {}", "[".repeat(100_000)), "t").is_err());
}
