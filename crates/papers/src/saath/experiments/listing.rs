//! What the order decides in which coflows list their flows.

use super::super::claims::{Bench, Claim};
use super::super::lab::{DRAWS, Lab};
use super::super::world::World;
use super::{SPEEDUPS, SYNC};
use crate::doc::{n, table};

const ABOUT: &str = "\n\
### The order of flows\n\n\
\"for f in c do f.rate = min(f.sender.remainBW, f.receiver.remainBW)\" (Fig. 7, line 20): which flow of a coflow comes first decides what is left for the next one, and \
the paper does not say. Weir goes by ports, sending port first, in the order in which coflows list them, for work conservation and for what busy receivers leave under Aalo. What if all coflows \
listed them in another order, the same for all?";

/// Numbers under the trace's order and under others.
pub fn section(lab: &Lab<'_>, out: &mut String) {
    let bench = |listing| Bench { world: World { listing, ..lab.plain }, ..Bench::plain(lab) };
    let row = |name: &str, text: &dyn Fn(f64) -> String, measure: &dyn Fn(&Bench<'_>) -> f64| {
        let drawn: Vec<f64> = (1..=DRAWS).map(|draw| measure(&bench(draw))).collect();
        let at = |p: f64| text(weir_sim::outcome::percentile(&drawn, p));
        vec![name.to_owned(), text(measure(&bench(0))), at(50.0), at(0.0), at(100.0)]
    };
    let of_claim = |claim: &Claim| {
        row(claim.name, &|value| claim.text(value), &|bench| (claim.measure)(bench).unwrap_or(0.0))
    };
    let mut lines = vec![
        row("mean CCT of Saath, s", &n, &|bench| bench.step(2).mean()),
        row("mean CCT of Aalo, s", &n, &|bench| bench.aalo().mean()),
    ];
    lines.extend(SPEEDUPS.iter().filter(|claim| claim.on_aalo).map(of_claim));
    lines.extend(SYNC.iter().filter(|claim| !claim.on_aalo).map(of_claim));
    out.push_str(ABOUT);
    out.push_str(&format!(" {DRAWS} orders, drawn:\n"));
    out.push_str(&table(&["", "as in the trace", "median", "least", "most"], 1, &lines));
}
