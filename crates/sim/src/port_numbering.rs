//! Numbers the ports of a workload by the order in which its coflows list them.
//!
//! Papers assign residual capacity "for each flow of the coflow" without defining the order of flows. The engine uses the
//! order of port numbers, so the arbitrary port names of a trace would affect the result. A replay therefore numbers the
//! ports once, from the whole workload:
//!
//! - For each coflow, the sending ports of its flows form a list, and so do the receiving ports. A port of a list precedes
//!   the ports further down that list.
//! - The next port is the one with the earliest first use among the ports that no port without a number precedes.
//! - If no such port exists, because the lists of two coflows or of the two sides of one contradict each other, the
//!   next port is the one with the earliest first use.
//! - First uses are ordered by the arrival of the coflow (ties: by the order of the workload), then by flow, the sending
//!   port first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_core::model::{FlowSpec, Workload};

/// In a list of numbers: the port has no number yet. In a list of first uses: no coflow has used the port so far.
const NONE: u32 = u32::MAX;

/// The ports of a workload in their order.
#[derive(Debug)]
pub(crate) struct PortNumbering {
    /// The number of each port of the workload.
    number_by_port: Vec<u32>,
    /// By number, the port of the workload.
    port_by_number: Vec<u32>,
}

impl PortNumbering {
    /// Numbers the ports. O(flows + coflows log coflows + ports log ports).
    pub fn from_workload(workload: &Workload) -> PortNumbering {
        let ports = workload.ports as usize;
        let (ports_by_first_use, first_use_positions) = order_by_first_use(workload);
        let mut lists = PortLists::new(workload);
        // Ports that no remaining port precedes, by first use.
        let by_first_use = |port: u32| Reverse(first_use_positions[port as usize]);
        let mut ready_ports: BinaryHeap<_> = (0..workload.ports)
            .filter(|&port| lists.preceding_list_counts[port as usize] == 0)
            .map(by_first_use)
            .collect();
        let (mut number_by_port, mut port_by_number) = (vec![NONE; ports], Vec::with_capacity(ports));
        let mut remaining = ports_by_first_use.iter().copied();
        while port_by_number.len() < ports {
            let has_no_number = |port: u32| number_by_port[port as usize] == NONE;
            let port = match ready_ports.pop() {
                Some(Reverse(place)) => ports_by_first_use[place as usize],
                // Every remaining port is preceded by another one: lists contradict each other.
                None => remaining
                    .find(|&port| has_no_number(port))
                    .expect("a port without a number is not behind in the order of first uses"),
            };
            number_by_port[port as usize] = port_by_number.len() as u32;
            port_by_number.push(port);
            lists.remove_numbered(
                port,
                |port| number_by_port[port as usize] != NONE,
                |port| ready_ports.push(by_first_use(port)),
            );
        }
        PortNumbering { number_by_port, port_by_number }
    }

    /// The number of the workload's port `port`.
    pub fn number_of_port(&self, port: u32) -> u32 {
        self.number_by_port[port as usize]
    }

    /// The workload's ports, by number.
    pub fn ports(&self) -> impl Iterator<Item = u32> {
        self.port_by_number.iter().copied()
    }

    /// The workload's port with this number.
    pub fn port_with_number(&self, number: u32) -> u32 {
        self.port_by_number[number as usize]
    }
}

/// The ports in the order of their first uses, and for each port its place in that order.
fn order_by_first_use(workload: &Workload) -> (Vec<u32>, Vec<u32>) {
    let mut coflows: Vec<usize> = (0..workload.coflows.len()).collect();
    let arrival = |index: usize| workload.coflows[index].arrival.get();
    coflows.sort_by(|&a, &b| arrival(a).total_cmp(&arrival(b)));
    let flows = coflows.iter().flat_map(|&index| &workload.coflows[index].flows);
    let (mut ports_by_first_use, mut first_use_positions) = (Vec::new(), vec![NONE; workload.ports as usize]);
    for port in flows.flat_map(|flow| [flow.src, flow.dst]).chain(0..workload.ports) {
        if first_use_positions[port as usize] == NONE {
            first_use_positions[port as usize] = ports_by_first_use.len() as u32;
            ports_by_first_use.push(port);
            if ports_by_first_use.len() == first_use_positions.len() {
                break;
            }
        }
    }
    (ports_by_first_use, first_use_positions)
}

/// The lists of ports of coflows, by side, without the ports that have a number.
struct PortLists {
    /// The ports of each list, once each; and the index at which each list begins, followed by the end of the last.
    ports: Vec<u32>,
    list_starts: Vec<usize>,
    /// By list, the index of its first remaining port.
    list_heads: Vec<usize>,
    /// By port, the lists of which it is the first remaining port, and the number of lists in which another one precedes it.
    lists_by_first_port: Vec<Vec<u32>>,
    preceding_list_counts: Vec<u32>,
}

