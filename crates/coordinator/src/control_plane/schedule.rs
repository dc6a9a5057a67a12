//! Computes schedules: runs the policy and converts its allocation to orders.

use std::sync::Arc;
use std::time::Duration;

use weir_core::allocation::IntraQueueSharing;
use weir_core::model::{FlowState, Slot};
use weir_core::policy::PolicyError;
use weir_proto::{FlowKey, Order, OrderedRate};

use super::{
    Coflow, ControlPlane, Flow, Host, PAYLOAD_FRACTION, PauseMode, PolicyFailure, Transfer,
    observed_connections,
};

impl ControlPlane {
    /// Computes the next schedule, unless nothing has changed since the last one. Returns an order for each host with a recent
    /// report, if its rates, queues or limits changed or its lease is due for renewal. Orders that only renew a lease come last.
    /// O(flows), plus the cost of the policy.
    pub fn tick(&mut self, now: f64) -> Vec<(u32, Order)> {
        self.advance_to(now);
        self.expire_bandwidth_limits();
        self.has_changed_flows = false;
        self.engine.correct_overdue_flows(self.overdue_bytes(), self.now);
        for host in 0..self.hosts.len() {
            // An agent applies its last order until the end of the lease, so schedules include its flows until then.
            let max_silence = 2.0 * (self.settings.lease + self.settings.interval);
            let host_state = &mut self.hosts[host];
            if host_state.present && host_state.time_since_report(self.now) > max_silence {
                host_state.present = false;
                self.set_has_data(host as u32, false);
            }
            let host_state = &mut self.hosts[host];
            if host_state.time_since_report(self.now) > observed_connections::RETENTION {
                self.clear_observed(host as u32);
            }
        }
        let (keep_completed, now) = (self.settings.keep_completed, self.now);
        let expired = self.coflows.extract_if(.., |_, coflow| {
            coflow.completed_at.is_some_and(|completed| now - completed > keep_completed)
        });
        let expired: Vec<(Arc<str>, Coflow)> = expired.collect();
        for (id, coflow) in &expired {
            self.count_coflow(coflow, false);
            self.record_ended(id, coflow);
        }
        self.match_flows();
        let deviations = self.estimate_progress();
        let is_due = deviations.are_large || self.is_schedule_due();
        if is_due {
            for (slot, flow, sent_bytes) in deviations.flows {
                self.engine.set_flow_sent_bytes(slot, flow, sent_bytes, self.now);
            }
            let decided = self.engine.schedule(self.now).and_then(|()| self.engine.next_wakeup(self.now));
            self.next_wakeup = decided.unwrap_or_else(|error| self.record_policy_error(&error));
            if self.engine.has_max_rates() && self.policy_error.is_none() {
                // Flows can be faster than the policy expects.
                self.next_wakeup = self.next_wakeup.min(self.now + self.settings.lease);
            }
        }
        self.allocate();
        let orders = self.build_orders();
        if is_due {
            self.record_decisions();
        }
        orders
    }

    /// Whether flows have begun, ended or changed between data and none since the last schedule: an earlier schedule lets others use their
    /// links, or serves them.
    pub fn has_changed_flows(&self) -> bool {
        self.has_changed_flows
    }

    /// Records an invalid decision of the policy. From then on, TCP divides the links. Returns the time of the next schedule without an
    /// event: never.
    fn record_policy_error(&mut self, error: &PolicyError) -> f64 {
        if self.policy_error.is_none() {
            let coflow_name = |slot: Slot| match &self.id_by_slot[slot as usize] {
                Some(id) => format!("coflow {id}"),
                None => format!("coflow in slot {slot}"),
            };
            let hosts = self.links.hosts.len();
            let host_name = |host: usize| self.agent_names.name(host as u32);
            let link_name = |link: usize| match link {
                _ if link < hosts => format!("host {} (sending)", host_name(link)),
                _ if link < 2 * hosts => format!("host {} (receiving)", host_name(link - hosts)),
                _ => self.engine.trunk_name(link - 2 * hosts),
            };
            let message = error.message(&error.name_subjects(coflow_name, link_name));
            self.policy_error = Some(PolicyFailure { message, is_reported: false });
        }
        f64::INFINITY
    }

