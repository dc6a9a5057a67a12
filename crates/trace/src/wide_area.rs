//! Reads wide areas from TOML: regions, and measurements of the links between them.
//!
//! `docs/wide-area-format.md` is the reference. Rates and times have units; unknown keys are refused. Files have at most
//! [`MAX_FILE_BYTES`].

use std::io::Read;
use std::path::Path;

use weir_core::model::wide_area::Measured;
use weir_core::model::{WideArea, WideAreaError};
use weir_core::units::{Rate, Time};

use crate::error::TraceError;
use crate::fields::{self, Fields, Value};

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The key that contains the version.
const MAGIC: &str = "weir-wide-area";

/// Reads the wide area at `path`; `-` is the standard input.
///
/// # Errors
/// [`TraceError::Io`] if the file cannot be read; [`TraceError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<WideArea, TraceError> {
    fields::open(path, |input, name| read_from(input, name))
}

/// Reads a wide area from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<WideArea, TraceError> {
    fields::read_versioned(input, name, MAX_FILE_BYTES, (MAGIC, VERSION), from_fields)
}

/// The wide area described by the keys of a file.
fn from_fields(mut fields: Fields<'_>) -> Result<WideArea, TraceError> {
    const NAMES: &str = "a list of names";
    const TABLES: &str = "a list of tables";
    let listed = fields.need("regions", NAMES)?;
    let values = fields.list(&listed, NAMES)?;
    let regions: Vec<&str> =
        values.iter().map(|value| fields.text(value, "a region's name")).collect::<Result<_, _>>()?;
    let holds = fields.maybe("holds");
    let time =
        holds.map_or(Ok(Time::new(10.0).expect("10 s is a valid time")), |value| fields.read_time(&value))?;
    let like = fields.maybe("correlation");
    let correlation = like.map_or(Ok(0.0), |value| fields.float(&value))?;
    let tables = fields.need("link", TABLES)?;
    let mut links = Vec::new();
    for (number, table) in (1..).zip(fields.list(&tables, TABLES)?) {
        links.push(Link::read(fields.table(&table, format!("link {number} "))?, &regions)?);
    }
    fields.finish()?;
    let measured = links.iter().map(|link| link.measured.clone()).collect();
    let names = regions.iter().map(|&name| name.to_owned()).collect();
    WideArea::new(names, measured, time, correlation).map_err(|error| {
        let expected = format!("a wide area that holds together: {error}");
        match error {
            WideAreaError::Holds(_) => {
                fields.wrong(&holds.expect("the default of 10 s is in range"), &expected)
            }
            WideAreaError::Correlation(_) => {
                fields.wrong(&like.expect("the default of 0 is in range"), &expected)
            }
            WideAreaError::Loop(link) | WideAreaError::Again(link) => links[link].wrong_end(&expected),
            WideAreaError::Empty(link) => links[link].wrong_samples(&expected),
            WideAreaError::Sample { link, sample, .. } => links[link].wrong_sample(sample, &expected),
            WideAreaError::Regions(_)
            | WideAreaError::Name(_)
            | WideAreaError::Twice(_)
            | WideAreaError::Unknown(_) => fields.wrong(&listed, &expected),
            WideAreaError::Disconnected { from, to } => {
                let nothing = format!("nothing from `{from}` to `{to}`");
                fields.wrong_at("link", &nothing, "a link from each region to each other")
            }
        }
    })
}

/// A link, and its values in the file for errors.
struct Link<'a> {
    fields: Fields<'a>,
    to: Value<'a>,
    bandwidth: Value<'a>,
    /// The single samples, if the link has a list.
    samples: Vec<Value<'a>>,
    measured: Measured,
}

impl<'a> Link<'a> {
    fn read(mut fields: Fields<'a>, regions: &[&str]) -> Result<Link<'a>, TraceError> {
        const RATES: &str = "a list of rates with units, such as [\"90Mbit\", \"120Mbit\"]";
        let mut region = |key| -> Result<(Value<'a>, usize), TraceError> {
            const REGION: &str = "the name of a region";
            let value = fields.need(key, REGION)?;
            let name = fields.text(&value, REGION)?;
            let place = regions.iter().position(|region| *region == name);
            let expected = || format!("one of the regions {}", regions.join(", "));
            Ok((value, place.ok_or_else(|| fields.wrong(&value, &expected()))?))
        };
        let (from, to) = (region("from")?.1, region("to")?);
        let (rate, list) = (fields.maybe("rate"), fields.maybe("samples"));
        let (bandwidth, samples) = match (rate, list) {
            (Some(rate), None) => (rate, Vec::new()),
            (None, Some(list)) => (list, fields.list(&list, RATES)?),
            (Some(_), Some(list)) => return Err(fields.wrong(&list, "either `rate` or `samples`")),
            (None, None) => return Err(fields.wrong_at("samples", "nothing", "either `rate` or `samples`")),
        };
        fields.finish()?;
        let rates: Vec<Rate> = match rate {
            Some(rate) => vec![fields.read_rate(&rate)?],
            None => samples.iter().map(|sample| fields.read_rate(sample)).collect::<Result<_, _>>()?,
        };
        Ok(Link {
            fields,
            to: to.0,
            bandwidth,
            samples,
            measured: Measured { from, to: to.1, samples: rates },
        })
    }

    fn wrong_end(&self, expected: &str) -> TraceError {
        self.fields.wrong(&self.to, expected)
    }

    fn wrong_samples(&self, expected: &str) -> TraceError {
        self.fields.wrong(&self.bandwidth, expected)
    }

    fn wrong_sample(&self, sample: usize, expected: &str) -> TraceError {
        self.fields.wrong(self.samples.get(sample).unwrap_or(&self.bandwidth), expected)
    }
}
