//! Networks: hosts and switches, or regions. `weir.simulator.fabric` wraps the class.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir_core::model::topology::TopologyBuilder;
use weir_core::model::{NodeId, Topology, TopologyTemplate};
use weir_experiment::descriptions::fabric_object;
use weir_trace::network_file::NetworkFile;
use weir_trace::topology;
use weir_trace::topology::describe::{self, TopologyStatistics};

use crate::argument;
use crate::error::{Error, Result, to_json};

/// Rates of the model are in bytes per second, and those of the module in bit/s.
const BITS_PER_BYTE: f64 = 8.0;

/// A network, with its file.
#[pyclass(frozen, module = "weir._native")]
pub struct Fabric {
    /// The file, or the kind of the template: its name in results.
    pub name: String,
    /// The text of its file.
    text: String,
    /// The network.
    pub network: NetworkFile,
}

/// The statistics of cables between two tiers: the lower and the upper tier, the number of cables, and the minimum, the maximum and the
/// sum of their rates in bit/s.
type CableGroup = (u8, u8, usize, f64, f64, f64);

impl Fabric {
    fn topology(&self) -> Option<&Topology> {
        match &self.network {
            NetworkFile::Topology(topology, _) => Some(topology),
            NetworkFile::WideArea(_) => None,
        }
    }

    fn names(&self, range: impl FnOnce(&Topology) -> std::ops::Range<usize>) -> Vec<(&str, u8)> {
        let Some(topology) = self.topology() else { return Vec::new() };
        let nodes = range(topology).map(|node| NodeId(node as u32));
        nodes.map(|node| (topology.name(node), topology.tier(node))).collect()
    }
}

/// The text of a topology as a list of its cables.
fn list_of_cables(topology: &Topology) -> String {
    let mut text = Vec::new();
    topology::write(topology, &mut text).expect("a vector can be written");
    String::from_utf8(text).expect("names are UTF-8")
}

