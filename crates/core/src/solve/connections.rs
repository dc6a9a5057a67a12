//! What open connections settle at: senders serve them in strict order of rank, receivers share what arrives as TCP would.
//!
//! A sender gives its connections of the first rank all they can use, max-min between them, then those of the second what is left, and so
//! on. A receiver is shared max-min, whatever the rank: nobody told it anything. The rates are the fixed point of both: each
//! receiver has a level, the most that one of its connections gets, and takes either all that is offered, or fills its link.
//!
//! Levels start at even shares, and are raised together: with every receiver at its level, each connection has an *offer*, what its
//! sender could give it if its receiver took more; the next level of a receiver is the one at which the smaller of level and offer
//! fill its link. Offers only fall while levels rise, so levels never pass the fixed point, and rates are within all capacities
//! however early one stops.
//!
//! A pass can raise a level by as little as the difference of two capacities: with a sender of 1 and a receiver of 1.001, two
//! connections of different rank gain and lose 0.001 a pass. After `LEAP` passes all levels therefore repeat what they
//! moved in the last `STEP`, as often as the condition for never passing the fixed point allows: offers at the new levels still fill each link at its level or above.

use std::ops::Range;

use crate::model::Mask;

/// An open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The sending port.
    pub src: u32,
    /// The receiving port.
    pub dst: u32,
    /// Lower goes first at the sender.
    pub rank: u32,
}

/// Passes over all connections. Most rates are exact after a few; rings of senders and receivers that each wait for the next
/// converge by a factor each pass.
const PASSES: usize = 1024;

/// Passes between two leaps.
const LEAP: usize = 64;

/// Passes whose step a leap repeats. A step goes round a ring of n receivers in n passes; 60 is a multiple of every n up to 6.
const STEP: usize = 60;

/// A leap repeats a step less than 2^40 times.
const DOUBLINGS: i32 = 40;

/// Rounds that correct the rounding of a leap.
const ROUNDS: usize = 6;

/// Levels that move by less than this, relative to the link, have come to rest.
const REST: f64 = 1e-12;

/// What differs by more than this, relative to the link, differs by more than rounding.
const APART: f64 = 1e-9;

/// A connection in the order in which senders serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Served {
    src: u32,
    dst: u32,
    /// Connections of one rank are one group; groups of a sender count from 0.
    group: u32,
    /// Where it is in what was asked.
    place: u32,
}

/// The solver, with what it needs to allocate only once, and what it found last.
#[derive(Debug, Default)]
pub struct Connections {
    /// By sender, by rank, and as asked, and where each sender's begin; and what that was in the question before.
    served: Vec<Served>,
    send_begins: Vec<u32>,
    before: Vec<Served>,
    send: Vec<f64>,
    recv: Vec<f64>,
    /// By connection, in the order of `served`.
    rates: Vec<f64>,
    offers: Vec<f64>,
    /// Positions in `served` by receiver, and where each receiver's begin.
    by_receiver: Vec<u32>,
    recv_begins: Vec<u32>,
    levels: Vec<f64>,
    /// Levels before the step that a leap repeats, and after it.
    levels_before: Vec<f64>,
    leap_from: Vec<f64>,
    /// Senders and receivers that may find something else than in the pass before.
    stale_send: Mask,
    stale_recv: Mask,
    sorted: Vec<f64>,
}

impl Connections {
    /// Puts the rate of each connection in `rates`, in units of the capacities `send` and `recv` of the ports.
    ///
    /// O(ports + n log k) for n connections, of which a port has k, and then, for each of at most 1,024 passes, k log k for each
    /// sender with a connection limited by a receiver whose level moved in the pass before, and for each receiver with one limited by
    /// an offer that did: all in the first, few in most others. Each of at most 16 leaps costs up to 80 passes over all
    /// connections. O(ports + n log k) in all if connections, their order at each sender
    /// and links are those of the last question: then so are the rates.
    pub fn rates(&mut self, send: &[f64], recv: &[f64], open: &[Connection], rates: &mut Vec<f64>) {
        let links = self.send == send && self.recv == recv;
        self.arrange(send.len(), open);
        if !links || self.served != self.before {
            self.send.clear();
            self.send.extend_from_slice(send);
            self.recv.clear();
            self.recv.extend_from_slice(recv);
            self.settle();
        }
        rates.clear();
        rates.resize(open.len(), 0.0);
        for (served, &rate) in self.served.iter().zip(&self.rates) {
            rates[served.place as usize] = rate;
        }
    }

