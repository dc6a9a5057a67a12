//! Configuration of `weir serve`, in TOML; `docs/serve.md` describes it.
//!
//! Unknown keys are errors, and quantities have units. Reading gives a validated [`Config`], or a [`TraceError`] with
//! the line, the field, the value and the expected value. Paths in the file are relative to its folder.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use weir_core::model::Names;
use weir_core::netshare::PERIOD;
use weir_core::saba::share::FLOOR;
use weir_core::saba::{Fraction, controller};
use weir_core::units::{Bytes, Time};
use weir_proto::{MAX_CLASSES, MAX_LEASE};
use weir_trace::fields::{self, Fields, Source, Value};
use weir_trace::{MAX_WEIGHT, MIN_WEIGHT, TraceError, sensitivity, tree};

use crate::admission::Quota;
use crate::plane::{Link, Settings};
use crate::policy::{Asked, Chosen, PolicyError};

mod hosts;
mod switches;

/// Maximum length of the file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The supported version of the format.
pub const VERSION: u32 = 1;

/// Maximum number of hosts.
pub const MAX_HOSTS: usize = 10_000;

/// Maximum number of switches. The distances between all of them take 32 MiB in [`crate::registry`].
pub const MAX_SWITCHES: usize = 4096;

/// Maximum number of ports of switches towards other switches, in all. A fat tree of 10,000 hosts has 39,304.
pub const MAX_UPLINKS: usize = 1 << 16;

/// The key of the version.
const MAGIC: &str = "weir-serve";

/// Prefix of a policy that is a tree in a file.
const TREE: &str = "tree:";

/// A validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// File of the durable store.
    pub store: PathBuf,
    /// Listening address for agents.
    pub agents: SocketAddr,
    /// Listening address for the API.
    pub api: SocketAddr,
    /// Certificates for TLS. Without TLS, all addresses must be loopback addresses.
    pub tls: Option<TlsFiles>,
    /// Hosts in order of their numbers.
    pub hosts: Vec<Host>,
    /// Switches in order of their numbers, which follow those of the hosts.
    pub switches: Vec<Switch>,
    /// Configured addresses of hosts, with the host's number.
    pub addresses: BTreeMap<IpAddr, u32>,
    /// Services and their applications.
    pub names: Names,
    /// Configured weights of services. The policy decides about the other services.
    pub weights: BTreeMap<String, f64>,
    /// The policy.
    pub policy: Chosen,
    /// Parameters of the control plane.
    pub settings: Settings,
    /// What each queue of a link is for.
    pub queues: Queueing,
    /// Whether the central allocator limits observed connections.
    pub allocator: bool,
    /// Weights of services for unused bandwidth, if they differ from `weights`. Used with [`Config::allocator`].
    pub excess: BTreeMap<String, f64>,
    /// Whether hosts throttle UDP to little more than the rate that arrives.
    pub throttling: bool,
    /// Limits for clients of the API.
    pub limits: Limits,
}

/// The traffic that shares a queue of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Queueing {
    /// Saba: applications of similar sensitivity.
    Applications(Saba),
    /// NetShare, group allocation: each service has a queue with its weight at every port.
    Services,
}

/// Parameters of Saba.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saba {
    /// Settings of the controller.
    pub settings: controller::Settings,
    /// Number of queues of each link in each direction.
    pub queues: u16,
}

impl Default for Saba {
    /// Saba, section 5.3: the 8 priority levels of Ethernet, and 8 queues, as many as switches have. Saba's
    /// applications may use the whole link.
    fn default() -> Saba {
        let levels = NonZeroU16::new(8).expect("8 is not 0");
        Saba { settings: controller::Settings { c_saba: Fraction::ALL, floor: FLOOR, levels }, queues: 8 }
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
    pub ports: Vec<End>,
}

/// The other end of a switch's cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A host, by number.
    Host(u32),
    /// Another switch, by its index, from 0.
    Switch(u32),
}

/// Certificate files, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The coordinator's certificate, and the intermediate certificates up to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates of the authorities that sign clients' certificates.
    pub clients: PathBuf,
}

