//! Sets one TCP at all hosts of a bed of one switch, and the buffers and ECN marks of the switch's ports to the hosts.
//!
//! Routes set the congestion control, so it holds from the first packet of a connection at both of its ends: a receiver with DCTCP answers
//! marks differently from one with another congestion control. Hosts emit single packets (`gso_max_segs 1`): otherwise a queue would drop
//! several at once. A port may send an HTB burst (16 KiB) at once, in addition to its buffer.

use std::io;
use std::process::Command;
use std::{fmt, fs};

use weir_agent::ecn::EcnMarker;
use weir_agent::traffic::TrafficError;

use crate::batch;
use crate::bed::{Bed, BedError};
use crate::congestion::{CongestionControl, CongestionError};
use crate::namespace;
use crate::plan::Node;
use crate::queues::{FRAME_BYTES, HtbClass, max_segments};

/// The TCP of the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// The name of the congestion control, as for [`CongestionControl::new`]; the system's default without.
    pub congestion_control: Option<String>,
    /// The queue length, in packets, from which on the switch's ports set ECN marks. Hosts then support ECN. Without it, the ports set no
    /// marks.
    pub ecn_threshold: Option<u32>,
}

/// Why the TCP of a bed cannot be set or measured.
#[derive(Debug, thiserror::Error)]
pub enum TcpBedError {
    /// The bed could not be changed.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// The counters of a queue could not be read from `tc`.
    #[error("the switch's queue cannot be read: {0}")]
    Queue(String),
    /// ECN could not be set for a namespace.
    #[error("{ECN_SETTING} in {namespace}: {error}")]
    Ecn {
        /// The namespace.
        namespace: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The congestion control cannot be used.
    #[error(transparent)]
    CongestionControl(#[from] CongestionError),
    /// The program that sets ECN marks could not be loaded.
    #[error(transparent)]
    EcnMarker(#[from] TrafficError),
}

/// The kernel setting for the use of ECN by connections.
const ECN_SETTING: &str = "/proc/sys/net/ipv4/tcp_ecn";

/// The packets of a queue since it was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCounts {
    /// Packets that the queue has sent.
    pub sent: u64,
    /// Packets that it has dropped.
    pub dropped: u64,
}

impl PacketCounts {
    /// The packets dropped since another reading, as a fraction of those that arrived.
    pub fn loss_since(self, before: PacketCounts) -> f64 {
        // Another process may have replaced the queue, and with it the counters.
        let [sent, dropped] = [(self.sent, before.sent), (self.dropped, before.dropped)]
            .map(|(after, before)| after.saturating_sub(before));
        dropped as f64 / (sent + dropped).max(1) as f64
    }
}

/// A port of the switch to a host.
#[derive(Debug, Clone, Copy)]
struct SwitchPort<'a> {
    namespace: &'a str,
    interface: &'a str,
}

/// A bed of one switch, whose hosts use one TCP. Dropping the value restores the TCP; the next use of the bed replaces the buffers.
#[derive(Debug)]
pub struct TcpBed<'a> {
    bed: &'a Bed,
    hosts: Vec<&'a Node>,
    /// By host.
    ports: Vec<SwitchPort<'a>>,
    congestion_control: CongestionControl,
    ecn_threshold: Option<u32>,
    /// The namespaces with ECN on, and their previous settings.
    previous_ecn: Vec<(&'a str, String)>,
}

impl<'a> TcpBed<'a> {
    /// Sets the TCP of all hosts.
    ///
    /// # Panics
    /// If a host of the bed is not at a switch.
    ///
    /// # Errors
    /// If the kernel refuses a setting.
    pub fn new(bed: &'a Bed, tcp: &TcpOptions) -> Result<TcpBed<'a>, TcpBedError> {
        let plan = bed.plan();
        let hosts: Vec<&Node> = plan.nodes.iter().filter(|node| !node.is_switch).collect();
        let mut tcp_bed = TcpBed {
            bed,
            ports: (0..hosts.len()).map(|host| port_to(bed, host)).collect(),
            hosts,
            congestion_control: CongestionControl::new(tcp.congestion_control.as_deref())?,
            ecn_threshold: tcp.ecn_threshold,
            previous_ecn: Vec::new(),
        };
        tcp_bed.set_segments(1)?;
        tcp_bed.set_congestion_control(&tcp_bed.congestion_control.name().to_string_lossy())?;
        if tcp.ecn_threshold.is_some() {
            for host in &tcp_bed.hosts {
                tcp_bed.previous_ecn.push((&host.namespace, set_ecn(&host.namespace, "1")?));
            }
        }
        Ok(tcp_bed)
    }

    /// The congestion control of all connections.
    pub fn congestion_control(&self) -> &CongestionControl {
        &self.congestion_control
    }

    /// The hosts, in their order in the plan.
    pub fn hosts(&self) -> &[&'a Node] {
        &self.hosts
    }

    /// Replaces the queue of the port to a host by one of this number of full packets, and so resets its counters.
    ///
    /// # Errors
    /// If the kernel refuses the queue.
    pub fn set_buffer(&self, host: usize, packets: u32) -> Result<(), TcpBedError> {
        let SwitchPort { namespace, interface } = self.ports[host];
        let rate = self.bed.plan().min_link_rate;
        let link_class = HtbClass::for_link(rate, max_segments(rate));
        let lines = batch::single_queue_lines(
            interface,
            HtbClass { queue_limit: packets * FRAME_BYTES, ..link_class },
        );
        Ok(self.bed.run_tc(namespace, lines)?)
    }

    /// Sets ECN marks at the port to a host, and measures its queue, until the marker is dropped. Without marks, a kernel that cannot
    /// measure is accepted.
    ///
    /// # Errors
    /// If the program that marks cannot be loaded.
    pub fn attach_marker(&self, host: usize) -> Result<Option<EcnMarker>, TcpBedError> {
        let SwitchPort { namespace, interface } = self.ports[host];
        let interface = interface.parse().expect("`eth` and a number is the name of an interface");
        let attached = namespace::run_inside(namespace, || EcnMarker::attach(&interface, self.ecn_threshold));
        let kernel_error = |error| TrafficError::Kernel { object: namespace.to_owned(), message: error };
        let marker = attached.map_err(|error| kernel_error(error.to_string())).flatten();
        if self.ecn_threshold.is_none() { Ok(marker.ok()) } else { Ok(Some(marker?)) }
    }

    /// The numbers of packets that the queue of the port to a host has sent and dropped.
    ///
    /// # Errors
    /// If `tc` does not list the queue.
    pub fn packet_counts(&self, host: usize) -> Result<PacketCounts, TcpBedError> {
        let SwitchPort { namespace, interface } = self.ports[host];
        let to_error = |error: &dyn fmt::Display| TcpBedError::Queue(error.to_string());
        let mut command = Command::new("tc");
        command.args(["-n", namespace, "-s", "-j", "qdisc", "show", "dev", interface]);
        let output = command.output().map_err(|error| to_error(&error))?;
        if !output.status.success() {
            return Err(to_error(&String::from_utf8_lossy(&output.stderr).trim()));
        }
        let queues: Vec<QueueCounters> =
            serde_json::from_slice(&output.stdout).map_err(|error| to_error(&error))?;
        let queue = queues.into_iter().find(|queue| queue.parent == batch::LINK_CLASS_ID);
        queue
            .map(|queue| PacketCounts { sent: queue.packets, dropped: queue.drops })
            .ok_or_else(|| to_error(&"`tc` lists no queue of the link's class"))
    }

    fn set_segments(&self, segments: u32) -> Result<(), BedError> {
        self.hosts.iter().try_for_each(|host| {
            let interface = &host.ports[0].interface;
            self.bed.run_ip(&host.namespace, format!("link set dev {interface} gso_max_segs {segments}\n"))
        })
    }

    fn set_congestion_control(&self, name: &str) -> Result<(), BedError> {
        self.hosts.iter().try_for_each(|host| {
            self.bed.run_ip(&host.namespace, batch::congestion_control_lines(host, name))
        })
    }
}

impl Drop for TcpBed<'_> {
    fn drop(&mut self) {
        // If the kernel refuses these settings, the bed cannot be used anyway.
        let _ = self.set_segments(max_segments(self.bed.plan().min_link_rate));
        let _ = self.set_congestion_control(batch::CONGESTION_CONTROL);
        for (namespace, before) in &self.previous_ecn {
            let _ = set_ecn(namespace, before);
        }
    }
}

/// The switch's port to a host, by the position of the host in the plan.
fn port_to(bed: &Bed, host: usize) -> SwitchPort<'_> {
    let plan = bed.plan();
    let cable = plan.cables.iter().find(|cable| cable.ends.iter().any(|&(node, _)| node == host));
    let ends = cable.expect("every host has a cable").ends;
    let far_end = ends.into_iter().find(|&(node, _)| node != host);
    let (switch, port) = far_end.expect("the two ends of a cable are different nodes");
    let switch = &plan.nodes[switch];
    assert!(switch.is_switch, "host {host} is not at a switch");
    SwitchPort { namespace: &switch.namespace, interface: &switch.ports[port].interface }
}

/// Sets whether connections in a namespace use ECN. Returns the previous value.
fn set_ecn(namespace: &str, value: &str) -> Result<String, TcpBedError> {
    let change = || {
        let before = fs::read_to_string(ECN_SETTING)?;
        fs::write(ECN_SETTING, value).map(|()| before.trim().to_owned())
    };
    let result = namespace::run_inside(namespace, change).and_then(|done| done);
    result.map_err(|error| TcpBedError::Ecn { namespace: namespace.to_owned(), error })
}

/// A queue as `tc -j -s` prints it.
#[derive(serde::Deserialize)]
struct QueueCounters {
    #[serde(default)]
    parent: String,
    packets: u64,
    drops: u64,
}