    /// Puts connections in the order in which their senders serve them.
    fn arrange(&mut self, ports: usize, open: &[Connection]) {
        std::mem::swap(&mut self.served, &mut self.before);
        count_up(&mut self.send_begins, ports, open.iter().map(|connection| connection.src));
        self.served.clear();
        self.served.resize(open.len(), Served { src: 0, dst: 0, group: 0, place: 0 });
        for (place, &Connection { src, dst, rank }) in (0..).zip(open) {
            let next = &mut self.send_begins[src as usize];
            self.served[*next as usize] = Served { src, dst, group: rank, place };
            *next += 1;
        }
        step_back(&mut self.send_begins);
        for ends in self.send_begins.windows(2) {
            let own = &mut self.served[ends[0] as usize..ends[1] as usize];
            own.sort_by_key(|served| served.group);
            let mut group = 0;
            for at in 0..own.len() {
                let next = own.get(at + 1).is_some_and(|next| next.group != own[at].group);
                own[at].group = group;
                group += u32::from(next);
            }
        }
    }

    /// Finds the rates.
    fn settle(&mut self) {
        self.begin();
        for pass in 1..=PASSES {
            self.offer();
            if pass % LEAP == LEAP - STEP + 1 {
                self.levels_before.clone_from(&self.levels);
            }
            if !self.raise() {
                return;
            }
            if pass % LEAP == 0 {
                self.leap();
            }
        }
        self.offer();
    }

    /// Repeats the last [`STEP`] of all levels as often as each link's level stays at or below the one that offers fill.
    fn leap(&mut self) {
        self.leap_from.clone_from(&self.levels);
        let mut power = 0;
        while power < DOUBLINGS && self.may_repeat_step(f64::from(power).exp2()) {
            power += 1;
        }
        // The greatest number is in [2^(power - 1), 2^power): its other bits, from the highest.
        let mut repeats = if power == 0 { 0.0 } else { f64::from(power - 1).exp2() };
        for bit in (0..power.saturating_sub(1)).rev() {
            let next = repeats + f64::from(bit).exp2();
            if self.may_repeat_step(next) {
                repeats = next;
            }
        }
        self.may_repeat_step(repeats);
    }

    /// Puts levels so many steps after those before the leap, less what their offers do not fill; says whether that is little.
    fn may_repeat_step(&mut self, repeats: f64) -> bool {
        let steps = self.leap_from.iter().zip(&self.levels_before);
        for ((level, (from, before)), &link) in self.levels.iter_mut().zip(steps).zip(&self.recv) {
            *level = (from + repeats * (from - before)).min(link);
        }
        (0..ROUNDS).any(|_| {
            self.stale_send.set_where(&self.send, |_| true);
            self.stale_recv.set_where(&self.recv, |_| true);
            self.offer();
            self.are_filled()
        })
    }

    /// Lowers levels that their offers do not fill; says whether there were none.
    fn are_filled(&mut self) -> bool {
        let mut filled = true;
        for port in 0..self.recv.len() {
            let Some(level) = self.filled_level(port) else { continue };
            if level < self.levels[port] - REST * self.recv[port] {
                self.levels[port] = level;
                filled = false;
            }
        }
        filled
    }

    /// The level at which offers fill a receiver's link, at most the link; nothing without connections.
    fn filled_level(&mut self, port: usize) -> Option<f64> {
        let here = self.recv_begins[port] as usize..self.recv_begins[port + 1] as usize;
        if here.is_empty() {
            return None;
        }
        self.sorted.clear();
        self.sorted.extend(self.by_receiver[here].iter().map(|&at| self.offers[at as usize]));
        Some(water_level(&mut self.sorted, self.recv[port]).min(self.recv[port]))
    }