/// Limits for clients of the API.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Maximum length of a request's body.
    pub body: Bytes,
    /// Maximum duration of a request, including its body.
    pub request: Time,
    /// Maximum number of concurrent connections.
    pub connections: u32,
    /// Maximum number of concurrent connections of one address that have not proven an identity.
    pub per_address: u32,
    /// Maximum number of concurrent connections of one proven identity.
    pub per_identity: u32,
    /// Maximum number of events that wait for a slow client.
    pub events: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        let body = Bytes::new(4e6).expect("4 MB is a valid size");
        let request = Time::new(10.0).expect("10 s is a valid time");
        Limits { body, request, connections: 1024, per_address: 512, per_identity: 512, events: 1024 }
    }
}

impl Limits {
    /// Maximum number of concurrent connections over a limit, which can only request the coordinator's health.
    const PROBES: usize = 64;

    /// The limits of the API's connections.
    pub fn quota(&self) -> Quota {
        Quota {
            total: self.connections as usize,
            per_address: self.per_address as usize,
            per_identity: self.per_identity as usize,
            probes: Limits::PROBES,
        }
    }
}

impl Config {
    /// IPv4 addresses at which UDP is throttled, with the host's number.
    pub fn addresses_of_udp(&self) -> impl Iterator<Item = (Ipv4Addr, u32)> {
        self.addresses.iter().filter_map(|(address, &host)| match address {
            IpAddr::V4(address) => Some((*address, host)),
            IpAddr::V6(_) => None,
        })
    }

    fn name_of(&self, end: End) -> &str {
        match end {
            End::Host(host) => &self.hosts[host as usize].name,
            End::Switch(switch) => &self.switches[switch as usize].name,
        }
    }
}

/// Reads the configuration at `path`.
///
/// # Errors
/// [`TraceError`]: the first error in the file, with its place, or the file cannot be read.
pub fn read(path: &Path) -> Result<Config, TraceError> {
    fields::open_in_folder(path, |input, name, folder| {
        let text = fields::read_text(input, name, MAX_FILE_BYTES)?;
        parse(&text, name, folder)
    })
}

/// Parses a configuration. `name` is its name in errors, and paths in it are relative to `folder`.
///
/// # Errors
/// The first error in `text`, with its place, or a file that it names cannot be read.
pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Config, TraceError> {
    const STORE: &str = "the file of the durable store";
    let source = Source { file: name, text };
    let table = fields::parse(source)?;
    let mut all = fields::versioned(source, table.get_ref(), MAGIC, VERSION)?;
    let store = all.need("store", STORE)?;
    let store = folder.join(all.text(&store, STORE)?);
    let settings = settings(&mut all)?;
    let asked = all.need("policy", POLICY)?;
    let (listen, tls, limits) = (all.need("listen", LISTEN)?, all.maybe("tls"), all.maybe("limits"));
    let (queues, saba) = (all.maybe("queues"), all.maybe("saba"));
    let (throttling, allocator) = (all.maybe("throttling"), all.maybe("allocator"));
    let (topology, host, service) = (all.maybe("topology"), all.maybe("host"), all.maybe("service"));
    let (switch, address_of) = (all.maybe("switch"), all.maybe("address"));
    all.finish()?;
    let (hosts, network) = hosts::hosts(&all, topology, host, folder)?;
    let numbers = (0u32..).zip(&hosts).map(|(number, host)| (&*host.name, number)).collect();
    let switches =
        switch.map(|value| switches::switches(&all, &value, &numbers, network.as_ref())).transpose()?;
    let addresses = address_of.map(|value| hosts::addresses(&all, &value, &numbers)).transpose()?;
    let (switches, addresses) = (switches.unwrap_or_default(), addresses.unwrap_or_default());
    let allocates = allocator.as_ref().map(|value| all.truth(value)).transpose()?.unwrap_or_default();
    let services = service.as_ref().map(|value| read_services(&all, value, allocates)).transpose()?;
    let ReadServices { names, weights, excess } = services.unwrap_or_default();
    let throttling = throttles(&all, throttling, &addresses, settings.interval)?;
    let policy = policy(&all, &asked, folder, &names)?;
    let queues = queueing(&all, queues, saba, &names)?;
    if let Some(value) = allocator.filter(|_| allocates) {
        check_allocator(&all, &value, queues, settings.interval)?;
    }
    let tls = tls.map(|value| read_tls(&all, &value, folder)).transpose()?;
    let mut listen = all.table(&listen, "listen ".to_owned())?;
    let (agents, api) = (address(&mut listen, "agents", &tls)?, address(&mut listen, "api", &tls)?);
    listen.finish()?;
    let (limits, settings) = match limits {
        Some(value) => read_limits(&all, &value, settings)?,
        None => (Limits::default(), settings),
    };
    Ok(Config {
        store,
        agents,
        api,
        tls,
        hosts,
        switches,
        addresses,
        names,
        weights,
        policy,
        settings,
        queues,
        allocator: allocates,
        excess,
        throttling,
        limits,
    })
}

