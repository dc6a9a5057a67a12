//! Reference computation of rate bounds, by rounds over all links and all of their classes.

/// Flows of one service over two links.
#[derive(Debug, Clone)]
pub struct FlowClass {
    pub service: usize,
    pub links: [u32; 2],
    pub flows: u32,
    pub demand: f64,
}

type Offers = Vec<Vec<f64>>;

/// Lower bounds of all rates after three rounds.
pub fn reference_lower_bounds(capacities: &[f64], weights: &[f64], classes: &[FlowClass]) -> Vec<f64> {
    ReferenceSolver::new(capacities, weights, classes).bounds(2 * 3 - 1)
}

/// Lower and upper bounds of all rates that have bottlenecks, after this number of rounds each.
pub fn reference_bounds(
    capacities: &[f64],
    weights: &[f64],
    classes: &[FlowClass],
    rounds: usize,
) -> (Vec<f64>, Vec<f64>) {
    let plain = ReferenceSolver::new(capacities, weights, classes);
    (plain.bounds(2 * rounds - 1), plain.bounds(2 * rounds))
}

struct ReferenceSolver<'a> {
    capacities: &'a [f64],
    weights: &'a [f64],
    classes: &'a [FlowClass],
    /// Classes by link and service.
    classes_at: Vec<Vec<Vec<usize>>>,
}

impl ReferenceSolver<'_> {
    fn new<'a>(capacities: &'a [f64], weights: &'a [f64], classes: &'a [FlowClass]) -> ReferenceSolver<'a> {
        let mut on = vec![vec![Vec::new(); weights.len()]; capacities.len()];
        for (index, class) in classes.iter().enumerate() {
            for link in class.links {
                on[link as usize][class.service].push(index);
            }
        }
        ReferenceSolver { capacities, weights, classes, classes_at: on }
    }

    /// Bounds of rates after this number of stages: lower bounds if odd, upper bounds if even.
    fn bounds(&self, stages: usize) -> Vec<f64> {
        let mut offers: Offers = vec![vec![f64::INFINITY; self.weights.len()]; self.capacities.len()];
        for _ in 0..stages {
            let divide = |(link, on): (usize, &Vec<Vec<usize>>)| {
                compute_link_offers(link, self.capacities[link], self.weights, self.classes, on, &offers)
            };
            offers = self.classes_at.iter().enumerate().map(divide).collect();
        }
        let rate =
            |c: &FlowClass| c.links.iter().map(|&l| offers[l as usize][c.service]).fold(c.demand, f64::min);
        self.classes.iter().map(rate).collect()
    }
}

/// Computes the offers of one link.
fn compute_link_offers(
    link: usize,
    capacity: f64,
    weights: &[f64],
    classes: &[FlowClass],
    members_by_service: &[Vec<usize>],
    offers: &Offers,
) -> Vec<f64> {
    let limits: Vec<Vec<(f64, f64)>> = members_by_service
        .iter()
        .map(|members| {
            let limit = |&c: &usize| {
                let FlowClass { service, links, flows, demand } = classes[c];
                let other = if links[0] as usize == link { links[1] } else { links[0] };
                (demand.min(offers[other as usize][service]), f64::from(flows))
            };
            let mut limits: Vec<(f64, f64)> = members.iter().map(limit).collect();
            limits.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            limits
        })
        .collect();
    let wanted: Vec<f64> =
        limits.iter().map(|l| l.iter().map(|(limit, flows)| limit * flows).sum()).collect();
    let service_rate = |own: usize| {
        // The offer assumes unlimited demand of the service's own flows. Other services leave the division
        // while their demand is below their share.
        let (mut left, mut sum) = (capacity, 0.0);
        let mut limited_services: Vec<usize> =
            (0..members_by_service.len()).filter(|&s| !members_by_service[s].is_empty()).collect();
        limited_services.iter().for_each(|&s| sum += weights[s]);
        while let Some(at) =
            limited_services.iter().position(|&s| s != own && wanted[s] <= weights[s] * left / sum)
        {
            let service = limited_services.swap_remove(at);
            left -= wanted[service];
            sum = limited_services.iter().map(|&s| weights[s]).sum();
        }
        weights[own] * left / sum
    };
    let offer = |service: usize| {
        let limits = &limits[service];
        let Some(&(highest, _)) = limits.last() else { return f64::INFINITY };
        let mut left = service_rate(service);
        if wanted[service] <= left {
            return highest + (left - wanted[service]);
        }
        let mut flows: f64 = limits.iter().map(|l| l.1).sum();
        for &(limit, count) in limits {
            if limit >= left / flows {
                break;
            }
            left -= limit * count;
            flows -= count;
        }
        left / flows
    };
    (0..members_by_service.len()).map(offer).collect()
}
