//! Finds the UDP ports of tunnels. A limit of a tunnel's UDP would hold back the TCP inside, which reacts to losses by itself.

use std::collections::BTreeSet;
use std::io;

use nix::sys::socket::SockProtocol;

use crate::netlink::{self, Attributes, encode_attribute, read_u32};

/// Ports that tunnels use by default or by registration, also those in other network namespaces and in programs: OpenVPN, GTP-U, IPsec,
/// VXLAN (registered, extended, Linux), GUE, Geneve, MPLS and WireGuard.
pub const WELL_KNOWN_PORTS: [u16; 10] = [1194, 2152, 4500, 4789, 4790, 8472, 6080, 6081, 6635, 51820];

/// The request for the list of links, and its attributes (`linux/rtnetlink.h`, `linux/if_link.h`).
const RTM_GETLINK: u16 = 18;
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;

/// The size of `struct ifinfomsg`, and the offset of the interface's number in it.
const IFINFOMSG_BYTES: usize = 16;
const INDEX_OFFSET: usize = 4;

/// The controller of generic netlink, and its attributes (`linux/genetlink.h`).
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const GENL_HEADER_BYTES: usize = 4;

/// The family of WireGuard, and its attributes (`linux/wireguard.h`).
const WG_GENL_NAME: &str = "wireguard";
const WG_GENL_VERSION: u8 = 1;
const WG_CMD_GET_DEVICE: u8 = 0;
const WGDEVICE_A_IFINDEX: u16 = 1;
const WGDEVICE_A_LISTEN_PORT: u16 = 6;

/// What a link says about its tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tunnel {
    /// Its packets have one of these ports.
    Ports(Vec<u16>),
    /// WireGuard, whose port another request returns, by the interface's number.
    WireGuard(u32),
}

/// Reads the ports of the tunnels of the calling thread's network namespace, with the well-known ones. If a request fails, the other
/// ports are returned with its error.
pub fn read_ports() -> (BTreeSet<u16>, io::Result<()>) {
    let mut ports = BTreeSet::from(WELL_KNOWN_PORTS);
    let result = read_tunnels().and_then(|tunnels| {
        let mut wireguard = Vec::new();
        for tunnel in tunnels {
            match tunnel {
                Tunnel::Ports(of_tunnel) => ports.extend(of_tunnel),
                Tunnel::WireGuard(index) => wireguard.push(index),
            }
        }
        if wireguard.is_empty() { Ok(()) } else { read_wireguard_ports(&wireguard, &mut ports) }
    });
    (ports, result)
}

fn read_tunnels() -> io::Result<Vec<Tunnel>> {
    let mut request = vec![0; IFINFOMSG_BYTES];
    request.extend(encode_attribute(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes()));
    let mut tunnels = Vec::new();
    netlink::list(SockProtocol::NetlinkRoute, RTM_GETLINK, &request, |link| {
        tunnels.extend(parse_link(link))
    })?;
    Ok(tunnels)
}

/// The tunnel of a link, in a message of type `RTM_NEWLINK`; none if the link is no tunnel over UDP.
fn parse_link(payload: &[u8]) -> Option<Tunnel> {
    let attributes = Attributes(payload.get(IFINFOMSG_BYTES..)?);
    let information = Attributes(attributes.find(IFLA_LINKINFO)?);
    let kind = information.clone().find(IFLA_INFO_KIND)?;
    // Attributes with a port in network byte order: that of the tunnel, or source and destination of an encapsulation in UDP.
    let port_attributes: &[u16] = match kind.strip_suffix(b"\0").unwrap_or(kind) {
        b"vxlan" => &[15],
        b"geneve" => &[5],
        b"bareudp" => &[1],
        b"ipip" | b"sit" | b"ip6tnl" => &[17, 18],
        b"gre" | b"gretap" | b"erspan" | b"ip6gre" | b"ip6gretap" | b"ip6erspan" => &[16, 17],
        b"wireguard" => return Some(Tunnel::WireGuard(read_u32(payload, INDEX_OFFSET)?)),
        _ => return None,
    };
    let data = Attributes(information.find(IFLA_INFO_DATA)?);
    let ports = data.filter(|(attribute, _)| port_attributes.contains(attribute));
    let ports = ports.filter_map(|(_, value)| Some(u16::from_be_bytes(value.try_into().ok()?)));
    // Without an encapsulation, the ports are 0.
    let ports: Vec<u16> = ports.filter(|&port| port != 0).collect();
    (!ports.is_empty()).then_some(Tunnel::Ports(ports))
}

fn read_wireguard_ports(indexes: &[u32], ports: &mut BTreeSet<u16>) -> io::Result<()> {
    let mut family = None;
    let request = [CTRL_CMD_GETFAMILY, 1, 0, 0];
    netlink::list(SockProtocol::NetlinkGeneric, GENL_ID_CTRL, &request, |message| {
        family = family.or(parse_family(message, WG_GENL_NAME));
    })?;
    let family =
        family.ok_or_else(|| io::Error::other("the kernel does not list the family of WireGuard"))?;
    for index in indexes {
        let mut request = vec![WG_CMD_GET_DEVICE, WG_GENL_VERSION, 0, 0];
        request.extend(encode_attribute(WGDEVICE_A_IFINDEX, &index.to_ne_bytes()));
        netlink::list(SockProtocol::NetlinkGeneric, family, &request, |message| {
            ports.extend(parse_listen_port(message));
        })?;
    }
    Ok(())
}