const LISTEN: &str = "a table with the addresses `agents` and `api`";
const POLICY: &str = "a policy with its parameters, such as \"saath:d=4\", or \"tree:FILE\"";

/// Reads the keys of the control plane's parameters.
fn settings(fields: &mut Fields<'_>) -> Result<Settings, TraceError> {
    let default = Settings::default();
    let interval = time(fields, "interval", 0.001..=10.0, "a time from 1ms to 10s", default.interval)?;
    // A host that misses one order must receive the next one within its lease.
    let lease = time(
        fields,
        "lease",
        2.0 * interval..=MAX_LEASE.as_secs_f64(),
        "a time from two intervals to 60s",
        default.lease.max(10.0 * interval).min(MAX_LEASE.as_secs_f64()),
    )?;
    let keep = time(fields, "keep-completed", 0.0..=1e6, "a time of at most 277h", default.keep)?;
    let reserve = match fields.maybe("reserve") {
        None => default.reserve,
        Some(value) => {
            let part = fields.float(&value)?;
            if !(0.001..=0.5).contains(&part) {
                return Err(fields.wrong(&value, "a part of every link, from 0.001 to 0.5"));
            }
            part
        }
    };
    Ok(Settings { interval, lease, reserve, keep, ..default })
}

/// Reads a time, in seconds; errors describe its range as `expected`.
fn time(
    fields: &mut Fields<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<f64>,
    expected: &str,
    default: f64,
) -> Result<f64, TraceError> {
    let Some(value) = fields.maybe(key) else { return Ok(default) };
    let time = fields.read_time(&value)?.get();
    if range.contains(&time) { Ok(time) } else { Err(fields.wrong(&value, expected)) }
}

/// Reads whether UDP is throttled. Throttling needs IPv4 addresses of senders, and orders as frequent as measurements.
fn throttles(
    fields: &Fields<'_>,
    value: Option<Value<'_>>,
    addresses: &BTreeMap<IpAddr, u32>,
    interval: f64,
) -> Result<bool, TraceError> {
    let Some(value) = value else { return Ok(false) };
    if !fields.truth(&value)? {
        return Ok(false);
    }
    if !addresses.keys().any(IpAddr::is_ipv4) {
        let expected = "false, or IPv4 addresses of hosts in `[address]`";
        return Err(fields.wrong(&value, expected));
    }
    if interval > PERIOD.get() {
        return Err(fields.wrong(&value, "false, or an `interval` of at most 50ms"));
    }
    Ok(true)
}

/// Checks the requirements of the allocator: queues of services, and orders as frequent as measurements of demand.
fn check_allocator(
    fields: &Fields<'_>,
    value: &Value<'_>,
    queues: Queueing,
    interval: f64,
) -> Result<(), TraceError> {
    if queues != Queueing::Services {
        return Err(fields.wrong(value, "false, or `queues = \"services\"`, since services share by weight"));
    }
    if interval > PERIOD.get() {
        return Err(fields.wrong(value, "false, or an `interval` of at most 50ms"));
    }
    Ok(())
}

