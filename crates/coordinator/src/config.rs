//! Reads the configuration of `weir serve`, a TOML file that `docs/serve.md` describes.
//!
//! Unknown keys are errors, and quantities have units. The result is a validated [`Config`], or a [`TraceError`] with the
//! line, the field, the value and the expected value. Paths in the file are relative to its folder.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use weir_core::model::{ServiceNames, Topology};
use weir_core::netshare::MEASUREMENT_PERIOD;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::{Fraction, controller};
use weir_core::units::{Bytes, Time};
use weir_proto::{MAX_CLASSES, MAX_LEASE};
use weir_trace::toml_fields::{self, SourceText, TableFields, Value};
use weir_trace::{MAX_WEIGHT, MIN_WEIGHT, TraceError, sensitivity, tree};

use crate::admission::Quota;
use crate::control_plane::{Link, NetworkLinks, Settings};
use crate::policy::{PolicyError, PolicySpec, ValidatedPolicy};

mod hosts;
mod overlay;
mod switches;

pub use overlay::{MAX_LINK_SAMPLES, Overlay, Relay};
use weir_tls::TlsError;
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

/// The key of the version.
const VERSION_KEY: &str = "weir-serve";

/// Prefix of the file of a policy tree.
const TREE_PREFIX: &str = "tree:";

/// A validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// File of the durable store.
    pub store_path: PathBuf,
    /// Listening address for agents.
    pub agents_address: SocketAddr,
    /// Listening address for the API.
    pub api_address: SocketAddr,
    /// Certificates for TLS. Without TLS, all addresses must be loopback addresses.
    pub tls: Option<TlsFiles>,
    /// Hosts in order of their numbers.
    pub hosts: Vec<Host>,
    /// The network of the hosts; `None` if the configuration lists only the hosts.
    pub topology: Option<Topology>,
    /// Switches in order of their numbers, which follow those of the hosts.
    pub switches: Vec<Switch>,
    /// Configured addresses of hosts, with the host's number.
    pub addresses: BTreeMap<IpAddr, u32>,
    /// Services and their applications.
    pub names: ServiceNames,
    /// Configured weights of services. The policy decides the weights of other services.
    pub weights: BTreeMap<String, f64>,
    /// The policy.
    pub policy: ValidatedPolicy,
    /// Parameters of the control plane.
    pub settings: Settings,
    /// The traffic that shares a queue of a link.
    pub queues: QueueAssignment,
    /// Whether the central allocator limits observed connections.
    pub allocator: bool,
    /// Weights of services for unused bandwidth, if they differ from `weights`. Used with [`Config::allocator`].
    pub excess_weights: BTreeMap<String, f64>,
    /// Whether hosts throttle UDP to slightly above the rate measured at the receiver.
    pub has_throttling: bool,
    /// The overlay of relays between regions.
    pub overlay: Option<Overlay>,
    /// Limits for clients of the API.
    pub limits: Limits,
}

/// The traffic that shares a queue of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueAssignment {
    /// Saba: applications of similar sensitivity.
    Applications(Saba),
    /// NetShare, group allocation: each service has a queue with its weight at every port.
    Services,
}

/// Parameters of Saba.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saba {
    /// Settings of the controller.
    pub settings: controller::ControllerSettings,
    /// Number of queues of each link in each direction.
    pub queues: u16,
}

impl Default for Saba {
    /// Saba, section 5.3: the 8 priority levels of Ethernet, and the 8 queues that switches have. Saba's applications may
    /// use the whole link.
    fn default() -> Saba {
        let levels = NonZeroU16::new(8).expect("8 is not 0");
        Saba {
            settings: controller::ControllerSettings {
                c_saba: Fraction::ALL,
                min_share: DEFAULT_MIN_SHARE,
                max_levels: levels,
            },
            queues: 8,
        }
    }
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
}

/// The other end of a cable of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CableEnd {
    /// A host, by number.
    Host(u32),
    /// Another switch, by its index, from 0.
    Switch(u32),
}

