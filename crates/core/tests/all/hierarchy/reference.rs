//! A reference implementation of hierarchical max-min, and the paper's own procedure.

/// Flows of one service over one path.
#[derive(Debug, Clone)]
pub struct FlowClass {
    pub service: usize,
    pub links: Vec<u32>,
    pub flows: u32,
    pub demand: f64,
}

/// A network and its services.
#[derive(Debug, Clone)]
pub struct ServiceNetwork {
    pub capacities: Vec<f64>,
    pub excess: Vec<f64>,
    pub guarantees: Vec<Vec<f64>>,
    pub flows: Vec<FlowClass>,
}

impl ServiceNetwork {
    pub fn weighted(capacities: &[f64], weights: &[f64], flows: Vec<FlowClass>) -> ServiceNetwork {
        let guarantees = vec![vec![0.0; weights.len()]; capacities.len()];
        ServiceNetwork { capacities: capacities.to_vec(), excess: weights.to_vec(), guarantees, flows }
    }

    /// Classes of a service on a link.
    fn classes_at(&self, link: usize, service: usize) -> Vec<usize> {
        let here = |f: &FlowClass| f.service == service && f.flows > 0 && f.links.contains(&(link as u32));
        (0..self.flows.len()).filter(|&c| here(&self.flows[c])).collect()
    }

    fn sum_over_flows(&self, classes: &[usize], each: impl Fn(usize) -> f64) -> f64 {
        classes.iter().map(|&c| f64::from(self.flows[c].flows) * each(c)).sum()
    }

    /// Load of a link.
    pub fn link_load(&self, link: usize, rates: &[f64]) -> f64 {
        (0..self.excess.len()).map(|s| self.sum_over_flows(&self.classes_at(link, s), |c| rates[c])).sum()
    }
}

/// The largest number up to `max` at which the increasing function `increasing` does not exceed `limit`.
fn max_argument(max: f64, limit: f64, increasing: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, max);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if increasing(middle) <= limit { low = middle } else { high = middle }
    }
    low
}

type OfferTable = Vec<Vec<f64>>;

/// The lowest offer on a class's other links, or its demand if that is lower.
fn class_limit(net: &ServiceNetwork, offers: &OfferTable, class: usize, link: usize) -> f64 {
    let FlowClass { service, links, demand, .. } = &net.flows[class];
    let others = links.iter().filter(|&&l| l as usize != link);
    others.map(|&l| offers[l as usize][*service]).fold(*demand, f64::min)
}

/// The offers that follow from the limits that the given offers imply.
fn next_offers(net: &ServiceNetwork, offers: &OfferTable) -> OfferTable {
    let services = net.excess.len();
    let mut new = vec![vec![f64::INFINITY; services]; net.capacities.len()];
    for (link, &capacity) in net.capacities.iter().enumerate() {
        let limit = |c: usize| class_limit(net, offers, c, link);
        let wanted: Vec<f64> =
            (0..services).map(|s| net.sum_over_flows(&net.classes_at(link, s), limit)).collect();
        for service in 0..services {
            let classes = net.classes_at(link, service);
            if classes.is_empty() {
                continue;
            }
            let part_at = |s: usize, level: f64| net.guarantees[link][s] + net.excess[s] * level;
            let used = |level: f64| {
                let others = (0..services).filter(|&s| s != service);
                part_at(service, level) + others.map(|s| wanted[s].min(part_at(s, level))).sum::<f64>()
            };
            let part = match net.excess[service] {
                0.0 => net.guarantees[link][service],
                excess => part_at(service, max_argument(capacity / excess, capacity, used)),
            };
            let rest = part - wanted[service];
            new[link][service] = if rest >= 0.0 {
                // All limits fit: one flow at the highest limit may also take the residual capacity.
                classes.iter().map(|&c| limit(c)).fold(0.0, f64::max) + rest
            } else {
                max_argument(part.max(1e-30), part, |offer| {
                    net.sum_over_flows(&classes, |c| limit(c).min(offer))
                })
            };
        }
    }
    new
}

/// Results of the definition.
pub struct DefinedRates {
    /// Lower bounds of all classes.
    pub lower_bounds: Vec<f64>,
    pub rates: Vec<f64>,
    /// Whether the lower and upper bounds of all rates are equal.
    pub bounds_met: bool,
}

