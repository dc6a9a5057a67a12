//! Defines IP networks, and tables of their owners: the relay that serves receivers, or the host of pods.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP network: an address without host bits, and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    prefix_length: u8,
}

/// A text that is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a network; expected an address and a prefix length, without host bits, such as \"10.1.0.0/16\"")]
pub struct InvalidNetwork;

impl Network {
    /// The network with this prefix length that contains an address. `None` if the prefix is longer than the address. An IPv4-mapped
    /// IPv6 address counts as IPv4.
    pub fn of(address: IpAddr, prefix_length: u8) -> Option<Network> {
        Some(Network { address: mask(address.to_canonical(), prefix_length)?, prefix_length })
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The length of its prefix.
    pub fn prefix_length(&self) -> u8 {
        self.prefix_length
    }

    /// The network of a text: an address alone, or with the length of a prefix.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse_short(text: &str) -> Result<Network, InvalidNetwork> {
        text.parse::<IpAddr>().map(Network::from).or_else(|_| text.parse())
    }

    /// The network as text, without the prefix length if it has one address.
    pub fn short_text(&self) -> String {
        let is_single = *self == Network::from(self.address);
        if is_single { self.address.to_string() } else { self.to_string() }
    }

    /// Whether all addresses of another network are in this one.
    pub fn contains_network(&self, other: &Network) -> bool {
        self.prefix_length <= other.prefix_length && self.contains(other.address)
    }

    /// Whether an address is in the network. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        Network::of(address, self.prefix_length) == Some(*self)
    }
}

/// The owners of networks: the numbers of relays or hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkTable<T> {
    owners: BTreeMap<Network, Vec<T>>,
    /// The prefix lengths of the networks, falling.
    prefix_lengths: Vec<u8>,
}

impl<T> Default for NetworkTable<T> {
    fn default() -> NetworkTable<T> {
        NetworkTable { owners: BTreeMap::new(), prefix_lengths: Vec::new() }
    }
}

impl<T: Copy + PartialEq> NetworkTable<T> {
    /// Adds an owner to those of a network. Returns the owners that the network had before.
    pub fn insert(&mut self, network: Network, owner: T) -> &[T] {
        if let Err(at) = self.prefix_lengths.binary_search_by(|length| network.prefix_length.cmp(length)) {
            self.prefix_lengths.insert(at, network.prefix_length);
        }
        let owners = self.owners.entry(network).or_default();
        owners.push(owner);
        &owners[..owners.len() - 1]
    }

    /// The owners of an address, in the order of their insertion: those of the network with the longest prefix; none if no network
    /// contains the address. O(prefix lengths x log networks).
    pub fn owners_of(&self, address: IpAddr) -> &[T] {
        let mut networks = self.prefix_lengths.iter().filter_map(|&length| Network::of(address, length));
        networks.find_map(|network| self.owners.get(&network)).map_or(&[], Vec::as_slice)
    }

    /// The owners of networks that share an address with this one, once for each network.
    pub fn owners_of_overlap(&self, network: Network) -> impl Iterator<Item = T> {
        let shorter = self.prefix_lengths.iter().filter(move |&&length| length < network.prefix_length);
        let around =
            shorter.filter_map(move |&length| self.owners.get(&Network::of(network.address, length)?));
        let inside =
            self.owners.range(network..).take_while(move |(known, _)| network.contains_network(known));
        around.chain(inside.map(|(_, owners)| owners)).flatten().copied()
    }

    /// The first owner of an address; none if no network contains the address.
    pub fn owner_of(&self, address: IpAddr) -> Option<T> {
        self.owners_of(address).first().copied()
    }

    /// Removes all networks of an owner.
    pub fn remove_owner(&mut self, owner: T) {
        for owners in self.owners.values_mut() {
            owners.retain(|other| *other != owner);
        }
        self.owners.retain(|_, owners| !owners.is_empty());
        self.prefix_lengths
            .retain(|length| self.owners.keys().any(|network| network.prefix_length == *length));
    }

    /// Replaces the networks of an owner.
    pub fn set_networks(&mut self, owner: T, networks: &[Network]) {
        self.remove_owner(owner);
        for &network in networks {
            self.insert(network, owner);
        }
    }

    /// The networks and their owners, in the order of addresses.
    pub fn iter(&self) -> impl Iterator<Item = (Network, &[T])> {
        self.owners.iter().map(|(&network, owners)| (network, owners.as_slice()))
    }

