//! Reads the overlay: relays, the links between their regions, and the policy for coflows between regions.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use weir_core::model::WideArea;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::units::{Rate, Time};
use weir_core::wide_area_policy::WideAreaPolicy;
use weir_fields::{FileError, TableFields, Value, expectation};
use weir_proto::relay::{MAX_RELAY_NETWORKS, MAX_RELAYS, RegionPair};
use weir_proto::{Network, NetworkTable};

use super::check_name;

/// Maximum number of measurements of a link that count.
pub const MAX_LINK_SAMPLES: usize = 1024;

/// An overlay of relays between regions.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlay {
    /// The policy, with its parameters: [`WideAreaPolicy::new`] accepts it.
    pub policy: String,
    /// Maximum fraction of a coflow's bytes that uses detours.
    pub max_detoured: f64,
    /// Relays in order of their numbers.
    pub relays: Vec<Relay>,
    /// Numbers of the relays by name.
    pub numbers: BTreeMap<String, u16>,
    /// Networks of the hosts that relays serve. All relays of a network are in one region.
    pub networks: NetworkTable<u16>,
    /// Regions, and the configured bandwidth of each link.
    pub area: WideArea,
}

/// A relay.
#[derive(Debug, Clone, PartialEq)]
pub struct Relay {
    /// Name in the certificate and in the configuration of the relay.
    pub name: String,
    /// Number of its region.
    pub region: u16,
    /// Where it accepts other relays.
    pub address: RelayAddress,
    /// Networks of the hosts that it serves.
    pub networks: Vec<Network>,
    /// The rate at which its host sends over all links; none: unlimited.
    pub rate: Option<Rate>,
}

/// Where a relay accepts other relays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayAddress {
    /// An IP address and a port.
    Fixed(SocketAddr),
    /// A name of the DNS, and a port. The name is resolved while the coordinator runs.
    Name {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
}

impl RelayAddress {
    /// The address with this text, `IP:PORT` or `NAME:PORT` with a port above 0; `None` for other texts.
    fn parse(text: &str) -> Option<RelayAddress> {
        /// The maximum length of a name in the DNS (RFC 1035, section 2.3.4).
        const MAX_NAME: usize = 253;
        if let Ok(address) = text.parse::<SocketAddr>() {
            return (address.port() != 0).then_some(RelayAddress::Fixed(address));
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|&port| port != 0)?;
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        // The last part of a name is never a number, but that of an incomplete IP address is.
        let last = host.trim_end_matches('.').rsplit('.').next()?;
        let is_name = host.len() <= MAX_NAME
            && host.chars().all(is_allowed)
            && last.starts_with(|c: char| c.is_ascii_alphabetic());
        is_name.then(|| RelayAddress::Name { host: host.to_owned(), port })
    }
}

impl fmt::Display for RelayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayAddress::Fixed(address) => write!(f, "{address}"),
            RelayAddress::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl Overlay {
    /// Name of a relay's region.
    pub fn region_of(&self, relay: u16) -> &str {
        &self.area.regions()[usize::from(self.relays[usize::from(relay)].region)]
    }

    /// The link between the regions of two relays; `None` in one region.
    pub fn link_between(&self, source: u16, destination: u16) -> Option<u32> {
        let region = |relay: u16| usize::from(self.relays[usize::from(relay)].region);
        self.area.link_between(region(source), region(destination))
    }

    /// The link between two regions; `None` in one region.
    pub fn link_of(&self, pair: RegionPair) -> Option<u32> {
        self.area.link_between(pair.source.into(), pair.destination.into())
    }

    /// For each region, the seconds in which a byte leaves it at the sum of the rates of its relays; 0 if a relay has no rate.
    pub fn interface_seconds_per_byte(&self) -> Vec<f64> {
        let mut rates = vec![0.0; self.area.regions().len()];
        for relay in &self.relays {
            rates[usize::from(relay.region)] += relay.rate.map_or(f64::INFINITY, Rate::get);
        }
        rates.into_iter().map(f64::recip).collect()
    }

    /// The number of the region of an end of a flow, which is an address or the name of a region.
    pub fn region_of_end(&self, end: &str) -> Option<u16> {
        match end.parse::<IpAddr>() {
            // All relays of a network are in one region.
            Ok(address) => {
                let relay = self.networks.owners_of(address).first()?;
                Some(self.relays[usize::from(*relay)].region)
            }
            Err(_) => {
                (0..).zip(self.area.regions()).find(|(_, region)| *region == end).map(|(number, _)| number)
            }
        }
    }
}

