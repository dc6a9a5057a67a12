//! Reads the addresses of a host's interfaces, by which other hosts reach it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{SockaddrLike, SockaddrStorage};

use crate::queues::Interface;

/// The addresses of interfaces, sorted, without those of loopback, of one link and of groups. Empty if the kernel refuses.
pub fn read(interfaces: &[Interface]) -> Vec<IpAddr> {
    let Ok(entries) = getifaddrs() else { return Vec::new() };
    let of_interfaces = entries
        .filter(|entry| interfaces.iter().any(|interface| interface.to_string() == entry.interface_name));
    let addresses = of_interfaces.filter_map(|entry| to_ip(entry.address.as_ref()?)).filter(is_reachable);
    addresses.collect::<BTreeSet<IpAddr>>().into_iter().collect()
}

fn to_ip(address: &SockaddrStorage) -> Option<IpAddr> {
    address.family()?;
    let four = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// Whether an address can be that of one host in a network.
fn is_reachable(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => Ipv6Addr::is_unicast_link_local(address),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_loopback_and_of_one_link_are_left_out() {
        let is_reachable = |text: &str| is_reachable(&text.parse().unwrap());
        for address in ["127.0.0.1", "::1", "169.254.0.1", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1"]
        {
            assert!(!is_reachable(address), "{address}");
        }
        assert!(is_reachable("10.0.0.1") && is_reachable("fd00::1") && is_reachable("2001:db8::1"));
    }

    #[test]
    fn loopback_has_no_address_for_other_hosts() {
        assert_eq!(read(&["lo".parse().unwrap()]), Vec::<IpAddr>::new());
    }
}