fn check_name(fields: &Fields<'_>, name: &str) -> Result<(), TraceError> {
    if Names::is_name(name) { Ok(()) } else { Err(fields.wrong_at(name, name, Names::RULE)) }
}

/// Services with their applications and weights.
#[derive(Default)]
struct ReadServices {
    names: Names,
    weights: BTreeMap<String, f64>,
    excess: BTreeMap<String, f64>,
}

fn read_services(
    fields: &Fields<'_>,
    value: &Value<'_>,
    allocates: bool,
) -> Result<ReadServices, TraceError> {
    const APPLICATIONS: &str = "a list of names";
    let (mut names, mut weights, mut excess) = (Names::empty(), BTreeMap::new(), BTreeMap::new());
    for (name, mut service) in fields.tables(value, |name| format!("service {name} "))? {
        check_name(&service, name)?;
        if let Some(value) = service.maybe("weight") {
            let weight = service.float(&value)?;
            if !(MIN_WEIGHT..=MAX_WEIGHT).contains(&weight) {
                let expected = format!("a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}");
                return Err(service.wrong(&value, &expected));
            }
            weights.insert(name.to_owned(), weight);
        }
        if let Some(value) = service.maybe("excess") {
            let part = service.float(&value)?;
            if !allocates {
                return Err(
                    service.wrong(&value, "none, or `allocator = true`, since queues do not go by it")
                );
            }
            if part != 0.0 && !(MIN_WEIGHT..=MAX_WEIGHT).contains(&part) {
                let expected = format!("0, or a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}");
                return Err(service.wrong(&value, &expected));
            }
            excess.insert(name.to_owned(), part);
        }
        let applications = match service.maybe("applications") {
            None => Vec::new(),
            Some(value) => service.list(&value, APPLICATIONS)?,
        };
        service.finish()?;
        let mut number = |application: &str| {
            let most = format!("at most {} applications in all", Names::MAX_APPLICATIONS);
            names
                .number(name, application)
                .ok_or_else(|| service.wrong_at("applications", application, &most))
        };
        // The default application, for coflows that name none.
        number(Names::DEFAULT)?;
        for value in applications {
            let application = service.text(&value, "a name")?;
            if !Names::is_name(application) {
                return Err(service.wrong(&value, Names::RULE));
            }
            number(application)?;
        }
    }
    if names.services() == 0 {
        return Err(fields.wrong(value, "at least one `[service.NAME]`"));
    }
    Ok(ReadServices { names, weights, excess })
}

fn policy(
    fields: &Fields<'_>,
    value: &Value<'_>,
    folder: &Path,
    names: &Names,
) -> Result<Chosen, TraceError> {
    let spec = fields.text(value, POLICY)?;
    let tables = |file: &str| sensitivity::read(&folder.join(file));
    let chosen = match spec.strip_prefix(TREE) {
        None => Chosen::new(Asked::Policy(spec.to_owned()), "policy", &tables, names),
        Some("" | "-") => return Err(fields.wrong(value, "the name of a file after `tree:`")),
        Some(file) => {
            let path = folder.join(file);
            let text =
                fields::open(&path, |input, name| fields::read_text(input, name, tree::MAX_FILE_BYTES))?;
            // Sensitivity tables of a tree are relative to the tree's folder.
            let beside = path.parent().unwrap_or(folder);
            let tables = |file: &str| sensitivity::read(&beside.join(file));
            Chosen::new(Asked::Tree(text), &path.display().to_string(), &tables, names)
        }
    };
    chosen.map_err(|error| match error {
        PolicyError::Params(error) => fields.wrong(value, &format!("{POLICY} ({error})")),
        PolicyError::Tree(error) => error,
    })
}

