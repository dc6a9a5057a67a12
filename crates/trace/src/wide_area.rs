//! Reads wide areas from TOML: regions, and measurements of the links between them.
//!
//! `docs/wide-area-format.md` is the reference. Rates and times have units; unknown keys are refused. Files have at most
//! [`MAX_FILE_BYTES`].

use std::io::Read;
use std::path::Path;

use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{WideArea, WideAreaError};
use weir_core::units::{Rate, Time};
use weir_fields::{FileError, FileKind, TableFields, Value, expectation};

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// Reads the wide area at `path`; `-` is the standard input.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<WideArea, FileError> {
    weir_fields::read_file(path, |input, name| read_from(input, name))
}

/// Reads a wide area from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<WideArea, FileError> {
    weir_fields::read_versioned(input, name, MAX_FILE_BYTES, (FileKind::Regions, VERSION), from_fields)
}

/// The wide area described by the keys of a file.
fn from_fields(mut fields: TableFields<'_>) -> Result<WideArea, FileError> {
    const NAMES: &str = "a list of names";
    const TABLES: &str = "a list of tables";
    let regions_value = fields.required("regions", NAMES)?;
    let values = fields.read_list(&regions_value, NAMES)?;
    let regions: Vec<&str> =
        values.iter().map(|value| fields.read_string(value, "a region's name")).collect::<Result<_, _>>()?;
    let names: Vec<String> = regions.iter().map(|&name| name.to_owned()).collect();
    // Before the links, whose errors would hide those of the names.
    WideArea::check_regions(&names)
        .map_err(|error| fields.value_error(&regions_value, &expectation(error)))?;
    let change_interval_value = fields.optional("change-interval");
    let change_interval = change_interval_value
        .map_or(Ok(Time::new(10.0).expect("10 s is a valid time")), |value| fields.read_time(&value))?;
    let correlation_value = fields.optional("correlation");
    let correlation = correlation_value.map_or(Ok(0.0), |value| fields.read_number(&value))?;
    let tables = fields.required("link", TABLES)?;
    let mut links = Vec::new();
    for (number, table) in (1..).zip(fields.read_list(&tables, TABLES)?) {
        links.push(LinkEntry::read(fields.read_table(&table, format!("link {number} "))?, &regions)?);
    }
    fields.finish()?;
    let measured = links.iter().map(|link| link.measurement.clone()).collect();
    WideArea::new(names, measured, change_interval, correlation).map_err(|error| {
        let expected = expectation(&error);
        match error {
            WideAreaError::ChangeInterval(_) => fields
                .value_error(&change_interval_value.expect("the default of 10 s is in range"), &expected),
            WideAreaError::Correlation(_) => {
                fields.value_error(&correlation_value.expect("the default of 0 is in range"), &expected)
            }
            WideAreaError::SelfLink(link) | WideAreaError::DuplicateLink(link) => {
                links[link].end_error(&expected)
            }
            WideAreaError::NoSamples(link) => links[link].samples_error(&expected),
            WideAreaError::SampleOutOfBounds { link, sample, .. } => {
                links[link].sample_error(sample, &expected)
            }
            WideAreaError::RegionCount(_)
            | WideAreaError::InvalidName(_)
            | WideAreaError::DuplicateRegion(_)
            | WideAreaError::UnknownRegion(_) => fields.value_error(&regions_value, &expected),
            WideAreaError::Disconnected { from, to } => {
                let nothing = format!("nothing from `{from}` to `{to}`");
                fields.key_error("link", &nothing, "a link from each region to each other")
            }
        }
    })
}

/// A link, and its values in the file for errors.
struct LinkEntry<'a> {
    fields: TableFields<'a>,
    to_value: Value<'a>,
    bandwidth_value: Value<'a>,
    /// The single samples, if the link has a list.
    sample_values: Vec<Value<'a>>,
    measurement: LinkMeasurement,
}

impl<'a> LinkEntry<'a> {
    fn read(mut fields: TableFields<'a>, regions: &[&str]) -> Result<LinkEntry<'a>, FileError> {
        const RATES: &str = "a list of rates with units, such as [\"90Mbit\", \"120Mbit\"]";
        let mut read_region = |key| -> Result<(Value<'a>, usize), FileError> {
            const REGION: &str = "the name of a region";
            let value = fields.required(key, REGION)?;
            let name = fields.read_string(&value, REGION)?;
            let index = regions.iter().position(|region| *region == name);
            let expected = || format!("one of the regions {}", regions.join(", "));
            Ok((value, index.ok_or_else(|| fields.value_error(&value, &expected()))?))
        };
        let (from, to) = (read_region("from")?.1, read_region("to")?);
        let (rate, list) = (fields.optional("rate"), fields.optional("samples"));
        let (bandwidth, samples) = match (rate, list) {
            (Some(rate), None) => (rate, Vec::new()),
            (None, Some(list)) => (list, fields.read_list(&list, RATES)?),
            (Some(_), Some(list)) => return Err(fields.value_error(&list, "either `rate` or `samples`")),
            (None, None) => return Err(fields.key_error("samples", "nothing", "either `rate` or `samples`")),
        };
        fields.finish()?;
        let rates: Vec<Rate> = match rate {
            Some(rate) => vec![fields.read_rate(&rate)?],
            None => samples.iter().map(|sample| fields.read_rate(sample)).collect::<Result<_, _>>()?,
        };
        Ok(LinkEntry {
            fields,
            to_value: to.0,
            bandwidth_value: bandwidth,
            sample_values: samples,
            measurement: LinkMeasurement { from, to: to.1, samples: rates },
        })
    }

    fn end_error(&self, expected: &str) -> FileError {
        self.fields.value_error(&self.to_value, expected)
    }

    fn samples_error(&self, expected: &str) -> FileError {
        self.fields.value_error(&self.bandwidth_value, expected)
    }

    fn sample_error(&self, index: usize, expected: &str) -> FileError {
        self.fields.value_error(self.sample_values.get(index).unwrap_or(&self.bandwidth_value), expected)
    }
}