/// Limits for clients of the API.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Maximum length of a request's body.
    pub max_body: Bytes,
    /// Maximum duration of a request, including its body.
    pub max_request_duration: Time,
    /// Maximum number of concurrent connections.
    pub max_connections: u32,
    /// Maximum number of concurrent connections of one address without a proven identity.
    pub max_connections_per_address: u32,
    /// Maximum number of concurrent connections of one proven identity.
    pub max_connections_per_identity: u32,
    /// Maximum number of events that wait for a slow client.
    pub max_queued_events: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_body: Bytes::new(4e6).expect("4 MB is a valid size"),
            max_request_duration: Time::new(10.0).expect("10 s is a valid time"),
            max_connections: 1024,
            max_connections_per_address: 512,
            max_connections_per_identity: 512,
            max_queued_events: 1024,
        }
    }
}

impl Limits {
    /// Maximum number of concurrent connections over a limit. They can request only the coordinator's health.
    const MAX_PROBES: usize = 64;

    /// The limits of the API's connections.
    pub fn connection_quota(&self) -> Quota {
        Quota {
            total: self.max_connections as usize,
            per_address: self.max_connections_per_address as usize,
            per_identity: self.max_connections_per_identity as usize,
            probes: Limits::MAX_PROBES,
        }
    }
}

impl Config {
    /// The links that the policy decides over.
    pub fn network_links(&self) -> NetworkLinks {
        let hosts: Vec<Link> = self.hosts.iter().map(|host| host.link).collect();
        match &self.topology {
            Some(topology) => NetworkLinks::with_topology(&hosts, topology.clone()),
            None => NetworkLinks::one_switch(&hosts),
        }
    }

    /// Configured IPv4 addresses of hosts, with the host's number. Throttling of UDP applies to them.
    pub fn ipv4_addresses(&self) -> impl Iterator<Item = (Ipv4Addr, u32)> {
        self.addresses.iter().filter_map(|(address, &host)| match address {
            IpAddr::V4(address) => Some((*address, host)),
            IpAddr::V6(_) => None,
        })
    }

    /// Checks that the coordinator's certificate is valid now.
    ///
    /// # Errors
    /// [`TlsError::NotValidNow`].
    pub fn check_certificate(&self) -> Result<(), TlsError> {
        self.tls.as_ref().map_or(Ok(()), weir_tls::check_validity)
    }

    fn name_of(&self, end: CableEnd) -> &str {
        match end {
            CableEnd::Host(host) => &self.hosts[host as usize].name,
            CableEnd::Switch(switch) => &self.switches[switch as usize].name,
        }
    }
}

/// Reads the configuration at `path`.
///
/// # Errors
/// [`TraceError`]: the first error in the file, with its line, or the file cannot be read.
pub fn read(path: &Path) -> Result<Config, TraceError> {
    toml_fields::read_file_in_folder(path, |input, name, folder| {
        let text = toml_fields::read_text(input, name, MAX_FILE_BYTES)?;
        parse(&text, name, folder)
    })
}

