//! Residual capacity of each port during the construction of a schedule.

use crate::model::{BitSet, Coflow, Fabric, RemainingLoads};

/// One side of all ports.
#[derive(Debug, Clone, Default)]
struct SideResiduals {
    residuals: Vec<f64>,
    /// Ports with residual capacity.
    open_ports: BitSet,
}

impl SideResiduals {
    fn new(capacities: &[f64], tolerance: f64) -> SideResiduals {
        let mut sides = SideResiduals { residuals: Vec::new(), open_ports: BitSet::empty(capacities.len()) };
        sides.set_residuals(capacities, tolerance);
        sides
    }

    fn set_residuals(&mut self, capacities: &[f64], dust: f64) {
        self.residuals.clear();
        self.residuals.extend_from_slice(capacities);
        self.open_ports.set_where(capacities, |&capacity| capacity > dust);
    }

    fn copy_from(&mut self, other: &SideResiduals) {
        self.residuals.clone_from(&other.residuals);
        self.open_ports.copy_from(&other.open_ports);
    }

    #[inline]
    fn subtract_rate(&mut self, port: usize, rate: f64, dust: f64) {
        self.residuals[port] -= rate;
        if self.residuals[port] <= dust {
            self.residuals[port] = 0.0;
            self.open_ports.remove(port);
        }
    }
}

/// Residual capacity of the ports, and the sets of ports with any.
#[derive(Debug, Default)]
pub struct ResidualCapacity {
    senders: SideResiduals,
    receivers: SideResiduals,
    /// A residual capacity up to this value counts as 0: it is rounding.
    rounding_tolerance: f64,
    /// The sides of the idle fabric, and the version of the fabric that they come from.
    idle_sides: (SideResiduals, SideResiduals),
    version: u64,
}

/// A saved state of a [`ResidualCapacity`].
#[derive(Debug, Default)]
pub struct SavedResidual(SideResiduals, SideResiduals);

impl ResidualCapacity {
    /// Resets all ports to the capacities of the fabric. O(ports).
    pub fn reset(&mut self, fabric: &Fabric) {
        if self.version != fabric.version() {
            self.version = fabric.version();
            self.rounding_tolerance = 1e-9 * fabric.nominal_rate();
            self.idle_sides = (
                SideResiduals::new(fabric.send_capacities(), self.rounding_tolerance),
                SideResiduals::new(fabric.recv_capacities(), self.rounding_tolerance),
            );
        }
        self.senders.copy_from(&self.idle_sides.0);
        self.receivers.copy_from(&self.idle_sides.1);
    }

    /// Saves the present state in `copy`. O(ports).
    pub fn save(&self, copy: &mut SavedResidual) {
        copy.0.copy_from(&self.senders);
        copy.1.copy_from(&self.receivers);
    }

    /// Restores a state of the same fabric. O(ports).
    pub fn restore(&mut self, copy: &SavedResidual) {
        self.senders.copy_from(&copy.0);
        self.receivers.copy_from(&copy.1);
    }

    /// Sets the residual capacities to `send` and `recv`, such as the result of an earlier allocation. O(ports).
    pub fn set_residuals(&mut self, fabric: &Fabric, send: &[f64], recv: &[f64]) {
        self.rounding_tolerance = 1e-9 * fabric.nominal_rate();
        self.version = 0;
        self.senders.set_residuals(send, self.rounding_tolerance);
        self.receivers.set_residuals(recv, self.rounding_tolerance);
    }

    /// Whether all ports are exhausted on one of the sides, so that no flow can get a rate.
    pub fn is_exhausted(&self) -> bool {
        self.senders.open_ports.is_empty() || self.receivers.open_ports.is_empty()
    }

    /// Sending ports with residual capacity.
    pub fn open_senders(&self) -> &BitSet {
        &self.senders.open_ports
    }

    /// Receiving ports with residual capacity.
    pub fn open_receivers(&self) -> &BitSet {
        &self.receivers.open_ports
    }

    /// Whether every port that a coflow's live flows need has residual capacity.
    #[inline]
    pub fn admits(&self, coflow: &Coflow) -> bool {
        coflow.sending_ports().is_subset(&self.senders.open_ports)
            && coflow.receiving_ports().is_subset(&self.receivers.open_ports)
    }

