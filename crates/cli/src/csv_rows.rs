//! Rows of tables as CSV.

use std::io::Write;

use serde::Serialize;
use weir_experiment::rows::RowWriter;

/// Writes rows as lines of CSV.
pub struct CsvRows<W: Write>(pub csv::Writer<W>);

impl<W: Write> RowWriter for CsvRows<W> {
    type Error = csv::Error;

    fn write_row(&mut self, row: impl Serialize) -> csv::Result<()> {
        self.0.serialize(row)
    }
}
