//! Rates of connections whose senders serve strict priorities (ranks) and whose receivers share max-min, as TCP does.
//!
//! A sender divides its capacity max-min among its connections of the lowest rank, then the residual among those of the
//! next rank, and so on. A receiver shares max-min without regard to ranks, because it does not know them. The rates are
//! the fixed point of both rules. Each receiver has a level, the maximum rate of one of its connections: it either
//! accepts all offered traffic, or fills its link.
//!
//! Levels start at even shares and rise together. With every receiver at its level, each connection has an *offer*: the
//! rate that its sender could give if its receiver accepted more. The next level of a receiver is the one at which the
//! minima of level and offer fill its link. Offers only fall while levels rise. Levels therefore never pass the fixed
//! point, and rates stay within all capacities after any number of passes.
//!
//! A pass can raise a level by as little as the difference of two capacities. With a sender of 1 and a receiver of
//! 1.001, two connections of different rank gain and lose 0.001 a pass. Every `LEAP_INTERVAL` passes, all levels
//! therefore repeat their movement of the last `LEAP_WINDOW` passes at once. The number of repetitions is the largest
//! at which no level passes the fixed point: offers still fill each link at its level or above.

use std::ops::Range;

use crate::model::BitSet;
use crate::rounding;

/// An open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The sending port.
    pub src: u32,
    /// The receiving port.
    pub dst: u32,
    /// The rank. The sender serves lower ranks first.
    pub rank: u32,
}

/// The maximum number of passes over all connections. Most rates are exact after a few passes. In a ring of senders and
/// receivers that depend on each other, rates converge by a constant factor each pass.
const MAX_PASSES: usize = 1024;

/// Passes between two leaps.
const LEAP_INTERVAL: usize = 64;

/// Passes whose movement a leap repeats. A change needs n passes around a ring of n receivers; 60 is a multiple of every n
/// up to 6.
const LEAP_WINDOW: usize = 60;

/// A leap repeats a movement less than 2^40 times.
const MAX_DOUBLINGS: i32 = 40;

/// The maximum number of rounds that correct the rounding of a leap.
const MAX_CORRECTION_ROUNDS: usize = 6;

/// A connection in the order in which its sender serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SortedConnection {
    src: u32,
    dst: u32,
    /// The rank, counted from 0 at each sender without gaps.
    priority_group: u32,
    /// The index of the connection in the caller's list.
    input_index: u32,
}

/// A solver that reuses its memory, and the last solution.
#[derive(Debug, Default)]
pub struct ConnectionSolver {
    /// Connections by sender, rank and the caller's order; the start of each sender's; and the connections of the last call.
    connections: Vec<SortedConnection>,
    sender_starts: Vec<u32>,
    previous_connections: Vec<SortedConnection>,
    send_capacities: Vec<f64>,
    recv_capacities: Vec<f64>,
    /// By connection, in the order of `connections`.
    rates: Vec<f64>,
    offers: Vec<f64>,
    /// Indices into `connections` by receiver, and the start of each receiver's.
    by_receiver: Vec<u32>,
    receiver_starts: Vec<u32>,
    levels: Vec<f64>,
    /// Levels at the start of the movement that a leap repeats, and at its end.
    levels_before: Vec<f64>,
    levels_at_leap: Vec<f64>,
    /// Senders and receivers whose result may differ from that of the last pass.
    stale_senders: BitSet,
    stale_receivers: BitSet,
    sort_buffer: Vec<f64>,
}

impl ConnectionSolver {
    /// Stores the rate of each connection in `rates`, in the unit of the ports' capacities `send` and `recv`.
    ///
    /// For n connections, of which a port has k:
    ///
    /// - O(ports + n log k) to sort the connections. If the connections, their order at each sender, and the capacities
    ///   equal those of the last call, the rates do too, and no more work is needed.
    /// - In each of at most 1,024 passes, O(k log k) for each sender with a connection limited by a receiver whose level
    ///   moved in the last pass, and for each receiver with a connection limited by an offer that moved. These are all ports
    ///   in the first pass, and few in most others.
    /// - In each of at most 16 leaps, up to 80 trials, each of 1 to 6 passes over all connections.
    pub fn compute_rates(&mut self, send: &[f64], recv: &[f64], open: &[Connection], rates: &mut Vec<f64>) {
        let capacities_unchanged = self.send_capacities == send && self.recv_capacities == recv;
        self.sort_connections(send.len(), open);
        if !capacities_unchanged || self.connections != self.previous_connections {
            self.send_capacities.clear();
            self.send_capacities.extend_from_slice(send);
            self.recv_capacities.clear();
            self.recv_capacities.extend_from_slice(recv);
            self.iterate();
        }
        rates.clear();
        rates.resize(open.len(), 0.0);
        for (served, &rate) in self.connections.iter().zip(&self.rates) {
            // Rates of connections that get nothing converge to 0 without reaching it.
            let capacity = send[served.src as usize].min(recv[served.dst as usize]);
            let is_rounding = rate <= rounding::CAPACITY * capacity;
            rates[served.input_index as usize] = if is_rounding { 0.0 } else { rate };
        }
    }

