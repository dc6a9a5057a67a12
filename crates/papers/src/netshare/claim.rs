//! A published number beside a measured one.

use crate::doc::{n, ratio, same, table, yes};

/// A number of the paper, and the same measured.
pub(super) struct Claim {
    pub(super) what: String,
    /// Where in the paper, with its words.
    pub(super) place: &'static str,
    pub(super) published: f64,
    pub(super) measured: f64,
}

impl Claim {
    pub(super) fn new(what: impl Into<String>, place: &'static str, published: f64, measured: f64) -> Claim {
        Claim { what: what.into(), place, published, measured }
    }

    /// Whether they are within 10 % of each other; where the published one is 0, whether the measured one is.
    pub(super) fn holds(&self) -> bool {
        if self.published == 0.0 { self.measured < 1e-9 } else { same(self.measured, self.published) }
    }
}

/// A table of claims, and how many of them hold.
pub(super) fn claims(claims: &[Claim]) -> String {
    let lines: Vec<Vec<String>> = claims
        .iter()
        .map(|claim| {
            vec![
                claim.what.clone(),
                claim.place.to_owned(),
                n(claim.published),
                n(claim.measured),
                ratio(claim.measured, claim.published),
                yes(claim.holds()),
            ]
        })
        .collect();
    let head = ["", "where in the paper", "published", "measured", "ratio", "within 10 %"];
    let held = claims.iter().filter(|claim| claim.holds()).count();
    format!("{}{held} of {} are within 10 %.\n", table(&head, 2, &lines), claims.len())
}