    /// The message of an invalid decision of the policy, once.
    pub fn take_policy_error(&mut self) -> Option<&str> {
        let failure = self.policy_error.as_mut().filter(|failure| !failure.is_reported)?;
        failure.is_reported = true;
        Some(&failure.message)
    }

    /// Whether the policy decides now, as in the simulator: after an event, or at the time that the policy requested. Policies without
    /// rates also decide by reported bytes, and therefore at every interval.
    fn is_schedule_due(&self) -> bool {
        // By rounding, an interval can end just before the requested time.
        self.engine.has_new_events()
            || self.next_wakeup <= self.now + 1e-6 * self.settings.interval
            || self.engine.allocation().queue_discipline().is_some()
    }

    /// Builds the orders of all hosts, and returns those that are due.
    fn build_orders(&mut self) -> Vec<(u32, Order)> {
        let rates = self.ordered_rates();
        let mut orders = self.orders_without_rates();
        self.add_changed_rates(&mut orders, rates);
        self.take_due_orders(orders)
    }

    /// An order for each host, with all its changes except those of rates.
    fn orders_without_rates(&mut self) -> Vec<Order> {
        let mut orders = Vec::with_capacity(self.hosts.len());
        for (number, host) in (0u32..).zip(&mut self.hosts) {
            // A host without a recent report gets no order, and a full order after its next report.
            host.receives_orders = host.present && host.time_since_report(self.now) <= self.settings.lease;
            let is_full = std::mem::replace(&mut host.orders.needs_full_order, !host.receives_orders);
            let removed_keys = std::mem::take(&mut host.flows_to_remove);
            let flows = if is_full {
                Vec::new()
            } else {
                removed_keys.into_iter().map(|key| (key, OrderedRate::Removed)).collect()
            };
            let (receives_orders, without_queues) = (host.receives_orders, host.is_without_queues());
            // The order that ends the pause is a full one, and names them all.
            let queues = if without_queues { None } else { Some(&mut host.queues) };
            let queues = queues.into_iter().flatten();
            let unsent_queues = queues.filter(|(_, (_, is_sent))| is_full || !is_sent);
            let queues = unsent_queues.map(|(&link, (queues, is_sent))| {
                *is_sent = receives_orders;
                (link, queues.clone())
            });
            let queues = queues.collect();
            let (traffic, is_traffic_sent) = &mut host.traffic;
            // A full order without traffic stands for none.
            let has_traffic = if is_full { !traffic.is_empty() } else { !*is_traffic_sent };
            *is_traffic_sent |= receives_orders;
            let traffic = (has_traffic && !without_queues).then(|| traffic.clone());
            let (udp_measurements, ended_udp_limits) = self
                .udp_measurements
                .as_mut()
                .map(|measurements| measurements.take(number, receives_orders))
                .unwrap_or_default();
            // Hosts have limits of the allocator, or by measurements.
            let mut udp_limits = host.limits.take_udp_limits(receives_orders);
            udp_limits.extend(ended_udp_limits);
            let downlink = self.links.hosts.get(number as usize).map_or(0.0, |link| link.recv.get());
            let matching = self.matching.as_mut();
            self.ordered_udp_limits += udp_limits.len() as u64;
            orders.push(Order {
                epoch: self.epoch,
                // `take_due_orders` numbers the orders that are sent.
                seq: 0,
                lease: Duration::from_secs_f64(self.settings.lease),
                is_full,
                is_early: false,
                flows,
                queues,
                udp_measurements,
                udp_limits,
                limits: host.limits.take_changes(is_full),
                unscheduled: std::mem::take(&mut host.unscheduled).into_iter().collect(),
                traffic,
                bandwidth_limit: host.bandwidth.limit().filter(|_| host.pause.is_none()),
                matching: matching
                    .filter(|_| host.pause.is_none())
                    .and_then(|matching| matching.take_order(number, downlink, is_full, receives_orders)),
                without_queues,
            });
        }
        orders
    }