/// Computes lower bounds in three rounds, then the rates. The rates of all flows below their demands and
/// without a full link rise by one common factor until one of these flows stops.
pub fn reference_rates(net: &ServiceNetwork) -> DefinedRates {
    let none = vec![vec![f64::INFINITY; net.excess.len()]; net.capacities.len()];
    let rates = |offers: &OfferTable| -> Vec<f64> {
        let offer =
            |f: &FlowClass| f.links.iter().map(|&l| offers[l as usize][f.service]).fold(f.demand, f64::min);
        net.flows.iter().map(offer).collect()
    };
    let (mut low, mut high) = (next_offers(net, &none), none);
    for _ in 0..2 {
        high = next_offers(net, &low);
        low = next_offers(net, &high);
    }
    let (low, high) = (rates(&low), rates(&high));
    let met = (0..net.flows.len()).all(|c| net.flows[c].flows == 0 || high[c] <= low[c] * (1.0 + 1e-10));
    let mut rates = low.clone();
    if !met {
        raise_rates(net, &mut rates, |c| low[c]);
        // Classes whose lower bound is zero because guarantees use all capacity.
        raise_rates(net, &mut rates, |c| if low[c] == 0.0 { 1.0 } else { 0.0 });
    }
    DefinedRates { lower_bounds: low, rates, bounds_met: met }
}

/// Raises rates at the given speeds. A class stops at its demand, at a full link, or at a guarantee of a
/// service without excess weight.
fn raise_rates(net: &ServiceNetwork, rates: &mut [f64], speed: impl Fn(usize) -> f64) {
    let all = 0..net.flows.len();
    let mut open: Vec<usize> = all.filter(|&c| net.flows[c].flows > 0 && speed(c) > 0.0).collect();
    while !open.is_empty() {
        // Residual capacity, speed at which it shrinks, and the classes concerned.
        let mut stops: Vec<(f64, Vec<usize>)> = Vec::new();
        let stop = |left: f64, whole: f64, on: Vec<usize>| {
            let on: Vec<usize> = on.into_iter().filter(|c| open.contains(c)).collect();
            let left = if left > 1e-11 * whole { left } else { 0.0 };
            (left / net.sum_over_flows(&on, &speed), on)
        };
        for (link, &capacity) in net.capacities.iter().enumerate() {
            let used = net.link_load(link, rates);
            let on = |s: usize| net.classes_at(link, s);
            stops.push(stop(capacity - used, capacity, (0..net.excess.len()).flat_map(on).collect()));
            for service in (0..net.excess.len()).filter(|&s| net.excess[s] == 0.0) {
                let guarantee = net.guarantees[link][service];
                stops.push(stop(
                    guarantee - net.sum_over_flows(&on(service), |c| rates[c]),
                    guarantee,
                    on(service),
                ));
            }
        }
        for &class in open.iter().filter(|&&class| net.flows[class].demand.is_finite()) {
            let FlowClass { demand, flows, .. } = net.flows[class];
            let left = (demand - rates[class]).max(0.0) * f64::from(flows);
            stops.push(stop(left, demand * f64::from(flows), vec![class]));
        }
        stops.retain(|(_, on)| !on.is_empty());
        let first = stops.iter().map(|stop| stop.0).fold(f64::INFINITY, f64::min);
        for &class in &open {
            rates[class] = (rates[class] + first * speed(class)).min(net.flows[class].demand);
        }
        let stopped: Vec<usize> = stops
            .into_iter()
            .filter(|stop| stop.0 <= first * (1.0 + 1e-12))
            .flat_map(|stop| stop.1)
            .collect();
        open.retain(|c| !stopped.contains(c));
    }
}

/// Checks that no link exceeds its capacity, no flow is below zero or above its demand, and no flow below its
/// demand has residual capacity on its whole path.
pub fn check_feasible(net: &ServiceNetwork, rates: &[f64]) -> Result<(), String> {
    for (link, &capacity) in net.capacities.iter().enumerate() {
        let used = net.link_load(link, rates);
        if used > capacity * (1.0 + 1e-9) {
            return Err(format!("link {link} carries {used} of {capacity}"));
        }
    }
    for (class, (f, &rate)) in net.flows.iter().zip(rates).enumerate() {
        if f.flows == 0 {
            continue;
        }
        if !(rate >= 0.0 && rate <= f.demand) {
            return Err(format!("class {class} has {rate} of {}", f.demand));
        }
        let full = |&l: &u32| {
            let (link, s) = (l as usize, f.service);
            let part = net.sum_over_flows(&net.classes_at(link, s), |c| rates[c]);
            let stopped = net.excess[s] == 0.0 && part >= net.guarantees[link][s] * (1.0 - 1e-9);
            stopped || net.link_load(link, rates) >= net.capacities[link] * (1.0 - 1e-9)
        };
        if rate < f.demand * (1.0 - 1e-9) && !f.links.iter().any(full) {
            return Err(format!("class {class} with {rate} can get a higher rate"));
        }
    }
    Ok(())
}

