//! The network of replays, from keyword arguments.

use std::path::PathBuf;

use pyo3::prelude::*;
use weir_core::engine::DecidesOver;
use weir_experiment::options::{FabricSource, NetworkOptions, parse_interval};

use crate::argument;
use crate::error::{Error, Result};
use crate::fabric::Fabric;

/// Keyword arguments about the network; see the options of `weir compare`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct NetworkArguments<'py> {
    port_rate: Option<Bound<'py, PyAny>>,
    interval: Option<Bound<'py, PyAny>>,
    incast: Option<PathBuf>,
    buffer: Option<Bound<'py, PyAny>>,
    fabric: Option<Bound<'py, PyAny>>,
    decide_over: Option<String>,
    path_seed: Option<Bound<'py, PyAny>>,
    bandwidth_seed: Option<Bound<'py, PyAny>>,
}

impl NetworkArguments<'_> {
    /// The requested network.
    ///
    /// # Errors
    /// If a value is invalid; the message names the argument.
    pub fn parse(self) -> Result<NetworkOptions> {
        let port_rate = self.port_rate.map(|rate| argument::rate("port_rate", &rate)).transpose()?;
        let interval =
            self.interval.map(|interval| argument::quantity("interval", &interval, parse_interval));
        let decide_over = match self.decide_over.as_deref() {
            None | Some("links") => DecidesOver::Links,
            Some("ports") => DecidesOver::Ports,
            Some(other) => return Err(Error::parameter("decide_over", other, "`links` or `ports`")),
        };
        if let (Some(_), Some(rate)) = (&self.fabric, port_rate) {
            return Err(Error::parameter(
                "port_rate",
                rate,
                "no `port_rate` with a fabric, which has its own rates",
            ));
        }
        let buffer = self.buffer.map(|buffer| argument::count("buffer", &buffer)).transpose()?;
        let seed = |name, seed: Option<Bound<'_, PyAny>>| {
            seed.map(|seed| argument::integer(name, &seed, argument::SEED)).transpose()
        };
        let options = NetworkOptions {
            port_rate,
            interval: interval.transpose()?,
            incast: self.incast,
            buffer,
            varied_buffer: None,
            fabric: self.fabric.map(|fabric| fabric_source(&fabric)).transpose()?,
            decide_over,
            path_seed: seed("path_seed", self.path_seed)?,
            bandwidth_seed: seed("bandwidth_seed", self.bandwidth_seed)?,
        };
        if let (Some(buffer), None) = (options.buffer, &options.incast) {
            return Err(Error::parameter(
                "buffer",
                buffer,
                "`incast` too: buffers have no effect without it",
            ));
        }
        if let (Some(seed), None) = (options.bandwidth_seed, &options.fabric) {
            return Err(Error::parameter(
                "bandwidth_seed",
                seed,
                "a `fabric` of regions: one switch has no bandwidths",
            ));
        }
        Ok(options)
    }
}

/// A fabric of the module, or the path of a file.
fn fabric_source(fabric: &Bound<'_, PyAny>) -> Result<FabricSource> {
    if let Ok(fabric) = fabric.cast::<Fabric>() {
        let Fabric { name, network, .. } = fabric.get();
        return Ok(FabricSource::Network(name.clone(), Box::new(network.clone())));
    }
    let path =
        fabric.extract().map_err(|_| argument::type_error("fabric", fabric, "a weir.Fabric or a file"))?;
    Ok(FabricSource::File(path))
}