    /// Adds the rates that differ from those of the last orders. `rates` are those of [`ControlPlane::ordered_rates`].
    fn add_changed_rates(&mut self, orders: &mut [Order], rates: Vec<OrderedRate>) {
        let mut rates = rates.into_iter();
        for (id, coflow) in self.coflows.iter_mut().filter(|(_, coflow)| !coflow.are_rates_removed) {
            coflow.are_rates_removed = coflow.slot.is_none();
            let (is_active, generation) = (coflow.slot.is_some(), coflow.registration.generation);
            for (index, flow) in coflow.flows.iter_mut().enumerate() {
                let order = &mut orders[flow.transfer.src as usize];
                let rate = if is_active && !flow.is_completed { rates.next() } else { None };
                let rate = flow.apply_pause(rate);
                if order.is_full {
                    flow.ordered_rate = None;
                }
                if flow.ordered_rate == rate {
                    continue;
                }
                flow.ordered_rate = rate;
                let key = FlowKey { coflow: Arc::clone(id), generation, flow: index as u32 };
                order.flows.push((key, rate.unwrap_or(OrderedRate::Removed)));
            }
        }
    }

    /// The orders that are due, with the numbers of their hosts: those with changes first.
    fn take_due_orders(&mut self, orders: Vec<Order>) -> Vec<(u32, Order)> {
        // Hosts take turns, so that not all leases are renewed in the same schedule. Late schedules delay turns, so a renewal is
        // also due after the time of a round.
        let (now, interval, renewal) = (self.now, self.settings.interval, self.settings.renewal_interval());
        let turns = (renewal / interval).ceil().max(1.0);
        self.schedule_count += 1;
        let turn = self.schedule_count % turns as u64;
        let is_due = |at: usize, host: &Host, order: &Order| {
            let has_changes =
                order.is_full || !only_renews_lease(order) || order.bandwidth_limit != host.bandwidth.ordered;
            let is_renewal_due =
                at as u64 % turns as u64 == turn || now - host.orders.last_order_at >= turns * interval;
            host.receives_orders && (has_changes || is_renewal_due)
        };
        let orders = self.hosts.iter_mut().zip(orders).enumerate();
        let mut orders: Vec<(u32, Order)> = orders
            .filter(|(at, (host, order))| is_due(*at, host, order))
            .map(|(at, (host, mut order))| {
                order.seq = host.orders.note_order(order.is_full, now);
                host.bandwidth.ordered = order.bandwidth_limit;
                // A flow that was removed and added again within an interval appears once in the order, with its last
                // rate.
                order.flows.sort_by(|a, b| a.0.cmp(&b.0));
                order.flows.dedup_by(|later, earlier| {
                    let same = later.0 == earlier.0;
                    earlier.1 = if same { later.1 } else { earlier.1 };
                    same
                });
                (at as u32, order)
            })
            .collect();
        // Sending takes time, and renewals are less urgent than changes.
        orders.sort_by_key(|(_, order)| only_renews_lease(order));
        orders
    }

    /// The rate of each active flow by the schedule, in the order of coflow ids and flow indices. Orders apply pauses in addition.
    fn ordered_rates(&self) -> Vec<OrderedRate> {
        let has_matching = self.matching.is_some();
        let queues = self.engine.allocation().queue_discipline();
        let is_max_min = queues.is_some_and(|queues| queues.intra_queue == IntraQueueSharing::MaxMin);
        if !has_matching && (is_max_min || self.policy_error.is_some()) {
            return self.active_flows().map(|_| OrderedRate::Unlimited).collect();
        }
        // With matching, flows send without a rate, or not at all.
        let capacities = self.links.capacities();
        let reserve = self.settings.budget.reserve_fraction(self.settings.reserve);
        let mut slow_flow_counts = vec![0u32; capacities.len()];
        let has_connection = |flow: &Flow| has_matching && flow.is_open;
        let mut contention = self.contention_of_services(capacities.len());
        // The scheduled rate of each flow, and whether it is slow.
        let mut scheduled = |(slot, flow): (Slot, &Flow)| {
            let rate = if has_matching { 0.0 } else { self.engine.flow_rate(slot, flow.engine_index) };
            let slowest =
                self.flow_links(slot, flow).map(|link| capacities[link]).fold(f64::INFINITY, f64::min);
            let is_slow = rate < 1.0 || rate < MIN_RATE_FRACTION * reserve * slowest;
            // Flows without a path have a share, too.
            let may_send = flow.may_send(self.now) && flow.pause != Some(PauseMode::Paused);
            if is_slow && !flow.is_gated && !has_connection(flow) && may_send {
                self.flow_links(slot, flow).for_each(|link| slow_flow_counts[link] += 1);
            }
            let coflow = self.engine.network().coflow(slot);
            if coflow.flow_state(flow.engine_index) == FlowState::Live {
                contention.add_flow(slot, self.flow_links(slot, flow));
            }
            (rate, is_slow)
        };
        let scheduled_rates: Vec<(f64, bool)> = self.active_flows().map(&mut scheduled).collect();
        let reserve_rate = |slot: Slot, flow: &Flow| {
            let equal_share =
                |link: usize| capacities[link] / f64::from(round_up_coarsely(slow_flow_counts[link]));
            reserve * self.flow_links(slot, flow).map(equal_share).fold(f64::INFINITY, f64::min)
        };
        let to_ordered_rate = |((slot, flow), &(scheduled, is_slow)): ((Slot, &Flow), &(f64, bool))| {
            // With matching, a flow waits for its connection, also if no other coflow competes.
            let mut is_alone =
                || !has_matching && !flow.is_udp && contention.is_alone(slot, self.flow_links(slot, flow));
            if has_connection(flow) || is_alone() {
                return OrderedRate::Unlimited;
            }
            if flow.is_gated && is_slow {
                return OrderedRate::Paused;
            }
            let mut rate = if scheduled < 1.0 { 0.0 } else { scheduled / PAYLOAD_FRACTION };
            if is_slow {
                rate += reserve_rate(slot, flow);
                return OrderedRate::Reserve((rate as u64).max(1));
            }
            // Without it, a rounding error could reduce the truncated rate by 1 B/s.
            rate += 1e-6;
            OrderedRate::Rate((rate as u64).max(1))
        };
        self.active_flows().zip(&scheduled_rates).map(to_ordered_rate).collect()
    }