impl PortLists {
    fn new(workload: &Workload) -> PortLists {
        let count = workload.ports as usize;
        let (mut ports, mut begins) = (Vec::new(), vec![0]);
        let (mut first_of, mut waits) = (vec![Vec::new(); count], vec![0; count]);
        for side in [|flow: &FlowSpec| flow.src, |flow: &FlowSpec| flow.dst] {
            // By port, the last coflow that used it.
            let mut last_coflow = vec![usize::MAX; count];
            for (index, coflow) in workload.coflows.iter().enumerate() {
                let begin = ports.len();
                for port in coflow.flows.iter().map(side) {
                    if std::mem::replace(&mut last_coflow[port as usize], index) != index {
                        ports.push(port);
                    }
                }
                if ports.len() == begin + 1 {
                    // A list of one port does not constrain the order.
                    ports.truncate(begin);
                    continue;
                }
                first_of[ports[begin] as usize].push(begins.len() as u32 - 1);
                ports[begin + 1..].iter().for_each(|&port| waits[port as usize] += 1);
                begins.push(ports.len());
            }
        }
        let heads = begins[..begins.len() - 1].to_vec();
        PortLists {
            ports,
            list_starts: begins,
            list_heads: heads,
            lists_by_first_port: first_of,
            preceding_list_counts: waits,
        }
    }

    /// Removes the ports for which `is_numbered` returns true, which now include `port`, from the heads of lists. Calls
    /// `on_ready` with the ports that no remaining port precedes any more.
    fn remove_numbered(
        &mut self,
        port: u32,
        is_numbered: impl Fn(u32) -> bool,
        mut on_ready: impl FnMut(u32),
    ) {
        for list in std::mem::take(&mut self.lists_by_first_port[port as usize]) {
            let (head, end) = (&mut self.list_heads[list as usize], self.list_starts[list as usize + 1]);
            let skipped = self.ports[*head..end].iter().position(|&port| !is_numbered(port));
            *head = skipped.map_or(end, |skipped| *head + skipped);
            if let Some(&first) = self.ports[..end].get(*head) {
                self.lists_by_first_port[first as usize].push(list);
                self.preceding_list_counts[first as usize] -= 1;
                if self.preceding_list_counts[first as usize] == 0 {
                    on_ready(first);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "../benches/naive/ports.rs"]
mod naive;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_core::model::{CoflowSpec, ServiceNames};
    use weir_core::units::{Bytes, Time};

    /// The order of ports for coflows with flows between these ports, each coflow one second after the one before.
    fn numbered_ports(ports: u32, coflows: &[&[(u32, u32)]]) -> Vec<u32> {
        let flow = |&(src, dst): &(u32, u32)| FlowSpec::new(src, dst, Bytes::new(1.0).unwrap());
        let coflow = |(at, flows): (usize, &&[(u32, u32)])| {
            CoflowSpec::new(at as u64, Time::new(at as f64).unwrap(), flows.iter().map(flow).collect())
        };
        let coflows = coflows.iter().enumerate().map(coflow).collect();
        let ports = PortNumbering::from_workload(&Workload {
            ports,
            coflows,
            events: Vec::new(),
            names: ServiceNames::default(),
        });
        let names: Vec<u32> = ports.ports().collect();
        for (number, &name) in names.iter().enumerate() {
            assert_eq!(
                (ports.number_of_port(name), ports.port_with_number(number as u32)),
                (number as u32, name)
            );
        }
        names
    }

    #[test]
    fn ports_are_numbered_by_first_use() {
        assert_eq!(numbered_ports(6, &[&[(4, 1)], &[(0, 4)], &[(3, 1)]]), [4, 1, 0, 3, 2, 5]);
    }

    #[test]
    fn port_precedes_ports_listed_later_by_a_coflow() {
        // Port 2 is used last, but precedes 1 in a list of senders, and 1 precedes 0 in a list of receivers.
        assert_eq!(numbered_ports(3, &[&[(1, 1)], &[(0, 0)], &[(2, 1), (1, 0)]]), [2, 1, 0]);
    }

    #[test]
    fn duplicate_port_counts_at_its_first_position() {
        assert_eq!(numbered_ports(4, &[&[(0, 2), (0, 3), (1, 2), (1, 3)]]), [0, 2, 3, 1]);
    }

    #[test]
    fn first_use_breaks_contradicting_lists() {
        let both: &[&[(u32, u32)]] = &[&[(1, 3), (0, 3)], &[(0, 3), (1, 3)]];
        assert_eq!(numbered_ports(4, both), [3, 2, 1, 0]);
        // Only the contradiction is broken: 5 still precedes 0, and 4 and 2 are between 1 and 0.
        let more: &[&[(u32, u32)]] =
            &[&[(1, 3), (4, 3), (2, 3), (0, 3)], &[(0, 3), (1, 3)], &[(5, 3), (0, 3)]];
        assert_eq!(numbered_ports(6, more), [3, 5, 1, 4, 2, 0]);
    }

    proptest! {
        #[test]
        fn port_order_matches_the_pairwise_reference(
            coflows in prop::collection::vec((0..4u32, prop::collection::vec((0..7u32, 0..7u32), 1..6)), 0..8),
        ) {
            let flow = |(src, dst)| FlowSpec::new(src, dst, Bytes::new(1.0).unwrap());
            let coflow = |(id, (arrival, flows)): (usize, (u32, Vec<_>))| {
                let arrival = Time::new(f64::from(arrival)).unwrap();
                CoflowSpec::new(id as u64, arrival, flows.into_iter().map(flow).collect())
            };
            let coflows = coflows.into_iter().enumerate().map(coflow).collect();
            let workload = Workload { ports: 7, coflows, events: Vec::new(), names: ServiceNames::default() };
            let ports = PortNumbering::from_workload(&workload);
            let found: Vec<usize> = (0..7).map(|port| ports.number_of_port(port) as usize).collect();
            prop_assert_eq!(found, naive::port_positions(&workload));
        }
    }
}