impl fmt::Display for Overlay {
    /// A summary of the overlay, for operators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "overlay   {}, at most {} of a coflow's bytes on detours",
            self.policy, self.max_detoured
        )?;
        for (number, Relay { name, address, networks, rate, .. }) in (0..).zip(&self.relays) {
            let networks: Vec<String> = networks.iter().map(Network::to_string).collect();
            let rate = rate.map_or(String::new(), |rate| format!(", sends at {rate}"));
            writeln!(
                f,
                "relay     {name} in {}: {address}{rate}, serves {}",
                self.region_of(number),
                networks.join(", ")
            )?;
        }
        for link in 0..self.area.links() as u32 {
            let (from, to) = self.area.link_ends(link);
            let (regions, samples) = (self.area.regions(), self.area.samples(link));
            match samples {
                [rate] => writeln!(f, "link      {} to {}: {rate}", regions[from], regions[to])?,
                _ => writeln!(f, "link      {} to {}: {} rates", regions[from], regions[to], samples.len())?,
            }
        }
        Ok(())
    }
}

/// Reads the table `[overlay]`.
pub(super) fn read_overlay(fields: &TableFields<'_>, value: &Value<'_>) -> Result<Overlay, FileError> {
    const EXPECTED_POLICY: &str = "a policy for a wide area, such as \"siphon:detours=on:groups=on\"";
    let mut overlay = fields.read_table(value, "overlay ".to_owned())?;
    let policy_value = overlay.required("policy", EXPECTED_POLICY)?;
    let policy = overlay.read_string(&policy_value, EXPECTED_POLICY)?;
    WideAreaPolicy::new(policy).map_err(|error| overlay.value_error(&policy_value, &expectation(error)))?;
    let max_detoured = match overlay.optional("max-detoured") {
        None => 1.0,
        Some(value) => {
            let fraction = overlay.read_number(&value)?;
            if !(0.0..=1.0).contains(&fraction) {
                return Err(overlay.value_error(&value, "a fraction of a coflow's bytes, from 0 to 1"));
            }
            fraction
        }
    };
    let relay_value = overlay.required("relay", "a table `[overlay.relay.NAME]` for each relay")?;
    let link_value = overlay.required("link", "a table `[overlay.link.REGION]` for each region")?;
    overlay.finish()?;
    let (relays, regions, networks) = read_relays(&overlay, &relay_value)?;
    let measurements = read_links(&overlay, &link_value, &regions)?;
    // The controller does not simulate, so the interval between changes of bandwidth is not used.
    let area = WideArea::new(regions, measurements, Time::new(1.0).expect("1 s is a valid time"), 0.0)
        .map_err(|error| overlay.key_error("link", "invalid", &error.to_string()))?;
    let numbers = (0..).zip(&relays).map(|(number, relay)| (relay.name.clone(), number)).collect();
    Ok(Overlay { policy: policy.to_owned(), max_detoured, relays, numbers, networks, area })
}

/// Relays, the names of their regions, and the relays of each network.
type RelayTables = (Vec<Relay>, Vec<String>, NetworkTable<u16>);

/// Reads relays, the names of their regions in the order in which relays name them, and their networks.
fn read_relays(fields: &TableFields<'_>, value: &Value<'_>) -> Result<RelayTables, FileError> {
    const EXPECTED_ADDRESS: &str = "the address or name, and the port above 0, at which the relay accepts other relays, such as \"10.1.0.2:7710\"";
    let (mut relays, mut regions) = (Vec::new(), Vec::<String>::new());
    let mut relay_by_network = NetworkTable::default();
    let tables = fields.read_tables(value, |name| format!("overlay relay {name} "))?;
    if tables.len() > MAX_RELAYS {
        let expected = format!("at most {MAX_RELAYS} relays");
        return Err(fields.key_error("relay", &tables.len().to_string(), &expected));
    }
    for (name, mut relay) in tables {
        check_name(&relay, "name", name)?;
        let region_value = relay.required("region", "the name of a region")?;
        let region = relay.read_string(&region_value, "the name of a region")?;
        check_name(&relay, "region", region)?;
        let address_value = relay.required("address", EXPECTED_ADDRESS)?;
        let address = RelayAddress::parse(relay.read_string(&address_value, EXPECTED_ADDRESS)?)
            .ok_or_else(|| relay.value_error(&address_value, EXPECTED_ADDRESS))?;
        if let Some(other) = relays.iter().find(|other: &&Relay| other.address == address) {
            let expected = format!("an address that no other relay has; `{}` has this address", other.name);
            return Err(relay.value_error(&address_value, &expected));
        }
        let networks = read_networks(&mut relay)?;
        let rate = relay.optional("rate").map(|value| read_bandwidth(&relay, &value)).transpose()?;
        relay.finish()?;
        let number = regions.iter().position(|known| known == region).unwrap_or_else(|| {
            regions.push(region.to_owned());
            regions.len() - 1
        });
        if regions.len() > WideArea::MAX_REGIONS {
            let expected = format!("at most {} regions", WideArea::MAX_REGIONS);
            return Err(relay.value_error(&region_value, &expected));
        }
        for network in &networks {
            let mut others = relay_by_network
                .insert(*network, relays.len() as u16)
                .iter()
                .map(|&other| usize::from(other));
            if others.clone().any(|other| other == relays.len()) {
                let expected = "a network that is listed once";
                return Err(relay.key_error("networks", &network.to_string(), expected));
            }
            if let Some(other) = others.find(|&other| usize::from(relays[other].region) != number) {
                let name = &relays[other].name;
                let expected =
                    format!("a network that no relay of another region serves; `{name}` serves this network");
                return Err(relay.key_error("networks", &network.to_string(), &expected));
            }
        }
        relays.push(Relay { name: name.to_owned(), region: number as u16, address, networks, rate });
    }
    if regions.len() < 2 {
        return Err(fields.value_error(value, "relays in at least two regions"));
    }
    Ok((relays, regions, relay_by_network))
}

