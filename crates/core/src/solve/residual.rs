//! Residual capacity of each port during the construction of a schedule.

use crate::model::{Coflow, Fabric, Loads, Mask};

/// One side of all ports.
#[derive(Debug, Clone, Default)]
struct Sides {
    left: Vec<f64>,
    /// Ports with residual capacity.
    open: Mask,
}

impl Sides {
    fn new(capacities: &[f64], dust: f64) -> Sides {
        let mut sides = Sides { left: Vec::new(), open: Mask::empty(capacities.len()) };
        sides.set(capacities, dust);
        sides
    }

    fn set(&mut self, capacities: &[f64], dust: f64) {
        self.left.clear();
        self.left.extend_from_slice(capacities);
        self.open.set_where(capacities, |&capacity| capacity > dust);
    }

    fn copy_from(&mut self, other: &Sides) {
        self.left.clone_from(&other.left);
        self.open.copy_from(&other.open);
    }

    #[inline]
    fn take(&mut self, port: usize, rate: f64, dust: f64) {
        self.left[port] -= rate;
        if self.left[port] <= dust {
            self.left[port] = 0.0;
            self.open.remove(port);
        }
    }
}

/// Residual capacity of the ports, and the sets of ports with any.
#[derive(Debug, Default)]
pub struct Residual {
    send: Sides,
    recv: Sides,
    /// A residual capacity up to this value counts as 0: it is rounding.
    dust: f64,
    /// The sides of the idle fabric, and the version of the fabric that they come from.
    idle: (Sides, Sides),
    version: u64,
}

/// A saved state of a [`Residual`].
#[derive(Debug, Default)]
pub struct Saved(Sides, Sides);

impl Residual {
    /// Resets all ports to the capacities of the fabric. O(ports).
    pub fn reset(&mut self, fabric: &Fabric) {
        if self.version != fabric.version() {
            self.version = fabric.version();
            self.dust = 1e-9 * fabric.nominal();
            self.idle = (Sides::new(fabric.send(), self.dust), Sides::new(fabric.recv(), self.dust));
        }
        self.send.copy_from(&self.idle.0);
        self.recv.copy_from(&self.idle.1);
    }

    /// Saves the present state in `copy`. O(ports).
    pub fn save(&self, copy: &mut Saved) {
        copy.0.copy_from(&self.send);
        copy.1.copy_from(&self.recv);
    }

    /// Restores a state of the same fabric. O(ports).
    pub fn restore(&mut self, copy: &Saved) {
        self.send.copy_from(&copy.0);
        self.recv.copy_from(&copy.1);
    }

    /// Sets the residual capacities to `send` and `recv`, such as the result of an earlier allocation. O(ports).
    pub fn set(&mut self, fabric: &Fabric, send: &[f64], recv: &[f64]) {
        self.dust = 1e-9 * fabric.nominal();
        self.version = 0;
        self.send.set(send, self.dust);
        self.recv.set(recv, self.dust);
    }

    /// Whether all ports are exhausted on one of the sides, so that no flow can get a rate.
    pub fn is_exhausted(&self) -> bool {
        self.send.open.is_empty() || self.recv.open.is_empty()
    }

    /// Sending ports with residual capacity.
    pub fn open_send(&self) -> &Mask {
        &self.send.open
    }

    /// Receiving ports with residual capacity.
    pub fn open_recv(&self) -> &Mask {
        &self.recv.open
    }

    /// Whether every port that a coflow's live flows need has residual capacity.
    #[inline]
    pub fn admits(&self, coflow: &Coflow) -> bool {
        coflow.send_mask().within(&self.send.open) && coflow.recv_mask().within(&self.recv.open)
    }