/// The number of a family of generic netlink, if a message describes the one of this name.
fn parse_family(message: &[u8], name: &str) -> Option<u16> {
    let attributes = Attributes(message.get(GENL_HEADER_BYTES..)?);
    let present = attributes.clone().find(CTRL_ATTR_FAMILY_NAME)?;
    let number = || netlink::read_u16(attributes.find(CTRL_ATTR_FAMILY_ID)?, 0);
    (present.strip_suffix(b"\0").unwrap_or(present) == name.as_bytes()).then(number)?
}

/// The port at which a device of WireGuard listens, and from which it sends; none before the device is up.
fn parse_listen_port(message: &[u8]) -> Option<u16> {
    let attributes = Attributes(message.get(GENL_HEADER_BYTES..)?);
    netlink::read_u16(attributes.find(WGDEVICE_A_LISTEN_PORT)?, 0).filter(|&port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded list of links: two without a tunnel, VXLAN with the port 4444, and another one with the default port.
    const RECORDED: &str = include_str!("../tests/netlink/links.txt");

    /// A message of type `RTM_NEWLINK` about interface 7, as `linux/if_link.h` defines it.
    fn link(kind: &str, data: &[(u16, &[u8])]) -> Vec<u8> {
        let data: Vec<u8> = data.iter().flat_map(|(kind, value)| encode_attribute(*kind, value)).collect();
        let kind = [kind.as_bytes(), b"\0"].concat();
        let information =
            [encode_attribute(IFLA_INFO_KIND, &kind), encode_attribute(IFLA_INFO_DATA, &data)].concat();
        let mut message = vec![0; IFINFOMSG_BYTES];
        message[INDEX_OFFSET] = 7;
        // Attributes before the one that counts: the name, and the MTU.
        message.extend(encode_attribute(3, b"tunnel0\0"));
        message.extend(encode_attribute(4, &1450u32.to_ne_bytes()));
        message.extend(encode_attribute(IFLA_LINKINFO, &information));
        message
    }

    fn ports(kind: &str, data: &[(u16, &[u8])]) -> Vec<u16> {
        match parse_link(&link(kind, data)) {
            Some(Tunnel::Ports(ports)) => ports,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn recorded_links_of_vxlan_have_their_ports() {
        let bytes = RECORDED.lines().filter(|line| !line.starts_with('#')).flat_map(|line| line.split(' '));
        let bytes: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let links: Vec<_> = netlink::Messages(&bytes).map(|message| parse_link(message.payload)).collect();
        let vxlan = |port| Some(Tunnel::Ports(vec![port]));
        assert_eq!(links, [None, None, vxlan(4444), vxlan(8472)]);
    }

    #[test]
    fn devices_have_the_ports_of_their_attributes() {
        assert_eq!(ports("geneve", &[(1, &[42, 0, 0, 0]), (5, &4445u16.to_be_bytes())]), [4445]);
        assert_eq!(ports("bareudp", &[(1, &6635u16.to_be_bytes()), (2, &[0x88, 0x47])]), [6635]);
        let encapsulated = [(17u16, &5555u16.to_be_bytes()[..]), (18, &5556u16.to_be_bytes())];
        assert_eq!(ports("ipip", &encapsulated), [5555, 5556]);
        assert_eq!(ports("gretap", &[(16, &[0, 0]), (17, &5557u16.to_be_bytes())]), [5557]);
        assert_eq!(parse_link(&link("wireguard", &[])), Some(Tunnel::WireGuard(7)));
    }

    #[test]
    fn other_links_and_malformed_ones_are_no_tunnels() {
        // IP-in-IP without an encapsulation in UDP, a bond, a VLAN.
        for (kind, data) in [("ipip", &[(17, &[0, 0][..]), (18, &[0, 0])][..]), ("bond", &[]), ("vlan", &[])]
        {
            assert_eq!(parse_link(&link(kind, data)), None, "{kind}");
        }
        for data in [&[][..], &[(15, &[1][..])], &[(15, &[1, 2, 3])]] {
            assert_eq!(parse_link(&link("vxlan", data)), None, "{data:?}");
        }
        let whole = link("vxlan", &[(15, &[0x11, 0x5c])]);
        for length in 0..whole.len() - 4 {
            assert_eq!(parse_link(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn wireguard_has_the_port_at_which_it_listens() {
        // Messages as `linux/genetlink.h` and `linux/wireguard.h` define them.
        let family = |name: &[u8]| {
            let attributes = [
                encode_attribute(CTRL_ATTR_FAMILY_NAME, name),
                encode_attribute(CTRL_ATTR_FAMILY_ID, &31u16.to_ne_bytes()),
            ];
            [vec![1, 2, 0, 0], attributes.concat()].concat()
        };
        assert_eq!(parse_family(&family(b"wireguard\0"), WG_GENL_NAME), Some(31));
        assert_eq!(parse_family(&family(b"nlctrl\0"), WG_GENL_NAME), None);
        assert_eq!(parse_family(&[1, 2], WG_GENL_NAME), None);
        let device = |port: u16| {
            let attributes = [
                encode_attribute(WGDEVICE_A_IFINDEX, &7u32.to_ne_bytes()),
                encode_attribute(2, b"wg0\0"),
                encode_attribute(WGDEVICE_A_LISTEN_PORT, &port.to_ne_bytes()),
            ];
            [vec![WG_CMD_GET_DEVICE, WG_GENL_VERSION, 0, 0], attributes.concat()].concat()
        };
        assert_eq!(parse_listen_port(&device(40_000)), Some(40_000));
        assert_eq!(parse_listen_port(&device(0)), None);
        assert_eq!(parse_listen_port(&device(40_000)[..20]), None);
    }
}
