//! Reads the configuration of `weir serve`, a TOML file that `docs/serve.md` describes.
//!
//! Unknown keys are errors, and quantities have units. The result is a validated [`Config`], or a [`FileError`] with the
//! line, the field, the value and the expected value. Paths in the file are relative to its folder.

mod addresses;
mod bandwidths;
mod django;
mod hosts;
mod join;
mod limits;
mod network;
mod overlay;
mod policy;
mod queues;
mod services;
mod settings;
mod summary;
mod switches;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use weir_core::model::{ServiceNames, Topology};
use weir_core::netshare::MEASUREMENT_PERIOD;
use weir_core::saba::controller::PortLimits;
use weir_fields::{FileError, FileKind, SourceText, TableFields};
use weir_proto::NetworkTable;
use weir_tls::TlsError;

use crate::control_plane::{Link, NetworkLinks, Settings};
use crate::policy::ValidatedPolicy;
use crate::service_bandwidth::ServiceBandwidth;
use crate::service_queues::ServiceQueues;
use crate::tls::ServerTls;
use network::{NetworkTables, NetworkValues};

pub use django::ConnectionModel;
pub use join::{JoinPosition, JoinRule, slots_at};
pub use limits::Limits;
pub use overlay::{MAX_LINK_SAMPLES, Overlay, Relay, RelayAddress};
pub use queues::{QueueAssignment, Saba};
pub use weir_tls::TlsFiles;

/// Maximum length of the file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The supported version of the format.
pub const VERSION: u32 = 1;

/// Maximum number of hosts.
pub const MAX_HOSTS: usize = 10_000;

/// Maximum number of switches. Their pairwise distances take 32 MiB in [`crate::registry`].
pub const MAX_SWITCHES: usize = 4096;

/// Maximum number of ports towards other switches, summed over all switches. A fat tree of 10,000 hosts has 39,304.
pub const MAX_SWITCH_LINKS: usize = 1 << 16;

/// A validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file of the configuration.
    pub path: PathBuf,
    /// File of the durable store.
    pub store_path: PathBuf,
    /// File of the audit log; `None` for the coordinator's log.
    pub audit_path: Option<PathBuf>,
    /// Listening address for agents.
    pub agents_address: SocketAddr,
    /// Listening address for the API.
    pub api_address: SocketAddr,
    /// Certificates for TLS. Without TLS, all addresses must be loopback addresses.
    pub tls: Option<TlsFiles>,
    /// Hosts in order of their numbers.
    pub hosts: Vec<Host>,
    /// The rules by which further hosts join; the first one that matches a name counts. Their numbers follow those of `hosts`.
    pub joins: Vec<JoinRule>,
    /// The network of the hosts; `None` if the configuration lists only the hosts.
    pub topology: Option<Topology>,
    /// Switches in order of their numbers, which follow those of all hosts that can join.
    pub switches: Vec<Switch>,
    /// Configured addresses and networks of hosts, with the host's number.
    pub addresses: NetworkTable<u32>,
    /// Services and their applications.
    pub names: ServiceNames,
    /// Configured weights of services. The policy decides the weights of other services.
    pub weights: BTreeMap<String, f64>,
    /// The policy.
    pub policy: ValidatedPolicy,
    /// The model by which the number of connections of hosts follows the loss under `django`, if it does.
    pub connection_model: Option<ConnectionModel>,
    /// Parameters of the control plane.
    pub settings: Settings,
    /// The traffic that shares a queue of a link.
    pub queues: QueueAssignment,
    /// Whether the central allocator limits observed connections.
    pub allocator: bool,
    /// Weights of services for unused bandwidth, if they differ from `weights`. Used with [`Config::allocator`].
    pub excess_weights: BTreeMap<String, f64>,
    /// Minimum and maximum bandwidths of services, each with at least one; services without an entry are limited by weight only.
    pub bandwidths: BTreeMap<String, ServiceBandwidth>,
    /// Whether hosts throttle UDP to slightly above the rate measured at the receiver.
    pub has_throttling: bool,
    /// The overlay of relays between regions.
    pub overlay: Option<Overlay>,
    /// Limits for clients of the API.
    pub limits: Limits,
}

/// A host.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Name in the certificate and in the configuration of its agent.
    pub name: String,
    /// Capacity of its link.
    pub link: Link,
}

