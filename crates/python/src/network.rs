//! The network of replays, from keyword arguments.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use weir_core::engine::DecidesOver;
use weir_experiment::options::{FabricSource, NetworkOptions, parse_interval, parse_port_rate};

/// Keyword arguments about the network; see the options of `weir compare`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct NetworkArguments {
    port_rate: Option<String>,
    interval: Option<String>,
    incast: Option<PathBuf>,
    buffer: Option<u32>,
    fabric: Option<PathBuf>,
    decide_over: Option<String>,
    path_seed: Option<u64>,
    bandwidth_seed: Option<u64>,
}

impl NetworkArguments {
    /// The requested network.
    ///
    /// # Errors
    /// If a value is invalid; the message names the argument.
    pub fn parse(self) -> PyResult<NetworkOptions> {
        let invalid = |name: &str, value: &str, expected: &str| {
            PyValueError::new_err(format!("{name}: `{value}`: {expected}"))
        };
        let port_rate = self
            .port_rate
            .as_deref()
            .map(|text| parse_port_rate(text).map_err(|expected| invalid("port_rate", text, &expected)));
        let interval = self
            .interval
            .as_deref()
            .map(|text| parse_interval(text).map_err(|expected| invalid("interval", text, &expected)));
        let decide_over = match self.decide_over.as_deref() {
            None | Some("links") => DecidesOver::Links,
            Some("ports") => DecidesOver::Ports,
            Some(other) => return Err(invalid("decide_over", other, "expected `links` or `ports`")),
        };
        if self.fabric.is_some() && self.port_rate.is_some() {
            return Err(PyValueError::new_err("port_rate: a fabric has its own rates; expected one of both"));
        }
        Ok(NetworkOptions {
            port_rate: port_rate.transpose()?,
            interval: interval.transpose()?,
            incast: self.incast,
            buffer: self.buffer,
            varied_buffer: None,
            fabric: self.fabric.map(FabricSource::File),
            decide_over,
            path_seed: self.path_seed,
            bandwidth_seed: self.bandwidth_seed,
        })
    }
}