    /// Whether no network has an owner.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

impl<T: Copy + PartialEq> FromIterator<(IpAddr, T)> for NetworkTable<T> {
    fn from_iter<I: IntoIterator<Item = (IpAddr, T)>>(owners: I) -> NetworkTable<T> {
        let mut table = NetworkTable::default();
        for (address, owner) in owners {
            table.insert(address.into(), owner);
        }
        table
    }
}

/// The address without its host bits. `None` if the prefix is longer than the address.
fn mask(address: IpAddr, prefix_length: u8) -> Option<IpAddr> {
    let prefix_length = u32::from(prefix_length);
    match address {
        IpAddr::V4(address) => {
            let host_bits = 32u32.checked_sub(prefix_length)?;
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(Ipv4Addr::from_bits(address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let host_bits = 128u32.checked_sub(prefix_length)?;
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            Some(Ipv6Addr::from_bits(address.to_bits() & mask).into())
        }
    }
}

impl From<IpAddr> for Network {
    /// The network with this address alone. An IPv4-mapped IPv6 address counts as IPv4.
    fn from(address: IpAddr) -> Network {
        let address = address.to_canonical();
        Network { address, prefix_length: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Network, InvalidNetwork> {
        let (address, length) = text.split_once('/').ok_or(InvalidNetwork)?;
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let is_decimal = !length.starts_with('+') && (length == "0" || !length.starts_with('0'));
        let prefix_length: u8 = length.parse().ok().filter(|_| is_decimal).ok_or(InvalidNetwork)?;
        if address.to_canonical() != address || mask(address, prefix_length) != Some(address) {
            return Err(InvalidNetwork);
        }
        Ok(Network { address, prefix_length })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_prefix_decides_the_owners_of_an_address() {
        let mut table = NetworkTable::default();
        let networks = ["10.0.0.0/8", "10.1.0.0/16", "10.1.0.3/32", "fd00::/8", "fd00:1::/32"];
        for (network, owner) in networks.into_iter().zip(0..) {
            assert!(table.insert(network.parse().unwrap(), owner).is_empty());
        }
        let owners_of = |address: &str| table.owners_of(address.parse().unwrap());
        assert_eq!(owners_of("10.2.0.1"), [0]);
        assert_eq!(owners_of("10.1.0.1"), [1]);
        assert_eq!(owners_of("::ffff:10.1.0.3"), [2]);
        assert_eq!(owners_of("fd00:2::1"), [3]);
        assert_eq!(owners_of("fd00:1::1"), [4]);
        assert!(owners_of("11.0.0.1").is_empty() && owners_of("::1").is_empty());
        assert!(table.insert("0.0.0.0/0".parse().unwrap(), 9).is_empty());
        assert_eq!(table.owners_of("11.0.0.1".parse().unwrap()), [9]);
        assert_eq!(table.insert("10.0.0.0/8".parse().unwrap(), 9), [0]);
        assert_eq!(table.owners_of("10.2.0.1".parse().unwrap()), [0, 9]);
        table.remove_owner(9);
        table.remove_owner(1);
        assert_eq!(table.owner_of("10.1.0.1".parse().unwrap()), Some(0));
        assert_eq!(table.owner_of("11.0.0.1".parse().unwrap()), None);
        assert_eq!(table.iter().count(), 4);
    }

    #[test]
    fn networks_overlap_if_one_contains_the_other() {
        let mut table = NetworkTable::default();
        for (network, owner) in
            ["10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.2.0.0/16", "fd00::/64"].into_iter().zip(0..)
        {
            table.insert(network.parse().unwrap(), owner);
        }
        let overlap = |network: &str| table.owners_of_overlap(network.parse().unwrap()).collect::<Vec<i32>>();
        assert_eq!(overlap("10.1.0.0/16"), [0, 1, 2]);
        assert_eq!(overlap("10.1.1.7/32"), [2, 1, 0]);
        assert_eq!(overlap("10.0.0.0/7"), [0, 1, 2, 3]);
        assert_eq!(overlap("0.0.0.0/0"), [0, 1, 2, 3]);
        assert_eq!(overlap("fd00::1/128"), [4]);
        assert_eq!((overlap("11.0.0.0/8"), overlap("fd01::/64")), (vec![], vec![]));
    }

    #[test]
    fn malformed_networks_are_refused() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "fd00::/129",
            "::ffff:10.0.0.0/104",
        ] {
            assert_eq!(text.parse::<Network>(), Err(InvalidNetwork), "{text}");
        }
        assert_eq!("fd00::/8".parse::<Network>().unwrap().to_string(), "fd00::/8");
    }
}