/// Parses a configuration. `name` is its name in errors, and paths in it are relative to `folder`.
///
/// # Errors
/// The first error in `text`, with its line, or a file in `text` cannot be read.
pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Config, TraceError> {
    const EXPECTED_STORE: &str = "the path of the store file";
    let source = SourceText { file: name, text };
    let table = toml_fields::parse_toml(source)?;
    let mut fields = toml_fields::versioned_fields(source, table.get_ref(), VERSION_KEY, VERSION)?;
    let store = fields.required("store", EXPECTED_STORE)?;
    let store = folder.join(fields.read_string(&store, EXPECTED_STORE)?);
    let settings = read_settings(&mut fields)?;
    let overlay = fields.optional("overlay");
    let policy_value = fields.optional("policy");
    let (listen, tls, limits) =
        (fields.required("listen", EXPECTED_LISTEN)?, fields.optional("tls"), fields.optional("limits"));
    let (queues, saba) = (fields.optional("queues"), fields.optional("saba"));
    let (throttling, allocator) = (fields.optional("throttling"), fields.optional("allocator"));
    let (topology, host, service) =
        (fields.optional("topology"), fields.optional("host"), fields.optional("service"));
    let (switch, address_of) = (fields.optional("switch"), fields.optional("address"));
    fields.finish()?;
    let overlay = overlay.map(|value| overlay::read_overlay(&fields, &value)).transpose()?;
    let (hosts, network) = match (&overlay, &topology, &host) {
        (Some(_), None, None) => (Vec::new(), None),
        _ => hosts::read_hosts(&fields, topology, host, folder)?,
    };
    let numbers: BTreeMap<&str, u32> =
        (0u32..).zip(&hosts).map(|(number, host)| (&*host.name, number)).collect();
    let mut relay_names = overlay.iter().flat_map(|overlay| &overlay.relays).map(|relay| &*relay.name);
    if let Some(name) = relay_names.find(|name| numbers.contains_key(name)) {
        return Err(fields.key_error("overlay", name, "names of relays that no host has"));
    }
    let switches = switch
        .map(|value| switches::read_switches(&fields, &value, &numbers, network.as_ref()))
        .transpose()?;
    let addresses = address_of.map(|value| hosts::read_addresses(&fields, &value, &numbers)).transpose()?;
    let (switches, addresses) = (switches.unwrap_or_default(), addresses.unwrap_or_default());
    let has_allocator =
        allocator.as_ref().map(|value| fields.read_bool(value)).transpose()?.unwrap_or_default();
    let services = service.as_ref().map(|value| read_services(&fields, value, has_allocator)).transpose()?;
    let ServiceTables { names, weights, excess } = services.unwrap_or_default();
    let throttling = read_throttling(&fields, throttling, &addresses, settings.interval)?;
    let policy = match policy_value {
        Some(value) => read_policy(&fields, &value, folder, &names)?,
        // The policy of an overlay does not need another one for hosts.
        None if hosts.is_empty() => ValidatedPolicy::without_hosts(),
        None => return Err(fields.key_error("policy", "nothing", EXPECTED_POLICY)),
    };
    let queues = read_queue_assignment(&fields, queues, saba, &names)?;
    if let Some(value) = allocator.filter(|_| has_allocator) {
        check_allocator(&fields, &value, queues, settings.interval)?;
    }
    let tls = tls.map(|value| read_tls(&fields, &value, folder)).transpose()?;
    let (agents, api) = read_listen(&fields, &listen, &tls)?;
    let (limits, settings) = match limits {
        Some(value) => read_limits(&fields, &value, settings)?,
        None => (Limits::default(), settings),
    };
    Ok(Config {
        store_path: store,
        agents_address: agents,
        api_address: api,
        tls,
        hosts,
        topology: network,
        switches,
        addresses,
        names,
        weights,
        policy,
        settings,
        queues,
        allocator: has_allocator,
        excess_weights: excess,
        has_throttling: throttling,
        overlay,
        limits,
    })
}

const EXPECTED_LISTEN: &str = "a table with the addresses `agents` and `api`";
const EXPECTED_POLICY: &str = "a policy with its parameters, such as \"saath:d=4\", or \"tree:FILE\"";

/// Reads the keys of the control plane's parameters.
fn read_settings(fields: &mut TableFields<'_>) -> Result<Settings, TraceError> {
    let default = Settings::default();
    let interval = read_time(fields, "interval", 0.001..=10.0, "a time from 1ms to 10s", default.interval)?;
    // A host that misses one order has to receive the next one within its lease.
    let lease = read_time(
        fields,
        "lease",
        2.0 * interval..=MAX_LEASE.as_secs_f64(),
        "a time from two intervals to 60s",
        default.lease.max(10.0 * interval).min(MAX_LEASE.as_secs_f64()),
    )?;
    let keep_completed =
        read_time(fields, "keep-completed", 0.0..=1e6, "a time of at most 277h", default.keep_completed)?;
    let reserve = match fields.optional("reserve") {
        None => default.reserve,
        Some(value) => {
            let reserve = fields.read_number(&value)?;
            if !(0.001..=0.5).contains(&reserve) {
                return Err(fields.value_error(&value, "a fraction of every link, from 0.001 to 0.5"));
            }
            reserve
        }
    };
    Ok(Settings { interval, lease, reserve, keep_completed, ..default })
}

/// Reads a time, in seconds. `expected` describes `range` in errors.
fn read_time(
    fields: &mut TableFields<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<f64>,
    expected: &str,
    default: f64,
) -> Result<f64, TraceError> {
    let Some(value) = fields.optional(key) else { return Ok(default) };
    let time = fields.read_time(&value)?.get();
    if range.contains(&time) { Ok(time) } else { Err(fields.value_error(&value, expected)) }
}

