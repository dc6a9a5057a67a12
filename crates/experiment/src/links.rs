//! The links of a replay: measured incast at receiving ports, trunks between switches, and links between regions.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::table::{format_bytes, format_count, format_percent, format_rate};
use weir_core::engine::DecidesOver;
use weir_core::model::topology::{CableEvent, NodeId};
use weir_core::model::{Goodput, Trunks, WideArea};
use weir_core::units::{Rate, Time};
use weir_sim::{RegionLinks, ReplayOptions};
use weir_trace::incast::IncastMeasurements;
use weir_trace::network_file::NetworkFile;

use crate::embedded_network::EmbeddedNetwork;
use crate::options::{FabricSource, NetworkOptions};
use crate::source::Source;

/// The option of a sweep that varies the buffer, without its hyphens.
const VARIED_BUFFER: &str = "vary buffer";

/// The links in addition to ports of constant rate: none on one switch.
#[derive(Clone, Default)]
pub struct Links {
    incast: Option<Incast>,
    fabric: Option<Fabric>,
    regions: Option<Regions>,
}

/// Links between regions.
#[derive(Clone)]
struct Regions {
    name: String,
    links: RegionLinks,
}

/// Receiving ports with many senders have the goodput that was measured with incast.
#[derive(Clone)]
struct Incast {
    name: String,
    measured: IncastMeasurements,
    buffer: u32,
}

/// A network with links between switches.
#[derive(Clone)]
struct Fabric {
    name: String,
    /// By host, which is the port of this number.
    host_names: Vec<String>,
    seed: u64,
    decides_over: DecidesOver,
    min_port_rate: Rate,
    max_port_rate: Rate,
    trunks: Arc<Trunks>,
    cable_events: Arc<[CableEvent]>,
}

impl Links {
    /// Reads the requested files, or takes the network that a source contains.
    ///
    /// # Errors
    /// If a file cannot be read, or does not fit the options or the source.
    pub fn read(options: &NetworkOptions, source: &Source) -> Result<Links, Failure> {
        let incast = match (&options.incast, options.buffer, options.varied_buffer) {
            (None, ..) => None,
            (Some(path), Some(buffer), _) => Some(Incast::read(path, buffer, "buffer")?),
            (Some(path), None, Some(buffer)) => Some(Incast::read(path, buffer, VARIED_BUFFER)?),
            (Some(path), None, None) => {
                let (path, expected) = (path.display(), "--buffer PACKETS, the buffer of each port");
                return Err(Failure::option("incast", &path, format_args!("{path} has no buffer"), expected));
            }
        };
        let (mut fabric, mut regions) = (None, None);
        if let Some(network) = &source.network {
            if let Some(requested) = &options.fabric {
                let problem = format!("{} contains a network", network.name);
                return Err(Failure::option("fabric", requested.name(), problem, "no --fabric with it"));
            }
            fabric = Some(Fabric::new(network.clone(), options)?);
        } else if let Some(requested) = &options.fabric {
            let (name, network) = match requested {
                FabricSource::File(path) => (requested.name(), NetworkFile::read(path)?),
                FabricSource::Network(_, network) => (requested.name(), NetworkFile::clone(network)),
            };
            match network {
                NetworkFile::Topology(topology, mut cable_events) => {
                    for event in &mut cable_events {
                        // An event before the earlier origin happens before all coflows.
                        let time = event.time.get() - source.time_shift.get();
                        event.time = Time::new(time).unwrap_or(Time::ZERO);
                    }
                    let network = EmbeddedNetwork { name, topology, cable_events, path_seed: 0 };
                    fabric = Some(Fabric::new(network, options)?);
                }
                NetworkFile::WideArea(area) => regions = Some(Regions::new(name, area, options)?),
            }
        }
        if fabric.is_none() && regions.is_none() {
            check_one_switch(options)?;
        }
        if let (Some(incast), Some(fabric)) = (&incast, &fabric)
            && fabric.min_port_rate != fabric.max_port_rate
        {
            return Err(Failure::input(format_args!(
                "{}: hosts have rates from {} to {}; expected equal rates with --incast, since {} has measurements of one kind of port",
                fabric.name, fabric.min_port_rate, fabric.max_port_rate, incast.name
            )));
        }
        Ok(Links { incast, fabric, regions })
    }

    /// Applies the links to a replay at the port rate of `options`. A fabric sets the port rate: that of its fastest host.
    pub fn apply(&self, options: &mut ReplayOptions) {
        if let Some(fabric) = &self.fabric {
            options.port_rate = fabric.max_port_rate;
            options.network.trunks = Some(Arc::clone(&fabric.trunks));
            options.network.cable_events = Arc::clone(&fabric.cable_events);
            options.network.decides_over = fabric.decides_over;
        }
        if let Some(regions) = &self.regions {
            options.network.regions = Some(regions.links.clone());
        }
        options.network.goodput = self.goodput(options.port_rate);
    }