/// A switch whose agent configures the queues of its ports.
#[derive(Debug, Clone, PartialEq)]
pub struct Switch {
    /// Name in the certificate and in the configuration of its agent.
    pub name: String,
    /// The other end of the cable at each port.
    pub ports: Vec<CableEnd>,
    /// The queues of its ports, if applications share them; none: those of [`Saba::limits`].
    pub limits: Option<PortLimits>,
}

/// The other end of a cable of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CableEnd {
    /// A host, by number.
    Host(u32),
    /// Another switch, by its index, from 0.
    Switch(u32),
}

impl Config {
    /// The host at each port of each switch; none where the cable leads to another switch.
    pub fn hosts_at_ports(&self) -> Vec<Vec<Option<u32>>> {
        let host = |end: &CableEnd| match *end {
            CableEnd::Host(host) => Some(host),
            CableEnd::Switch(_) => None,
        };
        self.switches.iter().map(|switch| switch.ports.iter().map(host).collect()).collect()
    }

    /// The names of all hosts and switches, in order of their numbers. A free slot has an empty name.
    pub fn agent_names(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(|host| &*host.name);
        let slots = std::iter::repeat_n("", self.slots());
        hosts.chain(slots).chain(self.switches.iter().map(|switch| &*switch.name))
    }

    /// The links that the policy decides over.
    pub fn network_links(&self) -> NetworkLinks {
        network_links(&self.hosts, self.topology.as_ref(), &self.joins)
    }

    /// Whether services can have maximum bandwidths: queues are theirs, and orders are at least as frequent as measurements.
    pub fn can_limit_services(&self) -> bool {
        self.queues == QueueAssignment::Services && self.settings.interval <= MEASUREMENT_PERIOD.get()
    }

    /// The queue of each service, if queues belong to services. Services with configured bandwidths, or with these `bandwidths`, have
    /// separate queues. They are at most 62, or all services are at most 63.
    pub fn service_queues(&self, bandwidths: &BTreeMap<String, ServiceBandwidth>) -> ServiceQueues {
        let needs_queue = |name: &str| self.bandwidths.contains_key(name) || bandwidths.contains_key(name);
        ServiceQueues::assign(&self.names, needs_queue)
            .expect("bandwidths are checked when the configuration and the store are read")
    }

    /// Checks that the coordinator can serve TLS with the files, and that its certificate is valid now.
    ///
    /// # Errors
    /// As for [`weir_tls::server_config`] and [`weir_tls::check_validity`].
    pub fn check_certificate(&self) -> Result<(), TlsError> {
        let Some(files) = &self.tls else { return Ok(()) };
        ServerTls::read(files)?;
        weir_tls::check_validity(files)
    }

    fn name_of(&self, end: CableEnd) -> &str {
        match end {
            CableEnd::Host(host) => &self.hosts[host as usize].name,
            CableEnd::Switch(switch) => &self.switches[switch as usize].name,
        }
    }
}

/// The links of these hosts, of the topology if there is one, and of slots for hosts that join.
fn network_links(hosts: &[Host], topology: Option<&Topology>, joins: &[JoinRule]) -> NetworkLinks {
    let hosts: Vec<Link> = hosts.iter().map(|host| host.link).collect();
    let links = match topology {
        Some(topology) => NetworkLinks::with_topology(&hosts, topology.clone()),
        None => NetworkLinks::one_switch(&hosts),
    };
    let max_rate = joins.iter().map(|rule| rule.max_rate.get()).fold(0.0, f64::max);
    links.with_slots(join::slot_count(joins), max_rate)
}

/// Reads the configuration at `path`.
///
/// # Errors
/// [`FileError`]: the first error in the file, with its line, or the file cannot be read.
pub fn read(path: &Path) -> Result<Config, FileError> {
    weir_fields::read_file_in_folder(path, |input, name, folder| {
        let text = weir_fields::read_text(input, name, MAX_FILE_BYTES)?;
        let config = parse(&text, name, folder)?;
        Ok(Config { path: path.to_owned(), ..config })
    })
}