/// Reads whether UDP is throttled. Throttling requires IPv4 addresses of senders, and orders at least as frequent as measurements.
fn read_throttling(
    fields: &TableFields<'_>,
    value: Option<Value<'_>>,
    addresses: &BTreeMap<IpAddr, u32>,
    interval: f64,
) -> Result<bool, TraceError> {
    let Some(value) = value else { return Ok(false) };
    if !fields.read_bool(&value)? {
        return Ok(false);
    }
    if !addresses.keys().any(IpAddr::is_ipv4) {
        let expected = "false, or IPv4 addresses of hosts in `[address]`";
        return Err(fields.value_error(&value, expected));
    }
    if interval > MEASUREMENT_PERIOD.get() {
        return Err(fields.value_error(&value, "false, or an `interval` of at most 50ms"));
    }
    Ok(true)
}

/// Checks the requirements of the allocator: queues of services, and orders at least as frequent as measurements of demand.
fn check_allocator(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    queues: QueueAssignment,
    interval: f64,
) -> Result<(), TraceError> {
    if queues != QueueAssignment::Services {
        return Err(
            fields.value_error(value, "false, or `queues = \"services\"`, which the allocator requires")
        );
    }
    if interval > MEASUREMENT_PERIOD.get() {
        return Err(fields.value_error(value, "false, or an `interval` of at most 50ms"));
    }
    Ok(())
}

fn check_name(fields: &TableFields<'_>, name: &str) -> Result<(), TraceError> {
    if ServiceNames::is_name(name) {
        Ok(())
    } else {
        Err(fields.key_error(name, name, ServiceNames::NAME_RULE))
    }
}

/// Services with their applications and weights.
#[derive(Default)]
struct ServiceTables {
    names: ServiceNames,
    weights: BTreeMap<String, f64>,
    excess: BTreeMap<String, f64>,
}

fn read_services(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    has_allocator: bool,
) -> Result<ServiceTables, TraceError> {
    const EXPECTED_APPLICATIONS: &str = "a list of names";
    let (mut names, mut weights, mut excess) = (ServiceNames::empty(), BTreeMap::new(), BTreeMap::new());
    for (name, mut service) in fields.read_tables(value, |name| format!("service {name} "))? {
        check_name(&service, name)?;
        if let Some(value) = service.optional("weight") {
            let weight = service.read_number(&value)?;
            if !(MIN_WEIGHT..=MAX_WEIGHT).contains(&weight) {
                let expected = format!("a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}");
                return Err(service.value_error(&value, &expected));
            }
            weights.insert(name.to_owned(), weight);
        }
        if let Some(value) = service.optional("excess") {
            let excess_weight = service.read_number(&value)?;
            if !has_allocator {
                return Err(service.value_error(
                    &value,
                    "no excess weight, or `allocator = true`, since queues ignore excess weights",
                ));
            }
            if excess_weight != 0.0 && !(MIN_WEIGHT..=MAX_WEIGHT).contains(&excess_weight) {
                let expected = format!("0, or a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}");
                return Err(service.value_error(&value, &expected));
            }
            excess.insert(name.to_owned(), excess_weight);
        }
        let applications = match service.optional("applications") {
            None => Vec::new(),
            Some(value) => service.read_list(&value, EXPECTED_APPLICATIONS)?,
        };
        service.finish()?;
        let mut number = |application: &str| {
            let expected = format!("at most {} applications in total", ServiceNames::MAX_APPLICATIONS);
            names
                .intern(name, application)
                .ok_or_else(|| service.key_error("applications", application, &expected))
        };
        // The default application, for coflows without an application.
        number(ServiceNames::DEFAULT)?;
        for value in applications {
            let application = service.read_string(&value, "the name of an application")?;
            if !ServiceNames::is_name(application) {
                return Err(service.value_error(&value, ServiceNames::NAME_RULE));
            }
            number(application)?;
        }
    }
    if names.services() == 0 {
        return Err(fields.value_error(value, "at least one `[service.NAME]`"));
    }
    Ok(ServiceTables { names, weights, excess })
}

