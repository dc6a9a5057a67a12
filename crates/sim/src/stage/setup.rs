//! The clusters of Saba's section 8.2: 16 jobs drawn from the ten workloads, on servers drawn for each.
//!
//! What the paper leaves open:
//!
//! - *Laws*: the workload, the size of its data (0.1, 1 or 10 times the profiler's), and its number of servers (from half to four times
//!   the profiler's 8) are drawn evenly and independently.
//! - *Which servers*: any set of so many, all equally likely. No server can get more than 16 jobs, for there are no more.
//! - *When jobs begin*: together.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use weir_core::units::Time;

use super::cluster::Placed;
use super::workload::{NODES, Workload};

/// Servers of the testbed (section 8.1).
pub const SERVERS: u32 = 32;

/// Jobs of a cluster setup.
pub const JOBS: usize = 16;

/// How much data a job can have, over what it has with the profiler.
pub const DATA: [f64; 3] = [0.1, 1.0, 10.0];

/// A job that was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// Its workload's position.
    pub workload: usize,
    /// Its data, over the profiler's.
    pub data: f64,
    /// Its servers, in rising order.
    pub servers: Vec<u32>,
}

impl Drawn {
    /// The job as it runs; its model is its workload's.
    pub fn placed(&self, workloads: &[Workload]) -> Placed {
        let nodes = self.servers.len() as f64 / f64::from(NODES);
        let stages = workloads[self.workload].stages(self.data, nodes);
        Placed { stages, servers: self.servers.clone(), model: Some(self.workload), start: Time::ZERO }
    }
}

/// Setup number `index` of those of `seed`, with this many workloads to draw from, of which there is at least one.
pub fn draw(seed: u64, index: u64, workloads: usize) -> Vec<Drawn> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    chance.set_stream(index);
    let mut below = |bound: usize| ((u128::from(chance.next_u64()) * bound as u128) >> 64) as usize;
    let (least, most) = ((NODES / 2) as usize, SERVERS as usize);
    (0..JOBS)
        .map(|_| {
            let workload = below(workloads);
            let data = DATA[below(DATA.len())];
            let count = least + below(most - least + 1);
            let mut servers: Vec<u32> = (0..SERVERS).collect();
            for place in 0..count {
                let other = place + below(servers.len() - place);
                servers.swap(place, other);
            }
            servers.truncate(count);
            servers.sort_unstable();
            Drawn { workload, data, servers }
        })
        .collect()
}
