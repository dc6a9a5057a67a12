//! Who sends how fast on which link, and what that comes to.

use weir_core::solve::{Class, max_min};
use weir_core::wide_area::{Share, Turns, Waiting, groups};

use super::Inside;

/// A part of a flow on its way, over one link or two.
#[derive(Debug, Clone)]
pub struct Transfer {
    pub group: usize,
    /// Its place in the group.
    pub place: usize,
    pub links: [Option<u32>; 2],
    /// Bytes, above zero.
    pub left: f64,
    /// Bytes a second.
    pub rate: f64,
}

/// A coflow under way.
#[derive(Debug, Clone)]
pub struct Active {
    /// Its place among the demands.
    pub index: usize,
    /// How many came before it.
    pub seq: u64,
    /// Its leaf in a tree of policies.
    pub leaf: u32,
    /// The order inside it.
    pub inside: Inside,
    /// Its groups in the order in which they go.
    pub groups: Vec<usize>,
    pub transfers: Vec<Transfer>,
}

impl Active {
    /// What a policy is told of it.
    pub fn waiting(&self, links: usize) -> Waiting {
        let mut left = vec![0.0; links];
        for transfer in &self.transfers {
            transfer.links.iter().flatten().for_each(|&link| left[link as usize] += transfer.left);
        }
        let left = (0..).zip(left).filter(|(_, bytes)| *bytes > 0.0).collect();
        Waiting { seq: self.seq, leaf: self.leaf, left }
    }
}

/// The order of groups of these sizes.
pub fn order(sizes: &[f64], inside: Inside) -> Vec<usize> {
    let mut order = groups::largest_first(sizes);
    if inside == Inside::SmallestFirst {
        order.reverse();
    }
    order
}

/// The links, and who goes first.
pub struct Links {
    /// As places among those that are active.
    turns: Turns,
    /// What is left of each link.
    left: Vec<f64>,
    /// What is left of the parts of all.
    spare: Vec<f64>,
}

impl Links {
    pub fn new(links: usize) -> Links {
        Links { turns: Turns::Shared, left: vec![0.0; links], spare: Vec::new() }
    }

    /// Who goes first from now on, as places among those that are active. Until the next decision none of them leaves.
    pub fn set(&mut self, turns: Turns) {
        self.turns = turns;
    }

    /// Whether parts of links are others when a transfer has ended.
    pub fn are_divided(&self) -> bool {
        matches!(self.turns, Turns::Divided(_))
    }

    /// Sets all rates.
    pub fn assign(&mut self, active: &mut [Active], rates: &[f64]) {
        active.iter_mut().flat_map(|coflow| &mut coflow.transfers).for_each(|transfer| transfer.rate = 0.0);
        match &self.turns {
            Turns::Shared => {
                self.left.copy_from_slice(rates);
                share(active.iter_mut().flat_map(|coflow| &mut coflow.transfers).collect(), &mut self.left);
            }
            Turns::InOrder(order) => {
                self.left.copy_from_slice(rates);
                in_order(order, active, &mut self.left);
            }
            Turns::Divided(shares) => {
                self.spare.clear();
                self.spare.resize(rates.len(), 0.0);
                for one in shares {
                    for ((left, rate), part) in self.left.iter_mut().zip(rates).zip(&one.parts) {
                        *left = rate * part;
                    }
                    serve(one, active, &mut self.left);
                    self.spare.iter_mut().zip(&self.left).for_each(|(spare, left)| *spare += left);
                }
                for one in shares {
                    serve(one, active, &mut self.spare);
                }
            }
        }
    }
}

/// Gives the coflows of one share more of what is left.
fn serve(one: &Share, active: &mut [Active], left: &mut [f64]) {
    match &one.order {
        Some(order) => in_order(order, active, left),
        None => {
            let mut own = vec![false; active.len()];
            one.coflows.iter().for_each(|&place| own[place] = true);
            let own = active.iter_mut().zip(own).filter(|(_, own)| *own);
            share(own.flat_map(|(coflow, _)| &mut coflow.transfers).collect(), left);
        }
    }
}

fn in_order(order: &[usize], active: &mut [Active], left: &mut [f64]) {
    for &place in order {
        let coflow = &mut active[place];
        if coflow.inside == Inside::Shared {
            share(coflow.transfers.iter_mut().collect(), left);
            continue;
        }
        for group in &coflow.groups {
            let of_group = coflow.transfers.iter_mut().filter(|transfer| transfer.group == *group);
            share(of_group.collect(), left);
        }
    }
}

/// Gives transfers more of what is left of links, max-min.
fn share(mut transfers: Vec<&mut Transfer>, left: &mut [f64]) {
    let links: Vec<Vec<u32>> =
        transfers.iter().map(|transfer| transfer.links.iter().flatten().copied().collect()).collect();
    let classes: Vec<Class<'_>> = links.iter().map(|links| Class { links, flows: 1.0 }).collect();
    let rates = max_min(left, &classes);
    for ((transfer, rate), links) in transfers.iter_mut().zip(rates).zip(&links) {
        transfer.rate += rate;
        for &link in links {
            left[link as usize] = (left[link as usize] - rate).max(0.0);
        }
    }
    // What rounding leaves of a link is nothing.
    for (transfer, links) in transfers.iter().zip(&links) {
        for &link in links {
            if left[link as usize] < transfer.rate * 1e-9 {
                left[link as usize] = 0.0;
            }
        }
    }
}

/// In how many seconds the first transfer ends; infinite if none does.
pub fn first_end(active: &[Active]) -> f64 {
    let transfers = active.iter().flat_map(|coflow| &coflow.transfers);
    transfers.filter(|t| t.rate > 0.0).map(|t| t.left / t.rate).fold(f64::INFINITY, f64::min)
}

/// Lets so many seconds pass. What has ended is handed to `ended`, with whether its flow has no other part that goes on, and leaves; so do
/// coflows without transfers.
pub fn advance(
    active: &mut Vec<Active>,
    step: f64,
    carried: &mut [f64],
    mut ended: impl FnMut(&Active, &Transfer, bool),
) {
    for coflow in active.iter_mut() {
        let mut over = Vec::new();
        for (at, transfer) in coflow.transfers.iter_mut().enumerate() {
            if transfer.rate == 0.0 {
                continue;
            }
            // What would end within a nanosecond has ended.
            let ends = transfer.left / transfer.rate <= step * (1.0 + 1e-12) + 1e-9;
            let bytes = if ends { transfer.left } else { transfer.rate * step };
            transfer.links.iter().flatten().for_each(|&link| carried[link as usize] += bytes);
            transfer.left -= bytes;
            if ends {
                over.push(at);
            }
        }
        for &at in over.iter().rev() {
            let transfer = coflow.transfers.remove(at);
            let same = |other: &Transfer| (other.group, other.place) == (transfer.group, transfer.place);
            let last = !coflow.transfers.iter().any(same);
            ended(coflow, &transfer, last);
        }
    }
    active.retain(|coflow| !coflow.transfers.is_empty());
}
