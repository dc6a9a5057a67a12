//! Replays a trace over a network: the ports of one switch, links between switches, or links between regions.

use std::sync::Arc;

use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_console::table::format_count;
use weir_core::engine::DecidesOver;
use weir_core::model::{Trunks, Workload};
use weir_core::policy::{AnyPolicy, TrunkSupport};
use weir_core::units::Time;
use weir_sim::ReplayOptions;
use weir_sim::lower_bound::LowerBounds;

use crate::links::Links;
use crate::options::{NetworkOptions, NetworkParameter};
use crate::port_placement;
use crate::source::Source;

/// A network with the options of replays over it.
#[derive(Clone)]
pub struct Network {
    options: ReplayOptions,
    links: Arc<Links>,
    /// The seed of paths, if a sweep varies it.
    varied_path_seed: Option<u64>,
}

/// The requested scheduling interval, or the default one, which regions do not have.
pub fn interval(requested: Option<Time>) -> Time {
    requested.unwrap_or(ReplayOptions::default().interval)
}

/// What outcomes contain on request.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeptDetails {
    /// The end of every flow.
    pub flow_ends: bool,
    /// The utilization of links over time.
    pub link_use: bool,
}

impl Network {
    /// Reads the requested network, or that which `source` contains. Ports of `source` with the names of hosts become the ports of these
    /// hosts.
    ///
    /// # Errors
    /// If a file of the network cannot be read or is invalid, the buffer is outside the measurements, or only some ports have names of
    /// hosts, in another order.
    pub fn read(
        requested: &NetworkOptions,
        source: &mut Arc<Source>,
        kept: KeptDetails,
    ) -> Result<Network, Failure> {
        let links = Links::read(requested, source)?;
        if let (Some(embedded), Some(rate)) = (&source.network, requested.port_rate) {
            let problem = format!("{} contains a network with its own rates", embedded.name);
            return Err(Failure::option("port-rate", rate, problem, "no --port-rate with it"));
        }
        let fabric_name = links.fabric_name().unwrap_or("the network");
        port_placement::place_ports(source, links.host_names(), fabric_name)?;
        let mut network = Network::one_switch(requested, kept);
        if links.has_regions() && requested.interval.is_none() {
            network.options.interval = Time::ZERO;
        }
        links.apply(&mut network.options);
        let network = Network { links: Arc::new(links), ..network };
        network.check_ports(source)?;
        Ok(network)
    }

