//! Reads and writes Saba's sensitivity table, the result of profiling applications (Saba, EuroSys '23, section 4.1).
//!
//! The format is TOML, application by application, so that a change of one application changes few lines.
//! `docs/sensitivity-table.md` is the reference. A reader returns a consistent [`SensitivityTable`], or a [`FileError`]
//! that names the line, the field, the value and the expected value.
//!
//! A reader accepts models that rise with the bandwidth or are not convex. The cubic of a measured profile often has such a
//! shape, and weights are feasible for any model. [`SensitivityTable::implausible_models`] lists these models for review.
//! Numbers that are not finite are refused.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use weir_core::saba::profile::{Profile, SensitivityFit};
use weir_core::saba::sensitivity::ModelShape;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::{Degree, MAX_COEFFICIENT, Polynomial, PolynomialError};
use weir_fields::{FileError, FileKind, SourceText, format_value, to_toml_string};

use crate::number::format_exact;

/// The maximum length of a table, in bytes.
pub const MAX_TABLE_BYTES: u64 = 16 << 20;

/// The maximum length of an application's name, in bytes.
pub const MAX_NAME_BYTES: usize = 100;

/// An application and its sensitivity.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The application's name.
    pub name: String,
    /// Its model.
    pub sensitivity: Sensitivity,
    /// R^2 of the model, if known.
    pub r2: Option<f64>,
    /// The measured slowdowns, as fraction of the bandwidth and slowdown; can be empty.
    pub samples: Vec<(Fraction, f64)>,
}

/// A table of applications with distinct names, in the order of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SensitivityTable {
    rows: Vec<Row>,
}

/// An invalid row of a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("application {row}: field `{field}`: `{value}`: expected {expected}")]
pub struct RowError {
    /// The row, from 1.
    pub row: usize,
    /// The field.
    pub field: String,
    /// Its value.
    pub value: String,
    /// The expected value.
    pub expected: String,
}

/// A model whose shape is implausible for a slowdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImplausibleModel {
    /// The application's name.
    pub name: String,
    /// The shape of the model.
    pub shape: ModelShape,
}

impl fmt::Display for ImplausibleModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match (self.shape.is_decreasing, self.shape.is_convex) {
            (false, false) => "rises with the bandwidth somewhere, and is not convex",
            (false, true) => "rises with the bandwidth somewhere",
            _ => "is not convex",
        };
        write!(f, "application `{}`: the model {problem} between no bandwidth and full bandwidth", self.name)
    }
}

/// A profiled application with a fitted model of each degree.
#[derive(Debug, Clone)]
pub struct ProfiledApplication {
    /// The application's name.
    pub name: String,
    profile: Profile,
    /// The fits by degree, from 1.
    pub fits: Vec<SensitivityFit>,
}

/// No model fits the profile of an application.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{name}: {source}")]
pub struct ProfileFitError {
    /// The application's name.
    pub name: String,
    source: PolynomialError,
}

impl ProfiledApplication {
    /// Fits a model of each degree to a profile.
    ///
    /// # Errors
    /// If a model of some degree cannot be fitted to the profile.
    pub fn new(name: &str, profile: Profile) -> Result<ProfiledApplication, ProfileFitError> {
        let fits: Result<Vec<SensitivityFit>, _> =
            Degree::ALL.iter().map(|degree| profile.fit(*degree)).collect();
        let fits = fits.map_err(|source| ProfileFitError { name: name.to_owned(), source })?;
        Ok(ProfiledApplication { name: name.to_owned(), profile, fits })
    }

    /// The measured profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The application's row, with the model of this degree, from 1 to 3.
    pub fn row(&self, degree: usize) -> Row {
        Row::new(&self.name, &self.profile, &self.fits[degree - 1])
    }
}

impl Row {
    /// The row of an application with its profile and a model fitted to it.
    pub fn new(name: &str, profile: &Profile, fit: &SensitivityFit) -> Row {
        let samples = profile.runs().iter().map(|s| (s.bandwidth, s.slowdown)).collect();
        Row { name: name.to_owned(), sensitivity: fit.sensitivity, r2: Some(fit.r2), samples }
    }