    /// The capacity of receiving ports by their number of senders, with incast.
    pub fn goodput(&self, port_rate: Rate) -> Option<Arc<Goodput>> {
        self.incast.as_ref().map(|incast| incast.goodput(port_rate))
    }

    /// Sets the buffer of ports. Returns `false` without incast.
    ///
    /// # Errors
    /// If the buffer is outside the measurements.
    pub fn set_buffer(&mut self, buffer: u32) -> Result<bool, Failure> {
        let Some(incast) = &mut self.incast else { return Ok(false) };
        incast.buffer = buffer;
        incast.check_buffer(VARIED_BUFFER).map(|()| true)
    }

    /// The buffer of ports in packets, with incast.
    pub fn buffer(&self) -> Option<u32> {
        self.incast.as_ref().map(|incast| incast.buffer)
    }

    /// The names of the files, as lines of text.
    pub fn names(&self) -> String {
        let names = self.incast.iter().map(|incast| &incast.name);
        names.chain(self.fabric.iter().map(|fabric| &fabric.name)).map(|name| format!("{name}.\n")).collect()
    }

    /// A description of the links at a port rate, as lines of text. `is_varied` returns whether a sweep varies a parameter.
    pub fn caption(&self, port_rate: Rate, is_varied: impl Fn(&str) -> bool) -> String {
        let incast = self.incast.iter().map(|incast| incast.caption(port_rate, is_varied("buffer")));
        let fabric = self.fabric.iter().map(|fabric| fabric.caption(is_varied("path-seed")));
        incast.chain(fabric).collect()
    }

    /// A description of the links between regions, as a line of text; empty without regions. `seed` and `schedules` describe the seed
    /// of the bandwidths and the times of schedules.
    pub fn regions_caption(&self, seed: &str, schedules: &str) -> String {
        self.regions.as_ref().map_or_else(String::new, |regions| regions.caption(seed, schedules))
    }

    /// The fields that the links add to a record of a replay with these options.
    pub fn record_fields(
        &self,
        options: &ReplayOptions,
        varied_path_seed: Option<u64>,
    ) -> Vec<(&'static str, Value)> {
        let mut fields: Vec<(&'static str, Value)> = Vec::new();
        if let (Some(regions), Some(links)) = (&self.regions, &options.network.regions) {
            fields.extend([
                ("fabric", regions.name.as_str().into()),
                ("bandwidth_seed", links.bandwidth_seed.into()),
            ]);
        }
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
                ("path_seed", varied_path_seed.unwrap_or(*seed).into()),
                ("decide_over", decides_over.into()),
            ]);
        }
        fields
    }

    /// Whether the links are between regions.
    pub fn has_regions(&self) -> bool {
        self.regions.is_some()
    }

    /// The name of the file with the hosts and switches.
    pub fn fabric_name(&self) -> Option<&str> {
        self.fabric.as_ref().map(|fabric| fabric.name.as_str())
    }

    /// The names of hosts, in the order of ports; empty without hosts.
    pub fn host_names(&self) -> &[String] {
        self.fabric.as_ref().map_or(&[], |fabric| &fabric.host_names)
    }

    /// Whether a file sets the rates of ports: those of cables to hosts, or none between regions.
    pub fn have_own_port_rates(&self) -> bool {
        self.fabric.is_some() || self.regions.is_some()
    }
}

/// Refuses options for fabrics.
fn check_one_switch(options: &NetworkOptions) -> Result<(), Failure> {
    let (option, value) = match (options.decide_over, options.path_seed) {
        (DecidesOver::Ports, _) => ("decide-over", "ports".to_owned()),
        (_, Some(seed @ 1..)) => ("path-seed", seed.to_string()),
        (DecidesOver::Links, Some(0) | None) => return Ok(()),
    };
    let problem = format!("`{value}`: one switch has no links between switches");
    Err(Failure::option(option, value, problem, "--fabric FILE"))
}

impl Regions {
    fn new(name: String, area: WideArea, options: &NetworkOptions) -> Result<Regions, Failure> {
        const SWITCHES: &str = "a fabric of hosts and switches";
        let no_ports = format!("the ports of regions limit no flow ({name})");
        if let Some(path) = &options.incast {
            return Err(Failure::option("incast", path.display(), no_ports, SWITCHES));
        }
        if options.decide_over == DecidesOver::Ports {
            return Err(Failure::option("decide-over", "ports", format!("`ports`: {no_ports}"), "`links`"));
        }
        if let Some(seed @ 1..) = options.path_seed {
            let problem = format!("one link leads from each region to each other ({name})");
            return Err(Failure::option("path-seed", seed, problem, SWITCHES));
        }
        let links = RegionLinks { area: Arc::new(area), bandwidth_seed: options.bandwidth_seed.unwrap_or(1) };
        Ok(Regions { name, links })
    }

