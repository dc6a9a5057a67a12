//! Limits the capacity of a switch in a replay, by measured incast at receivers or by links between switches.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::table::{format_bytes, format_count, format_percent, format_rate};
use weir_core::model::{Goodput, Trunks};
use weir_core::units::Rate;
use weir_sim::{NetworkModel, ReplayOptions};
use weir_trace::incast::IncastMeasurements;

use crate::args;

/// A limit on the capacity of a switch, in addition to its port rate.
pub enum CapacityLimit {
    /// Receiving ports with many senders have the measured goodput of incast.
    Incast(Incast),
    /// Links between the switches of a network limit flows between ports.
    Fabric(Fabric),
}

/// Measurements of incast, and the buffer of the simulated ports.
pub struct Incast {
    name: String,
    measured: IncastMeasurements,
    buffer: u32,
}

/// A network with links between switches.
pub struct Fabric {
    name: String,
    seed: u64,
    trunks: Arc<Trunks>,
}

impl CapacityLimit {
    /// Reads the requested limit, if there is one.
    ///
    /// # Errors
    /// If its file cannot be read, or does not fit the options.
    pub fn read(args: &args::NetworkOptions) -> Result<Option<CapacityLimit>, Failure> {
        if let (Some(path), Some(buffer)) = (&args.incast, args.buffer) {
            return Incast::read(path, buffer).map(|incast| Some(CapacityLimit::Incast(incast)));
        }
        let Some(path) = &args.fabric else { return Ok(None) };
        let name = path.display().to_string();
        let trunks = Trunks::new(weir_trace::topology::read(path)?, args.path_seed);
        let trunks = trunks.map_err(|error| Failure::input(format_args!("{name}: {error}")))?;
        Ok(Some(CapacityLimit::Fabric(Fabric { name, seed: args.path_seed, trunks: Arc::new(trunks) })))
    }

    /// Applies the limit to a replay at the port rate of `options`. A fabric sets the port rate.
    pub fn apply(&self, options: &mut ReplayOptions) {
        options.network_model = Some(match self {
            CapacityLimit::Incast(incast) => NetworkModel::Goodput(incast.goodput(options.port_rate)),
            CapacityLimit::Fabric(fabric) => {
                options.port_rate = fabric.trunks.port_rate();
                NetworkModel::Trunks(Arc::clone(&fabric.trunks))
            }
        });
    }

    /// The name of the file that defines the limit.
    pub fn name(&self) -> &str {
        match self {
            CapacityLimit::Incast(incast) => &incast.name,
            CapacityLimit::Fabric(fabric) => &fabric.name,
        }
    }

    /// A description of the limit at a port rate, as lines of text.
    pub fn caption(&self, port_rate: Rate) -> String {
        match self {
            CapacityLimit::Incast(incast) => incast.caption(port_rate),
            CapacityLimit::Fabric(Fabric { name, seed, trunks }) => format!(
                "{name}: {} with {} between switches, of {} in all; each flow takes one of the shortest paths, by a hash with seed {seed}.\n",
                format_count(trunks.ports(), "host"),
                format_count(trunks.capacities().len(), "link"),
                format_rate(trunks.capacities().iter().sum()),
            ),
        }
    }

    /// The fields that the limit adds to a record.
    pub fn record_fields(&self) -> [(&'static str, Value); 2] {
        match self {
            CapacityLimit::Incast(Incast { name, buffer, .. }) => {
                [("incast", name.as_str().into()), ("buffer_packets", (*buffer).into())]
            }
            CapacityLimit::Fabric(Fabric { name, seed, .. }) => {
                [("fabric", name.as_str().into()), ("path_seed", (*seed).into())]
            }
        }
    }

    /// Whether the limit sets the port rate: a fabric uses the rate of its cables to hosts.
    pub fn sets_port_rate(&self) -> bool {
        matches!(self, CapacityLimit::Fabric(_))
    }

    /// Whether a policy supports the limit. The queues of `aalo` and `aalo+` exist at host ports only.
    pub fn supports(&self, policy: &str) -> bool {
        match self {
            CapacityLimit::Incast(_) => true,
            CapacityLimit::Fabric(_) => !matches!(policy, "aalo" | "aalo+"),
        }
    }
}

impl Incast {
    fn read(path: &Path, buffer: u32) -> Result<Incast, Failure> {
        let name = path.display().to_string();
        let measured = weir_trace::incast::read(path)?;
        if let [only] = measured.incast.connections() {
            return Err(Failure::input(format_args!(
                "{name}: field `connections`: `{only} in all lines`; expected several numbers of connections"
            )));
        }
        let buffers = measured.incast.buffers();
        let (min, max) = (buffers[0], buffers[buffers.len() - 1]);
        if !(min..=max).contains(&buffer) {
            return Err(Failure::input(format_args!(
                "--buffer: `{buffer}` is outside the measurements; expected {min} to {max} packets, as in {name}"
            )));
        }
        Ok(Incast { name, measured, buffer })
    }

    fn goodput(&self, port_rate: Rate) -> Arc<Goodput> {
        let goodput = self.measured.incast.goodput(self.buffer, port_rate);
        Arc::new(goodput.expect("`read` checks that the buffer is within the measured ones"))
    }

    fn caption(&self, port_rate: Rate) -> String {
        let Incast { name, measured, buffer } = self;
        let incast = &measured.incast;
        let goodput = self.goodput(port_rate);
        let (best, max) = (
            goodput.best_connections() as u32,
            incast.connections().iter().copied().max().unwrap_or_default(),
        );
        let mut text = format!(
            "{name}: incast of {} a connection, measured on a link of {}, {measured}; ports buffer {}: up to {} {} nothing, {max} leave {} of a port.\n",
            format_bytes(incast.bytes()),
            format_rate(incast.link_rate()),
            format_count(*buffer, "packet"),
            format_count(best, "connection"),
            if best == 1 { "costs" } else { "cost" },
            format_percent(goodput.utilization(max as usize)),
        );
        if let Some(error) = incast.interpolation_error(port_rate) {
            text += &format!(
                "Interpolation between neighbouring buffers predicts a measured buffer within {} of a port on average.\n",
                format_percent(error)
            );
        }
        text
    }
}