#[pymethods]
impl Fabric {
    /// Reads a file.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> Result<Fabric> {
        py.detach(|| {
            let (text, name) = NetworkFile::read_text(&path)?;
            let network = NetworkFile::parse(&text, &name)?;
            Ok(Fabric { name, text, network })
        })
    }

    /// The network of the text of a file.
    #[staticmethod]
    fn parse(py: Python<'_>, text: String, name: String) -> Result<Fabric> {
        py.detach(|| {
            let network = NetworkFile::parse(&text, &name)?;
            Ok(Fabric { name, text, network })
        })
    }

    /// The network of a template of the fabric format.
    #[staticmethod]
    #[pyo3(signature = (kind, **parameters))]
    fn template(py: Python<'_>, kind: &str, parameters: Option<&Bound<'_, PyDict>>) -> Result<Fabric> {
        let parameters = Parameters::new(py, kind, parameters)?;
        let template = parameters.template()?;
        parameters.check_all_used()?;
        py.detach(|| {
            let topology = template.build()?;
            let mut text = Vec::new();
            topology::write_plan(&template, &mut text).expect("a vector can be written");
            let text = String::from_utf8(text).expect("the plan is UTF-8");
            Ok(Fabric { name: kind.to_owned(), text, network: NetworkFile::Topology(topology, Vec::new()) })
        })
    }

    /// The network of these hosts, switches with tiers, and cables with rates.
    #[staticmethod]
    fn from_cables(
        py: Python<'_>,
        hosts: Vec<String>,
        switches: Vec<(String, Bound<'_, PyAny>)>,
        cables: Vec<(String, String, Bound<'_, PyAny>)>,
    ) -> Result<Fabric> {
        let mut builder = TopologyBuilder::new();
        for host in &hosts {
            builder.add_host(host)?;
        }
        for (switch, tier) in &switches {
            let tier = argument::integer(&format!("tier of {switch}"), tier, "a whole number from 0 to 255")?;
            builder.add_switch(switch, tier)?;
        }
        for (from, to, rate) in &cables {
            builder.add_cable(from, to, argument::rate("rate", rate)?)?;
        }
        py.detach(|| {
            let topology = builder.build()?;
            let text = list_of_cables(&topology);
            Ok(Fabric {
                name: "links".to_owned(),
                text,
                network: NetworkFile::Topology(topology, Vec::new()),
            })
        })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    /// The text with a list of all cables in place of a template.
    fn cables_text(&self) -> Result<String> {
        match &self.network {
            NetworkFile::Topology(topology, events) if events.is_empty() => Ok(list_of_cables(topology)),
            NetworkFile::Topology(..) => Err(Error::input(format_args!(
                "{}: cables change by events; expected none with `cables`",
                self.name
            ))),
            NetworkFile::WideArea(_) => Err(Error::input(format_args!(
                "{}: regions have links, not cables; expected a fabric of hosts and switches",
                self.name
            ))),
        }
    }

    /// The hosts, in the order of ports.
    #[getter]
    fn hosts(&self) -> Vec<&str> {
        self.names(|topology| 0..topology.hosts()).into_iter().map(|(name, _)| name).collect()
    }

    /// The switches and their tiers.
    #[getter]
    fn switches(&self) -> Vec<(&str, u8)> {
        self.names(|topology| topology.hosts()..topology.nodes())
    }

    /// The cables: both ends, and the rate in each direction in bit/s.
    #[getter]
    fn cables(&self) -> Vec<(&str, &str, f64)> {
        let Some(topology) = self.topology() else { return Vec::new() };
        let cables = topology.links().iter().step_by(2);
        cables
            .map(|link| (topology.name(link.from), topology.name(link.to), link.rate.get() * BITS_PER_BYTE))
            .collect()
    }

    /// The rates of the cables as text that [`Fabric::from_cables`] accepts.
    #[getter]
    fn cable_rates(&self) -> Vec<String> {
        let Some(topology) = self.topology() else { return Vec::new() };
        topology.links().iter().step_by(2).map(|link| topology::format_rate(link.rate)).collect()
    }

    /// The number of failures and repairs of cables.
    #[getter]
    fn event_count(&self) -> usize {
        match &self.network {
            NetworkFile::Topology(_, events) => events.len(),
            NetworkFile::WideArea(_) => 0,
        }
    }

    /// The regions.
    #[getter]
    fn regions(&self) -> Vec<&str> {
        match &self.network {
            NetworkFile::Topology(..) => Vec::new(),
            NetworkFile::WideArea(area) => area.regions().iter().map(String::as_str).collect(),
        }
    }

    /// The links between regions: sender, receiver, and samples of the bandwidth in bit/s, rising.
    #[getter]
    fn region_links(&self) -> Vec<(&str, &str, Vec<f64>)> {
        let NetworkFile::WideArea(area) = &self.network else { return Vec::new() };
        let link = |link: u32| {
            let (from, to) = area.link_ends(link);
            let samples = area.samples(link).iter().map(|rate| rate.get() * BITS_PER_BYTE);
            (area.regions()[from].as_str(), area.regions()[to].as_str(), samples.collect())
        };
        (0..area.links() as u32).map(link).collect()
    }

    /// The tiers of switches from the lowest: number, switches, oversubscription if there are switches above.
    fn tiers(&self) -> Vec<(u8, usize, Option<f64>)> {
        let tiers = self.topology().map_or_else(Vec::new, describe::tier_statistics);
        tiers.into_iter().map(|tier| (tier.tier, tier.switches, tier.oversubscription)).collect()
    }

    /// The cables by the tiers of their ends; tier 0 has the hosts.
    fn cable_groups(&self) -> Vec<CableGroup> {
        let groups = self.topology().map_or_else(Vec::new, describe::cable_statistics);
        groups
            .into_iter()
            .map(|group| {
                let [min, max, total] =
                    [group.min_bytes_per_sec, group.max_bytes_per_sec, group.total_bytes_per_sec]
                        .map(|rate| rate * BITS_PER_BYTE);
                (group.lower_tier, group.upper_tier, group.count, min, max, total)
            })
            .collect()
    }

    /// The statistics of the fabric, as JSON.
    fn describe(&self, py: Python<'_>) -> Result<String> {
        py.detach(|| match self.topology() {
            Some(topology) => Ok(to_json(&fabric_object(&self.name, &TopologyStatistics::new(topology)))),
            None => Err(Error::input(format_args!(
                "{}: regions have one link to each other region; expected a fabric of hosts and switches",
                self.name
            ))),
        })
    }

    fn __eq__(&self, other: &Fabric) -> bool {
        self.network == other.network
    }
}

/// The parameters of a template.
struct Parameters<'py> {
    kind: String,
    values: Bound<'py, PyDict>,
}

impl<'py> Parameters<'py> {
    fn new(py: Python<'py>, kind: &str, values: Option<&Bound<'py, PyDict>>) -> Result<Parameters<'py>> {
        // A copy, from which each used parameter is removed.
        let values = values.map_or_else(|| Ok(PyDict::new(py)), |values| values.copy())?;
        Ok(Parameters { kind: kind.to_owned(), values })
    }

    fn optional(&self, name: &str) -> Result<Option<Bound<'py, PyAny>>> {
        let value = self.values.get_item(name)?;
        if value.is_some() {
            self.values.del_item(name)?;
        }
        Ok(value)
    }

    fn required(&self, name: &str) -> Result<Bound<'py, PyAny>> {
        let missing = || PyTypeError::new_err(format!("{}: missing parameter `{name}`", self.kind));
        self.optional(name)?.ok_or_else(|| missing().into())
    }

    fn count(&self, name: &str) -> Result<u32> {
        argument::count(name, &self.required(name)?)
    }

    fn rate(&self) -> Result<weir_core::units::Rate> {
        argument::rate("rate", &self.required("rate")?)
    }

    fn oversubscription(&self) -> Result<f64> {
        let value = self.optional("oversubscription")?;
        value.map_or(Ok(1.0), |value| argument::number("oversubscription", &value))
    }

    fn template(&self) -> Result<TopologyTemplate> {
        Ok(match self.kind.as_str() {
            "big-switch" => TopologyTemplate::BigSwitch { hosts: self.count("hosts")?, rate: self.rate()? },
            "leaf-spine" => TopologyTemplate::LeafSpine {
                spines: self.count("spines")?,
                leaves: self.count("leaves")?,
                hosts: self.count("hosts")?,
                rate: self.rate()?,
                oversubscription: argument::number("oversubscription", &self.required("oversubscription")?)?,
            },
            "fat-tree" => TopologyTemplate::FatTree {
                ports: self.count("ports")?,
                rate: self.rate()?,
                oversubscription: self.oversubscription()?,
            },
            "saba-tiers" => TopologyTemplate::SabaTiers { oversubscription: self.oversubscription()? },
            "netshare-fig1" => TopologyTemplate::NetShareFig1,
            "netshare-fig3" => TopologyTemplate::NetShareFig3,
            "netshare-fig6" => TopologyTemplate::NetShareFig6,
            "netshare-fig7" => TopologyTemplate::NetShareFig7,
            "netshare-fig16" => TopologyTemplate::NetShareFig16 { services: self.count("services")? },
            other => {
                return Err(Error::parameter(
                    "kind",
                    other,
                    "big-switch, leaf-spine, fat-tree, saba-tiers, netshare-fig1, netshare-fig3, netshare-fig6, netshare-fig7 or \
                     netshare-fig16",
                ));
            }
        })
    }

    fn check_all_used(&self) -> Result<()> {
        match self.values.keys().iter().next() {
            None => Ok(()),
            Some(name) => {
                Err(PyTypeError::new_err(format!("{}: unexpected parameter `{name}`", self.kind)).into())
            }
        }
    }
}
