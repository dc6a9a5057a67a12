//! Schedules: lets the policy decide and turns its allocation into orders for hosts.

use std::sync::Arc;
use std::time::Duration;

use weir_core::allocation::{Inside, Queues};
use weir_core::model::Slot;
use weir_core::units::Rate;
use weir_proto::{FlowKey, Order, Pace};

use super::{Coflow, ControlPlane, Flow, Host, PART, observed_connections};

impl ControlPlane {
    /// Computes the next schedule. Returns an order for every host with a recent report for which something changed, or
    /// whose lease is due for renewal; orders that only renew a lease come last. O(flows), plus the cost of the policy.
    pub fn tick(&mut self, now: f64) -> Vec<(u32, Order)> {
        self.pass(now);
        for host in 0..self.hosts.len() {
            // The last order holds for a lease after the host receives it. The host keeps its share of links until
            // then.
            let silence = 2.0 * (self.settings.lease + self.settings.interval);
            let known = &mut self.hosts[host];
            if known.present && known.silent_for(self.now) > silence {
                known.present = false;
                self.give_data(host as u32, false);
            }
            let known = &mut self.hosts[host];
            if known.silent_for(self.now) > observed_connections::KEPT {
                self.forget_found(host as u32);
            }
        }
        let (keep, now) = (self.settings.keep, self.now);
        let forgotten =
            self.coflows.extract_if(.., |_, coflow| coflow.over.is_some_and(|over| now - over > keep));
        let forgotten: Vec<Coflow> = forgotten.map(|(_, coflow)| coflow).collect();
        forgotten.iter().for_each(|coflow| self.count(&coflow.flows, false));
        self.reckon();
        self.engine.schedule(self.now);
        self.engine.wake(self.now);
        self.allocate();
        self.orders()
    }

    fn orders(&mut self) -> Vec<(u32, Order)> {
        let paces = self.paces();
        let mut orders: Vec<Order> = Vec::with_capacity(self.hosts.len());
        for (number, host) in (0u32..).zip(&mut self.hosts) {
            // A silent host gets no order, and a complete one after its next report.
            host.addressed = host.present && host.silent_for(self.now) <= self.settings.lease;
            let whole = std::mem::replace(&mut host.whole, !host.addressed);
            let gone = std::mem::take(&mut host.gone);
            let flows =
                if whole { Vec::new() } else { gone.into_iter().map(|key| (key, Pace::Gone)).collect() };
            let addressed = host.addressed;
            let untold = host.queues.iter_mut().filter(|(_, (_, told))| whole || !told);
            let queues = untold.map(|(&link, (queues, told))| {
                *told = addressed;
                (link, queues.clone())
            });
            let queues = queues.collect();
            let arrivals =
                self.arrivals.as_mut().map(|known| known.take(number, addressed)).unwrap_or_default();
            orders.push(Order {
                epoch: self.epoch,
                seq: host.seq + 1,
                lease: Duration::from_secs_f64(self.settings.lease),
                whole,
                flows,
                queues,
                arrivals,
                limits: host.limits.changes(whole),
            });
        }
        let mut paces = paces.into_iter();
        for (id, coflow) in &mut self.coflows {
            let under_way = coflow.slot.is_some();
            for (at, flow) in coflow.flows.iter_mut().enumerate() {
                let order = &mut orders[flow.transfer.src as usize];
                let pace = if under_way && !flow.done { paces.next() } else { None };
                if order.whole {
                    flow.told = None;
                }
                if flow.told == pace {
                    continue;
                }
                flow.told = pace;
                let key = FlowKey { coflow: Arc::clone(id), flow: at as u32 };
                order.flows.push((key, pace.unwrap_or(Pace::Gone)));
            }
        }
        // Each host has a turn, so that not all leases are renewed at once. If schedules are late, turns are late too.
        let (now, interval, renewal) = (self.now, self.settings.interval, self.settings.renewal());
        let turns = (renewal / interval).ceil().max(1.0);
        self.ticks += 1;
        let turn = self.ticks % turns as u64;
        let needed = |at: usize, host: &Host, order: &Order| {
            let has_changes = order.whole || !is_empty(order);
            let renews = at as u64 % turns as u64 == turn || now - host.told >= turns * interval;
            host.addressed && (has_changes || renews)
        };
        let orders = self.hosts.iter_mut().zip(orders).enumerate();
        let mut orders: Vec<(u32, Order)> = orders
            .filter(|(at, (host, order))| needed(*at, host, order))
            .map(|(at, (host, mut order))| {
                if order.whole || host.obeys == host.seq {
                    host.owes = now;
                }
                (host.seq, host.told) = (order.seq, now);
                // A flow that was removed and added again within an interval appears once in the order, with its last
                // pace.
                order.flows.sort_by(|a, b| a.0.cmp(&b.0));
                order.flows.dedup_by(|later, earlier| {
                    let same = later.0 == earlier.0;
                    earlier.1 = if same { later.1 } else { earlier.1 };
                    same
                });
                (at as u32, order)
            })
            .collect();
        // Sending takes time, and renewals of leases are not urgent.
        orders.sort_by_key(|(_, order)| is_empty(order));
        orders
    }

