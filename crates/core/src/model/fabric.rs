//! The network as one big switch: only the sending and receiving sides of ports limit rates.

use super::workload::Side;
use crate::units::Rate;

/// Capacities of the ports of one non-blocking switch, in bytes per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Fabric {
    nominal: f64,
    send: Vec<f64>,
    recv: Vec<f64>,
    /// Number of changes so far.
    version: u64,
}

impl Fabric {
    /// Creates a switch with `ports` ports that each send and receive at `rate`.
    pub fn big_switch(ports: u32, rate: Rate) -> Fabric {
        Fabric {
            nominal: rate.get(),
            send: vec![rate.get(); ports as usize],
            recv: vec![rate.get(); ports as usize],
            version: 1,
        }
    }

    /// A number that differs after every change of a capacity.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.send.len()
    }

    /// The capacity of a healthy port, in bytes per second.
    pub fn nominal(&self) -> f64 {
        self.nominal
    }

    /// Sending capacity by port, in bytes per second.
    pub fn send(&self) -> &[f64] {
        &self.send
    }

    /// Receiving capacity by port, in bytes per second.
    pub fn recv(&self) -> &[f64] {
        &self.recv
    }

    /// Sets all capacities. Returns whether any capacity changed.
    pub(crate) fn set(&mut self, send: &[f64], recv: &[f64]) -> bool {
        if self.send == send && self.recv == recv {
            return false;
        }
        self.version += 1;
        self.send.copy_from_slice(send);
        self.recv.copy_from_slice(recv);
        true
    }

    /// Sets the capacity of a port side to `factor` times the nominal rate.
    pub(crate) fn scale(&mut self, port: u32, side: Side, factor: f64) {
        let rate = self.nominal * factor;
        self.version += 1;
        if side != Side::Receive {
            self.send[port as usize] = rate;
        }
        if side != Side::Send {
            self.recv[port as usize] = rate;
        }
    }
}