fn read_policy(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    folder: &Path,
    names: &ServiceNames,
) -> Result<ValidatedPolicy, TraceError> {
    let spec = fields.read_string(value, EXPECTED_POLICY)?;
    let tables = |file: &str| sensitivity::read(&folder.join(file));
    let policy = match spec.strip_prefix(TREE_PREFIX) {
        None => ValidatedPolicy::new(PolicySpec::Policy(spec.to_owned()), "policy", &tables, names),
        Some("" | "-") => return Err(fields.value_error(value, "a file name after `tree:`")),
        Some(file) => {
            let path = folder.join(file);
            let text = toml_fields::read_file(&path, |input, name| {
                toml_fields::read_text(input, name, tree::MAX_FILE_BYTES)
            });
            let text = fields.referenced(value, text)?;
            // Sensitivity tables of a tree are relative to the tree's folder.
            let tree_folder = path.parent().unwrap_or(folder);
            let name = path.display().to_string();
            let tables = |file: &str| tree::read_named_table(tree_folder, file, &name);
            ValidatedPolicy::new(PolicySpec::Tree(text), &name, &tables, names)
        }
    };
    policy.map_err(|error| match error {
        PolicyError::Params(error) => fields.value_error(value, &format!("{EXPECTED_POLICY} ({error})")),
        PolicyError::Tree(error) => error,
    })
}

fn read_queue_assignment(
    fields: &TableFields<'_>,
    queues: Option<Value<'_>>,
    saba: Option<Value<'_>>,
    names: &ServiceNames,
) -> Result<QueueAssignment, TraceError> {
    const EXPECTED: &str = "\"applications\" or \"services\"";
    let assignment = queues.as_ref().map(|value| fields.read_string(value, EXPECTED)).transpose()?;
    match (assignment, saba) {
        (None | Some("applications"), saba) => {
            let saba = saba.map(|value| read_saba(fields, &value)).transpose()?;
            Ok(QueueAssignment::Applications(saba.unwrap_or_default()))
        }
        (Some("services"), None) if names.services() <= MAX_CLASSES => Ok(QueueAssignment::Services),
        (Some("services"), None) => {
            let found = names.services().to_string();
            let expected = format!("at most {MAX_CLASSES} services, since each has a queue");
            Err(fields.key_error("service", &found, &expected))
        }
        (Some("services"), Some(saba)) => {
            Err(fields.value_error(&saba, "no table `[saba]`, since queues are those of services"))
        }
        (Some(other), _) => Err(fields.key_error("queues", other, EXPECTED)),
    }
}

fn read_saba(fields: &TableFields<'_>, value: &Value<'_>) -> Result<Saba, TraceError> {
    let mut saba_fields = fields.read_table(value, "saba ".to_owned())?;
    let default = Saba::default();
    let mut count = |key: &'static str| -> Result<Option<NonZeroU16>, TraceError> {
        const EXPECTED: &str = "a whole number from 2 to 63";
        let Some(value) = saba_fields.optional(key) else { return Ok(None) };
        let count = u16::try_from(saba_fields.read_u32(&value, EXPECTED)?)
            .ok()
            .filter(|count| (2..=63).contains(count));
        let count =
            count.and_then(NonZeroU16::new).ok_or_else(|| saba_fields.value_error(&value, EXPECTED))?;
        Ok(Some(count))
    };
    let max_levels = count("levels")?.unwrap_or(default.settings.max_levels);
    let queues = count("queues")?.map_or(default.queues, NonZeroU16::get);
    let c_saba = match saba_fields.optional("share") {
        None => default.settings.c_saba,
        Some(value) => Fraction::new(saba_fields.read_number(&value)?)
            .map_err(|_| saba_fields.value_error(&value, "a fraction of every link, above 0 and up to 1"))?,
    };
    saba_fields.finish()?;
    Ok(Saba { settings: controller::ControllerSettings { c_saba, max_levels, ..default.settings }, queues })
}

fn read_tls(fields: &TableFields<'_>, value: &Value<'_>, folder: &Path) -> Result<TlsFiles, TraceError> {
    const EXPECTED_FILE: &str = "a file in PEM";
    let mut tls = fields.read_table(value, "tls ".to_owned())?;
    let mut file = |key: &'static str| -> Result<PathBuf, TraceError> {
        let value = tls.required(key, EXPECTED_FILE)?;
        Ok(folder.join(tls.read_string(&value, EXPECTED_FILE)?))
    };
    let files = TlsFiles { certificate: file("certificate")?, key: file("key")?, clients: file("clients")? };
    tls.finish()?;
    Ok(files)
}

