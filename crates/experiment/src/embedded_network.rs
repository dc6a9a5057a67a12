//! The network that a file of jobs or of services contains.

use weir_console::failure::Failure;
use weir_console::table::format_count;
use weir_core::model::Topology;
use weir_core::model::topology::CableEvent;

/// The network that a file of jobs or of services contains.
#[derive(Clone)]
pub struct EmbeddedNetwork {
    /// The name of the file, as given.
    pub name: String,
    /// The hosts, switches and cables.
    pub topology: Topology,
    /// The events of cables, in order of time.
    pub cable_events: Vec<CableEvent>,
    /// The default of the seed of paths.
    pub path_seed: u64,
}

impl EmbeddedNetwork {
    /// The network of two files: both must have the same one, and if both have events, the same ones.
    pub fn combine(jobs: EmbeddedNetwork, services: EmbeddedNetwork) -> Result<EmbeddedNetwork, Failure> {
        if jobs.topology != services.topology {
            let (jobs_size, services_size) = (network_size(&jobs.topology), network_size(&services.topology));
            let difference = match jobs_size == services_size {
                true => format!("both networks have {jobs_size}, but other names, rates or cables"),
                false => format!("the network of jobs has {jobs_size}, that of services {services_size}"),
            };
            return Err(Failure::input(format_args!(
                "{} and {}: {difference}; expected the same network; help: name one fabric file in both",
                jobs.name, services.name
            )));
        }
        match () {
            () if services.cable_events.is_empty() => {
                Ok(EmbeddedNetwork { cable_events: jobs.cable_events, ..services })
            }
            () if jobs.cable_events.is_empty() || jobs.cable_events == services.cable_events => Ok(services),
            () => Err(Failure::input(format_args!(
                "{} and {}: each has its own events of cables; expected the same events, or events in one of them",
                jobs.name, services.name
            ))),
        }
    }
}

/// The numbers of hosts, switches and cables as text.
fn network_size(topology: &Topology) -> String {
    format!(
        "{}, {} and {}",
        format_count(topology.hosts(), "host"),
        format_count(topology.nodes() - topology.hosts(), "switch"),
        format_count(topology.links().len() / 2, "cable")
    )
}