fn queueing(
    fields: &Fields<'_>,
    queues: Option<Value<'_>>,
    saba: Option<Value<'_>>,
    names: &Names,
) -> Result<Queueing, TraceError> {
    const EXPECTED: &str = "\"applications\" or \"services\"";
    let by = queues.as_ref().map(|value| fields.text(value, EXPECTED)).transpose()?;
    match (by, saba) {
        (None | Some("applications"), saba) => {
            let saba = saba.map(|value| read_saba(fields, &value)).transpose()?;
            Ok(Queueing::Applications(saba.unwrap_or_default()))
        }
        (Some("services"), None) if names.services() <= MAX_CLASSES => Ok(Queueing::Services),
        (Some("services"), None) => {
            let found = names.services().to_string();
            let expected = format!("at most {MAX_CLASSES} services, since queues go by them");
            Err(fields.wrong_at("service", &found, &expected))
        }
        (Some("services"), Some(saba)) => Err(fields.wrong(&saba, "none, since queues go by services")),
        (Some(other), _) => Err(fields.wrong_at("queues", other, EXPECTED)),
    }
}

fn read_saba(fields: &Fields<'_>, value: &Value<'_>) -> Result<Saba, TraceError> {
    let mut own = fields.table(value, "saba ".to_owned())?;
    let default = Saba::default();
    let mut count = |key: &'static str| -> Result<Option<NonZeroU16>, TraceError> {
        const EXPECTED: &str = "a whole number from 2 to 63";
        let Some(value) = own.maybe(key) else { return Ok(None) };
        let count = u16::try_from(own.whole(&value, EXPECTED)?).ok().filter(|count| (2..=63).contains(count));
        let count = count.and_then(NonZeroU16::new).ok_or_else(|| own.wrong(&value, EXPECTED))?;
        Ok(Some(count))
    };
    let levels = count("levels")?.unwrap_or(default.settings.levels);
    let queues = count("queues")?.map_or(default.queues, NonZeroU16::get);
    let c_saba = match own.maybe("share") {
        None => default.settings.c_saba,
        Some(value) => Fraction::new(own.float(&value)?)
            .map_err(|_| own.wrong(&value, "a part of every link, above 0 and up to 1"))?,
    };
    own.finish()?;
    Ok(Saba { settings: controller::Settings { c_saba, levels, ..default.settings }, queues })
}

fn read_tls(fields: &Fields<'_>, value: &Value<'_>, folder: &Path) -> Result<TlsFiles, TraceError> {
    const FILE: &str = "a file in PEM";
    let mut tls = fields.table(value, "tls ".to_owned())?;
    let mut file = |key: &'static str| -> Result<PathBuf, TraceError> {
        let value = tls.need(key, FILE)?;
        Ok(folder.join(tls.text(&value, FILE)?))
    };
    let files = TlsFiles { certificate: file("certificate")?, key: file("key")?, clients: file("clients")? };
    tls.finish()?;
    Ok(files)
}

fn address(
    fields: &mut Fields<'_>,
    key: &'static str,
    tls: &Option<TlsFiles>,
) -> Result<SocketAddr, TraceError> {
    const ADDRESS: &str = "an address and a port, such as \"127.0.0.1:7700\"";
    let value = fields.need(key, ADDRESS)?;
    let address: SocketAddr =
        fields.text(&value, ADDRESS)?.parse().map_err(|_| fields.wrong(&value, ADDRESS))?;
    if tls.is_none() && !address.ip().is_loopback() {
        let expected = "an address of this host only, such as \"127.0.0.1:7700\", or a table `[tls]`";
        return Err(fields.wrong(&value, expected));
    }
    Ok(address)
}

