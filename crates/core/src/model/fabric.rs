//! The capacities of all links: the sending and the receiving side of each port, and trunks between switches.

use super::bit_set::BitSet;
use super::trunks::Trunks;
use super::workload::PortSide;
use crate::units::Rate;

/// The default estimate of a flow's size, as time at the rate of the fastest port, and its maximum in bytes.
const DEFAULT_ESTIMATE_SECONDS: f64 = 1e4;
const MAX_DEFAULT_ESTIMATE: f64 = 1e14;

/// What the capacity of a side of a port consists of.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PortCapacity {
    /// The rate of the cable, in bytes per second.
    rate: f64,
    /// The part of the rate that the port can use.
    factor: f64,
}

impl PortCapacity {
    fn get(self) -> f64 {
        self.rate * self.factor
    }
}

/// Capacities of links, in bytes per second. One non-blocking switch has no trunks.
#[derive(Debug, Clone, PartialEq)]
pub struct Fabric {
    /// By port: the rate of the healthy port, and the factor of its capacity; for sending and for receiving.
    send_sides: Vec<PortCapacity>,
    recv_sides: Vec<PortCapacity>,
    nominal_rate: f64,
    fastest_link_rate: f64,
    send_capacities: Vec<f64>,
    recv_capacities: Vec<f64>,
    trunk_capacities: Vec<f64>,
    contended_trunks: BitSet,
    has_limiting_ports: bool,
    /// Number of changes so far.
    version: u64,
}

impl Fabric {
    /// Creates a switch with `ports` ports that each send and receive at `rate`.
    pub fn big_switch(ports: u32, rate: Rate) -> Fabric {
        Fabric::from_port_rates(&vec![rate; ports as usize])
    }

    /// Creates a switch whose ports send and receive at these rates.
    pub fn from_port_rates(rates: &[Rate]) -> Fabric {
        let rates: Vec<f64> = rates.iter().map(|rate| rate.get()).collect();
        let sides: Vec<PortCapacity> = rates.iter().map(|&rate| PortCapacity { rate, factor: 1.0 }).collect();
        let nominal_rate = rates.iter().copied().fold(0.0, f64::max);
        Fabric {
            nominal_rate,
            fastest_link_rate: nominal_rate,
            send_sides: sides.clone(),
            recv_sides: sides,
            send_capacities: rates.clone(),
            recv_capacities: rates,
            trunk_capacities: Vec::new(),
            contended_trunks: BitSet::default(),
            has_limiting_ports: true,
            version: 1,
        }
    }

    /// Adds the links of `trunks`.
    pub(crate) fn with_trunks(self, trunks: &mut Trunks) -> Fabric {
        let trunk_capacities = trunks.capacities().to_vec();
        let contended_trunks = trunks.contended_trunks();
        let has_limiting_ports = trunks.has_limiting_ports();
        let fastest_link_rate = match has_limiting_ports {
            true => self.nominal_rate,
            false => trunk_capacities.iter().copied().fold(0.0, f64::max),
        };
        Fabric { trunk_capacities, contended_trunks, has_limiting_ports, fastest_link_rate, ..self }
    }

