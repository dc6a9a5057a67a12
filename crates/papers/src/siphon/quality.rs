//! How good the orders are that the search finds, where all orders can be tried (section 3.1.3).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::{Past, WideArea};
use weir_core::solve::montecarlo::{Best, Coflow, Search, by_remaining, search};
use weir_sim::outcome::mean;

use crate::doc;
use weir_console::failure::Failure;

/// How many coflows wait: 720 orders at most.
const COUNTS: [usize; 4] = [3, 4, 5, 6];

/// Sets of coflows of each number.
const SETS: u64 = 100;

/// Draws of all bandwidths by which orders are judged; the search has others.
const DRAWS: usize = 1000;

/// The paper's depth, and what is compared with it.
const SCHEMES: [(&str, Option<(usize, Best)>); 6] = [
    ("MRTF", None),
    ("depth 1", Some((1, Best::MostOften))),
    ("depth 2", Some((2, Best::MostOften))),
    ("depth 3", Some((3, Best::MostOften))),
    ("depth 3, by mean cost", Some((3, Best::OnAverage))),
    ("depth 4", Some((4, Best::MostOften))),
];

/// The bytes of a coflow by link.
type Left = Vec<(u32, f64)>;

struct Chance(ChaCha8Rng);

impl Chance {
    /// From 0 up to 1.
    fn part(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, count: usize) -> usize {
        ((self.part() * count as f64) as usize).min(count - 1)
    }

    /// Coflows on up to all links, of 1 MB to 1 GB on each.
    fn coflows(&mut self, count: usize, links: usize) -> Vec<Left> {
        let mut one = || {
            let mut all: Vec<u32> = (0..links as u32).collect();
            let width = 1 + self.below(links);
            (0..width).for_each(|at| all.swap(at, at + self.below(links - at)));
            all.truncate(width);
            all.into_iter().map(|link| (link, 1e6 * 1000f64.powf(self.part()))).collect()
        };
        (0..count).map(|_| one()).collect()
    }
}

/// Does something for each order of so many.
fn each_order(count: usize, visit: &mut impl FnMut(&[usize])) {
    fn extend(count: usize, order: &mut Vec<usize>, visit: &mut impl FnMut(&[usize])) {
        if order.len() == count {
            return visit(order);
        }
        for next in 0..count {
            if !order.contains(&next) {
                order.push(next);
                extend(count, order, visit);
                order.pop();
            }
        }
    }
    extend(count, &mut Vec::new(), visit);
}

/// Times of flows, drawn for each coflow and each of its flows.
type Draw = Vec<Vec<f64>>;

/// The sum of CCTs of an order in each draw: on each link coflows go one after the other.
fn costs(order: &[usize], coflows: &[Left], draws: &[Draw], busy: &mut [f64], out: &mut Vec<f64>) {
    out.clear();
    for draw in draws {
        busy.fill(0.0);
        let mut sum = 0.0;
        for &coflow in order {
            let mut end = 0.0f64;
            for (&(link, _), seconds) in coflows[coflow].iter().zip(&draw[coflow]) {
                let busy = &mut busy[link as usize];
                *busy += seconds;
                end = end.max(*busy);
            }
            sum += end;
        }
        out.push(sum);
    }
}

/// What a scheme's order is worth.
struct Worth {
    /// Its mean cost over that of the order with the least.
    over: f64,
    /// The part of the draws in which no order is cheaper.
    wins: f64,
}

/// What each scheme's order is worth beside all others.
fn set(past: &Past, links: usize, count: usize, seed: u64) -> Vec<Worth> {
    let mut chance = Chance(ChaCha8Rng::seed_from_u64(seed));
    let coflows = chance.coflows(count, links);
    let mut draw = || -> Draw {
        let mut time = |&(link, bytes): &(u32, f64)| {
            let slowness = past.slowness(link);
            bytes * slowness[chance.below(slowness.len())]
        };
        coflows.iter().map(|left| left.iter().map(&mut time).collect()).collect()
    };
    let draws: Vec<Draw> = (0..DRAWS).map(|_| draw()).collect();
    let (mut busy, mut own) = (vec![0.0; links], Vec::new());
    let (mut least, mut each) = (f64::INFINITY, vec![f64::INFINITY; DRAWS]);
    each_order(count, &mut |order| {
        costs(order, &coflows, &draws, &mut busy, &mut own);
        least = least.min(mean(&own));
        each.iter_mut().zip(&own).for_each(|(each, own)| *each = each.min(*own));
    });
    let keyed: Vec<Coflow<'_>> = coflows.iter().zip(0..).map(|(left, key)| Coflow { key, left }).collect();
    let order = |scheme: Option<(usize, Best)>| match scheme {
        None => by_remaining(past, &keyed),
        Some((depth, best)) => {
            let (samples, confidence) = (1000, 0.95);
            let how = Search { depth, breadth: 10, samples, confidence, best, seed, threads: 1 };
            search(past, &keyed, &how, |_| false).order
        }
    };
    let mut worth = |scheme: Option<(usize, Best)>| {
        costs(&order(scheme), &coflows, &draws, &mut busy, &mut own);
        let wins = own.iter().zip(&each).filter(|(own, each)| **own <= **each * (1.0 + 1e-12)).count();
        Worth { over: mean(&own) / least, wins: wins as f64 / DRAWS as f64 }
    };
    SCHEMES.iter().map(|(_, scheme)| worth(*scheme)).collect()
}

/// The section of the document.
pub fn section(area: &WideArea) -> Result<String, Failure> {
    let past = area.past();
    let mut lines = Vec::new();
    for count in COUNTS {
        let mut sets = Vec::new();
        for seed in 1..=SETS {
            Failure::unless_asked()?;
            sets.push(set(&past, area.links(), count, seed));
        }
        for (at, (name, _)) in SCHEMES.iter().enumerate() {
            let over: Vec<f64> = sets.iter().map(|set| set[at].over).collect();
            let wins: Vec<f64> = sets.iter().map(|set| set[at].wins).collect();
            lines.push(vec![
                count.to_string(),
                (1..=count).product::<usize>().to_string(),
                (*name).to_owned(),
                format!("{:.4}", mean(&over)),
                format!("{:.4}", over.iter().copied().fold(0.0, f64::max)),
                doc::share(mean(&wins)),
            ]);
        }
    }
    Ok(format!(
        "### Beside the best of all orders\n\n{SETS} sets of so few coflows that every order can be tried, on up to {} links with 1 MB to 1 GB on each; \
         all are there, and none comes. Orders are judged by {DRAWS} draws of a bandwidth for each flow, as the search has it, and others than the search's: by their mean CCT \
         over that of the order for which it is least, and by how often no order is cheaper, which is what the paper's search counts.\n{}",
        area.links(),
        doc::table(
            &["coflows", "orders", "scheme", "over the least, mean", "worst", "none is cheaper"],
            3,
            &lines
        ),
    ))
}
