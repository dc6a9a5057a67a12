//! The tables of results in detail: a row for each policy, and coflow, flow, link or the like.

mod bins;
pub mod coflows;
mod demands;
mod flows;
mod groups;
mod jobs;
mod links;
mod schedules;

use crate::results::Results;
use crate::rows::{Column, RowWriter, ValueType};

/// A table of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultTable {
    /// Coflows.
    Coflows,
    /// Flows; empty unless outcomes have the ends of flows.
    Flows,
    /// Times and slowdowns by size, width and length of coflows, and by size of flows if outcomes have their ends.
    Bins,
    /// Groups of coflows, by service, application, weight and deadline.
    Groups,
    /// Jobs.
    Jobs,
    /// The active intervals of the demands of services.
    Demands,
    /// Links.
    Links,
    /// Links over time; empty unless outcomes have their utilization.
    LinkTimes,
    /// Schedules with the wall times of their computation.
    Schedules,
}

impl ResultTable {
    /// The columns.
    pub fn columns(self) -> Vec<Column> {
        match self {
            ResultTable::Coflows => {
                [("policy", ValueType::Text)].into_iter().chain(coflows::columns()).collect()
            }
            ResultTable::Flows => flows::columns().collect(),
            ResultTable::Bins => bins::COLUMNS.to_vec(),
            ResultTable::Groups => groups::COLUMNS.to_vec(),
            ResultTable::Jobs => jobs::COLUMNS.to_vec(),
            ResultTable::Demands => demands::COLUMNS.to_vec(),
            ResultTable::Links => links::COLUMNS.to_vec(),
            ResultTable::LinkTimes => links::TIME_COLUMNS.to_vec(),
            ResultTable::Schedules => schedules::COLUMNS.to_vec(),
        }
    }

    /// Writes the rows, in the order of the policies.
    ///
    /// # Errors
    /// If a row cannot be written.
    pub fn write<W: RowWriter>(self, results: &Results<'_>, rows: &mut W) -> Result<(), W::Error> {
        match self {
            ResultTable::Coflows => coflows::write(results, rows),
            ResultTable::Flows => flows::write(results, rows),
            ResultTable::Bins => bins::write(results, rows),
            ResultTable::Groups => groups::write(results, rows),
            ResultTable::Jobs => jobs::write(results, rows),
            ResultTable::Demands => demands::write(results, rows),
            ResultTable::Links => links::write(results, rows),
            ResultTable::LinkTimes => links::write_over_time(results, rows),
            ResultTable::Schedules => schedules::write(results, rows),
        }
    }
}