    /// A number that differs after every change of a capacity.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.send_capacities.len()
    }

    /// The capacity of the fastest healthy port, in bytes per second.
    pub fn nominal_rate(&self) -> f64 {
        self.nominal_rate
    }

    /// A residual capacity up to this value counts as 0, since it is rounding; in bytes per second.
    pub(crate) fn rounding_tolerance(&self) -> f64 {
        1e-9 * self.nominal_rate
    }

    /// The capacity of the fastest healthy port that can limit flows; between regions, of the fastest link at its mean bandwidth.
    pub fn fastest_link_rate(&self) -> f64 {
        self.fastest_link_rate
    }

    /// The estimate of the size of a flow about which nothing is known, in bytes.
    ///
    /// It is far above the size of most flows, so that a flow rarely outgrows it; and low enough that the bytes that a link has carried,
    /// the difference between estimates and remaining bytes, are exact to a picosecond of the port's rate.
    pub fn default_estimate(&self) -> f64 {
        (DEFAULT_ESTIMATE_SECONDS * self.nominal_rate).min(MAX_DEFAULT_ESTIMATE)
    }

    /// Sending capacity by port, in bytes per second.
    pub fn send_capacities(&self) -> &[f64] {
        &self.send_capacities
    }

    /// Receiving capacity by port, in bytes per second.
    pub fn recv_capacities(&self) -> &[f64] {
        &self.recv_capacities
    }

    /// Capacity by trunk, in bytes per second.
    pub fn trunk_capacities(&self) -> &[f64] {
        &self.trunk_capacities
    }

    /// The trunks that coflows contend for; see [`Trunks::contended_trunks`].
    pub fn contended_trunks(&self) -> &BitSet {
        &self.contended_trunks
    }

    /// Whether coflows contend for a link, by its number in [`Fabric::link_capacities`]: for all ports, and some trunks.
    pub(crate) fn is_contended_link(&self, link: usize) -> bool {
        link.checked_sub(2 * self.ports()).is_none_or(|trunk| self.contended_trunks.contains(trunk))
    }

    /// Finds the links that coflows contend for, by their numbers in [`Fabric::link_capacities`].
    pub(crate) fn find_contended_links(&self, out: &mut BitSet) {
        out.reset(self.links());
        (0..self.links()).filter(|&link| self.is_contended_link(link)).for_each(|link| out.insert(link));
    }

    /// Whether ports can limit flows. Ports in regions do not.
    pub fn has_limiting_ports(&self) -> bool {
        self.has_limiting_ports
    }

    /// The number of a link in the [`super::LinkHistory`] of this network: trunks come first, then ports, unless ports
    /// limit no flow. `link` is its number in [`Fabric::link_capacities`].
    pub(crate) fn history_link(&self, link: usize) -> Option<u32> {
        match link.checked_sub(2 * self.ports()) {
            Some(trunk) => Some(trunk as u32),
            None => self.has_limiting_ports.then(|| (self.trunk_capacities.len() + link) as u32),
        }
    }

    /// Number of links: two for each port, and the trunks.
    pub(crate) fn links(&self) -> usize {
        2 * self.ports() + self.trunk_capacities.len()
    }

    /// All capacities: sending sides of ports, then receiving sides, then trunks.
    pub fn link_capacities(&self) -> impl Iterator<Item = f64> {
        let ports = self.send_capacities.iter().chain(&self.recv_capacities);
        ports.chain(&self.trunk_capacities).copied()
    }

    /// What the links can limit flows to, in the same order: infinite for a port that limits no flow, unless the port is down.
    pub fn link_limits(&self) -> impl Iterator<Item = f64> {
        let unlimited_ports = if self.has_limiting_ports { 0 } else { 2 * self.ports() };
        self.link_capacities().enumerate().map(move |(link, capacity)| {
            if link < unlimited_ports && capacity > 0.0 { f64::INFINITY } else { capacity }
        })
    }

    /// Sets all capacities, in the order of [`Fabric::link_capacities`]. Returns whether any capacity changed.
    pub(crate) fn set_link_capacities(&mut self, capacities: &[f64]) -> bool {
        if self.link_capacities().eq(capacities.iter().copied()) {
            return false;
        }
        self.version += 1;
        let (send, others) = capacities.split_at(self.ports());
        let (recv, trunks) = others.split_at(self.ports());
        self.send_capacities.copy_from_slice(send);
        self.recv_capacities.copy_from_slice(recv);
        self.trunk_capacities.copy_from_slice(trunks);
        true
    }

    /// Sets the capacities of all trunks, in bytes per second.
    pub(crate) fn set_trunk_capacities(&mut self, capacities: &[f64]) {
        self.version += 1;
        self.trunk_capacities.copy_from_slice(capacities);
    }

    /// Sets the capacities of all trunks and the rates of the cables of all ports after cables have changed.
    pub(crate) fn set_cables(&mut self, trunks: &mut Trunks) {
        self.set_trunk_capacities(trunks.capacities());
        self.contended_trunks = trunks.contended_trunks();
        self.set_cable_rates(trunks.cable_rates());
    }

    /// Sets the rates of the cables of all ports, for sending and for receiving, in bytes per second. Factors of
    /// [`Fabric::scale_port`] still apply.
    pub(crate) fn set_cable_rates(&mut self, rates: impl Iterator<Item = (f64, f64)>) {
        self.version += 1;
        for (port, (send, recv)) in rates.enumerate() {
            (self.send_sides[port].rate, self.recv_sides[port].rate) = (send, recv);
            self.send_capacities[port] = self.send_sides[port].get();
            self.recv_capacities[port] = self.recv_sides[port].get();
        }
    }

    /// Sets the capacity of a port side to `factor` times the rate of its cable.
    pub(crate) fn scale_port(&mut self, port: u32, side: PortSide, factor: f64) {
        let port = port as usize;
        self.version += 1;
        if side != PortSide::Receive {
            self.send_sides[port].factor = factor;
            self.send_capacities[port] = self.send_sides[port].get();
        }
        if side != PortSide::Send {
            self.recv_sides[port].factor = factor;
            self.recv_capacities[port] = self.recv_sides[port].get();
        }
    }
}
