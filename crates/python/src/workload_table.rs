//! The coflows and the flows of a trace as tables.

use pyo3::PyResult;
use weir_core::model::{CoflowSpec, Workload};
use weir_core::units::Time;
use weir_experiment::rows::ValueType::{Integer, Number, Text};
use weir_experiment::rows::{Column, RowWriter};
use weir_experiment::source::Source;

use crate::table::Table;

const COFLOW_COLUMNS: [Column; 15] = [
    ("coflow", Integer),
    ("job", Text),
    ("stage", Integer),
    ("wave", Integer),
    ("arrival_s", Number),
    ("width", Integer),
    ("bytes", Number),
    ("service", Text),
    ("application", Text),
    ("weight", Number),
    ("deadline_s", Number),
    ("parents", Text),
    ("compute_before_s", Number),
    ("overlapped_compute_s", Number),
    ("compute_after_s", Number),
];

const FLOW_COLUMNS: [Column; 10] = [
    ("coflow", Integer),
    ("flow", Integer),
    ("src", Integer),
    ("dst", Integer),
    ("bytes", Number),
    ("start_s", Number),
    ("service", Text),
    ("application", Text),
    ("weight", Number),
    ("deadline_s", Number),
];

const NAME_COLUMNS: [Column; 2] = [("src_name", Text), ("dst_name", Text)];

/// The service, the application, the weight and the deadline of a coflow.
fn owner<'a>(workload: &'a Workload, coflow: &CoflowSpec) -> (&'a str, &'a str, f64, Option<f64>) {
    let application = &workload.names.applications(coflow.service)[coflow.application as usize];
    (workload.names.service(coflow.service), application, coflow.weight, coflow.deadline.map(Time::get))
}

/// A row for each coflow, except the endless ones of services.
pub fn coflows(source: &Source) -> PyResult<Table> {
    let workload = &source.workload;
    Table::from_rows(&COFLOW_COLUMNS, |rows| {
        workload.finite_coflows().iter().try_for_each(|coflow| {
            let job = coflow.job.map(|job| source.job_name(job));
            let place = (coflow.id, job, coflow.stage, coflow.wave);
            let size = (coflow.arrival.get(), coflow.flows.len() as u64, coflow.total_bytes());
            let parents = coflow.parents.iter().map(|&parent| workload.coflows[parent].id.to_string());
            let parents = Some(parents.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty());
            let compute =
                [coflow.compute_before, coflow.overlapped_compute, coflow.compute_after].map(Time::get);
            rows.write_row((place, size, owner(workload, coflow), parents, compute))
        })
    })
}

/// A row for each flow of these coflows. With names of ports, there are columns of them.
pub fn flows(source: &Source) -> PyResult<Table> {
    let (workload, names) = (&source.workload, &source.port_names);
    let name_columns = if names.is_empty() { &[][..] } else { &NAME_COLUMNS };
    let columns = [&FLOW_COLUMNS, name_columns].concat();
    Table::from_rows(&columns, |rows| {
        for coflow in workload.finite_coflows() {
            for (number, flow) in (0_u64..).zip(&coflow.flows) {
                let start = coflow.arrival.get() + flow.data_delay.get();
                let row = (coflow.id, number, flow.src, flow.dst, flow.bytes.get(), start);
                let name = |port: u32| names.get(port as usize);
                match names.is_empty() {
                    true => rows.write_row((row, owner(workload, coflow)))?,
                    false => {
                        rows.write_row((row, owner(workload, coflow), name(flow.src), name(flow.dst)))?
                    }
                }
            }
        }
        Ok(())
    })
}
