//! Reads the state of an interface: the output of `ip`, and the speed.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use weir_core::units::Rate;

use super::actual_queues::ParseError;
use super::error::QueueError;
use super::interface::Interface;
use crate::batch::run_tool;
use crate::htb::PAYLOAD_BYTES;

/// Headers of IP and TCP with time stamps.
const IP_AND_TCP_HEADER_BYTES: u32 = 52;

/// The state of an existing interface (`ip -d link show`).
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// The interface's number. A deleted and recreated interface has another one.
    pub index: u32,
    /// The name now: an interface can be renamed.
    pub name: Interface,
    /// Whether the interface is up and has a carrier.
    pub is_up: bool,
    /// The maximum size of an IP packet, in bytes.
    pub mtu: u32,
    /// The maximum number of segments of a packet before the card or its driver splits it.
    pub segments: u32,
    /// The setting that limits `segments`, if the size of a packet does not.
    pub gso_max_segs: u32,
    /// The speed; none if the driver does not report one, or `/sys` belongs to another network namespace.
    pub speed: Option<Rate>,
    /// Another interface that its packets pass, too: the card of a VLAN or macvlan, or the bond or team of a port.
    pub stacked_with: Option<Interface>,
    /// Whether it is a card, whose speed is measured; the drivers of virtual devices report a nominal one.
    pub is_physical: bool,
}

#[derive(Deserialize)]
struct Link {
    ifindex: u32,
    ifname: String,
    #[serde(default)]
    address: String,
    flags: Vec<String>,
    mtu: u32,
    gso_max_size: u32,
    gso_max_segs: u32,
    link: Option<String>,
    master: Option<String>,
    #[serde(default)]
    linkinfo: LinkInfo,
}

#[derive(Deserialize, Default)]
struct LinkInfo {
    info_kind: Option<String>,
    info_slave_kind: Option<String>,
}

impl Link {
    fn stacked_with(&self) -> Option<Interface> {
        let name = match (self.linkinfo.info_kind.as_deref(), self.linkinfo.info_slave_kind.as_deref()) {
            (_, Some("bond" | "team")) => self.master.as_ref(),
            (Some("vlan" | "macvlan" | "macvtap"), _) => self.link.as_ref(),
            // The link of a veth is its peer.
            _ => None,
        };
        name?.parse().ok()
    }
}

impl Device {
    /// The maximum number of segments of a packet under another limit. A packet is at least as large as the MTU.
    pub fn limited_segments(&self, max_segments: u32) -> u32 {
        self.segments.min(max_segments.max(mtu_segments(self.mtu)))
    }

    /// Reads the state of an interface by its name. Starts `ip` once.
    ///
    /// # Errors
    /// If no interface has the name, or `ip` prints something unexpected.
    pub fn read(name: &Interface) -> Result<Device, QueueError> {
        let text = run_tool("ip", &["-d", "-j", "link", "show", "dev", &name.to_string()])?;
        let mut device = Device::parse(&text)?;
        let address = parse_link(&text)?.address;
        let folder = Path::new("/sys/class/net").join(name.to_string());
        device.speed = read_speed(&folder, &device, &address);
        device.is_physical = device.speed.is_some() && folder.join("device").exists();
        Ok(device)
    }

    /// Parses the output of `ip -d -j link show dev NAME`.
    fn parse(text: &str) -> Result<Device, ParseError> {
        let link = parse_link(text)?;
        let name = link.ifname.parse().map_err(|_| parse_error(text))?;
        let by_offload = link.gso_max_segs.min(link.gso_max_size.div_ceil(PAYLOAD_BYTES));
        let has_flag = |flag: &str| link.flags.iter().any(|known| known == flag);
        Ok(Device {
            index: link.ifindex,
            name,
            is_up: has_flag("UP") && has_flag("LOWER_UP"),
            mtu: link.mtu,
            segments: by_offload.max(mtu_segments(link.mtu)),
            gso_max_segs: link.gso_max_segs,
            stacked_with: link.stacked_with(),
            speed: None,
            is_physical: false,
        })
    }
}

fn mtu_segments(mtu: u32) -> u32 {
    mtu.saturating_sub(IP_AND_TCP_HEADER_BYTES).div_ceil(PAYLOAD_BYTES).max(1)
}

fn parse_link(text: &str) -> Result<Link, ParseError> {
    let links: Vec<Link> = serde_json::from_str(text).map_err(|_| parse_error(text))?;
    links.into_iter().next().ok_or_else(|| parse_error(text))
}

fn parse_error(text: &str) -> ParseError {
    ParseError {
        line: text.chars().take(200).collect(),
        expected: "a link with its name, flags, mtu, gso_max_size and gso_max_segs",
    }
}

