//! The reducers of a coflow: its flows by receiving port and reduce task.

use super::super::workload::CoflowSpec;
use super::grid::GridPosition;
use super::layout::FlowKey;

/// The flows of each reducer. Receivers are positions among the receiving ports of the coflow.
#[derive(Debug, Clone)]
pub(super) struct Reducers {
    /// By flow: the number of its reducer.
    numbers: Vec<u32>,
    /// All flows, in the order of receivers, then of reducers, then of flows.
    flows: Vec<u32>,
    /// By receiver: the position in `flows` of its first flow; and the end of the last receiver's flows.
    first_positions: Vec<usize>,
}

impl Reducers {
    /// `None` if all flows have reducer 0. `keys` and `positions` are those of all flows in order. O(n log n) for n flows.
    pub fn new(
        spec: &CoflowSpec,
        keys: &[FlowKey],
        positions: &[GridPosition],
        receiver_count: usize,
    ) -> Option<Box<Reducers>> {
        if spec.flows.iter().all(|flow| flow.reducer == 0) {
            return None;
        }
        let numbers: Vec<u32> = keys.iter().map(|key| spec.flows[key.spec_index as usize].reducer).collect();
        let receiver = |flow: u32| positions[flow as usize].receiver;
        let mut flows: Vec<u32> = (0..keys.len() as u32).collect();
        flows.sort_unstable_by_key(|&flow| (receiver(flow), numbers[flow as usize], flow));
        let first = |at: usize| flows.partition_point(|&flow| (receiver(flow) as usize) < at);
        let first_positions = (0..=receiver_count).map(first).collect();
        Some(Box::new(Reducers { numbers, flows, first_positions }))
    }

    /// The number of a flow's reducer.
    pub fn number(&self, flow: u32) -> u32 {
        self.numbers[flow as usize]
    }

    /// The flows to a receiver, in the order of reducers.
    fn flows_to(&self, receiver: usize) -> &[u32] {
        &self.flows[self.first_positions[receiver]..self.first_positions[receiver + 1]]
    }

    /// The flows of each reducer at a receiver, by number.
    pub fn at(&self, receiver: usize) -> impl Iterator<Item = &[u32]> {
        self.flows_to(receiver).chunk_by(|&a, &b| self.number(a) == self.number(b))
    }

    /// The flows of a reducer at a receiver, in order. O(log flows to the receiver).
    pub fn flows_of(&self, receiver: usize, number: u32) -> &[u32] {
        let flows = self.flows_to(receiver);
        let start = flows.partition_point(|&flow| self.number(flow) < number);
        let count = flows[start..].partition_point(|&flow| self.number(flow) == number);
        &flows[start..start + count]
    }
}
