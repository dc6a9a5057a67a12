//! Values of arguments: numbers, and text with units.
//!
//! A value of the wrong type is a `TypeError`, and a value out of range a `weir.InputError`. Numbers without a unit are out of range where
//! a unit is needed.

use std::fmt::Display;
use std::str::FromStr;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use weir_core::units::Rate;
use weir_experiment::options::parse_port_rate;

use crate::error::{Error, Result};

/// The error for an argument of the wrong type.
pub fn type_error(name: &str, value: &Bound<'_, PyAny>, expected: &str) -> Error {
    let found = value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    Error::Python(PyTypeError::new_err(format!("`{name}`: expected {expected}, not {found}")))
}

/// The range of seeds, for messages.
pub const SEED: &str = "a whole number from 0 to 18446744073709551615";

/// A whole number.
pub fn integer<T: TryFrom<i128>>(name: &str, value: &Bound<'_, PyAny>, expected: &str) -> Result<T> {
    let number = match value.is_instance_of::<PyBool>() || value.is_instance_of::<PyFloat>() {
        true => None,
        // The integers of other packages too.
        false => value.call_method0("__index__").ok(),
    };
    let number = number.ok_or_else(|| type_error(name, value, "a whole number"))?;
    let in_range = number.extract::<i128>().ok().and_then(|number| T::try_from(number).ok());
    in_range.ok_or_else(|| Error::parameter(name, number, expected))
}

/// A number of 32 bits, whose range the caller checks.
pub fn count(name: &str, value: &Bound<'_, PyAny>) -> Result<u32> {
    integer(name, value, "a whole number from 0 to 4294967295")
}

/// A number.
pub fn number(name: &str, value: &Bound<'_, PyAny>) -> Result<f64> {
    let is_bool_or_text = value.is_instance_of::<PyBool>() || value.is_instance_of::<PyString>();
    let number = if is_bool_or_text { None } else { value.extract().ok() };
    number.ok_or_else(|| type_error(name, value, "a number"))
}

/// Text with a unit that `parse` accepts, with the errors of the command line. A bare number is such an error too.
pub fn quantity<T>(
    name: &str,
    value: &Bound<'_, PyAny>,
    parse: impl FnOnce(&str) -> std::result::Result<T, String>,
) -> Result<T> {
    let text = match value.cast::<PyString>() {
        Ok(text) => text.to_str()?.to_owned(),
        Err(_) if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() => value.to_string(),
        Err(_) => return Err(type_error(name, value, "text with a unit")),
    };
    parse(&text).map_err(|message| {
        let expected = message.split_once("expected ").map_or(message.as_str(), |(_, expected)| expected);
        Error::parameter(name, &text, expected)
    })
}

/// The rate of a port or a link, with a unit.
pub fn rate(name: &str, value: &Bound<'_, PyAny>) -> Result<Rate> {
    quantity(name, value, parse_port_rate)
}

/// Text that has a value of type `T`, with the errors of its parser.
pub fn parsed<T>(name: &str, value: &Bound<'_, PyAny>) -> Result<T>
where
    T: FromStr<Err: Display>,
{
    let Ok(text) = value.cast::<PyString>() else { return Err(type_error(name, value, "text")) };
    let text = text.to_str()?;
    text.parse().map_err(|error: T::Err| {
        let message = error.to_string();
        let expected = message.split_once("expected ").map_or(message.as_str(), |(_, expected)| expected);
        Error::parameter(name, text, expected)
    })
}