fn read_limits(
    fields: &Fields<'_>,
    value: &Value<'_>,
    settings: Settings,
) -> Result<(Limits, Settings), TraceError> {
    let mut own = fields.table(value, "limits ".to_owned())?;
    let default = Limits::default();
    let mut count = |key: &'static str, default: usize, most: u32| -> Result<u32, TraceError> {
        let Some(value) = own.maybe(key) else { return Ok(default as u32) };
        let expected = format!("a whole number from 1 to {most}");
        let count = own.whole(&value, &expected)?;
        if (1..=most).contains(&count) { Ok(count) } else { Err(own.wrong(&value, &expected)) }
    };
    let most_coflows = count("coflows", settings.most_coflows, 10_000_000)? as usize;
    let most_flows = count("flows", settings.most_flows, 100_000_000)? as usize;
    let connections = count("connections", default.connections as usize, 1_000_000)?;
    let per_address = count("connections-per-address", default.per_address as usize, 1_000_000)?;
    let per_identity = count("connections-per-identity", default.per_identity as usize, 1_000_000)?;
    let events = count("events", default.events as usize, 1_000_000)?;
    let body = match own.maybe("body") {
        None => default.body,
        Some(value) => {
            let body = own.read_bytes(&value)?;
            if !(1e3..=1e9).contains(&body.get()) {
                return Err(own.wrong(&value, "a size from 1kB to 1GB"));
            }
            body
        }
    };
    let seconds =
        time(&mut own, "request", 0.1..=600.0, "a time from 100ms to 10min", default.request.get())?;
    let request = Time::new(seconds).expect("a time from 100 ms to 10 min is valid");
    own.finish()?;
    let settings = Settings { most_coflows, most_flows, ..settings };
    Ok((Limits { body, request, connections, per_address, per_identity, events }, settings))
}

impl fmt::Display for Config {
    /// A summary of the configuration, for operators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |value: f64| Time::new(value).unwrap_or(Time::ZERO);
        let Settings { interval, lease, reserve, keep, most_coflows, most_flows, .. } = self.settings;
        match self.policy.asked() {
            Asked::Policy(spec) => writeln!(f, "policy    {spec}")?,
            Asked::Tree(_) => writeln!(f, "policy    a tree")?,
        }
        writeln!(f, "interval  {}, leases of {}", seconds(interval), seconds(lease))?;
        writeln!(f, "reserve   {reserve} of every link, for flows without a rate")?;
        writeln!(f, "keep      completed coflows for {}", seconds(keep))?;
        writeln!(f, "store     {}", self.store.display())?;
        let protected = if self.tls.is_some() { "mutual TLS" } else { "plain text, on this host only" };
        writeln!(f, "agents    {} ({protected})", self.agents)?;
        writeln!(f, "api       {} ({protected})", self.api)?;
        if let Some(TlsFiles { certificate, key, clients }) = &self.tls {
            let (certificate, key, clients) = (certificate.display(), key.display(), clients.display());
            writeln!(f, "tls       certificate {certificate}, key {key}, clients {clients}")?;
        }
        let Limits { body, request, connections, per_address, per_identity, events } = self.limits;
        writeln!(f, "limits    {most_coflows} coflows, {most_flows} flows")?;
        writeln!(
            f,
            "          {connections} connections, {per_address} an address, {per_identity} an identity"
        )?;
        writeln!(f, "          {body} and {request} a request, {events} events")?;
        match self.queues {
            Queueing::Applications(Saba {
                settings: controller::Settings { c_saba, levels, .. },
                queues,
            }) => {
                let share = c_saba.get();
                writeln!(f, "saba      {levels} priority levels in {queues} queues, {share} of every link")?;
            }
            Queueing::Services => writeln!(f, "queues    one for each service, at every port")?,
        }
        if self.allocator {
            writeln!(f, "allocator connections that hosts find, by services")?;
        }
        if self.throttling {
            writeln!(f, "throttle  UDP, to little more than what arrives of it")?;
        }
        for service in 0..self.names.services() as u32 {
            let name = self.names.service(service);
            let weight = match self.weights.get(name) {
                Some(weight) => format!("weight {weight}"),
                None if self.queues == Queueing::Services => "weight 1 in queues".to_owned(),
                None => "the policy's weight".to_owned(),
            };
            let excess = self.excess.get(name).map(|part| format!(", excess {part}")).unwrap_or_default();
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
        let by_weight = self.queues == Queueing::Services || self.policy.heeds_weights();
        if !self.weights.is_empty() && !by_weight {
            writeln!(f, "note      this policy does not go by the weights of services")?;
        }
        Ok(())
    }
}
