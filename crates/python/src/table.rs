//! Tables of results in the columns of Arrow.

mod columns;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, Float64Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use columns::Columns;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3_arrow::PyTable;
use weir_experiment::results::Results;
use weir_experiment::rows::Column;
use weir_experiment::tables::ResultTable;

/// A table. Other libraries read it by Arrow's PyCapsule interface, without a copy.
#[pyclass(frozen, module = "weir._native")]
pub struct Table {
    batch: RecordBatch,
}

impl Table {
    /// A table of results.
    pub fn from_results(table: ResultTable, results: &Results<'_>) -> PyResult<Table> {
        Table::from_rows(&table.columns(), |columns| table.write(results, columns))
    }

    /// The table with these columns and the rows that `write` writes.
    pub fn from_rows(
        header: &[Column],
        write: impl FnOnce(&mut Columns) -> Result<(), columns::RowError>,
    ) -> PyResult<Table> {
        let mut columns = Columns::new(header);
        let wrong = |error: &dyn std::fmt::Display| PyRuntimeError::new_err(error.to_string());
        write(&mut columns).map_err(|error| wrong(&error))?;
        Ok(Table { batch: columns.finish().map_err(|error| wrong(&error))? })
    }

    fn to_arrow(&self) -> PyResult<PyTable> {
        PyTable::try_new(vec![self.batch.clone()], self.batch.schema())
    }
}

#[pymethods]
impl Table {
    /// Number of rows.
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The bytes of all columns.
    #[getter]
    fn nbytes(&self) -> usize {
        self.batch.get_array_memory_size()
    }

    /// The first rows.
    fn head(&self, rows: usize) -> Table {
        Table { batch: self.batch.slice(0, rows.min(self.batch.num_rows())) }
    }

    /// The values of a column; None where a value is missing.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(array) = self.batch.column_by_name(name) else {
            let known = self.columns().join(", ");
            return Err(PyKeyError::new_err(format!("`{name}` is no column; expected one of {known}")));
        };
        to_list(py, array)
    }

    /// The columns for another process: the name, the type and the values of each.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, &'static str, Bound<'py, PyList>)>> {
        let schema = self.batch.schema();
        let columns = schema.fields().iter().zip(self.batch.columns());
        columns
            .map(|(field, array)| Ok((field.name().clone(), type_name(array), to_list(py, array)?)))
            .collect()
    }

    /// The table of such columns.
    #[staticmethod]
    fn restore(columns: Vec<(String, String, Bound<'_, PyList>)>) -> PyResult<Table> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (name, kind, values) in columns {
            let array = from_list(&kind, &values)?;
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(Table { batch: batch.map_err(|error| PyValueError::new_err(error.to_string()))? })
    }

    /// Arrow's stream of the rows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let table = self.to_arrow()?.into_pyobject(py)?;
        table.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// Arrow's schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_arrow()?.into_pyobject(py)?.call_method0("__arrow_c_schema__")
    }
}

fn to_list<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    match array.data_type() {
        DataType::Float64 => PyList::new(py, array.as_primitive::<Float64Type>().iter()),
        DataType::UInt64 => PyList::new(py, array.as_primitive::<UInt64Type>().iter()),
        _ => {
            let texts = array.as_dictionary::<Int32Type>();
            let values = texts.values().as_string::<i32>();
            PyList::new(py, texts.keys().iter().map(|key| key.map(|key| values.value(key as usize))))
        }
    }
}

/// The name of a column's type for [`from_list`].
fn type_name(array: &ArrayRef) -> &'static str {
    match array.data_type() {
        DataType::Float64 => "number",
        DataType::UInt64 => "integer",
        _ => "text",
    }
}

/// The column of a list that [`to_list`] returned for a column of this type.
fn from_list(kind: &str, values: &Bound<'_, PyList>) -> PyResult<ArrayRef> {
    Ok(match kind {
        "number" => Arc::new(Float64Array::from(values.extract::<Vec<Option<f64>>>()?)),
        "integer" => Arc::new(UInt64Array::from(values.extract::<Vec<Option<u64>>>()?)),
        "text" => {
            let texts: Vec<Option<String>> = values.extract()?;
            Arc::new(texts.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>())
        }
        other => return Err(PyValueError::new_err(format!("`{other}`: expected number, integer or text"))),
    })
}

/// A schema of columns that can be without values.
fn schema(columns: &[Column]) -> Arc<Schema> {
    Arc::new(Schema::new(columns.iter().map(columns::field).collect::<Vec<_>>()))
}
