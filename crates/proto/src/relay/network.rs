//! Defines IP networks: the receivers that a relay serves.

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
    /// The length of the prefix, in bits. Of two networks that contain an address, the one with the longer prefix applies.
    pub fn prefix_length(&self) -> u8 {
        self.prefix_length
    }

    /// Whether the network contains an address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.prefix_length) == Some(self.address)
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
    fn networks_contain_the_addresses_with_their_prefix() {
        let contains = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.1.0.0/16", "10.1.255.3"));
        assert!(!contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("10.1.0.0/16", "::ffff:10.1.0.1"));
        assert!(contains("0.0.0.0/0", "1.2.3.4"));
        assert!(!contains("0.0.0.0/0", "fd00::1"));
        assert!(contains("10.0.0.1/32", "10.0.0.1"));
        assert!(contains("fd00::/8", "fdff::1"));
        assert!(contains("::/0", "fd00::1"));
        assert!(!contains("fd00::1/128", "fd00::2"));
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