pub(super) fn read_networks(relay: &mut TableFields<'_>) -> Result<Vec<Network>, FileError> {
    const EXPECTED: &str = "a list of networks without host bits, such as [\"10.1.0.0/16\"]";
    let value = relay.required("networks", EXPECTED)?;
    let list = relay.read_list(&value, EXPECTED)?;
    if list.is_empty() || list.len() > MAX_RELAY_NETWORKS {
        let expected = format!("1 to {MAX_RELAY_NETWORKS} networks");
        return Err(relay.key_error("networks", &list.len().to_string(), &expected));
    }
    let network = |value: &Value<'_>| {
        relay.read_string(value, EXPECTED)?.parse().map_err(|_| relay.value_error(value, EXPECTED))
    };
    list.iter().map(network).collect()
}

/// Reads the configured bandwidth from each region to each other region.
fn read_links(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    regions: &[String],
) -> Result<Vec<LinkMeasurement>, FileError> {
    let expected_region = format!("a region of a relay: {}", regions.join(", "));
    let number = |table: &TableFields<'_>, name: &str| {
        let number = regions.iter().position(|region| region == name);
        number.ok_or_else(|| table.key_error(name, name, &expected_region))
    };
    let region_fields = fields.read_table(value, "overlay link ".to_owned())?;
    let mut bandwidth: BTreeMap<(usize, usize), Vec<Rate>> = BTreeMap::new();
    for (from_name, links) in fields.read_tables(value, |name| format!("overlay link {name} "))? {
        let from = regions.iter().position(|region| region == from_name);
        let from = from.ok_or_else(|| region_fields.key_error(from_name, from_name, &expected_region))?;
        for (to_name, value) in links.entries() {
            let to = number(&links, to_name)?;
            if from == to {
                return Err(links.key_error(to_name, to_name, "another region"));
            }
            bandwidth.insert((from, to), read_samples(&links, value)?);
        }
    }
    let pairs = (0..regions.len()).flat_map(|from| (0..regions.len()).map(move |to| (from, to)));
    let mut measurement = |(from, to): (usize, usize)| match bandwidth.remove(&(from, to)) {
        Some(samples) => Ok(LinkMeasurement { from, to, samples }),
        None => {
            let expected = format!("`{} = \"RATE\"` in `[overlay.link.{}]`", regions[to], regions[from]);
            Err(fields.key_error("link", "nothing", &expected))
        }
    };
    pairs.filter(|(from, to)| from != to).map(&mut measurement).collect()
}

/// Reads the bandwidth of a link: a rate, or a list of measurements.
fn read_samples<'a>(links: &TableFields<'a>, value: Value<'a>) -> Result<Vec<Rate>, FileError> {
    if !TableFields::is_list(&value) {
        return Ok(vec![read_bandwidth(links, &value)?]);
    }
    let expected = format!("1 to {MAX_LINK_SAMPLES} rates");
    let list = links.read_list(&value, &expected)?;
    if !(1..=MAX_LINK_SAMPLES).contains(&list.len()) {
        return Err(links.value_error(&value, &expected));
    }
    list.iter().map(|value| read_bandwidth(links, value)).collect()
}

/// Reads a rate that links between regions can have.
fn read_bandwidth(fields: &TableFields<'_>, value: &Value<'_>) -> Result<Rate, FileError> {
    let (min, max) = (WideArea::MIN_BANDWIDTH, WideArea::MAX_BANDWIDTH);
    let rate = fields.read_rate(value)?;
    let is_valid = (min.get()..=max.get()).contains(&rate.get());
    is_valid.then_some(rate).ok_or_else(|| fields.value_error(value, &format!("a rate from {min} to {max}")))
}
