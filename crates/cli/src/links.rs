//! The links of a replay: measured incast at receiving ports, and trunks between switches.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::table::{format_bytes, format_count, format_percent, format_rate};
use weir_core::engine::DecidesOver;
use weir_core::model::{Goodput, Trunks};
use weir_core::units::Rate;
use weir_sim::ReplayOptions;
use weir_trace::incast::IncastMeasurements;

use crate::args;

/// The links in addition to ports of constant rate: none on one switch.
#[derive(Default)]
pub struct Links {
    incast: Option<Incast>,
    fabric: Option<Fabric>,
}

/// Receiving ports with many senders have the goodput that was measured with incast.
struct Incast {
    name: String,
    measured: IncastMeasurements,
    buffer: u32,
}

/// A network with links between switches.
struct Fabric {
    name: String,
    seed: u64,
    decides_over: DecidesOver,
    min_port_rate: Rate,
    max_port_rate: Rate,
    trunks: Arc<Trunks>,
}

impl Links {
    /// Reads the requested files.
    ///
    /// # Errors
    /// If a file cannot be read, or does not fit the options.
    pub fn read(args: &args::NetworkOptions) -> Result<Links, Failure> {
        let incast = match (&args.incast, args.buffer) {
            (Some(path), Some(buffer)) => Some(Incast::read(path, buffer)?),
            _ => None,
        };
        let fabric = args.fabric.as_ref().map(|path| Fabric::read(path, args)).transpose()?;
        if let (Some(incast), Some(fabric)) = (&incast, &fabric)
            && fabric.min_port_rate != fabric.max_port_rate
        {
            return Err(Failure::input(format_args!(
                "{}: hosts have rates from {} to {}; expected equal rates with --incast, since {} has measurements of one kind of port",
                fabric.name, fabric.min_port_rate, fabric.max_port_rate, incast.name
            )));
        }
        Ok(Links { incast, fabric })
    }

    /// Applies the links to a replay at the port rate of `options`. A fabric sets the port rate: that of its fastest host.
    pub fn apply(&self, options: &mut ReplayOptions) {
        if let Some(fabric) = &self.fabric {
            options.port_rate = fabric.max_port_rate;
            options.network.trunks = Some(Arc::clone(&fabric.trunks));
            options.network.decides_over = fabric.decides_over;
        }
        options.network.goodput = self.incast.as_ref().map(|incast| incast.goodput(options.port_rate));
    }

    /// The names of the files, as lines of text.
    pub fn names(&self) -> String {
        let names = self.incast.iter().map(|incast| &incast.name);
        names.chain(self.fabric.iter().map(|fabric| &fabric.name)).map(|name| format!("{name}.\n")).collect()
    }

    /// A description of the links at a port rate, as lines of text.
    pub fn caption(&self, port_rate: Rate) -> String {
        let incast = self.incast.iter().map(|incast| incast.caption(port_rate));
        incast.chain(self.fabric.iter().map(Fabric::caption)).collect()
    }

    /// The fields that the links add to a record.
    pub fn record_fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields: Vec<(&'static str, Value)> = Vec::new();
        if let Some(Incast { name, buffer, .. }) = &self.incast {
            fields.extend([("incast", name.as_str().into()), ("buffer_packets", (*buffer).into())]);
        }
        if let Some(fabric @ Fabric { name, seed, decides_over, .. }) = &self.fabric {
            let decides_over = match decides_over {
                DecidesOver::Links => "links",
                DecidesOver::Ports => "ports",
            };
            if fabric.min_port_rate != fabric.max_port_rate {
                fields.push(("min_port_rate", fabric.min_port_rate.to_string().into()));
            }
            fields.extend([
                ("fabric", name.as_str().into()),
                ("path_seed", (*seed).into()),
                ("decide_over", decides_over.into()),
            ]);
        }
        fields
    }

    /// Whether a fabric sets the port rate: the rate of its cables to hosts.
    pub fn has_fabric(&self) -> bool {
        self.fabric.is_some()
    }
}

impl Fabric {
    fn read(path: &Path, args: &args::NetworkOptions) -> Result<Fabric, Failure> {
        let name = path.display().to_string();
        let trunks = Trunks::new(weir_trace::topology::read(path)?, args.path_seed);
        let trunks = trunks.map_err(|error| Failure::input(format_args!("{name}: {error}")))?;
        let rates = trunks.port_rates();
        let (min, max) = (
            rates.iter().min_by(|a, b| a.get().total_cmp(&b.get())),
            rates.iter().max_by(|a, b| a.get().total_cmp(&b.get())),
        );
        Ok(Fabric {
            name,
            seed: args.path_seed,
            decides_over: args.decide_over.into(),
            min_port_rate: min.copied().unwrap_or(Rate::ZERO),
            max_port_rate: max.copied().unwrap_or(Rate::ZERO),
            trunks: Arc::new(trunks),
        })
    }

    fn caption(&self) -> String {
        let Fabric { name, seed, trunks, decides_over, min_port_rate, max_port_rate } = self;
        let slowest = if min_port_rate == max_port_rate {
            String::new()
        } else {
            format!("; the slowest port has {min_port_rate}")
        };
        let decides = match decides_over {
            DecidesOver::Links => "policies decide over all links",
            DecidesOver::Ports => {
                "policies decide over ports, and rates are reduced where a link is oversubscribed"
            }
        };
        format!(
            "{name}: {} with {} between switches, of {} in all; each flow takes one of the shortest paths, by a hash with seed {seed}; {decides}{slowest}.\n",
            format_count(trunks.ports(), "host"),
            format_count(trunks.capacities().len(), "link"),
            format_rate(trunks.capacities().iter().sum()),
        )
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
