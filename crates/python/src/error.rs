//! Errors as exceptions of Python: `weir.InputError` and `weir.ReplayError`.

use std::fmt::Display;
use std::io;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir_console::failure::{Failure, InvalidInput};
use weir_console::record::Record;
use weir_core::model::TopologyError;
use weir_fields::{FileError, format_value};
use weir_trace::WriteError;
use weir_trace::generate::WorkloadSpecError;

use crate::keywords::{keyword, with_keywords};

/// Why a function of the module failed.
#[derive(Debug)]
pub enum Error {
    /// An exception of Python.
    Python(PyErr),
    /// Invalid input: `weir.InputError`.
    Input(Box<InputError>),
    /// A file cannot be read: `weir.InputError` with this message, whose cause is `FileNotFoundError` or another `OSError`.
    Io(String, String, io::Error),
    /// A replay failed: `weir.ReplayError`, with its message.
    Replay(String),
}

/// The result of a function of the module.
pub type Result<T> = std::result::Result<T, Error>;

/// The message and the attributes of `weir.InputError`.
#[derive(Debug, Default)]
pub struct InputError {
    message: String,
    file: Option<String>,
    line: Option<usize>,
    field: Option<String>,
    value: Option<String>,
    expected: Option<String>,
}

impl Error {
    /// Invalid input with a message that ends in `expected ...`, as those of the command line do.
    pub fn input(message: impl Display) -> Error {
        Error::Input(Box::new(InputError::from_message(message.to_string())))
    }

    /// Invalid input with such a message, about a field.
    pub fn input_about(field: &str, message: String) -> Error {
        let field = Some(field.to_owned());
        Error::Input(Box::new(InputError { field, ..InputError::from_message(message) }))
    }

    /// A field of a table with an invalid value in a row, from 1.
    pub fn field(table: &str, row: usize, field: &str, value: impl Display, expected: impl Display) -> Error {
        Error::from(FileError::Field {
            file: table.to_owned(),
            line: row,
            field: field.to_owned(),
            value: format_value(&value.to_string()),
            expected: expected.to_string(),
        })
    }

    /// A parameter with an invalid value.
    pub fn parameter(name: &str, value: impl Display, expected: impl Display) -> Error {
        let (value, expected) = (format_value(&value.to_string()), expected.to_string());
        Error::Input(Box::new(InputError {
            message: format!("`{name}`: `{value}`: expected {expected}"),
            field: Some(name.to_owned()),
            value: Some(value),
            expected: Some(expected),
            ..InputError::default()
        }))
    }
}

impl InputError {
    fn from_message(message: String) -> InputError {
        // A wrong value, such as a name, can contain the word too.
        let split = message.split_once("; expected ").or_else(|| message.split_once("expected "));
        let expected = split.map(|(_, expected)| expected);
        let expected = expected.map(|text| text.split("; help: ").next().unwrap_or(text).to_owned());
        InputError { expected, message, ..InputError::default() }
    }

    fn into_exception(self, py: Python<'_>) -> PyResult<PyErr> {
        let attributes = PyDict::new(py);
        attributes.set_item("file", self.file)?;
        attributes.set_item("line", self.line)?;
        attributes.set_item("field", self.field)?;
        attributes.set_item("value", self.value)?;
        attributes.set_item("expected", self.expected.as_deref().map(with_keywords))?;
        let class = py.import("weir.simulator.errors")?.getattr("InputError")?;
        Ok(PyErr::from_value(class.call((with_keywords(&self.message),), Some(&attributes))?))
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        let to_exception = |py: Python<'_>| match error {
            Error::Python(error) => Ok(error),
            Error::Input(error) => error.into_exception(py),
            Error::Io(message, file, source) => {
                let input = InputError { message, file: Some(file), ..InputError::default() };
                let exception = input.into_exception(py)?;
                exception.set_cause(py, Some(source.into()));
                Ok(exception)
            }
            Error::Replay(message) => {
                let class = py.import("weir.simulator.errors")?.getattr("ReplayError")?;
                Ok(PyErr::from_value(class.call1((with_keywords(&message),))?))
            }
        };
        Python::attach(|py| to_exception(py).unwrap_or_else(|error| error))
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Error {
        Error::Python(error)
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Error {
        let message = error.to_string();
        match error {
            FileError::Io { file, source } => Error::Io(message, file, source),
            FileError::WrongKind { file, found, expected, .. } => Error::Input(Box::new(InputError {
                message,
                file: Some(file),
                value: Some(found.to_owned()),
                expected: Some(expected.to_owned()),
                ..InputError::default()
            })),
            FileError::Field { file, line, field, value, expected } => Error::Input(Box::new(InputError {
                message,
                file: Some(file),
                line: Some(line),
                field: Some(field),
                value: Some(value),
                expected: Some(expected),
            })),
        }
    }
}

/// The exception for a failure.
pub fn to_exception(failure: Failure) -> PyErr {
    Error::from(failure).into()
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure.input.map(|input| *input) {
            Some(InvalidInput::File(error)) => Error::from(error),
            Some(InvalidInput::Value { name, value, expected }) => {
                let input = InputError::from_message(failure.message);
                let (field, value) = (Some(keyword(&name)), Some(format_value(&value)));
                Error::Input(Box::new(InputError {
                    field,
                    value,
                    expected: expected.or(input.expected),
                    ..input
                }))
            }
            None if failure.exit_code == 2 => Error::input(failure.message),
            None => Error::Replay(failure.message),
        }
    }
}

impl From<TopologyError> for Error {
    fn from(error: TopologyError) -> Error {
        let mut input = InputError::from_message(error.to_string());
        match error {
            TopologyError::Parameter { parameter, value, .. } => {
                (input.field, input.value) = (Some(parameter.to_owned()), Some(value));
            }
            TopologyError::Count { kind, count, .. } => {
                (input.field, input.value) = (Some(kind.to_owned()), Some(count.to_string()));
            }
            TopologyError::Rate { rate, .. } => {
                (input.field, input.value) = (Some("rate".to_owned()), Some(rate.to_string()));
            }
            _ => {}
        }
        Error::Input(Box::new(input))
    }
}

impl From<WorkloadSpecError> for Error {
    fn from(error: WorkloadSpecError) -> Error {
        let message = error.to_string();
        let WorkloadSpecError { field, value, expected } = error;
        let (field, value, expected) = (Some(field), Some(value), Some(expected));
        Error::Input(Box::new(InputError { message, field, value, expected, ..InputError::default() }))
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Error {
        Error::input(error)
    }
}

/// A record as JSON.
pub fn to_json(record: &Record) -> String {
    serde_json::to_string(record).expect("a record consists of JSON values")
}
