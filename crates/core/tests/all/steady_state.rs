//! Checks rates of flows over links with queues against the steady-state equations of `solve/wfq.rs` and `solve/connections.rs`, in
//! rational numbers. A solution need not be unique, so the check starts from the rates, and computes each link once.

use num_rational::BigRational;
use weir_core::solve::wfq::Source;

/// How a link divides its capacity among its queues.
#[derive(Debug, Clone)]
pub enum Division {
    /// By the weights of the queues.
    Weighted(Vec<f64>),
    /// A queue gets what the queues with lower numbers leave.
    Strict,
}

#[derive(Debug, Clone)]
pub struct Link {
    pub capacity: f64,
    pub division: Division,
}

/// Equal flows. They cross links in increasing order.
#[derive(Debug, Clone)]
pub struct Flows {
    /// The links, and the queue at each.
    pub path: Vec<(usize, usize)>,
    pub count: f64,
    pub source: Source,
    /// The rate at which each of them arrives at its destination.
    pub rate: f64,
}

/// Flows at one link. An elastic flow without a demand takes its whole offered rate.
#[derive(Debug, Clone)]
struct Member {
    queue: usize,
    count: BigRational,
    demand: Option<BigRational>,
    is_elastic: bool,
}

fn exact(value: f64) -> BigRational {
    BigRational::from_float(value).expect("a finite number")
}

fn least(demand: Option<&BigRational>, other: BigRational) -> BigRational {
    demand.filter(|demand| **demand < other).cloned().unwrap_or(other)
}

/// Shares `total` by weight: each share is at most its demand, and the others have one ratio of share to weight. `None` is no limit.
fn fill(total: &BigRational, demands: &[(BigRational, Option<BigRational>)]) -> Vec<BigRational> {
    let mut shares: Vec<Option<BigRational>> = vec![None; demands.len()];
    loop {
        let open = || demands.iter().zip(&shares).filter(|(_, share)| share.is_none());
        let left = total - shares.iter().flatten().sum::<BigRational>();
        let weights: BigRational = open().map(|((weight, _), _)| weight).sum();
        let share = |weight: &BigRational| left.clone().max(exact(0.0)) / &weights * weight;
        let is_met = |(weight, demand): &(BigRational, Option<BigRational>)| {
            demand.as_ref().is_some_and(|demand| *demand <= share(weight))
        };
        if !open().any(|(demand, _)| is_met(demand)) {
            let rest = demands
                .iter()
                .zip(&shares)
                .map(|((weight, _), met)| met.clone().unwrap_or_else(|| share(weight)));
            return rest.collect();
        }
        let met: Vec<bool> = demands.iter().zip(&shares).map(|(d, s)| s.is_none() && is_met(d)).collect();
        for ((share, (_, demand)), met) in shares.iter_mut().zip(demands).zip(met) {
            if met {
                share.clone_from(demand);
            }
        }
    }
}

impl Link {
    /// The rate of each flow of these members.
    fn rates(&self, members: &[Member]) -> Vec<BigRational> {
        let mut queues: Vec<usize> = members.iter().map(|member| member.queue).collect();
        queues.sort_unstable();
        queues.dedup();
        let demand = |queue: usize| {
            let here = members.iter().filter(|member| member.queue == queue);
            here.map(|member| Some(&member.count * member.demand.as_ref()?)).sum::<Option<BigRational>>()
        };
        let mut left = exact(self.capacity);
        let parts: Vec<BigRational> = match &self.division {
            Division::Weighted(weights) => {
                let demands: Vec<_> =
                    queues.iter().map(|&queue| (exact(weights[queue]), demand(queue))).collect();
                fill(&left, &demands)
            }
            Division::Strict => {
                let parts = queues.iter().map(|&queue| {
                    let part = least(demand(queue).as_ref(), left.clone());
                    left -= &part;
                    part
                });
                parts.collect()
            }
        };
        let mut rates = vec![exact(0.0); members.len()];
        for (&queue, part) in queues.iter().zip(&parts) {
            let here: Vec<usize> = (0..members.len()).filter(|&at| members[at].queue == queue).collect();
            let total = |at: &usize| members[*at].demand.as_ref().map(|demand| &members[*at].count * demand);
            let (elastic, forced): (Vec<usize>, Vec<usize>) =
                here.into_iter().partition(|&at| members[at].is_elastic);
            // Unresponsive flows lose the same fraction, and elastic ones share the rest evenly.
            let sent: BigRational = forced.iter().filter_map(total).sum();
            for &at in forced.iter().filter(|_| sent > exact(0.0)) {
                let arriving = members[at].demand.clone().expect("an unresponsive flow has a rate");
                rates[at] = arriving * least(Some(&sent), part.clone()) / &sent;
            }
            let demands: Vec<_> = elastic.iter().map(|at| (members[*at].count.clone(), total(at))).collect();
            let rest = (part - sent).max(exact(0.0));
            for (at, share) in elastic.iter().zip(fill(&rest, &demands)) {
                rates[*at] = share / &members[*at].count;
            }
        }
        rates
    }
}

/// Checks that links carry the rates, and that each flow has the lowest of the rates that its links give to it, if all other flows keep
/// their rates, and at most the rate of its source.
pub fn check(links: &[Link], flows: &[Flows], tolerance: f64) -> Result<(), String> {
    // Of unresponsive flows: what arrives. Of others: the lowest rate so far, if there is one.
    let mut limits: Vec<Option<BigRational>> = flows
        .iter()
        .map(|flows| match flows.source {
            Source::Elastic => None,
            Source::Capped(rate) | Source::Unresponsive(rate) => Some(exact(rate)),
        })
        .collect();
    let is_elastic = |at: usize| !matches!(flows[at].source, Source::Unresponsive(_));
    for (number, link) in links.iter().enumerate() {
        let (mut here, mut members) = (Vec::new(), Vec::new());
        for (at, all) in flows.iter().enumerate() {
            let Some(&(_, queue)) = all.path.iter().find(|hop| hop.0 == number) else { continue };
            let demand = if is_elastic(at) { Some(exact(all.rate)) } else { limits[at].clone() };
            here.push(at);
            members.push(Member { queue, count: exact(all.count), demand, is_elastic: is_elastic(at) });
        }
        let served = link.rates(&members);
        let elastic_load: BigRational = members
            .iter()
            .zip(&served)
            .map(|(member, served)| {
                &member.count * if member.is_elastic { member.demand.as_ref().unwrap() } else { served }
            })
            .sum();
        if elastic_load > exact(link.capacity + tolerance) {
            return Err(format!("link {number} carries {elastic_load} of {}", link.capacity));
        }
        for (place, &at) in here.iter().enumerate() {
            if !is_elastic(at) {
                limits[at] = Some(served[place].clone());
                continue;
            }
            let demand = members[place].demand.take();
            let most = link.rates(&members)[place].clone();
            members[place].demand = demand;
            limits[at] = Some(least(limits[at].as_ref(), most));
        }
    }
    for (flows, limit) in flows.iter().zip(limits) {
        let expected = limit.unwrap_or_else(|| exact(0.0));
        let error = exact(flows.rate) - &expected;
        if error > exact(tolerance) || error < exact(-tolerance) {
            return Err(format!("{flows:?} have {}, but {expected} in steady state", flows.rate));
        }
    }
    Ok(())
}
