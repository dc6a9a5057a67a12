//! Rows of tables, which a command writes as CSV and a program keeps as columns.

use serde::Serialize;

/// The type of the values of a column. A value can be missing in each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// Text.
    Text,
    /// A whole number from 0.
    Integer,
    /// A number.
    Number,
}

/// A column: its name and the type of its values.
pub type Column = (&'static str, ValueType);

/// Receives the rows of a table.
pub trait RowWriter {
    /// Why a row cannot be written.
    type Error;

    /// Writes a row, whose fields are values of the columns in their order; nested tuples count as their fields.
    ///
    /// # Errors
    /// If the row cannot be written.
    fn write_row(&mut self, row: impl Serialize) -> Result<(), Self::Error>;
}