    /// The row's first fault, independent of other rows: the field, the value, the expected value.
    fn first_error(&self) -> Option<(&'static str, String, String)> {
        let is_valid_name = !self.name.is_empty()
            && self.name.len() <= MAX_NAME_BYTES
            && !self.name.contains(char::is_control);
        if !is_valid_name {
            let expected = format!("1 to {MAX_NAME_BYTES} bytes without control characters");
            return Some(("name", format_value(&self.name), expected));
        }
        if let Some(r2) = self.r2.filter(|r2| !(r2.is_finite() && *r2 <= 1.0)) {
            return Some(("r2", r2.to_string(), "a number of at most 1".to_owned()));
        }
        let slowdown = self.samples.iter().map(|(_, s)| *s).find(|s| !(*s > 0.0 && *s <= MAX_COEFFICIENT))?;
        Some(("samples", slowdown.to_string(), format!("a slowdown above 0 and up to {MAX_COEFFICIENT:e}")))
    }
}

impl SensitivityTable {
    /// A table of these applications.
    ///
    /// # Errors
    /// For the first row with an invalid field or a repeated name.
    pub fn new(rows: Vec<Row>) -> Result<SensitivityTable, RowError> {
        let mut names = std::collections::BTreeSet::new();
        for (index, row) in rows.iter().enumerate() {
            let duplicate =
                || ("name", row.name.clone(), "a name that no earlier application has".to_owned());
            let error = row.first_error().or_else(|| (!names.insert(&row.name)).then(duplicate));
            if let Some((field, value, expected)) = error {
                return Err(RowError { row: index + 1, field: field.to_owned(), value, expected });
            }
        }
        Ok(SensitivityTable { rows })
    }

    /// The table with `row` instead of the row of the same name, or after all rows if no row has its name.
    ///
    /// # Errors
    /// If the row has an invalid field.
    pub fn with_row(mut self, row: Row) -> Result<SensitivityTable, RowError> {
        match self.position(&row.name) {
            Some(position) => self.rows[position] = row,
            None => self.rows.push(row),
        }
        SensitivityTable::new(self.rows)
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The index of an application's row.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.name == name)
    }

    /// The models in the order of the rows, as the controller expects them.
    pub fn models(&self) -> Vec<Sensitivity> {
        self.rows.iter().map(|row| row.sensitivity).collect()
    }

    /// The models that rise somewhere or are not convex.
    pub fn implausible_models(&self) -> Vec<ImplausibleModel> {
        let implausible_model = |row: &Row| {
            let shape = row.sensitivity.shape();
            (!shape.is_decreasing || !shape.is_convex)
                .then(|| ImplausibleModel { name: row.name.clone(), shape })
        };
        self.rows.iter().filter_map(implausible_model).collect()
    }

    /// Writes the table. Reading the output gives an equal table.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write<W: Write>(&self, mut out: W) -> io::Result<()> {
        out.write_all(
            b"# Slowdown = c0 + c1 b + c2 b^2 + c3 b^3, where b is the fraction of the full bandwidth.\n",
        )?;
        out.write_all(b"version = 1\n")?;
        for row in &self.rows {
            let name = to_toml_string(&row.name);
            let model = row.sensitivity.model();
            let coefficients: Vec<String> =
                model.coefficients()[..=model.degree()].iter().map(|c| format_number(*c)).collect();
            writeln!(out, "\n[[application]]\nname = {name}\ncoefficients = [{}]", coefficients.join(", "))?;
            if let Some(r2) = row.r2 {
                writeln!(out, "r2 = {}", format_number(r2))?;
            }
            if !row.samples.is_empty() {
                let sample = |(b, slowdown): &(Fraction, f64)| {
                    format!("[{}, {}]", format_number(b.get()), format_number(*slowdown))
                };
                let samples: Vec<String> = row.samples.iter().map(sample).collect();
                writeln!(out, "samples = [{}]", samples.join(", "))?;
            }
        }
        out.flush()
    }
}

/// The shortest text that parses to exactly `value`.
fn format_number(value: f64) -> String {
    if value < 0.0 { format!("-{}", format_exact(-value)) } else { format_exact(value) }
}

/// The TOML structure of a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableV1 {
    version: Spanned<i64>,
    #[serde(default)]
    application: Vec<RowV1>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowV1 {
    name: Spanned<String>,
    coefficients: Spanned<Vec<Spanned<f64>>>,
    r2: Option<Spanned<f64>>,
    #[serde(default)]
    samples: Vec<Spanned<(f64, f64)>>,
}

