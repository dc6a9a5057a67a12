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

/// Passes over all connections. Most of what is decided by two is exact after a few; rings of senders and receivers that each wait for
/// the next come closer by a factor each time.
const PASSES: usize = 256;

/// Levels that move by less than this, relative to the link, have come to rest.
const REST: f64 = 1e-12;

/// The solver, with what it needs to allocate only once.
#[derive(Debug, Default)]
pub struct Connections {
    /// Connections by sender and rank.
    by_sender: Vec<u32>,
    /// Connections by receiver, and where each receiver's begin.
    by_receiver: Vec<u32>,
    begins: Vec<u32>,
    levels: Vec<f64>,
    offers: Vec<f64>,
    sorted: Vec<f64>,
}

impl Connections {
    /// Puts the rate of each connection in `rates`, in units of the capacities `send` and `recv` of the ports. O(n log n) for n
    /// connections, and n log n for each pass, of which there are at most 256, and mostly a few.
    pub fn rates(&mut self, send: &[f64], recv: &[f64], open: &[Connection], rates: &mut Vec<f64>) {
        rates.clear();
        rates.resize(open.len(), 0.0);
        self.offers.clear();
        self.offers.resize(open.len(), 0.0);
        self.by_sender.clear();
        self.by_sender.extend(0..open.len() as u32);
        self.by_sender.sort_by_key(|&at| (open[at as usize].src, open[at as usize].rank));
        self.group_by_receiver(recv, open);
        for _ in 0..PASSES {
            self.offer(send, open, rates);
            if !self.raise(recv, open) {
                return;
            }
        }
        self.offer(send, open, rates);
    }

    fn group_by_receiver(&mut self, recv: &[f64], open: &[Connection]) {
        self.begins.clear();
        self.begins.resize(recv.len() + 1, 0);
        for connection in open {
            self.begins[connection.dst as usize + 1] += 1;
        }
        for port in 0..recv.len() {
            self.begins[port + 1] += self.begins[port];
        }
        self.by_receiver.clear();
        self.by_receiver.extend(0..open.len() as u32);
        self.by_receiver.sort_by_key(|&at| open[at as usize].dst);
        self.levels.clear();
        let even = |(port, &capacity): (usize, &f64)| {
            capacity / f64::from((self.begins[port + 1] - self.begins[port]).max(1))
        };
        self.levels.extend(recv.iter().enumerate().map(even));
    }

    /// Finds rates and offers at these levels.
    fn offer(&mut self, send: &[f64], open: &[Connection], rates: &mut [f64]) {
        let (levels, offers, sorted) = (&self.levels, &mut self.offers, &mut self.sorted);
        let (mut port, mut left) = (u32::MAX, 0.0);
        let same = |a: &u32, b: &u32| {
            let (a, b) = (open[*a as usize], open[*b as usize]);
            (a.src, a.rank) == (b.src, b.rank)
        };
        for group in self.by_sender.chunk_by(same) {
            let src = open[group[0] as usize].src;
            if src != port {
                (port, left) = (src, send[src as usize]);
            }
            sorted.clear();
            sorted.extend(group.iter().map(|&at| levels[open[at as usize].dst as usize]));
            let most = sorted.iter().copied().fold(0.0, f64::max);
            let level = water_level(sorted, left);
            let mut given = 0.0;
            for &at in group {
                let rate = levels[open[at as usize].dst as usize].min(level);
                rates[at as usize] = rate;
                given += rate;
            }
            left = (left - given).max(0.0);
            for &at in group {
                // If all have what they can take, one of them could take what is left, and what others have above it.
                let more = if level.is_finite() { level } else { most.max(rates[at as usize] + left) };
                offers[at as usize] = more;
            }
        }
    }

    /// Raises the levels to what the offers fill; says whether one moved.
    fn raise(&mut self, recv: &[f64], open: &[Connection]) -> bool {
        let mut moved = false;
        for (port, &capacity) in recv.iter().enumerate() {
            let here = &self.by_receiver[self.begins[port] as usize..self.begins[port + 1] as usize];
            debug_assert!(here.iter().all(|&at| open[at as usize].dst as usize == port));
            if here.is_empty() {
                continue;
            }
            self.sorted.clear();
            self.sorted.extend(here.iter().map(|&at| self.offers[at as usize]));
            let level = water_level(&mut self.sorted, capacity).min(capacity);
            if level > self.levels[port] + REST * capacity {
                self.levels[port] = level;
                moved = true;
            }
        }
        moved
    }
}

/// The level at which the smaller of it and each cap add up to `total`; infinite if all caps do not. Sorts the caps.
fn water_level(caps: &mut [f64], total: f64) -> f64 {
    caps.sort_unstable_by(f64::total_cmp);
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