/// Reads the speed in a folder of `/sys/class/net`, if it describes the same interface: `/sys` may belong to another network
/// namespace, whose interfaces can have the same name and number but not the same address.
fn read_speed(folder: &Path, device: &Device, address: &str) -> Option<Rate> {
    let read_file =
        |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    if read_file("ifindex")? != device.index.to_string() || read_file("address")? != address {
        return None;
    }
    // In Mbit/s; -1 if the driver does not report one.
    let megabits: f64 = read_file("speed")?.parse().ok()?;
    Rate::new(megabits * 1e6 / 8.0).filter(|rate| rate.get() > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip_link_output(flags: &str, mtu: u32, size: u32, segments: u32) -> String {
        format!(
            r#"[{{"ifindex":7,"ifname":"eth0","address":"02:00:00:00:00:01","flags":[{flags}],"mtu":{mtu},"gso_max_size":{size},"gso_max_segs":{segments}}}]"#
        )
    }

    #[test]
    fn an_interface_is_up_with_a_carrier_only() {
        let is_up = |flags| Device::parse(&ip_link_output(flags, 1500, 65536, 65535)).unwrap().is_up;
        assert!(is_up(r#""BROADCAST","UP","LOWER_UP""#));
        assert!(!is_up(r#""NO-CARRIER","BROADCAST","UP""#));
        assert!(!is_up(r#""BROADCAST""#));
    }

    /// Attributes as `ip -d -j link show` prints them, for kinds of interfaces that the kernel of the tests may lack.
    #[test]
    fn interfaces_name_the_one_that_their_packets_also_pass() {
        let stacked_with = |attributes: &str| {
            let text = ip_link_output("", 1500, 65536, 65535).replace("}]", &format!(",{attributes}}}]"));
            Device::parse(&text).unwrap().stacked_with.map(|name| name.to_string())
        };
        let vlan = r#""link":"eth1","linkinfo":{"info_kind":"vlan","info_data":{"protocol":"802.1Q","id":101,"flags":["REORDER_HDR"]}}"#;
        assert_eq!(stacked_with(vlan).as_deref(), Some("eth1"));
        let port = r#""master":"bond0","linkinfo":{"info_slave_kind":"bond","info_slave_data":{"state":"ACTIVE","mii_status":"UP"}}"#;
        assert_eq!(stacked_with(port).as_deref(), Some("bond0"));
        for other in [
            r#""linkinfo":{"info_kind":"bond","info_data":{"mode":"802.3ad","miimon":100}}"#,
            r#""link":"eth1","linkinfo":{"info_kind":"veth"}"#,
            r#""master":"br0","linkinfo":{"info_kind":"veth","info_slave_kind":"bridge"}"#,
            r#""link":null,"linkinfo":{"info_kind":"wireguard"}"#,
            r#""link_index":7,"link_netnsid":0,"linkinfo":{"info_kind":"vlan"}"#,
            r#""link":"eth1","linkinfo":{"info_kind":"vxlan","info_data":{"id":5,"port":4789}}"#,
        ] {
            assert_eq!(stacked_with(other), None, "{other}");
        }
    }

    #[test]
    fn segments_cover_the_largest_packet_before_and_after_offload() {
        let segments =
            |mtu, size, count| Device::parse(&ip_link_output("", mtu, size, count)).unwrap().segments;
        assert_eq!(segments(1500, 65536, 65535), 46);
        assert_eq!(segments(1500, 65536, 1), 1);
        assert_eq!(segments(9000, 65536, 1), 7);
        assert_eq!(segments(68, 0, 0), 1);
    }

    #[test]
    fn malformed_ip_output_is_refused() {
        for text in ["", "[]", "{}", "[{\"ifindex\":7}]", "Device \"eth0\" does not exist."] {
            assert!(Device::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn speed_is_read_from_the_same_interface_only() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::parse(&ip_link_output("", 1500, 65536, 65535)).unwrap();
        let write = |file: &str, text: &str| {
            fs::write(folder.path().join(file), text).unwrap();
        };
        let read = || read_speed(folder.path(), &device, "02:00:00:00:00:01");
        assert_eq!(read(), None);
        write("ifindex", "7\n");
        write("address", "02:00:00:00:00:01\n");
        write("speed", "10000\n");
        assert_eq!(read(), Rate::new(1.25e9));
        write("speed", "-1\n");
        assert_eq!(read(), None);
        write("speed", "10000\n");
        write("address", "02:00:00:00:00:02\n");
        assert_eq!(read(), None);
    }
}