/// An error of the TOML parser or deserialiser. Its field is the key of the line.
fn toml_error(source: SourceText<'_>, error: &toml::de::Error) -> FileError {
    let range = error.span().unwrap_or(0..0);
    let start =
        source.text.get(..range.start).map_or(0, |before| before.rfind('\n').map_or(0, |end| end + 1));
    let line = source.text[start..].lines().next().unwrap_or_default();
    let field = line.split(['=', '#']).next().unwrap_or_default().trim();
    let field = if field.is_empty() { "table".to_owned() } else { format_value(field) };
    let message = error.message();
    let expected = match message.rsplit_once("expected ") {
        Some((_, expected)) => plain_type(expected).to_owned(),
        None => format!("a sensitivity table: {message}"),
    };
    let value = source.text.get(range.clone()).and_then(|text| text.lines().next()).unwrap_or_default();
    source.error(range.start, &field, value, &expected)
}

/// A type of Rust, as serde names it, in the words of a file's author.
fn plain_type(expected: &str) -> &str {
    match expected {
        "i64" => "a whole number",
        "f64" => "a number",
        "a sequence" => "a list",
        "a tuple of size 2" => "a fraction of the bandwidth and a slowdown",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// Reads the table at `path`.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<SensitivityTable, FileError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_TABLE_BYTES + 1).read_to_end(&mut bytes));
    if let Err(source) = read {
        return Err(FileError::Io { file: name, source });
    }
    let source = SourceText { file: &name, text: "" };
    match String::from_utf8(bytes) {
        Ok(text) => parse(&text, &name),
        Err(_) => Err(source.error(0, "table", "bytes that are not UTF-8", "UTF-8")),
    }
}

/// Reads a table from `text`, which errors call `name`.
///
/// # Errors
/// [`FileError::Field`] for the first invalid field.
pub fn parse(text: &str, name: &str) -> Result<SensitivityTable, FileError> {
    let source = SourceText { file: name, text };
    if text.len() as u64 > MAX_TABLE_BYTES {
        let length = format!("{} bytes", text.len());
        return Err(source.error(0, "table", &length, &format!("at most {MAX_TABLE_BYTES} bytes")));
    }
    FileKind::check(text.as_bytes(), name, &[FileKind::Sensitivities], "a sensitivity table")?;
    let file: TableV1 = toml::from_str(text).map_err(|error| toml_error(source, &error))?;
    if *file.version.get_ref() != 1 {
        return Err(source.error_at_range(file.version.span(), "version", "1"));
    }
    let mut rows = Vec::with_capacity(file.application.len());
    let mut spans = Vec::with_capacity(file.application.len());
    for row in file.application {
        let row_spans =
            (row.name.span(), row.r2.as_ref().map(Spanned::span), row.samples.first().map(Spanned::span));
        rows.push(read_row(source, row)?);
        spans.push(row_spans);
    }
    SensitivityTable::new(rows).map_err(|error| {
        let (name, r2, samples) = &spans[error.row - 1];
        let span = match error.field.as_str() {
            "r2" => r2.as_ref(),
            "samples" => samples.as_ref(),
            _ => None,
        };
        source.error(span.unwrap_or(name).start, &error.field, &error.value, &error.expected)
    })
}

fn read_row(source: SourceText<'_>, row: RowV1) -> Result<Row, FileError> {
    let coefficients: Vec<f64> = row.coefficients.get_ref().iter().map(|c| *c.get_ref()).collect();
    let model = Polynomial::new(&coefficients).map_err(|error| match error {
        PolynomialError::InvalidCoefficient { index, .. } => {
            let range = row.coefficients.get_ref()[index].span();
            let expected = format!("a number from -{MAX_COEFFICIENT:e} to {MAX_COEFFICIENT:e}");
            source.error_at_range(range, &format!("coefficients c{index}"), &expected)
        }
        _ => source.error_at_range(row.coefficients.span(), "coefficients", "1 to 4 numbers"),
    })?;
    let mut samples = Vec::with_capacity(row.samples.len());
    for sample in &row.samples {
        let &(bandwidth, slowdown) = sample.get_ref();
        let fraction = Fraction::new(bandwidth).map_err(|_| {
            let expected = "a fraction of the bandwidth above 0 and up to 1, and a slowdown";
            source.error_at_range(sample.span(), "samples", expected)
        })?;
        samples.push((fraction, slowdown));
    }
    Ok(Row {
        name: row.name.into_inner(),
        sensitivity: Sensitivity::new(model),
        r2: row.r2.map(Spanned::into_inner),
        samples,
    })
}