    /// Checks that there is a host for each port of the coflows.
    fn check_ports(&self, source: &Source) -> Result<(), Failure> {
        let ports = source.workload.ports as usize;
        match &self.options.network.trunks {
            Some(trunks) if trunks.ports() < ports => Err(Failure::input(format_args!(
                "{}: {}; expected at most {}, one for each host of {}; help: choose a network with more hosts",
                source.largest_file(),
                format_count(ports, "port"),
                trunks.ports(),
                self.links.fabric_name().unwrap_or("the network"),
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a policy decides over ports alone, without links between switches and the limits of single flows.
    pub fn decides_at_ports(&self, policy: &AnyPolicy) -> bool {
        match policy.trunk_support() {
            TrunkSupport::DecidesAtPorts => true,
            TrunkSupport::Decides => self.options.network.decides_over == DecidesOver::Ports,
            TrunkSupport::Transport => false,
        }
    }

    /// The ports of one switch.
    fn one_switch(requested: &NetworkOptions, kept: KeptDetails) -> Network {
        let defaults = ReplayOptions::default();
        let options = ReplayOptions {
            port_rate: requested.port_rate.unwrap_or(defaults.port_rate),
            interval: interval(requested.interval),
            keep_flow_ends: kept.flow_ends,
            keep_link_use: kept.link_use,
            ..defaults
        };
        Network { options, links: Arc::default(), varied_path_seed: None }
    }

    /// The options of a replay over this network.
    pub fn options(&self) -> &ReplayOptions {
        &self.options
    }

    /// The number of links between switches or regions.
    pub fn trunk_count(&self) -> usize {
        let weir_sim::NetworkModel { trunks, regions, .. } = &self.options.network;
        match (trunks, regions) {
            (_, Some(regions)) => regions.area.links(),
            (Some(trunks), None) => trunks.links(),
            (None, None) => 0,
        }
    }

    /// The ends of a link between switches or regions.
    pub fn trunk_name(&self, trunk: usize) -> String {
        let weir_sim::NetworkModel { trunks, regions, .. } = &self.options.network;
        match (trunks, regions) {
            (_, Some(regions)) => regions.area.link_name(trunk as u32),
            (Some(trunks), None) => trunks.link_name(trunk),
            (None, None) => String::new(),
        }
    }

    /// The policies that `weir compare` replays by default.
    pub fn default_policies(&self, workload: &Workload) -> Vec<String> {
        policy_spec::default_policies(&workload.names, self.links.has_regions())
    }

    /// The lower bounds of completion times.
    pub fn bounds(&self, workload: &Workload) -> LowerBounds {
        LowerBounds::new(workload, &self.options)
    }

    /// The parameters of this network that a sweep can vary, for error messages.
    pub fn sweep_parameters(&self) -> String {
        let of_links = match () {
            () if self.links.has_regions() => "bandwidth-seed",
            () if self.links.have_own_port_rates() => "path-seed",
            () => "port-rate",
        };
        let buffer = if self.links.buffer().is_some() { ", buffer" } else { "" };
        format!("interval, arrival, {of_links}{buffer}")
    }

    /// The parameter with the seed of this network's random choices, if it has any.
    pub fn seed_parameter(&self) -> Option<&'static str> {
        match (&self.options.network.regions, &self.options.network.trunks) {
            (Some(_), _) => Some("bandwidth-seed"),
            (None, Some(_)) => Some("path-seed"),
            (None, None) => None,
        }
    }

    /// Sets a parameter. Returns `false` if this network does not have the parameter.
    ///
    /// # Errors
    /// If the parameter cannot have this value.
    pub fn set_parameter(&mut self, parameter: NetworkParameter) -> Result<bool, Failure> {
        match parameter {
            NetworkParameter::Interval(interval) => self.options.interval = interval,
            NetworkParameter::PortRate(rate) if !self.links.have_own_port_rates() => {
                self.options.port_rate = rate;
                self.links.apply(&mut self.options);
            }
            NetworkParameter::Buffer(buffer) => {
                let links = Arc::make_mut(&mut self.links);
                if !links.set_buffer(buffer)? {
                    return Ok(false);
                }
                self.options.network.goodput = links.goodput(self.options.port_rate);
            }
            NetworkParameter::BandwidthSeed(seed) => match &mut self.options.network.regions {
                Some(regions) => regions.bandwidth_seed = seed,
                None => return Ok(false),
            },
            NetworkParameter::PathSeed(seed) => match &mut self.options.network.trunks {
                Some(trunks) => {
                    *trunks = Arc::new(Trunks::clone(trunks).with_seed(seed));
                    self.varied_path_seed = Some(seed);
                }
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the parameters of both networks are equal. The networks must be equal in all other respects.
    pub fn has_equal_parameters(&self, other: &Network) -> bool {
        let parameters = |network: &Network| {
            let ReplayOptions { port_rate, interval, network, .. } = &network.options;
            (*port_rate, *interval, network.regions.as_ref().map(|regions| regions.bandwidth_seed))
        };
        let all = |network| (parameters(network), network.varied_path_seed, network.links.buffer());
        all(self) == all(other)
    }

    /// The fields that describe the network in a record.
    pub fn record_fields(&self) -> Vec<(&'static str, Value)> {
        let rate = ("port_rate", self.options.port_rate.to_string().into());
        let interval = ("interval_s", self.options.interval.get().into());
        let rate = (!self.links.has_regions()).then_some(rate);
        rate.into_iter()
            .chain([interval])
            .chain(self.links.record_fields(&self.options, self.varied_path_seed))
            .collect()
    }

    /// A description of the network as lines of text. `is_varied` returns whether a sweep varies a parameter.
    pub fn caption(&self, is_varied: impl Fn(&str) -> bool) -> String {
        let schedules = match self.options.interval {
            _ if is_varied("interval") => "a schedule every `interval`".to_owned(),
            Time::ZERO => "a schedule whenever something happens".to_owned(),
            interval => format!("a schedule every {interval}"),
        };
        if let Some(regions) = &self.options.network.regions {
            let seed = match is_varied("bandwidth-seed") {
                true => "`bandwidth-seed`".to_owned(),
                false => regions.bandwidth_seed.to_string(),
            };
            return self.links.regions_caption(&seed, &schedules);
        }
        let rate = self.options.port_rate;
        let (rate, links) = match is_varied("port-rate") {
            true => ("`port-rate`".to_owned(), self.links.names()),
            false => (rate.to_string(), self.links.caption(rate, is_varied)),
        };
        format!("Ports of {rate}, {schedules}.\n{links}")
    }
}
