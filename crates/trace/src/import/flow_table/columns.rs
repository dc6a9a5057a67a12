//! The columns of a table of flows.

use std::fmt;
use std::str::FromStr;

use weir_fields::FileError;

use super::Fields;
use crate::builder::TimeUnit;
use crate::lines::Line;
use crate::number;

/// What a column contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Start,
    Src,
    Dst,
    Bytes,
    Coflow,
    Service,
    Application,
    Weight,
    Deadline,
}

impl Content {
    pub(super) const COUNT: usize = 9;
    pub(super) const ALL: [Content; Content::COUNT] = [
        Content::Start,
        Content::Src,
        Content::Dst,
        Content::Bytes,
        Content::Coflow,
        Content::Service,
        Content::Application,
        Content::Weight,
        Content::Deadline,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Content::Start => "start",
            Content::Src => "src",
            Content::Dst => "dst",
            Content::Bytes => "bytes",
            Content::Coflow => "coflow",
            Content::Service => "service",
            Content::Application => "application",
            Content::Weight => "weight",
            Content::Deadline => "deadline",
        }
    }

    const fn is_time(self) -> bool {
        matches!(self, Content::Start | Content::Deadline)
    }
}

/// The columns of a table of flows, as in `start=start_ms:ms,src=from,dst=to,bytes=size_kB:kB,coflow=shuffle`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    columns: [Option<Column>; Content::COUNT],
}

/// A column, and the unit of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    /// A name in the first line, or a number from 1.
    name: String,
    unit: Option<String>,
}

/// A text that is no [`Columns`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}`: expected {expected}")]
pub struct ColumnsError {
    /// The text, or the part of it that is wrong.
    pub value: String,
    /// The expected value.
    pub expected: String,
}

impl ColumnsError {
    fn new(value: &str, expected: impl Into<String>) -> ColumnsError {
        ColumnsError { value: weir_fields::format_value(value), expected: expected.into() }
    }
}

/// The units of sizes, in bytes.
const SIZE_UNITS: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

impl FromStr for Columns {
    type Err = ColumnsError;

    fn from_str(text: &str) -> Result<Columns, ColumnsError> {
        let mut columns = Columns::default();
        for part in text.split(',') {
            let (field, column) = part.split_once('=').ok_or_else(|| ColumnsError::new(part, form()))?;
            let content = Content::ALL.into_iter().find(|content| content.name() == field);
            let content = content.ok_or_else(|| ColumnsError::new(part, form()))?;
            let (name, unit) = match column.rsplit_once(':') {
                Some((name, unit)) if content.is_time() || content == Content::Bytes => (name, Some(unit)),
                _ => (column, None),
            };
            if !unit.is_none_or(|unit| is_unit(content, unit)) {
                let expected =
                    "one of s, ms, us, ns and ps for times, and a unit such as B, kB or MiB for `bytes`";
                return Err(ColumnsError::new(part, expected));
            }
            let column = Column { name: name.to_owned(), unit: unit.map(str::to_owned) };
            if name.is_empty() || columns.columns[content as usize].replace(column).is_some() {
                return Err(ColumnsError::new(part, "a column for each field, once"));
            }
        }
        for required in [Content::Src, Content::Dst, Content::Bytes] {
            if !columns.contain(required) {
                return Err(ColumnsError::new(text, format!("a column for `{}`", required.name())));
            }
        }
        let all = || columns.columns.iter().flatten();
        let numbers = all().filter(|column| column.number().is_some()).count();
        match numbers == 0 || numbers == all().count() {
            true => Ok(columns),
            false => Err(ColumnsError::new(text, "names for all columns, or numbers for all")),
        }
    }
}

/// The form of columns, for messages.
fn form() -> String {
    let names = Content::ALL.map(|content| format!("`{}`", content.name())).join(", ");
    format!("`<field>=<column>` or `<field>=<column>:<unit>` for one of {names}")
}

fn is_unit(content: Content, unit: &str) -> bool {
    match content.is_time() {
        true => TimeUnit::ALL.iter().any(|known| known.symbol == unit),
        false => SIZE_UNITS.iter().any(|(known, _)| *known == unit),
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for content in Content::ALL {
            let Some(column) = &self.columns[content as usize] else { continue };
            let unit = column.unit.as_ref().map(|unit| format!(":{unit}")).unwrap_or_default();
            write!(f, "{separator}{}={}{unit}", content.name(), column.name)?;
            separator = ",";
        }
        Ok(())
    }
}

impl Columns {
    pub(super) fn contain(&self, content: Content) -> bool {
        self.columns[content as usize].is_some()
    }

    /// Whether columns are numbers, so that the first line has values.
    pub(super) fn are_numbers(&self) -> bool {
        self.columns.iter().flatten().all(|column| column.number().is_some())
    }

    /// The unit of times in a column.
    pub(super) fn time_unit(&self, content: Content) -> TimeUnit {
        let unit = self.unit(content).unwrap_or("s");
        TimeUnit::ALL.into_iter().find(|known| known.symbol == unit).unwrap_or(TimeUnit::S)
    }

    /// The unit of sizes, in bytes.
    pub(super) fn size_unit(&self) -> f64 {
        let unit = self.unit(Content::Bytes).unwrap_or("B");
        SIZE_UNITS.iter().find(|(known, _)| *known == unit).map_or(1.0, |&(_, bytes)| bytes)
    }

    fn unit(&self, content: Content) -> Option<&str> {
        self.columns[content as usize].as_ref()?.unit.as_deref()
    }

    /// The positions of the columns from 0, in lines; `names` are the fields of the first line, unless columns are numbers.
    pub(super) fn positions(
        &self,
        line: Line<'_>,
        names: &Fields,
    ) -> Result<[Option<usize>; Content::COUNT], FileError> {
        let mut positions = [None; Content::COUNT];
        for (position, column) in positions.iter_mut().zip(&self.columns) {
            *position = column.as_ref().map(|column| column.position(line, names)).transpose()?;
        }
        Ok(positions)
    }
}

impl Column {
    /// The position from 0, if the column is a number.
    fn number(&self) -> Option<usize> {
        number::parse_integer(&self.name).and_then(|number: usize| number.checked_sub(1))
    }

    fn position(&self, line: Line<'_>, names: &Fields) -> Result<usize, FileError> {
        let found = self.number().or_else(|| names.iter().position(|name| name.trim() == self.name));
        found.ok_or_else(|| {
            let expected = format!("a column named `{}` (--columns)", self.name);
            line.error("columns", line.text, expected)
        })
    }
}