/// Checks that every flow below its demand has a full link where no flow of its service is faster, and no
/// service has a higher rate per weight.
pub fn check_bottlenecks(net: &ServiceNetwork, rates: &[f64]) -> Result<(), String> {
    check_feasible(net, rates)?;
    let slack = 1e-8 * net.capacities.iter().copied().fold(0.0, f64::max);
    for (class, f) in net.flows.iter().enumerate() {
        if f.flows == 0 || rates[class] >= f.demand - slack {
            continue;
        }
        let bottleneck = |&l: &u32| {
            let link = l as usize;
            let part = |s: usize| net.sum_over_flows(&net.classes_at(link, s), |c| rates[c]);
            let (own, guarantee, excess) =
                (part(f.service), net.guarantees[link][f.service], net.excess[f.service]);
            let most = net.classes_at(link, f.service).iter().all(|&c| rates[c] <= rates[class] + slack);
            if excess == 0.0 {
                return most && own >= guarantee - slack;
            }
            let level = (own - guarantee).max(0.0) / excess;
            let fair = (0..net.excess.len()).all(|s| {
                let over = part(s) - net.guarantees[link][s] - net.excess[s] * level;
                over <= slack * (1.0 + net.excess[s] / excess)
            });
            most && fair
                && own >= guarantee - slack
                && net.link_load(link, rates) >= net.capacities[link] - slack
        };
        if !f.links.iter().any(bottleneck) {
            return Err(format!("class {class} with {} has no bottleneck", rates[class]));
        }
    }
    Ok(())
}

/// Residual capacity of links while the paper's procedure (section 3.3) fixes one link after the other.
struct PaperSolver<'a> {
    net: &'a ServiceNetwork,
    residuals: Vec<f64>,
    rates: Vec<Option<f64>>,
}

impl PaperSolver<'_> {
    fn new(net: &ServiceNetwork) -> PaperSolver<'_> {
        PaperSolver { net, residuals: net.capacities.clone(), rates: vec![None; net.flows.len()] }
    }

    fn unfixed_classes(&self, link: usize, service: usize) -> Vec<usize> {
        self.net.classes_at(link, service).into_iter().filter(|&c| self.rates[c].is_none()).collect()
    }

    /// `B / (sum of weights)` of services with unfixed flows; `None` without such services.
    fn share_per_weight(&self, link: usize) -> Option<f64> {
        let services = (0..self.net.excess.len()).filter(|&s| !self.unfixed_classes(link, s).is_empty());
        let weights: f64 = services.map(|s| self.net.excess[s]).sum();
        (weights > 0.0).then(|| self.residuals[link] / weights)
    }

    fn fix_link(&mut self, link: usize, share: f64) {
        for service in 0..self.net.excess.len() {
            let open = self.unfixed_classes(link, service);
            let rate = self.net.excess[service] * share / self.net.sum_over_flows(&open, |_| 1.0);
            for class in open {
                self.rates[class] = Some(rate);
                for &l in &self.net.flows[class].links {
                    self.residuals[l as usize] -= rate * f64::from(self.net.flows[class].flows);
                }
            }
        }
    }

    fn into_rates(self) -> Vec<f64> {
        self.rates.into_iter().map(|rate| rate.expect("every flow crosses a link")).collect()
    }
}

/// The paper's procedure, which recomputes the smallest share in each step. Ties go to the lower link.
/// Demands are ignored.
pub fn paper_rates(net: &ServiceNetwork) -> Vec<f64> {
    let mut fixing = PaperSolver::new(net);
    let shares = |fixing: &PaperSolver<'_>| {
        (0..net.capacities.len()).filter_map(|l| Some((fixing.share_per_weight(l)?, l))).collect()
    };
    loop {
        let shares: Vec<(f64, usize)> = shares(&fixing);
        let Some(&(share, link)) = shares.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        fixing.fix_link(link, share);
    }
    fixing.into_rates()
}

/// The paper's procedure with a lazy heap that orders links by their initial shares. An entry is only checked
/// when it is popped: if the share has risen, the entry is pushed back; otherwise the stale share is used.
pub fn paper_rates_with_lazy_heap(net: &ServiceNetwork) -> Vec<f64> {
    let mut fixing = PaperSolver::new(net);
    let mut heap: Vec<(f64, usize)> =
        (0..net.capacities.len()).filter_map(|l| Some((fixing.share_per_weight(l)?, l))).collect();
    while !heap.is_empty() {
        let least = (0..heap.len()).min_by(|&a, &b| heap[a].0.total_cmp(&heap[b].0)).expect("not empty");
        let (share, link) = heap.swap_remove(least);
        match fixing.share_per_weight(link) {
            None => {}
            Some(now) if now > share => heap.push((now, link)),
            Some(_) => fixing.fix_link(link, share),
        }
    }
    fixing.into_rates()
}