    /// Whether every port that a coflow's live flows need has its full capacity. O(ports of the coflow).
    pub fn admits_alone(&self, coflow: &Coflow) -> bool {
        let sides =
            [(coflow.senders(), &self.send, &self.idle.0), (coflow.receivers(), &self.recv, &self.idle.1)];
        sides.into_iter().all(|(loads, now, idle)| {
            let mut used = loads.iter().filter(|load| load.live > 0).map(|load| load.port as usize);
            used.all(|port| now.open.contains(port) && now.left[port] == idle.left[port])
        })
    }

    /// Whether some live flow of a coflow might get a rate. Can be true although none can; never false if one can.
    #[inline]
    pub fn may_serve(&self, coflow: &Coflow) -> bool {
        coflow.send_mask().meets(&self.send.open) && coflow.recv_mask().meets(&self.recv.open)
    }

    #[inline]
    fn take_send(&mut self, port: usize, rate: f64) {
        self.send.take(port, rate, self.dust);
    }

    #[inline]
    fn take_recv(&mut self, port: usize, rate: f64) {
        self.recv.take(port, rate, self.dust);
    }

    /// The highest rate that all live flows of a coflow can have at the same time: the minimum over its ports of residual
    /// capacity divided by the number of live flows. O(ports of the coflow).
    pub fn equal_rate(&self, coflow: &Coflow) -> f64 {
        let mut rate = f64::INFINITY;
        for (loads, left) in [(coflow.senders(), &self.send.left), (coflow.receivers(), &self.recv.left)] {
            for load in loads {
                // A product is cheaper than a quotient, and most ports are not the bottleneck.
                if rate * f64::from(load.live) > left[load.port as usize] {
                    rate = left[load.port as usize] / f64::from(load.live);
                }
            }
        }
        rate
    }

    /// Subtracts `rate` for every live flow of a coflow. O(ports of the coflow).
    pub fn take_equal(&mut self, coflow: &Coflow, rate: f64) {
        for load in coflow.senders() {
            if load.live > 0 {
                self.take_send(load.port as usize, rate * f64::from(load.live));
            }
        }
        for load in coflow.receivers() {
            if load.live > 0 {
                self.take_recv(load.port as usize, rate * f64::from(load.live));
            }
        }
    }

    /// The minimum time in which a coflow with these loads can complete (Varys's Γ on the residual capacity), in seconds;
    /// infinite if a port that it needs is exhausted. O(ports of the coflow).
    pub fn least_time(&self, loads: Loads<'_>) -> f64 {
        let mut time = 0.0f64;
        for (port, bytes) in loads.send() {
            if bytes > time * self.send.left[port] {
                time = bytes / self.send.left[port];
            }
        }
        for (port, bytes) in loads.recv() {
            if bytes > time * self.recv.left[port] {
                time = bytes / self.recv.left[port];
            }
        }
        time
    }

    /// Subtracts the rates at which these loads complete together after `seconds`. O(ports of the coflow).
    pub fn take_together(&mut self, loads: Loads<'_>, seconds: f64) {
        for (port, bytes) in loads.send() {
            self.take_send(port, bytes / seconds);
        }
        for (port, bytes) in loads.recv() {
            self.take_recv(port, bytes / seconds);
        }
    }

    /// Gives each live flow of a coflow, in the order of ports, the smaller residual capacity of its two ports, and calls
    /// `gave` with each flow that got a rate. Every such flow exhausts a port, so there are at most two a port.
    #[inline]
    pub fn fill(&mut self, coflow: &Coflow, mut gave: impl FnMut(u32, f64)) {
        if !self.may_serve(coflow) {
            return;
        }
        let (send, recv, dust) = (&mut self.send, &mut self.recv, self.dust);
        let (send_left, recv_left) = (&mut send.left[..], &mut recv.left[..]);
        coflow.visit_open(&mut send.open, &mut recv.open, |flow, src, dst| {
            let (from, to) = (send_left[src], recv_left[dst]);
            let rate = if from < to { from } else { to };
            let (from, to) = (from - rate, to - rate);
            (send_left[src], recv_left[dst]) = (from, to);
            gave(flow, rate);
            (from <= dust, to <= dust)
        });
    }
}
