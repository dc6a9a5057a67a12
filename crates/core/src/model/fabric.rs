//! All links in one numbering: the sending and the receiving side of each port, and trunks between switches.

use std::ops::Range;

use super::bit_set::BitSet;
use super::trunks::Trunks;
use super::workload::PortSide;
use crate::rounding;
use crate::units::Rate;

/// The default estimate of a flow's size, as time at the rate of the fastest port, and its maximum in bytes.
const DEFAULT_ESTIMATE_SECONDS: f64 = 1e4;
const MAX_DEFAULT_ESTIMATE: f64 = 1e14;

/// What a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// The sending side of a port.
    Sender(u32),
    /// The receiving side of a port.
    Receiver(u32),
    /// A trunk, by its number in [`Trunks`].
    Trunk(u32),
}

/// A side of a port.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Side {
    link: u32,
    /// The rate of the cable, in bytes per second.
    cable_rate: f64,
    /// The part of the rate that the port can use.
    factor: f64,
}

/// A port.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Port {
    sender: Side,
    receiver: Side,
}

/// The links and their capacities in bytes per second. One non-blocking switch has no trunks.
///
/// A link has one number: the sending sides of ports come first, in the order of ports, then their receiving sides, then trunks. Results
/// list links in this order. Decisions do not rely on it: [`Fabric::send_link`], [`Fabric::recv_link`] and [`Fabric::kind`] translate.
#[derive(Debug, Clone, PartialEq)]
pub struct Fabric {
    ports: Vec<Port>,
    /// By link.
    capacities: Vec<f64>,
    kinds: Vec<LinkKind>,
    trunks: Range<usize>,
    senders: BitSet,
    receivers: BitSet,
    contended_links: BitSet,
    nominal_rate: f64,
    fastest_link_rate: f64,
    has_limiting_ports: bool,
    /// The capacity of every link, if all are equal and above 0.
    common_capacity: Option<f64>,
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
        let mut fabric = Fabric {
            ports: Vec::with_capacity(rates.len()),
            capacities: Vec::with_capacity(2 * rates.len()),
            kinds: Vec::with_capacity(2 * rates.len()),
            trunks: 0..0,
            senders: BitSet::default(),
            receivers: BitSet::default(),
            contended_links: BitSet::default(),
            nominal_rate: 0.0,
            fastest_link_rate: 0.0,
            has_limiting_ports: true,
            common_capacity: None,
            version: 0,
        };
        for (port, rate) in (0..).zip(rates) {
            let sender = fabric.add_link(LinkKind::Sender(port), rate.get());
            let receiver = Side { link: sender.link + rates.len() as u32, ..sender };
            fabric.ports.push(Port { sender, receiver });
        }
        for (port, rate) in (0..).zip(rates) {
            fabric.add_link(LinkKind::Receiver(port), rate.get());
        }
        let links = fabric.links();
        fabric.trunks = links..links;
        fabric.fastest_link_rate = fabric.nominal_rate;
        fabric.note_change();
        fabric
    }

    /// Adds a link that coflows contend for, with the side that it is if it belongs to a port.
    fn add_link(&mut self, kind: LinkKind, capacity: f64) -> Side {
        let link = self.links();
        self.capacities.push(capacity);
        self.kinds.push(kind);
        self.contended_links.insert(link);
        match kind {
            LinkKind::Sender(_) => self.senders.insert(link),
            LinkKind::Receiver(_) => self.receivers.insert(link),
            LinkKind::Trunk(_) => {}
        }
        if !matches!(kind, LinkKind::Trunk(_)) {
            self.nominal_rate = self.nominal_rate.max(capacity);
        }
        Side { link: link as u32, cable_rate: capacity, factor: 1.0 }
    }

    /// Adds the links of `trunks` to a fabric without trunks.
    pub(crate) fn with_trunks(mut self, trunks: &mut Trunks) -> Fabric {
        self.has_limiting_ports = trunks.has_limiting_ports();
        let first = self.links();
        for (number, &capacity) in (0..).zip(trunks.capacities()) {
            self.add_link(LinkKind::Trunk(number), capacity);
        }
        self.trunks = first..self.links();
        self.find_contended_links(trunks);
        if !self.has_limiting_ports {
            self.fastest_link_rate = self.trunk_capacities().iter().copied().fold(0.0, f64::max);
        }
        self.note_change();
        self
    }

    /// Updates what depends on the capacities.
    fn note_change(&mut self) {
        self.version += 1;
        let first = self.capacities.first().copied().filter(|&capacity| capacity > 0.0);
        self.common_capacity = first.filter(|&first| self.capacities.iter().all(|&other| other == first));
    }

    /// A number that differs after every change of a capacity.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.capacities.len()
    }

    /// What a link is.
    pub fn kind(&self, link: usize) -> LinkKind {
        self.kinds[link]
    }

    /// The link of a port's sending side.
    #[inline]
    pub fn send_link(&self, port: u32) -> usize {
        self.ports[port as usize].sender.link as usize
    }

    /// The link of a port's receiving side.
    #[inline]
    pub fn recv_link(&self, port: u32) -> usize {
        self.ports[port as usize].receiver.link as usize
    }

    /// The links that are trunks, in the order of [`Trunks`].
    pub fn trunk_links(&self) -> Range<usize> {
        self.trunks.clone()
    }

    /// The links that are sending sides of ports.
    pub fn senders(&self) -> &BitSet {
        &self.senders
    }

    /// The links that are receiving sides of ports.
    pub fn receivers(&self) -> &BitSet {
        &self.receivers
    }

    /// The capacity of the fastest healthy port, in bytes per second.
    pub fn nominal_rate(&self) -> f64 {
        self.nominal_rate
    }

    /// A residual capacity up to this value counts as 0, since it is rounding; in bytes per second.
    pub fn rounding_tolerance(&self) -> f64 {
        rounding::CAPACITY * self.nominal_rate
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

    /// Capacity by link, in bytes per second.
    #[inline]
    pub fn capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// The capacity of every link, if all are equal and above 0; in bytes per second.
    #[inline]
    pub(crate) fn common_capacity(&self) -> Option<f64> {
        self.common_capacity
    }

    /// The sending capacity of a port, in bytes per second.
    #[inline]
    pub fn send_capacity(&self, port: u32) -> f64 {
        self.capacities[self.send_link(port)]
    }

    /// The receiving capacity of a port, in bytes per second.
    #[inline]
    pub fn recv_capacity(&self, port: u32) -> f64 {
        self.capacities[self.recv_link(port)]
    }

    /// Sending capacity by port, in bytes per second.
    pub fn send_capacities(&self) -> impl ExactSizeIterator<Item = f64> + Clone {
        self.ports.iter().map(|port| self.capacities[port.sender.link as usize])
    }

    /// Receiving capacity by port, in bytes per second.
    pub fn recv_capacities(&self) -> impl ExactSizeIterator<Item = f64> + Clone {
        self.ports.iter().map(|port| self.capacities[port.receiver.link as usize])
    }

    /// Capacity by trunk, in bytes per second.
    pub fn trunk_capacities(&self) -> &[f64] {
        &self.capacities[self.trunk_links()]
    }

    /// The links that coflows contend for: ports if they limit flows, and the trunks of [`Trunks::contended_trunks`].
    pub fn contended_links(&self) -> &BitSet {
        &self.contended_links
    }

    /// Whether ports can limit flows. Ports in regions do not.
    pub fn has_limiting_ports(&self) -> bool {
        self.has_limiting_ports
    }

    /// The first link that can limit flows while it is up; so can all later ones.
    pub(crate) fn first_limiting_link(&self) -> usize {
        if self.has_limiting_ports { 0 } else { self.trunks.start }
    }

    /// What each link can limit flows to: its capacity, or infinite for a port that limits no flow unless it is down.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = f64> + Clone {
        let first = self.first_limiting_link();
        self.capacities.iter().enumerate().map(move |(link, &capacity)| {
            if link < first && capacity > 0.0 { f64::INFINITY } else { capacity }
        })
    }

    /// Sets the capacities of all links. Returns whether any capacity changed.
    pub(crate) fn set_capacities(&mut self, capacities: &[f64]) -> bool {
        let changes = self.capacities != capacities;
        if changes {
            self.capacities.copy_from_slice(capacities);
            self.note_change();
        }
        changes
    }

    /// Sets the capacities of all trunks, in bytes per second.
    pub(crate) fn set_trunk_capacities(&mut self, capacities: &[f64]) {
        self.capacities[self.trunks.clone()].copy_from_slice(capacities);
        self.note_change();
    }

    /// Sets the capacities of all trunks and the rates of the cables of all ports after cables have changed.
    pub(crate) fn set_cables(&mut self, trunks: &mut Trunks) {
        self.set_trunk_capacities(trunks.capacities());
        self.find_contended_links(trunks);
        self.set_cable_rates(trunks.cable_rates());
    }

    fn find_contended_links(&mut self, trunks: &mut Trunks) {
        self.contended_links.reset(self.capacities.len());
        if self.has_limiting_ports {
            self.contended_links.union_with(&self.senders);
            self.contended_links.union_with(&self.receivers);
        }
        for trunk in trunks.contended_trunks().iter() {
            self.contended_links.insert(self.trunks.start + trunk);
        }
    }

    /// Sets the rates of the cables of all ports, for sending and for receiving, in bytes per second. Factors of
    /// [`Fabric::scale_port`] still apply.
    pub(crate) fn set_cable_rates(&mut self, rates: impl Iterator<Item = (f64, f64)>) {
        for (port, (send, recv)) in self.ports.iter_mut().zip(rates) {
            (port.sender.cable_rate, port.receiver.cable_rate) = (send, recv);
            for side in [port.sender, port.receiver] {
                self.capacities[side.link as usize] = side.cable_rate * side.factor;
            }
        }
        self.note_change();
    }

    /// Sets the capacity of a port side to `factor` times the rate of its cable.
    pub(crate) fn scale_port(&mut self, port: u32, side: PortSide, factor: f64) {
        let port = &mut self.ports[port as usize];
        let (sends, receives) = (side != PortSide::Receive, side != PortSide::Send);
        for (side, _) in
            [(&mut port.sender, sends), (&mut port.receiver, receives)].into_iter().filter(|(_, is)| *is)
        {
            side.factor = factor;
            self.capacities[side.link as usize] = side.cable_rate * factor;
        }
        self.note_change();
    }
}
