//! Runs `weir ctl sensitivity`: prints the coordinator's sensitivity table, or replaces it by that of a file.

use weir_client::Coordinator;
use weir_console::failure::Failure;
use weir_console::output::ResultDestination;
use weir_console::record::Record;
use weir_trace::sensitivity::{self, Row};

use crate::args::{self, SensitivityCommand};
use crate::render;

/// The path of the table in the API.
const PATH: &str = "/v1/sensitivity";

/// Runs `weir ctl sensitivity`.
pub(super) fn run(
    args: &args::Ctl,
    coordinator: &Coordinator,
    command: &SensitivityCommand,
) -> Result<(), Failure> {
    match command {
        SensitivityCommand::Show => show(args, &coordinator.get_text(PATH)?),
        SensitivityCommand::Load { file } => {
            // An error of the file names its line; the coordinator would name the body.
            sensitivity::read(file)?;
            coordinator.put_text(PATH, &super::read(file)?)?;
            Ok(())
        }
    }
}

fn show(args: &args::Ctl, text: &str) -> Result<(), Failure> {
    let table = sensitivity::parse(text, "table of the coordinator")?;
    let records = || table.rows().iter().map(record).collect();
    let text = render::list(args.output.format, || text.to_owned(), records);
    ResultDestination::new(args.output.out.as_deref())?.write_text(text)
}

/// A row of the table: the name of the application, and its model.
fn record(row: &Row) -> Record {
    let model = row.sensitivity.model();
    let mut record = Record::default();
    record.add("application", row.name.as_str());
    record.add("r2", row.r2);
    let coefficients = &model.coefficients()[..=model.degree()];
    for (at, name) in ["c0", "c1", "c2", "c3"].into_iter().enumerate() {
        record.add(name, coefficients.get(at).copied());
    }
    record
}
