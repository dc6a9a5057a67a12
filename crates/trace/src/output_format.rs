//! Writes traces in one of the formats.

use std::io;
use std::path::Path;

use weir_core::model::Workload;

use crate::coflow_benchmark::{self, TraceUnit};
use crate::error::WriteError;
use crate::format;
use crate::generate::Resolution;

/// The formats in which traces are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// The public format, with sizes in this unit.
    CoflowBenchmark(TraceUnit),
    /// Weir's own format.
    Weir,
}

impl OutputFormat {
    /// Whether files of this name are in Weir's own format, unless a user states a format.
    pub fn is_weir_file(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "weir")
    }

    /// The resolution of sizes and times that the format has.
    pub fn resolution(self) -> Resolution {
        match self {
            OutputFormat::CoflowBenchmark(_) => Resolution::CoflowBenchmark,
            OutputFormat::Weir => Resolution::Weir,
        }
    }

    /// The text of a workload, with a name for each of the first ports.
    ///
    /// # Errors
    /// If the workload is inconsistent, or the format cannot express it.
    pub fn write(self, workload: &Workload, port_names: &[String]) -> Result<Vec<u8>, WriteError> {
        let mut text = Vec::new();
        match self {
            OutputFormat::Weir => format::write(workload, port_names, &mut text)?,
            OutputFormat::CoflowBenchmark(_) if !port_names.is_empty() => {
                let (subject, reason) = ("the trace".to_owned(), "its ports have names".to_owned());
                return Err(WriteError::Inexpressible { subject, reason });
            }
            OutputFormat::CoflowBenchmark(unit) => coflow_benchmark::write(workload, unit, &mut text)?,
        }
        Ok(text)
    }

    /// Whether only Weir's own format can express a workload that could not be written.
    pub fn needs_weir(error: &WriteError, workload: &Workload, port_names: &[String]) -> bool {
        matches!(error, WriteError::Inexpressible { .. })
            && format::write(workload, port_names, &mut io::sink()).is_ok()
    }
}