    /// Sorts connections by the order in which their senders serve them.
    fn sort_connections(&mut self, ports: usize, open: &[Connection]) {
        std::mem::swap(&mut self.connections, &mut self.previous_connections);
        compute_starts(&mut self.sender_starts, ports, open.iter().map(|connection| connection.src));
        self.connections.clear();
        self.connections
            .resize(open.len(), SortedConnection { src: 0, dst: 0, priority_group: 0, input_index: 0 });
        for (place, &Connection { src, dst, rank }) in (0..).zip(open) {
            let next = &mut self.sender_starts[src as usize];
            self.connections[*next as usize] =
                SortedConnection { src, dst, priority_group: rank, input_index: place };
            *next += 1;
        }
        restore_starts(&mut self.sender_starts);
        for ends in self.sender_starts.windows(2) {
            let own = &mut self.connections[ends[0] as usize..ends[1] as usize];
            own.sort_by_key(|served| served.priority_group);
            let mut group = 0;
            for at in 0..own.len() {
                let next = own.get(at + 1).is_some_and(|next| next.priority_group != own[at].priority_group);
                own[at].priority_group = group;
                group += u32::from(next);
            }
        }
    }

    /// Computes the rates.
    fn iterate(&mut self) {
        self.initialize();
        for pass in 1..=MAX_PASSES {
            self.update_offers();
            if pass % LEAP_INTERVAL == LEAP_INTERVAL - LEAP_WINDOW + 1 {
                self.levels_before.clone_from(&self.levels);
            }
            if !self.raise_levels() {
                return;
            }
            if pass % LEAP_INTERVAL == 0 {
                self.extrapolate_levels();
            }
        }
        self.update_offers();
    }

    /// Repeats the movement of the last [`LEAP_WINDOW`] passes as often as each link's level stays at or below the level that
    /// offers fill.
    fn extrapolate_levels(&mut self) {
        self.levels_at_leap.clone_from(&self.levels);
        let mut power = 0;
        while power < MAX_DOUBLINGS && self.try_repeats(f64::from(power).exp2()) {
            power += 1;
        }
        // The maximum number of repeats is in [2^(power - 1), 2^power). Find its lower bits, from the highest.
        let mut repeats = if power == 0 { 0.0 } else { f64::from(power - 1).exp2() };
        for bit in (0..power.saturating_sub(1)).rev() {
            let next = repeats + f64::from(bit).exp2();
            if self.try_repeats(next) {
                repeats = next;
            }
        }
        self.try_repeats(repeats);
    }

    /// Sets levels to `repeats` movements after those before the leap, and lowers levels that their offers do not fill.
    /// Returns whether the corrections converged.
    fn try_repeats(&mut self, repeats: f64) -> bool {
        let steps = self.levels_at_leap.iter().zip(&self.levels_before);
        for ((level, (from, before)), &link) in self.levels.iter_mut().zip(steps).zip(&self.recv_capacities) {
            *level = (from + repeats * (from - before)).min(link);
        }
        (0..MAX_CORRECTION_ROUNDS).any(|_| {
            self.stale_senders.set_where(&self.send_capacities, |_| true);
            self.stale_receivers.set_where(&self.recv_capacities, |_| true);
            self.update_offers();
            self.lower_unfilled_levels()
        })
    }

    /// Lowers levels that their offers do not fill. Returns whether no level was lowered.
    fn lower_unfilled_levels(&mut self) -> bool {
        let mut filled = true;
        for port in 0..self.recv_capacities.len() {
            let Some(level) = self.filled_level(port) else { continue };
            if level < self.levels[port] - rounding::LEVEL * self.recv_capacities[port] {
                self.levels[port] = level;
                filled = false;
            }
        }
        filled
    }

    /// The level at which offers fill a receiver's link, at most the link's capacity; none without connections.
    fn filled_level(&mut self, port: usize) -> Option<f64> {
        let here = self.receiver_starts[port] as usize..self.receiver_starts[port + 1] as usize;
        if here.is_empty() {
            return None;
        }
        self.sort_buffer.clear();
        self.sort_buffer.extend(self.by_receiver[here].iter().map(|&at| self.offers[at as usize]));
        Some(water_level(&mut self.sort_buffer, self.recv_capacities[port]).min(self.recv_capacities[port]))
    }