    /// The active flows with the slots of their coflows, in the order of coflow ids and flow indices.
    fn active_flows(&self) -> impl Iterator<Item = (Slot, &Flow)> {
        let active = self.coflows.values().filter_map(|coflow| Some((coflow.slot?, coflow)));
        active.flat_map(|(slot, coflow)| {
            coflow.flows.iter().filter(|flow| !flow.is_completed).map(move |flow| (slot, flow))
        })
    }

    /// The links that a flow crosses, as positions in [`NetworkLinks::capacities`].
    #[inline]
    pub(super) fn flow_links(&self, slot: Slot, flow: &Flow) -> impl Iterator<Item = usize> {
        let Transfer { src, dst, .. } = flow.transfer;
        let ports = [src as usize, self.links.hosts.len() + dst as usize];
        // Only these need the coflow of the engine.
        let has_trunks = self.links.trunks.is_some();
        let trunks = has_trunks.then(|| self.engine.flow_links(slot, flow.engine_index).skip(ports.len()));
        ports.into_iter().chain(trunks.into_iter().flatten())
    }
}

/// A flow with a lower rate than this part of the reserve of its slowest link also gets a share of the reserve, or is paused if it is
/// gated: the socket of a very slow flow sends its next packet seconds or minutes later, even if its rate has risen in the meantime.
pub(super) const MIN_RATE_FRACTION: f64 = 0.125;

/// Whether an order only renews the lease.
fn only_renews_lease(order: &Order) -> bool {
    let Order { flows, queues, udp_measurements, udp_limits, limits, unscheduled, traffic, matching, .. } =
        order;
    flows.is_empty()
        && queues.is_empty()
        && udp_measurements.is_empty()
        && udp_limits.is_empty()
        && limits.is_empty()
        && unscheduled.is_empty()
        && traffic.is_none()
        && matching.is_none()
}

/// The next power of two, or three quarters of it if that is not below `count`. With exact counts, each new or completed
/// flow would change the ordered rates of all flows that share the reserve of a port.
fn round_up_coarsely(count: u32) -> u32 {
    let power_of_two = count.next_power_of_two();
    if count <= power_of_two - power_of_two / 4 { power_of_two - power_of_two / 4 } else { power_of_two }
}

#[cfg(test)]
mod tests {
    use super::round_up_coarsely;

    #[test]
    fn counts_are_rounded_up_by_less_than_a_half() {
        let rounded: Vec<u32> = (1..=13).map(round_up_coarsely).collect();
        assert_eq!(rounded, [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16]);
        for count in 1..100_000 {
            let rounded = round_up_coarsely(count);
            assert!(rounded >= count && 2 * rounded < 3 * count + 2, "{count}: {rounded}");
        }
    }
}
