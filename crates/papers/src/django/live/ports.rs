//! Measures the drops and the queues at the switch's ports to the hosts.

use weir_agent::ecn::EcnMarker;
use weir_console::failure::Failure;
use weir_testbed::tcp_bed::{PacketCounts, TcpBed, TcpBedError};

use super::failure;

/// The ports to the hosts during a run. They set marks.
pub struct Ports<'a, 'b> {
    tcp_bed: &'a TcpBed<'b>,
    markers: Vec<EcnMarker>,
    before: Vec<PacketCounts>,
}

/// What the ports did.
#[derive(Debug, Clone, Copy)]
pub struct PortUse {
    /// The dropped packets, as a fraction of those that arrived.
    pub loss: f64,
    /// The packets that an arriving packet found in the queue, on average.
    pub mean_queue: f64,
    /// The maximum number of packets in a queue.
    pub max_queue: u64,
}

impl<'a, 'b> Ports<'a, 'b> {
    /// Gives the ports to the first `hosts` hosts buffers of this number of packets, and starts to measure.
    pub fn start(
        tcp_bed: &'a TcpBed<'b>,
        hosts: usize,
        buffer_packets: u32,
    ) -> Result<Ports<'a, 'b>, Failure> {
        let mut ports = Ports { tcp_bed, markers: Vec::new(), before: Vec::new() };
        for host in 0..hosts {
            tcp_bed.set_buffer(host, buffer_packets).map_err(failure)?;
            ports.markers.extend(tcp_bed.attach_marker(host).map_err(failure)?);
            ports.before.push(tcp_bed.packet_counts(host).map_err(failure)?);
        }
        Ok(ports)
    }

    /// Ends the measurement.
    pub fn finish(self) -> Result<PortUse, Failure> {
        let (mut packets, mut dropped, mut queue_sum, mut max_queue) = (0, 0, 0.0, 0);
        for (host, (before, marker)) in self.before.iter().zip(&self.markers).enumerate() {
            let after = self.tcp_bed.packet_counts(host).map_err(failure)?;
            let lengths = marker.queue_lengths().map_err(TcpBedError::from).map_err(failure)?;
            let port_dropped = after.dropped.saturating_sub(before.dropped);
            let port_packets = after.sent.saturating_sub(before.sent) + port_dropped;
            packets += port_packets;
            dropped += port_dropped;
            queue_sum += lengths.mean * port_packets as f64;
            max_queue = max_queue.max(lengths.max);
        }
        let packets = packets.max(1) as f64;
        Ok(PortUse { loss: dropped as f64 / packets, mean_queue: queue_sum / packets, max_queue })
    }
}