    /// Groups connections by receiver, and sets all levels to even shares.
    fn initialize(&mut self) {
        let ports = self.recv_capacities.len();
        compute_starts(&mut self.receiver_starts, ports, self.connections.iter().map(|served| served.dst));
        self.by_receiver.clear();
        self.by_receiver.resize(self.connections.len(), 0);
        for (at, served) in (0..).zip(&self.connections) {
            let next = &mut self.receiver_starts[served.dst as usize];
            self.by_receiver[*next as usize] = at;
            *next += 1;
        }
        restore_starts(&mut self.receiver_starts);
        for own in [&mut self.rates, &mut self.offers] {
            own.clear();
            own.resize(self.connections.len(), 0.0);
        }
        let counts = self.receiver_starts.windows(2).map(|ends| ends[1] - ends[0]);
        self.levels.clear();
        self.levels.extend(
            self.recv_capacities.iter().zip(counts).map(|(link, count)| link / f64::from(count.max(1))),
        );
        self.stale_senders.set_where(&self.send_capacities, |_| true);
        self.stale_receivers.set_where(&self.recv_capacities, |_| true);
    }

    /// Computes rates and offers at the present levels, for the senders where they may have changed.
    fn update_offers(&mut self) {
        let mut stale = std::mem::take(&mut self.stale_senders);
        for src in stale.iter() {
            let (mut at, end) = (self.sender_starts[src] as usize, self.sender_starts[src + 1] as usize);
            let mut left = self.send_capacities[src];
            while at < end {
                let group = self.connections[at].priority_group;
                let others =
                    self.connections[at..end].iter().take_while(|served| served.priority_group == group);
                let until = at + others.count();
                left = self.update_group_offers(at..until, left);
                at = until;
            }
        }
        stale.clear();
        self.stale_senders = stale;
    }

    /// Divides a sender's residual capacity among connections of one rank. Returns the residual after that.
    fn update_group_offers(&mut self, group: Range<usize>, left: f64) -> f64 {
        let levels = &self.levels;
        let served = &self.connections[group.clone()];
        let caps = served.iter().map(|served| levels[served.dst as usize]);
        // Most senders have no residual capacity after their first rank.
        let level = if left == 0.0 {
            0.0
        } else {
            self.sort_buffer.clear();
            self.sort_buffer.extend(caps.clone());
            water_level(&mut self.sort_buffer, left)
        };
        let rates = &mut self.rates[group.clone()];
        let mut given = 0.0;
        for (rate, cap) in rates.iter_mut().zip(caps.clone()) {
            *rate = cap.min(level);
            given += *rate;
        }
        let left = (left - given).max(0.0);
        let max_cap = if level.is_finite() { 0.0 } else { caps.fold(0.0, f64::max) };
        for ((offer, &rate), served) in self.offers[group].iter_mut().zip(&*rates).zip(served) {
            // If all connections are at their caps, one of them could get the residual, and the rates of others above its cap.
            let more = if level.is_finite() { level } else { max_cap.max(rate + left) };
            if *offer != more {
                let dst = served.dst as usize;
                // Offers above a level do not affect it.
                if offer.min(more) <= levels[dst] + rounding::CAPACITY * self.recv_capacities[dst] {
                    self.stale_receivers.insert(dst);
                }
                *offer = more;
            }
        }
        left
    }

    /// Raises the levels to those that the offers fill. Returns whether a level moved.
    fn raise_levels(&mut self) -> bool {
        let mut moved = false;
        let mut stale = std::mem::take(&mut self.stale_receivers);
        for port in stale.iter() {
            let Some(level) = self.filled_level(port) else { continue };
            let capacity = self.recv_capacities[port];
            if level > self.levels[port] + rounding::LEVEL * capacity {
                let before = std::mem::replace(&mut self.levels[port], level);
                let here = self.receiver_starts[port] as usize..self.receiver_starts[port + 1] as usize;
                for &at in &self.by_receiver[here] {
                    // A connection whose rate was below its receiver's level keeps its rate.
                    if self.offers[at as usize] + rounding::CAPACITY * capacity >= before {
                        self.stale_senders.insert(self.connections[at as usize].src as usize);
                    }
                }
                moved = true;
            }
        }
        stale.clear();
        self.stale_receivers = stale;
        moved
    }
}

/// Sets `begins` to the index at which each port's entries start if `ports_of_entries` is sorted by port; the last
/// element is the total.
fn compute_starts(begins: &mut Vec<u32>, ports: usize, ports_of_entries: impl Iterator<Item = u32>) {
    begins.clear();
    begins.resize(ports + 1, 0);
    ports_of_entries.for_each(|port| begins[port as usize + 1] += 1);
    for port in 0..ports {
        begins[port + 1] += begins[port];
    }
}

/// Restores the starts after each has moved to the end of its port's entries.
fn restore_starts(begins: &mut [u32]) {
    let ports = begins.len() - 1;
    begins.copy_within(0..ports, 1);
    begins[0] = 0;
}

/// The level at which the minima of level and cap sum to `total`; infinite if the caps sum to less. Sorts the caps.
fn water_level(caps: &mut [f64], total: f64) -> f64 {
    if caps.len() > 1 {
        caps.sort_unstable_by(f64::total_cmp);
    }
    let (mut left, mut open) = (total, caps.len());
    for &cap in &*caps {
        if cap * open as f64 >= left {
            return left / open as f64;
        }
        left -= cap;
        open -= 1;
    }
    f64::INFINITY
}