    /// Whether every port that a coflow's live flows need has its full capacity. O(ports of the coflow).
    pub fn admits_at_full_capacity(&self, coflow: &Coflow) -> bool {
        let sides = [
            (coflow.senders(), &self.senders, &self.idle_sides.0),
            (coflow.receivers(), &self.receivers, &self.idle_sides.1),
        ];
        sides.into_iter().all(|(loads, now, idle)| {
            let mut used =
                loads.iter().filter(|load| load.live_flow_count > 0).map(|load| load.port as usize);
            used.all(|port| now.open_ports.contains(port) && now.residuals[port] == idle.residuals[port])
        })
    }

    /// Whether some live flow of a coflow might get a rate. Can be true although none can; never false if one can.
    #[inline]
    pub fn may_serve(&self, coflow: &Coflow) -> bool {
        coflow.sending_ports().intersects(&self.senders.open_ports)
            && coflow.receiving_ports().intersects(&self.receivers.open_ports)
    }

    #[inline]
    fn subtract_send(&mut self, port: usize, rate: f64) {
        self.senders.subtract_rate(port, rate, self.rounding_tolerance);
    }

    #[inline]
    fn subtract_recv(&mut self, port: usize, rate: f64) {
        self.receivers.subtract_rate(port, rate, self.rounding_tolerance);
    }

    /// The highest rate that all live flows of a coflow can have at the same time: the minimum over its ports of residual
    /// capacity divided by the number of live flows. O(ports of the coflow).
    pub fn max_equal_rate(&self, coflow: &Coflow) -> f64 {
        let mut rate = f64::INFINITY;
        for (loads, left) in
            [(coflow.senders(), &self.senders.residuals), (coflow.receivers(), &self.receivers.residuals)]
        {
            for load in loads {
                // A product is cheaper than a quotient, and most ports are not the bottleneck.
                if rate * f64::from(load.live_flow_count) > left[load.port as usize] {
                    rate = left[load.port as usize] / f64::from(load.live_flow_count);
                }
            }
        }
        rate
    }

    /// Subtracts `rate` for every live flow of a coflow. O(ports of the coflow).
    pub fn subtract_equal_rates(&mut self, coflow: &Coflow, rate: f64) {
        for load in coflow.senders() {
            if load.live_flow_count > 0 {
                self.subtract_send(load.port as usize, rate * f64::from(load.live_flow_count));
            }
        }
        for load in coflow.receivers() {
            if load.live_flow_count > 0 {
                self.subtract_recv(load.port as usize, rate * f64::from(load.live_flow_count));
            }
        }
    }

    /// The minimum time in which a coflow with these loads can complete (Varys's Γ on the residual capacity), in seconds;
    /// infinite if a port that it needs is exhausted. O(ports of the coflow).
    pub fn min_completion_time(&self, loads: RemainingLoads<'_>) -> f64 {
        let mut time = 0.0f64;
        for (port, bytes) in loads.by_sender() {
            if bytes > time * self.senders.residuals[port] {
                time = bytes / self.senders.residuals[port];
            }
        }
        for (port, bytes) in loads.by_receiver() {
            if bytes > time * self.receivers.residuals[port] {
                time = bytes / self.receivers.residuals[port];
            }
        }
        time
    }

    /// Subtracts the rates at which these loads complete together after `seconds`. O(ports of the coflow).
    pub fn subtract_madd_rates(&mut self, loads: RemainingLoads<'_>, seconds: f64) {
        for (port, bytes) in loads.by_sender() {
            self.subtract_send(port, bytes / seconds);
        }
        for (port, bytes) in loads.by_receiver() {
            self.subtract_recv(port, bytes / seconds);
        }
    }

    /// Gives each live flow of a coflow, in the order of ports, the smaller residual capacity of its two ports, and calls
    /// `on_rate` with each flow that got a rate. Every such flow exhausts a port, so there are at most two a port.
    #[inline]
    pub fn fill_flows(&mut self, coflow: &Coflow, mut on_rate: impl FnMut(u32, f64)) {
        if !self.may_serve(coflow) {
            return;
        }
        let (send, recv, dust) = (&mut self.senders, &mut self.receivers, self.rounding_tolerance);
        let (send_left, recv_left) = (&mut send.residuals[..], &mut recv.residuals[..]);
        coflow.visit_open_flows(&mut send.open_ports, &mut recv.open_ports, |flow, src, dst| {
            let (from, to) = (send_left[src], recv_left[dst]);
            let rate = if from < to { from } else { to };
            let (from, to) = (from - rate, to - rate);
            (send_left[src], recv_left[dst]) = (from, to);
            on_rate(flow, rate);
            (from <= dust, to <= dust)
        });
    }
}