    /// The pace of every active flow, in the order of coflow ids and flow indexes.
    fn paces(&self) -> Vec<Pace> {
        let network = self.engine.network();
        let rates = match self.engine.allocation().queues() {
            None => None,
            Some(Queues { inside: Inside::MaxMin, .. }) => {
                let open = self.coflows.values().filter(|coflow| coflow.slot.is_some());
                return open.flat_map(|c| &c.flows).filter(|f| !f.done).map(|_| Pace::Free).collect();
            }
            Some(queues) => Some(self.by_senders(queues)),
        };
        let rate = |slot: Slot, flow: &Flow| match &rates {
            None => network.rate(slot, flow.number),
            Some(rates) => rates.get(&(slot, flow.number)).copied().unwrap_or(0.0),
        };
        let flows = || {
            let open = self.coflows.values().filter_map(|coflow| Some((coflow.slot?, coflow)));
            open.flat_map(|(slot, c)| c.flows.iter().filter(|f| !f.done).map(move |flow| (slot, flow)))
        };
        let mut waiting = vec![(0u32, 0u32); self.links.len()];
        let decided: Vec<f64> = flows().map(|(slot, flow)| rate(slot, flow)).collect();
        for ((_, flow), _) in flows().zip(&decided).filter(|(_, rate)| **rate < 1.0) {
            waiting[flow.transfer.src as usize].0 += 1;
            waiting[flow.transfer.dst as usize].1 += 1;
        }
        let trickle = |flow: &Flow| {
            let (src, dst) = (flow.transfer.src as usize, flow.transfer.dst as usize);
            let part = |rate: Rate, among: u32| rate.get() / f64::from(rounded(among));
            let send = part(self.links[src].send, waiting[src].0);
            let recv = part(self.links[dst].recv, waiting[dst].1);
            self.settings.reserve * send.min(recv)
        };
        let pace = |((_, flow), &rate): ((Slot, &Flow), &f64)| {
            // 1e-6: the truncation to an integer below must not turn a rounding error into one byte per second less.
            let rate = if rate < 1.0 { trickle(flow) } else { rate / PART + 1e-6 };
            Pace::Rate((rate as u64).max(1))
        };
        flows().zip(&decided).map(pace).collect()
    }
}

/// Whether an order only renews the lease.
fn is_empty(order: &Order) -> bool {
    let Order { flows, queues, arrivals, limits, .. } = order;
    flows.is_empty() && queues.is_empty() && arrivals.is_empty() && limits.is_empty()
}

/// The next power of two, or three quarters of it if that is enough. With exact numbers, each new or completed flow
/// would change the orders of all flows that share the reserve of a port.
fn rounded(number: u32) -> u32 {
    let most = number.next_power_of_two();
    if number <= most - most / 4 { most - most / 4 } else { most }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn numbers_are_rounded_up_by_less_than_a_half() {
        let some: Vec<u32> = (1..=13).map(rounded).collect();
        assert_eq!(some, [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16]);
        for number in 1..100_000 {
            let round = rounded(number);
            assert!(round >= number && 2 * round < 3 * number + 2, "{number}: {round}");
        }
    }
}