    /// Groups connections by receiver, and puts all levels at even shares.
    fn begin(&mut self) {
        let ports = self.recv.len();
        count_up(&mut self.recv_begins, ports, self.served.iter().map(|served| served.dst));
        self.by_receiver.clear();
        self.by_receiver.resize(self.served.len(), 0);
        for (at, served) in (0..).zip(&self.served) {
            let next = &mut self.recv_begins[served.dst as usize];
            self.by_receiver[*next as usize] = at;
            *next += 1;
        }
        step_back(&mut self.recv_begins);
        for own in [&mut self.rates, &mut self.offers] {
            own.clear();
            own.resize(self.served.len(), 0.0);
        }
        let counts = self.recv_begins.windows(2).map(|ends| ends[1] - ends[0]);
        self.levels.clear();
        self.levels.extend(self.recv.iter().zip(counts).map(|(link, count)| link / f64::from(count.max(1))));
        self.stale_send.set_where(&self.send, |_| true);
        self.stale_recv.set_where(&self.recv, |_| true);
    }

    /// Finds rates and offers at these levels, where they may be others than before.
    fn offer(&mut self) {
        let mut stale = std::mem::take(&mut self.stale_send);
        for src in stale.iter() {
            let (mut at, end) = (self.send_begins[src] as usize, self.send_begins[src + 1] as usize);
            let mut left = self.send[src];
            while at < end {
                let group = self.served[at].group;
                let others = self.served[at..end].iter().take_while(|served| served.group == group);
                let until = at + others.count();
                left = self.offer_group(at..until, left);
                at = until;
            }
        }
        stale.clear();
        self.stale_send = stale;
    }

    /// Shares what a sender has left among connections of one rank; answers with what is left then.
    fn offer_group(&mut self, group: Range<usize>, left: f64) -> f64 {
        let levels = &self.levels;
        let served = &self.served[group.clone()];
        let caps = served.iter().map(|served| levels[served.dst as usize]);
        // Most senders have nothing left after their first rank.
        let level = if left == 0.0 {
            0.0
        } else {
            self.sorted.clear();
            self.sorted.extend(caps.clone());
            water_level(&mut self.sorted, left)
        };
        let rates = &mut self.rates[group.clone()];
        let mut given = 0.0;
        for (rate, cap) in rates.iter_mut().zip(caps.clone()) {
            *rate = cap.min(level);
            given += *rate;
        }
        let left = (left - given).max(0.0);
        let most = if level.is_finite() { 0.0 } else { caps.fold(0.0, f64::max) };
        for ((offer, &rate), served) in self.offers[group].iter_mut().zip(&*rates).zip(served) {
            // If all have what they can take, one of them could take what is left, and what others have above it.
            let more = if level.is_finite() { level } else { most.max(rate + left) };
            if *offer != more {
                let dst = served.dst as usize;
                // Offers above a level have no part in it.
                if offer.min(more) <= levels[dst] + APART * self.recv[dst] {
                    self.stale_recv.insert(dst);
                }
                *offer = more;
            }
        }
        left
    }

    /// Raises the levels to what the offers fill; says whether one moved.
    fn raise(&mut self) -> bool {
        let mut moved = false;
        let mut stale = std::mem::take(&mut self.stale_recv);
        for port in stale.iter() {
            let Some(level) = self.filled_level(port) else { continue };
            let capacity = self.recv[port];
            if level > self.levels[port] + REST * capacity {
                let before = std::mem::replace(&mut self.levels[port], level);
                let here = self.recv_begins[port] as usize..self.recv_begins[port + 1] as usize;
                for &at in &self.by_receiver[here] {
                    // Who had less than its receiver would take still has that.
                    if self.offers[at as usize] + APART * capacity >= before {
                        self.stale_send.insert(self.served[at as usize].src as usize);
                    }
                }
                moved = true;
            }
        }
        stale.clear();
        self.stale_recv = stale;
        moved
    }
}

/// Makes `begins` where each port's begin if all of these ports are put in order, and where the last end.
fn count_up(begins: &mut Vec<u32>, ports: usize, of: impl Iterator<Item = u32>) {
    begins.clear();
    begins.resize(ports + 1, 0);
    of.for_each(|port| begins[port as usize + 1] += 1);
    for port in 0..ports {
        begins[port + 1] += begins[port];
    }
}

/// Undoes that each beginning was moved on to the next while its port's were put there.
fn step_back(begins: &mut [u32]) {
    let ports = begins.len() - 1;
    begins.copy_within(0..ports, 1);
    begins[0] = 0;
}

/// The level at which the smaller of it and each cap add up to `total`; infinite if all caps do not. Sorts the caps.
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