/// The addresses for agents and for the API.
fn read_listen(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    tls: &Option<TlsFiles>,
) -> Result<(SocketAddr, SocketAddr), TraceError> {
    let mut listen = fields.read_table(value, "listen ".to_owned())?;
    let (agents, api) = (read_address(&mut listen, "agents", tls)?, read_address(&mut listen, "api", tls)?);
    if overlaps(agents, api) {
        let expected = format!("another address than that of `agents`, {agents}");
        return Err(listen.key_error("api", &api.to_string(), &expected));
    }
    listen.finish()?;
    Ok((agents, api))
}

fn read_address(
    fields: &mut TableFields<'_>,
    key: &'static str,
    tls: &Option<TlsFiles>,
) -> Result<SocketAddr, TraceError> {
    const EXPECTED_ADDRESS: &str = "an address and a port, such as \"127.0.0.1:7700\"";
    let value = fields.required(key, EXPECTED_ADDRESS)?;
    let address: SocketAddr = fields
        .read_string(&value, EXPECTED_ADDRESS)?
        .parse()
        .map_err(|_| fields.value_error(&value, EXPECTED_ADDRESS))?;
    if tls.is_none() && !address.ip().is_loopback() {
        let expected = "a loopback address, such as \"127.0.0.1:7700\", or a table `[tls]`";
        return Err(fields.value_error(&value, expected));
    }
    Ok(address)
}

/// Whether one socket would receive the connections of both addresses. The system selects port 0, a different one for each socket.
fn overlaps(one: SocketAddr, other: SocketAddr) -> bool {
    // `::` receives connections by IPv4 too, but `0.0.0.0` none by IPv6.
    let includes = |one: IpAddr, other: IpAddr| {
        one == other || one.is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    one.port() == other.port()
        && one.port() != 0
        && (includes(one.ip(), other.ip()) || includes(other.ip(), one.ip()))
}

fn read_limits(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    settings: Settings,
) -> Result<(Limits, Settings), TraceError> {
    let mut limit_fields = fields.read_table(value, "limits ".to_owned())?;
    let default = Limits::default();
    let mut count = |key: &'static str, default: usize, max: u32| -> Result<u32, TraceError> {
        let Some(value) = limit_fields.optional(key) else { return Ok(default as u32) };
        let expected = format!("a whole number from 1 to {max}");
        let count = limit_fields.read_u32(&value, &expected)?;
        if (1..=max).contains(&count) { Ok(count) } else { Err(limit_fields.value_error(&value, &expected)) }
    };
    let max_coflows = count("coflows", settings.max_coflows, 10_000_000)? as usize;
    let max_flows = count("flows", settings.max_flows, 100_000_000)? as usize;
    let max_connections = count("connections", default.max_connections as usize, 1_000_000)?;
    let max_connections_per_address =
        count("connections-per-address", default.max_connections_per_address as usize, 1_000_000)?;
    let max_connections_per_identity =
        count("connections-per-identity", default.max_connections_per_identity as usize, 1_000_000)?;
    let max_queued_events = count("events", default.max_queued_events as usize, 1_000_000)?;
    let max_body = match limit_fields.optional("body") {
        None => default.max_body,
        Some(value) => {
            let body = limit_fields.read_bytes(&value)?;
            if !(1e3..=1e9).contains(&body.get()) {
                return Err(limit_fields.value_error(&value, "a size from 1kB to 1GB"));
            }
            body
        }
    };
    let seconds = read_time(
        &mut limit_fields,
        "request",
        0.1..=600.0,
        "a time from 100ms to 10min",
        default.max_request_duration.get(),
    )?;
    let max_request_duration = Time::new(seconds).expect("a time from 100 ms to 10 min is valid");
    limit_fields.finish()?;
    let settings = Settings { max_coflows, max_flows, ..settings };
    Ok((
        Limits {
            max_body,
            max_request_duration,
            max_connections,
            max_connections_per_address,
            max_connections_per_identity,
            max_queued_events,
        },
        settings,
    ))
}

