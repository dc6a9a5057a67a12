//! The network as a policy in Python reads it.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weir_core::model::LentNetwork;
use weir_core::solve::Contention;

use super::fields::read_field;
use super::knowledge::PolicyKnowledge;

/// What a policy can read during one call.
pub(super) struct Lent<K: PolicyKnowledge> {
    pub(super) network: LentNetwork<K>,
    /// From the first access on.
    pub(super) contention: Option<Contention>,
}

/// The network during a call; empty after it. Threads of the interpreter can read it at the same time.
pub(super) type SharedNetwork<K> = Arc<Mutex<Option<Lent<K>>>>;

/// Reads the network of a policy of any knowledge.
trait ReadFields: Send + Sync {
    /// The numbers of a field, in the order of bytes of this machine.
    fn read(&self, field: &str) -> PyResult<Vec<u8>>;

    /// The time of the call, and the minimum time between schedules, in seconds.
    fn times(&self) -> PyResult<(f64, f64)>;
}

/// The error of an access after the call.
fn has_ended() -> PyErr {
    PyRuntimeError::new_err(
        "the view is valid until the method that received it returns; copy the arrays that you need later",
    )
}

/// Calls `read` with the network.
fn read_shared<K: PolicyKnowledge, R>(
    shared: &Mutex<Option<Lent<K>>>,
    read: impl FnOnce(&mut Lent<K>) -> PyResult<R>,
) -> PyResult<R> {
    // The lock is held without calls of Python code, so that no thread waits for it and the interpreter's at the same time.
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    read(shared.as_mut().ok_or_else(has_ended)?)
}

impl<K: PolicyKnowledge> ReadFields for Mutex<Option<Lent<K>>> {
    fn read(&self, field: &str) -> PyResult<Vec<u8>> {
        read_shared(self, |lent| read_field(lent, field))
    }

    fn times(&self) -> PyResult<(f64, f64)> {
        read_shared(self, |lent| {
            let view = lent.network.view();
            Ok((view.now(), view.interval()))
        })
    }
}

/// The network at one time, for a policy. `weir.simulator.view.View` wraps its numbers as arrays.
#[pyclass(frozen, module = "weir._native")]
pub struct PolicyView(Arc<dyn ReadFields>);

impl PolicyView {
    pub(super) fn new<K: PolicyKnowledge>(network: SharedNetwork<K>) -> PolicyView {
        PolicyView(network)
    }
}

#[pymethods]
impl PolicyView {
    /// The numbers of a field, in the order of bytes of this machine: see `weir.simulator.view`.
    fn read<'py>(&self, py: Python<'py>, field: &str) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.read(field)?))
    }

    /// The time of the call, and the minimum time between schedules, in seconds.
    fn times(&self) -> PyResult<(f64, f64)> {
        self.0.times()
    }
}