/// Parses a configuration. `name` is its name in errors, and paths in it are relative to `folder`.
///
/// # Errors
/// The first error in `text`, with its line, or a file in `text` cannot be read.
pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Config, FileError> {
    FileKind::check(text.as_bytes(), name, &[FileKind::Coordinator], "a coordinator's configuration")?;
    let source = SourceText { file: name, text };
    let table = weir_fields::parse_toml(source)?;
    let mut fields = weir_fields::versioned_fields(source, table.get_ref(), FileKind::Coordinator, VERSION)?;
    let (store_path, audit_path) = read_paths(&mut fields, folder)?;
    let settings = settings::read_settings(&mut fields)?;
    let overlay = fields.optional("overlay");
    let (policy_value, django) = (fields.optional("policy"), fields.optional("django"));
    let (listen, tls, limits) =
        (fields.required("listen", EXPECTED_LISTEN)?, fields.optional("tls"), fields.optional("limits"));
    let (queues, saba) = (fields.optional("queues"), fields.optional("saba"));
    let unclassified = fields.optional("unclassified");
    let (throttling, allocator) = (fields.optional("throttling"), fields.optional("allocator"));
    let (network, service) = (NetworkValues::take(&mut fields), fields.optional("service"));
    fields.finish()?;
    let overlay = overlay.map(|value| overlay::read_overlay(&fields, &value)).transpose()?;
    let has_allocator =
        allocator.as_ref().map(|value| fields.read_bool(value)).transpose()?.unwrap_or_default();
    let services::ServiceTables { names, weights, excess, bandwidths } =
        services::read_services(&fields, service, has_allocator)?;
    let queues = queues::read_queue_assignment(&fields, queues, saba)?;
    let NetworkTables { hosts, joins, topology, switches, addresses } =
        network.read(&fields, overlay.as_ref(), &queues, folder)?;
    let has_hosts = !hosts.is_empty() || !joins.is_empty();
    let throttling = settings::read_throttling(&fields, throttling, &addresses, settings.interval)?;
    let policy = policy::read_policy(&fields, policy_value, folder, &names, has_hosts, settings.interval)?;
    let connection_model =
        django.map(|value| django::read_connection_model(&fields, &value, folder, &policy)).transpose()?;
    let budget = settings::read_budget(&fields, unclassified, queues)?;
    let settings = Settings { budget, ..settings };
    if let Some(value) = allocator.filter(|_| has_allocator) {
        settings::check_allocator(&fields, &value, queues, settings.interval)?;
    }
    bandwidths::check_bandwidths(
        &fields,
        (&names, &bandwidths),
        (queues, has_allocator),
        &settings,
        hosts.iter().map(|host| &*host.name),
        || network_links(&hosts, topology.as_ref(), &joins),
    )?;
    let tls = tls.map(|value| addresses::read_tls(&fields, &value, folder)).transpose()?;
    let (agents, api) = addresses::read_listen(&fields, &listen, &tls)?;
    let (limits, settings) = limits::read_limits(&fields, limits, settings)?;
    Ok(Config {
        path: PathBuf::from(name),
        store_path,
        audit_path,
        agents_address: agents,
        api_address: api,
        tls,
        hosts,
        joins,
        topology,
        switches,
        addresses,
        names,
        weights,
        policy,
        connection_model,
        settings,
        queues,
        allocator: has_allocator,
        excess_weights: excess,
        bandwidths,
        has_throttling: throttling,
        overlay,
        limits,
    })
}

/// Reads the paths of the store and of the audit log.
fn read_paths(fields: &mut TableFields<'_>, folder: &Path) -> Result<(PathBuf, Option<PathBuf>), FileError> {
    const EXPECTED_STORE: &str = "the path of the store file";
    let store = fields.required("store", EXPECTED_STORE)?;
    let store = folder.join(fields.read_string(&store, EXPECTED_STORE)?);
    let audit = fields.optional("audit");
    let audit = audit.map(|value| fields.read_string(&value, "the path of the audit log")).transpose()?;
    Ok((store, audit.map(|path| folder.join(path))))
}

const EXPECTED_LISTEN: &str = "a table with the addresses `agents` and `api`";

fn check_name(fields: &TableFields<'_>, key: &str, name: &str) -> Result<(), FileError> {
    if ServiceNames::is_name(name) {
        Ok(())
    } else {
        Err(fields.key_error(key, name, ServiceNames::NAME_RULE))
    }
}
