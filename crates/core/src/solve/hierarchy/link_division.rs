//! Divides one link between its services, and a service's share between its flows.

use crate::rounding;

/// A service that shares a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServiceClaim {
    pub service: u32,
    /// The sum of its flows' limits; can be infinite.
    pub limit_sum: f64,
    /// Its guarantee on the link.
    pub guarantee: f64,
    /// Its weight for the capacity above the guarantees.
    pub excess_weight: f64,
    /// The rate that it can have on the link if its flows' limits allow it.
    pub service_rate: f64,
    pub limits: Option<FlowLimits>,
}

/// The limits of a service's flows on a link, as a range of the divider's lists.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlowLimits {
    start: usize,
    end: usize,
    pub limit_sum: f64,
    flows: f64,
    min_limit: f64,
    pub max_limit: f64,
}

impl FlowLimits {
    /// Limits of `flows` flows without any limit.
    pub fn unlimited(flows: f64) -> FlowLimits {
        let limit = f64::INFINITY;
        FlowLimits { start: 0, end: 0, limit_sum: limit, flows, min_limit: limit, max_limit: limit }
    }

    /// These limits and those that were gathered right after them. `max_limit` of the result is not valid.
    pub fn merge(self, next: FlowLimits) -> FlowLimits {
        let start = if self.start == self.end { next.start } else { self.start };
        let (limit_sum, flows) = (self.limit_sum + next.limit_sum, self.flows + next.flows);
        let min_limit =
            if self.start == self.end { next.min_limit } else { self.min_limit.min(next.min_limit) };
        FlowLimits { start, end: next.end, limit_sum, flows, min_limit, ..self }
    }
}

/// Working memory to divide links, reused for each.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkDivider {
    pub claims: Vec<ServiceClaim>,
    limits: Vec<f64>,
    flows: Vec<f64>,
    fill_order: Vec<FillStep>,
}

/// A service in the order in which services reach the sum of their limits as the level rises.
#[derive(Debug, Clone, Copy, Default)]
struct FillStep {
    claim: usize,
    /// The level at which it reaches the sum.
    level: f64,
    /// The sum of the limits of the services before it, and of services without excess weight.
    limit_sum_before: f64,
    /// Guarantees and excess weights of this service and those after it.
    guarantees: f64,
    excess_weight: f64,
}

impl LinkDivider {
    pub fn clear(&mut self) {
        self.claims.clear();
        self.limits.clear();
        self.flows.clear();
    }

    /// Adds limits and numbers of flows of one service.
    pub fn gather_limits(&mut self, members: impl Iterator<Item = (f64, f64)>) -> FlowLimits {
        let start = self.limits.len();
        let (mut total, mut min_limit, mut highest) = (0.0, f64::INFINITY, 0.0f64);
        for (limit, flows) in members {
            if flows == 0.0 {
                continue;
            }
            self.limits.push(limit);
            self.flows.push(flows);
            total += flows;
            min_limit = min_limit.min(limit);
            highest = highest.max(limit);
        }
        let base = reference_limit(min_limit);
        let own = self.limits[start..].iter().zip(&self.flows[start..]);
        let limit_sum = base * total + own.map(|(&limit, &flows)| (limit - base) * flows).sum::<f64>();
        FlowLimits { start, end: self.limits.len(), limit_sum, flows: total, min_limit, max_limit: highest }
    }

