//! What is short besides ports in a replay: receivers with many connections, or links between switches.

use std::sync::Arc;

use serde_json::Value;
use weir_core::model::Trunks;
use weir_core::units::Rate;
use weir_sim::{Behind, Options};

use crate::args;
use crate::incast::Cost;
use weir_console::failure::Failure;
use weir_console::table::{count, rate};

/// What was asked for.
pub enum Short {
    /// Measurements of incast.
    Incast(Cost),
    /// A network.
    Fabric(Fabric),
}

/// A network with links between switches.
pub struct Fabric {
    /// The name it was asked for by.
    name: String,
    seed: u64,
    trunks: Arc<Trunks>,
}

impl Short {
    /// Reads what was asked for, if anything was.
    ///
    /// # Errors
    /// If it cannot be read, or is nothing to replay over.
    pub fn read(args: &args::Behind) -> Result<Option<Short>, Failure> {
        let Some(path) = &args.fabric else { return Ok(Cost::read(args)?.map(Short::Incast)) };
        let name = path.display().to_string();
        let topology = weir_trace::topology::read(path)?;
        let trunks = Trunks::new(topology, args.path_seed);
        let trunks = trunks.map_err(|error| Failure::input(format_args!("{name}: {error}")))?;
        Ok(Some(Short::Fabric(Fabric { name, seed: args.path_seed, trunks: Arc::new(trunks) })))
    }

    /// Has a replay go by it.
    pub fn apply(&self, options: &mut Options) {
        options.behind = Some(match self {
            Short::Incast(cost) => Behind::Goodput(cost.goodput(options.port_rate)),
            Short::Fabric(fabric) => {
                options.port_rate = fabric.trunks.port_rate();
                Behind::Trunks(Arc::clone(&fabric.trunks))
            }
        });
    }

    /// What ports carry, which is `asked` unless a network says.
    pub fn port_rate(&self, asked: Rate) -> Rate {
        match self {
            Short::Incast(_) => asked,
            Short::Fabric(fabric) => fabric.trunks.port_rate(),
        }
    }

    /// The file that it is in.
    pub fn name(&self) -> &str {
        match self {
            Short::Incast(cost) => cost.name(),
            Short::Fabric(Fabric { name, .. }) => name,
        }
    }

    /// What there is, for people.
    pub fn caption(&self, port_rate: Rate) -> String {
        match self {
            Short::Incast(cost) => cost.caption(port_rate),
            Short::Fabric(Fabric { name, seed, trunks }) => {
                let all: f64 = trunks.capacities().iter().sum();
                format!(
                    "{name}: {} with {} between switches, of {} in all; each flow has one of the shortest paths, by a hash with seed {seed}.\n",
                    count(trunks.ports(), "host"),
                    count(trunks.capacities().len(), "link"),
                    rate(all),
                )
            }
        }
    }

    /// What a record says of it.
    pub fn values(&self) -> [(&'static str, Value); 2] {
        match self {
            Short::Incast(cost) => cost.values(),
            Short::Fabric(fabric) => {
                [("fabric", fabric.name.clone().into()), ("path_seed", fabric.seed.into())]
            }
        }
    }

    /// Whether a policy can be replayed over it, by its name in the table.
    pub fn takes(&self, policy: &str) -> bool {
        match self {
            Short::Incast(_) => true,
            // These two leave rates to queues of ports.
            Short::Fabric(_) => !matches!(policy, "aalo" | "aalo+"),
        }
    }
}
