//! Divides one link between its services, and a service's share between its flows.

/// A service that shares a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub service: u32,
    /// The sum of its flows' limits; can be infinite.
    pub wanted: f64,
    /// Its guarantee on the link.
    pub guarantee: f64,
    /// Its weight for the capacity above the guarantees.
    pub excess: f64,
    /// The rate that it can have on the link if its flows' limits allow it.
    pub part: f64,
    pub limits: Option<Limits>,
}

/// The limits of a service's flows on a link, as a range of the divider's lists.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    start: usize,
    end: usize,
    pub wanted: f64,
    flows: f64,
    least: f64,
    pub highest: f64,
}

impl Limits {
    /// Limits of `flows` flows without any limit.
    pub fn unlimited(flows: f64) -> Limits {
        let wanted = f64::INFINITY;
        Limits { start: 0, end: 0, wanted, flows, least: wanted, highest: wanted }
    }

    /// These limits and those that were gathered right after them. `highest` of the result is not valid.
    pub fn and(self, next: Limits) -> Limits {
        let start = if self.start == self.end { next.start } else { self.start };
        let (wanted, flows) = (self.wanted + next.wanted, self.flows + next.flows);
        let least = if self.start == self.end { next.least } else { self.least.min(next.least) };
        Limits { start, end: next.end, wanted, flows, least, ..self }
    }
}

/// Working memory to divide links, reused for each.
#[derive(Debug, Clone, Default)]
pub(super) struct Divider {
    pub claims: Vec<Claim>,
    limits: Vec<f64>,
    flows: Vec<f64>,
    order: Vec<Step>,
}

/// A service in the order in which services reach the sum of their limits as the level rises.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    claim: usize,
    /// The level at which it reaches the sum.
    level: f64,
    /// The sum of the limits of the services before it, and of services without excess weight.
    wanted_before: f64,
    /// Guarantees and excess weights of this service and those after it.
    guarantees: f64,
    excess: f64,
}

impl Divider {
    pub fn clear(&mut self) {
        self.claims.clear();
        self.limits.clear();
        self.flows.clear();
    }

    /// Adds limits and numbers of flows of one service.
    pub fn gather(&mut self, members: impl Iterator<Item = (f64, f64)>) -> Limits {
        let start = self.limits.len();
        let (mut total, mut least, mut highest) = (0.0, f64::INFINITY, 0.0f64);
        for (limit, flows) in members {
            if flows == 0.0 {
                continue;
            }
            self.limits.push(limit);
            self.flows.push(flows);
            total += flows;
            least = least.min(limit);
            highest = highest.max(limit);
        }
        let base = base(least);
        let own = self.limits[start..].iter().zip(&self.flows[start..]);
        let wanted = base * total + own.map(|(&limit, &flows)| (limit - base) * flows).sum::<f64>();
        Limits { start, end: self.limits.len(), wanted, flows: total, least, highest }
    }

    /// Sets every claim's part: what the service would get if its own limits were infinite and the others kept theirs.
    /// O(services^2) at worst; services are few.
    pub fn divide(&mut self, capacity: f64) {
        let Divider { claims, order, .. } = self;
        order.clear();
        let mut fixed = 0.0;
        for (index, claim) in claims.iter().enumerate() {
            if claim.excess > 0.0 {
                let level = ((claim.wanted - claim.guarantee) / claim.excess).max(0.0);
                order.push(Step { claim: index, level, ..Step::default() });
            } else {
                fixed += claim.wanted.min(claim.guarantee);
            }
        }
        order.sort_unstable_by(|a, b| a.level.total_cmp(&b.level).then(a.claim.cmp(&b.claim)));
        let (mut guarantees, mut excess) = (0.0, 0.0);
        for step in order.iter_mut().rev() {
            guarantees += claims[step.claim].guarantee;
            excess += claims[step.claim].excess;
            (step.guarantees, step.excess) = (guarantees, excess);
        }
        let mut before = fixed;
        for step in order.iter_mut() {
            step.wanted_before = before;
            before += claims[step.claim].wanted;
        }
        // Rounding can make this negative if guarantees take all of the link.
        let level_at =
            |step: &Step| ((capacity - step.wanted_before - step.guarantees) / step.excess).max(0.0);
        let first_short = order.iter().position(|step| step.level > level_at(step)).unwrap_or(order.len());
        let level = order.get(first_short).map_or(0.0, level_at);
        for claim in claims.iter_mut().filter(|claim| claim.excess == 0.0) {
            claim.part = claim.guarantee;
        }
        for place in 0..order.len() {
            let claim = &claims[order[place].claim];
            let (own, weight) = (claim.guarantee, claim.excess);
            let part = if place >= first_short {
                own + weight * level
            } else {
                // Without a limit it would lower the level until another service is below the sum of its limits.
                let mut part = capacity - (before_all(order, claims) - claim.wanted);
                for step in &order[place + 1..] {
                    let others = step.wanted_before - claim.wanted;
                    let left = capacity - others - own - step.guarantees;
                    let level = (left / (weight + step.excess)).max(0.0);
                    if step.level > level {
                        part = own + weight * level;
                        break;
                    }
                }
                part.max(claim.wanted)
            };
            claims[order[place].claim].part = part;
        }
    }

    /// The maximum rate of one flow within its service's part. `guess` is a number near it, or infinite. Adds the number of
    /// limits read to `read`.
    pub fn offer(&self, limits: &Limits, part: f64, guess: f64, read: &mut u64) -> f64 {
        if limits.wanted <= part {
            return limits.highest + beyond(part, limits.wanted);
        }
        if limits.start == limits.end {
            return part / limits.flows;
        }
        let (list, flows) = (&self.limits[limits.start..limits.end], &self.flows[limits.start..limits.end]);
        let base = base(limits.least);
        // Newton's method: the flows' sum is concave in the offer, so from the second step on the offer only rises.
        let least = part / limits.flows;
        let (mut offer, mut sure) = if guess.is_finite() { (guess, false) } else { (least, true) };
        loop {
            *read += list.len() as u64;
            let (mut beside, mut below, mut above) = (0.0, 0.0, 0.0);
            for (&limit, &flows) in list.iter().zip(flows) {
                let is_below = limit <= offer;
                beside += if is_below { (limit - base) * flows } else { 0.0 };
                below += if is_below { flows } else { 0.0 };
                above += if is_below { 0.0 } else { flows };
            }
            if above == 0.0 {
                if sure {
                    return offer;
                }
                (offer, sure) = (least, true);
                continue;
            }
            let next = ((part - (base * below + beside)) / above).max(least);
            if next == offer || (sure && next < offer) {
                return next;
            }
            (offer, sure) = (next, true);
        }
    }
}

/// The number that sums of limits are relative to, so that equal limits sum without rounding. In the difference between a
/// part and the sum of limits, that rounding could be much of a flow.
fn base(least: f64) -> f64 {
    if least.is_finite() { least } else { 0.0 }
}

/// The sum of the limits of all services that can get more. Finite only if no service is below its limits and the caller's
/// limits are finite.
fn before_all(order: &[Step], claims: &[Claim]) -> f64 {
    order.last().map_or(0.0, |step| step.wanted_before + claims[step.claim].wanted)
}

/// The part minus the sum of limits, less rounding: rounding is small relative to a part, but can be large relative to one
/// flow.
pub(super) fn beyond(part: f64, wanted: f64) -> f64 {
    (part * (1.0 - 1e-12) - wanted).max(0.0)
}