    /// Sets every claim's `service_rate`: the rate of the service if its own limits were infinite and the others kept theirs.
    /// O(services^2) at worst; services are few.
    pub fn divide_link(&mut self, capacity: f64) {
        let LinkDivider { claims, fill_order, .. } = self;
        fill_order.clear();
        let mut fixed = 0.0;
        for (index, claim) in claims.iter().enumerate() {
            if claim.excess_weight > 0.0 {
                let level = ((claim.limit_sum - claim.guarantee) / claim.excess_weight).max(0.0);
                fill_order.push(FillStep { claim: index, level, ..FillStep::default() });
            } else {
                fixed += claim.limit_sum.min(claim.guarantee);
            }
        }
        fill_order.sort_unstable_by(|a, b| a.level.total_cmp(&b.level).then(a.claim.cmp(&b.claim)));
        let (mut guarantees, mut excess) = (0.0, 0.0);
        for step in fill_order.iter_mut().rev() {
            guarantees += claims[step.claim].guarantee;
            excess += claims[step.claim].excess_weight;
            (step.guarantees, step.excess_weight) = (guarantees, excess);
        }
        let mut before = fixed;
        for step in fill_order.iter_mut() {
            step.limit_sum_before = before;
            before += claims[step.claim].limit_sum;
        }
        // Rounding can make this negative if guarantees take all of the link.
        let level_at = |step: &FillStep| {
            ((capacity - step.limit_sum_before - step.guarantees) / step.excess_weight).max(0.0)
        };
        let first_limited =
            fill_order.iter().position(|step| step.level > level_at(step)).unwrap_or(fill_order.len());
        let level = fill_order.get(first_limited).map_or(0.0, level_at);
        for claim in claims.iter_mut().filter(|claim| claim.excess_weight == 0.0) {
            claim.service_rate = claim.guarantee;
        }
        for place in 0..fill_order.len() {
            let claim = &claims[fill_order[place].claim];
            let (own, weight) = (claim.guarantee, claim.excess_weight);
            let part = if place >= first_limited {
                own + weight * level
            } else {
                // Without a limit it would lower the level until another service is below the sum of its limits.
                let mut part = capacity - (sum_service_limits(fill_order, claims) - claim.limit_sum);
                for step in &fill_order[place + 1..] {
                    let others = step.limit_sum_before - claim.limit_sum;
                    let left = capacity - others - own - step.guarantees;
                    let level = (left / (weight + step.excess_weight)).max(0.0);
                    if step.level > level {
                        part = own + weight * level;
                        break;
                    }
                }
                part.max(claim.limit_sum)
            };
            claims[fill_order[place].claim].service_rate = part;
        }
    }

    /// The maximum rate of one flow within its service's part. `guess` is a number near it, or infinite. Adds the number of
    /// limits read to `limits_read`.
    pub fn compute_offer(&self, limits: &FlowLimits, part: f64, guess: f64, limits_read: &mut u64) -> f64 {
        if limits.limit_sum <= part {
            return limits.max_limit + surplus(part, limits.limit_sum);
        }
        if limits.start == limits.end {
            return part / limits.flows;
        }
        let (list, flows) = (&self.limits[limits.start..limits.end], &self.flows[limits.start..limits.end]);
        let base = reference_limit(limits.min_limit);
        // Newton's method: the flows' sum is concave in the offer, so from the second step on the offer only rises.
        let even_share = part / limits.flows;
        let (mut offer, mut is_lower_bound) =
            if guess.is_finite() { (guess, false) } else { (even_share, true) };
        loop {
            *limits_read += list.len() as u64;
            let (mut excess_below, mut below, mut above) = (0.0, 0.0, 0.0);
            for (&limit, &flows) in list.iter().zip(flows) {
                let is_below = limit <= offer;
                excess_below += if is_below { (limit - base) * flows } else { 0.0 };
                below += if is_below { flows } else { 0.0 };
                above += if is_below { 0.0 } else { flows };
            }
            if above == 0.0 {
                if is_lower_bound {
                    return offer;
                }
                (offer, is_lower_bound) = (even_share, true);
                continue;
            }
            let next = ((part - (base * below + excess_below)) / above).max(even_share);
            if next == offer || (is_lower_bound && next < offer) {
                return next;
            }
            (offer, is_lower_bound) = (next, true);
        }
    }
}

/// The number that sums of limits are relative to, so that equal limits sum without rounding. In the difference between a
/// part and the sum of limits, that rounding could be much of a flow.
fn reference_limit(min_limit: f64) -> f64 {
    if min_limit.is_finite() { min_limit } else { 0.0 }
}

/// The sum of the limits of all services that can get more. Finite only if no service is below its limits and the caller's
/// limits are finite.
fn sum_service_limits(order: &[FillStep], claims: &[ServiceClaim]) -> f64 {
    order.last().map_or(0.0, |step| step.limit_sum_before + claims[step.claim].limit_sum)
}

/// The part minus the sum of limits, less rounding: rounding is small relative to a part, but can be large relative to one
/// flow.
pub(super) fn surplus(part: f64, limit_sum: f64) -> f64 {
    (part * (1.0 - rounding::PARTS) - limit_sum).max(0.0)
}
