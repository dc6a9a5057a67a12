//! The bytes that trunks carried, and those that they could have carried.

/// The use of trunks until `since`.
#[derive(Debug, Default)]
pub(super) struct TrunkUsage {
    /// By trunk: bytes of completed flows, and of the lost progress of restarted ones.
    carried_bytes: Vec<f64>,
    /// By trunk: bytes that the trunk could have carried.
    capacity_bytes: Vec<f64>,
    since: f64,
}

impl TrunkUsage {
    /// Adds bytes of a flow over these trunks.
    pub fn add_bytes(&mut self, trunks: impl Iterator<Item = u32>, bytes: f64) {
        for trunk in trunks {
            self.carried_bytes.resize(self.carried_bytes.len().max(trunk as usize + 1), 0.0);
            self.carried_bytes[trunk as usize] += bytes;
        }
    }

    /// Records that the trunks had these capacities, in bytes per second, until `now`.
    pub fn add_capacities(&mut self, capacities: &[f64], now: f64) {
        self.capacity_bytes.resize(capacities.len(), 0.0);
        for (bytes, capacity) in self.capacity_bytes.iter_mut().zip(capacities) {
            *bytes += capacity * (now - self.since);
        }
        self.since = now;
    }

    /// By trunk: bytes divided by those that it could have carried; 0 without capacity.
    pub fn utilization(&self) -> Vec<f64> {
        let carried = self.carried_bytes.iter().copied().chain(std::iter::repeat(0.0));
        let of_trunk =
            |(capacity, carried): (&f64, f64)| if *capacity > 0.0 { carried / capacity } else { 0.0 };
        self.capacity_bytes.iter().zip(carried).map(of_trunk).collect()
    }
}
