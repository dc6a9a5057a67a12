//! What an overlay is told: for each region and next hop, which flows go first, which share, and by which weights.
//!
//! Siphon (ATC '18, section 4) has relays in each region that know nothing but their own queues. So a decision ([`Turns`]), the ways of coflows
//! ([`super::detour`]) and the order of their groups ([`super::groups`]) are put down by hop: a relay that serves each of its hops
//! as it is told, and takes parts that cannot be used by those whose turn it is for others, does what was decided. Nothing in it
//! changes while bytes move, but only with the next decision.

use super::Turns;
use crate::model::Past;

/// A part of a flow on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// Who waits for it: the place of the flow group in its coflow.
    pub group: usize,
    /// The direct link between the region that it comes from and the one that it goes to.
    pub pair: u32,
    /// The link that it goes over, or the two by a relay.
    pub links: [Option<u32>; 2],
    /// The share of what the group has between the two regions that goes this way.
    pub share: f64,
}

/// A coflow under way.
#[derive(Debug, Clone, PartialEq)]
pub struct Carried {
    /// Its number, as in [`super::Waiting`].
    pub seq: u64,
    /// Its groups in the order in which they go; none if they all go at once.
    pub order: Option<Vec<usize>>,
    /// Its ways that have bytes left.
    pub ways: Vec<Way>,
}

/// A flow at a hop: a coflow's number, and a way of its.
pub type Flow = (u64, Way);

/// What some coflows have of a hop for themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Their part of the hop; those of a hop sum to 1.
    pub weight: f64,
    /// Those of the first turn go first and share evenly, then those of the second share what these leave, and so on. No turn is empty.
    pub turns: Vec<Vec<Flow>>,
}

/// What a region sends to the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Hop {
    /// The region.
    pub from: usize,
    /// The next one: where flows go, or a relay.
    pub to: usize,
    /// In the order in which they are offered what others cannot use. At least one.
    pub classes: Vec<Class>,
}

/// A decision by hop, those that have something to send in the order of links. `carried` has the coflows that waited, in the order of the
/// question. O(links x flows).
pub fn hops(past: &Past, turns: &Turns, carried: &[Carried]) -> Vec<Hop> {
    let each = (0..past.links() as u32).map(|link| {
        let (from, to) = past.ends(link);
        let all = || (0..carried.len()).collect::<Vec<_>>();
        let classes: Vec<Class> = match turns {
            Turns::Shared => vec![Class { weight: 1.0, turns: vec![at_once(link, &all(), carried)] }],
            Turns::InOrder(order) => vec![Class { weight: 1.0, turns: in_turn(link, order, carried) }],
            Turns::Divided(shares) => shares
                .iter()
                .map(|share| Class {
                    weight: share.parts[link as usize],
                    turns: match &share.order {
                        Some(order) => in_turn(link, order, carried),
                        None => vec![at_once(link, &share.coflows, carried)],
                    },
                })
                .collect(),
        };
        Hop { from, to, classes: classes.into_iter().filter_map(without_empty_turns).collect() }
    });
    each.filter(|hop| !hop.classes.is_empty()).collect()
}

fn without_empty_turns(mut class: Class) -> Option<Class> {
    class.turns.retain(|turn| !turn.is_empty());
    (!class.turns.is_empty()).then_some(class)
}

/// A turn for each coflow, or for each of its groups.
fn in_turn(link: u32, order: &[usize], carried: &[Carried]) -> Vec<Vec<Flow>> {
    let of_coflow = |&place: &usize| {
        let coflow = &carried[place];
        match &coflow.order {
            None => vec![at_once(link, &[place], carried)],
            Some(groups) => {
                let own = at_once(link, &[place], carried);
                let of_group =
                    |group: &usize| own.iter().filter(|(_, way)| way.group == *group).copied().collect();
                groups.iter().map(of_group).collect()
            }
        }
    };
    order.iter().flat_map(of_coflow).collect()
}

/// All flows of some coflows over a link.
fn at_once(link: u32, places: &[usize], carried: &[Carried]) -> Vec<Flow> {
    let flows = places
        .iter()
        .flat_map(|&place| carried[place].ways.iter().map(move |way| (carried[place].seq, *way)));
    flows.filter(|(_, way)| way.links.contains(&Some(link))).collect()
}