    fn caption(&self, seed: &str, schedules: &str) -> String {
        let (name, area) = (&self.name, &self.links.area);
        let correlated = match area.correlation() {
            0.0 => String::new(),
            correlation => format!(" at a correlation of {correlation}"),
        };
        let bandwidth = match area.is_variable() {
            true => format!("another bandwidth every {}{correlated}, seed {seed}", area.change_interval()),
            false => "constant bandwidth".to_owned(),
        };
        format!("{name}: links between {}; {bandwidth}; {schedules}.\n", area.regions().join(", "))
    }
}

impl Fabric {
    fn new(network: EmbeddedNetwork, options: &NetworkOptions) -> Result<Fabric, Failure> {
        let EmbeddedNetwork { name, topology, cable_events, path_seed } = network;
        let seed = options.path_seed.unwrap_or(path_seed);
        if let Some(seed) = options.bandwidth_seed {
            let problem = format!("the links of {name} have constant rates");
            let expected = "a file of regions (weir-wide-area)";
            return Err(Failure::option("bandwidth-seed", seed, problem, expected));
        }
        let hosts = 0..topology.hosts() as u32;
        let host_names = hosts.map(|host| topology.name(NodeId(host)).to_owned()).collect();
        let trunks = Trunks::new(topology, seed);
        let trunks = trunks.map_err(|error| Failure::input(format_args!("{name}: {error}")))?;
        let trunks = if cable_events.is_empty() { trunks } else { trunks.with_dead_end() };
        let rates = trunks.port_rates();
        let (min, max) = (
            rates.iter().min_by(|a, b| a.get().total_cmp(&b.get())),
            rates.iter().max_by(|a, b| a.get().total_cmp(&b.get())),
        );
        Ok(Fabric {
            name,
            host_names,
            seed,
            decides_over: options.decide_over,
            min_port_rate: min.copied().unwrap_or(Rate::ZERO),
            max_port_rate: max.copied().unwrap_or(Rate::ZERO),
            trunks: Arc::new(trunks),
            cable_events: cable_events.into(),
        })
    }

    fn caption(&self, is_seed_varied: bool) -> String {
        let Fabric { name, seed, trunks, decides_over, min_port_rate, max_port_rate, cable_events, .. } =
            self;
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
        let events = match cable_events.len() {
            0 => String::new(),
            count => format!("; {} of cables", format_count(count, "event")),
        };
        let seed = if is_seed_varied { "`path-seed`".to_owned() } else { seed.to_string() };
        if trunks.links() == 0 {
            return format!(
                "{name}: {} at one switch{slowest}{events}.\n",
                format_count(trunks.ports(), "host")
            );
        }
        format!(
            "{name}: {} with {} between switches, of {} in all; each flow takes one of the shortest paths, by a hash with seed {seed}; {decides}{slowest}{events}.\n",
            format_count(trunks.ports(), "host"),
            format_count(trunks.links(), "link"),
            format_rate(trunks.capacities().iter().sum()),
        )
    }
}

impl Incast {
    fn read(path: &Path, buffer: u32, option: &str) -> Result<Incast, Failure> {
        let name = path.display().to_string();
        let measured = weir_trace::incast::read(path)?;
        if let [only] = measured.incast.connections() {
            return Err(Failure::input(format_args!(
                "{name}: field `connections`: `{only} in all lines`; expected several numbers of connections"
            )));
        }
        let incast = Incast { name, measured, buffer };
        incast.check_buffer(option)?;
        Ok(incast)
    }

    fn check_buffer(&self, option: &str) -> Result<(), Failure> {
        let Incast { name, measured, buffer } = self;
        let buffers = measured.incast.buffers();
        let (min, max) = (buffers[0], buffers[buffers.len() - 1]);
        if (min..=max).contains(buffer) {
            return Ok(());
        }
        let problem = format!("`{buffer}` is outside the measurements");
        Err(Failure::option(option, buffer, problem, format_args!("{min} to {max} packets, as in {name}")))
    }

    fn goodput(&self, port_rate: Rate) -> Arc<Goodput> {
        let goodput = self.measured.incast.goodput(self.buffer, port_rate);
        Arc::new(goodput.expect("`check_buffer` checks that the buffer is within the measured ones"))
    }

    fn caption(&self, port_rate: Rate, is_buffer_varied: bool) -> String {
        let Incast { name, measured, buffer } = self;
        let incast = &measured.incast;
        if is_buffer_varied {
            return format!(
                "{name}: incast of {} a connection, measured on a link of {}, {measured}; ports buffer `buffer` packets.\n",
                format_bytes(incast.bytes()),
                format_rate(incast.link_rate()),
            );
        }
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