impl fmt::Display for Config {
    /// A summary of the configuration, for operators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to_time = |value: f64| Time::new(value).unwrap_or(Time::ZERO);
        let Settings { interval, lease, reserve, keep_completed, max_coflows, max_flows, .. } = self.settings;
        match self.policy.spec() {
            _ if self.hosts.is_empty() => {}
            PolicySpec::Policy(spec) => writeln!(f, "policy    {spec}")?,
            PolicySpec::Tree(_) => writeln!(f, "policy    a tree")?,
        }
        if let Some(topology) = &self.topology {
            let between_switches = topology.links().iter().filter(|link| !topology.is_host_link(**link));
            writeln!(
                f,
                "topology  policies decide over {} links between switches",
                between_switches.count()
            )?;
        }
        writeln!(f, "interval  {}, leases of {}", to_time(interval), to_time(lease))?;
        writeln!(f, "reserve   {reserve} of every link, for flows without a rate")?;
        writeln!(f, "keep      completed coflows for {}", to_time(keep_completed))?;
        writeln!(f, "store     {}", self.store_path.display())?;
        let protection = if self.tls.is_some() { "mutual TLS" } else { "plain text, on this host only" };
        writeln!(f, "agents    {} ({protection})", self.agents_address)?;
        writeln!(f, "api       {} ({protection})", self.api_address)?;
        if let Some(TlsFiles { certificate, key, clients }) = &self.tls {
            let (certificate, key, clients) = (certificate.display(), key.display(), clients.display());
            writeln!(f, "tls       certificate {certificate}, key {key}, clients {clients}")?;
        }
        let Limits { max_body, max_request_duration, max_queued_events, .. } = self.limits;
        let Limits { max_connections, max_connections_per_address, max_connections_per_identity, .. } =
            self.limits;
        writeln!(f, "limits    {max_coflows} coflows, {max_flows} flows")?;
        writeln!(
            f,
            "          {max_connections} connections, {max_connections_per_address} an address, \
             {max_connections_per_identity} an identity"
        )?;
        writeln!(f, "          {max_body} and {max_request_duration} a request, {max_queued_events} events")?;
        match self.queues {
            QueueAssignment::Applications(Saba {
                settings: controller::ControllerSettings { c_saba, max_levels, .. },
                queues,
            }) => {
                let share = c_saba.get();
                writeln!(
                    f,
                    "saba      {max_levels} priority levels in {queues} queues, {share} of every link"
                )?;
            }
            QueueAssignment::Services => writeln!(f, "queues    one for each service, at every port")?,
        }
        if self.allocator {
            writeln!(f, "allocator rates of observed connections, by service")?;
        }
        if self.has_throttling {
            writeln!(f, "throttle  UDP, to slightly above the rate measured at the receiver")?;
        }
        for service in 0..self.names.services() as u32 {
            let name = self.names.service(service);
            let weight = match self.weights.get(name) {
                Some(weight) => format!("weight {weight}"),
                None if self.queues == QueueAssignment::Services => "weight 1 in queues".to_owned(),
                None => "the policy's weight".to_owned(),
            };
            let excess =
                self.excess_weights.get(name).map(|weight| format!(", excess {weight}")).unwrap_or_default();
            let applications = self.names.applications(service).join(", ");
            writeln!(f, "service   {name}: {weight}{excess}; applications {applications}")?;
        }
        for Host { name, link: Link { send, recv } } in &self.hosts {
            if send == recv {
                writeln!(f, "host      {name}: {send}")?;
            } else {
                writeln!(f, "host      {name}: sends {send}, receives {recv}")?;
            }
        }
        for Switch { name, ports } in &self.switches {
            let ports: Vec<&str> = ports.iter().map(|&end| self.name_of(end)).collect();
            writeln!(f, "switch    {name}: {}", ports.join(", "))?;
        }
        for (address, &host) in &self.addresses {
            writeln!(f, "address   {address}: {}", self.hosts[host as usize].name)?;
        }
        if let Some(overlay) = &self.overlay {
            write!(f, "{overlay}")?;
        }
        let uses_weights = self.queues == QueueAssignment::Services || self.policy.uses_service_weights();
        if !self.weights.is_empty() && !uses_weights {
            writeln!(f, "note      this policy ignores the weights of services")?;
        }
        Ok(())
    }
}
