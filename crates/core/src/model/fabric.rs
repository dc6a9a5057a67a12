//! The network as one big switch: only the sending and receiving sides of ports limit rates.

use super::workload::PortSide;
use crate::units::Rate;

/// Capacities of the ports of one non-blocking switch, in bytes per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Fabric {
    nominal_rate: f64,
    send_capacities: Vec<f64>,
    recv_capacities: Vec<f64>,
    /// Number of changes so far.
    version: u64,
}

impl Fabric {
    /// Creates a switch with `ports` ports that each send and receive at `rate`.
    pub fn big_switch(ports: u32, rate: Rate) -> Fabric {
        Fabric {
            nominal_rate: rate.get(),
            send_capacities: vec![rate.get(); ports as usize],
            recv_capacities: vec![rate.get(); ports as usize],
            version: 1,
        }
    }

    /// A number that differs after every change of a capacity.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.send_capacities.len()
    }

    /// The capacity of a healthy port, in bytes per second.
    pub fn nominal_rate(&self) -> f64 {
        self.nominal_rate
    }

    /// Sending capacity by port, in bytes per second.
    pub fn send_capacities(&self) -> &[f64] {
        &self.send_capacities
    }

    /// Receiving capacity by port, in bytes per second.
    pub fn recv_capacities(&self) -> &[f64] {
        &self.recv_capacities
    }

    /// Sets all capacities. Returns whether any capacity changed.
    pub(crate) fn set_capacities(&mut self, send: &[f64], recv: &[f64]) -> bool {
        if self.send_capacities == send && self.recv_capacities == recv {
            return false;
        }
        self.version += 1;
        self.send_capacities.copy_from_slice(send);
        self.recv_capacities.copy_from_slice(recv);
        true
    }

    /// Sets the capacity of a port side to `factor` times the nominal rate.
    pub(crate) fn scale_port(&mut self, port: u32, side: PortSide, factor: f64) {
        let rate = self.nominal_rate * factor;
        self.version += 1;
        if side != PortSide::Receive {
            self.send_capacities[port as usize] = rate;
        }
        if side != PortSide::Send {
            self.recv_capacities[port as usize] = rate;
        }
    }
}
