//! Published figures next to measured ones.

use crate::doc::{n, ratio, table};

/// A figure or a statement of a paper, and what Weir measures.
#[derive(Clone)]
pub struct Claim {
    what: String,
    place: &'static str,
    published: String,
    measured: String,
    ratio: String,
}

impl Claim {
    /// A figure. `place` names the section or figure and quotes the paper's words.
    pub fn number(what: impl Into<String>, place: &'static str, published: f64, measured: f64) -> Claim {
        let ratio = ratio(measured, published);
        Claim { what: what.into(), place, published: n(published), measured: n(measured), ratio }
    }

    /// A statement without a figure.
    pub fn statement(what: &str, place: &'static str, published: &str, measured: String) -> Claim {
        let ratio = "-".to_owned();
        Claim { what: what.to_owned(), place, published: published.to_owned(), measured, ratio }
    }
}

/// A table of claims.
pub fn claims(claims: &[Claim]) -> String {
    let row = |claim: &Claim| {
        let Claim { what, place, published, measured, ratio } = claim;
        vec![what.clone(), (*place).to_owned(), published.clone(), measured.clone(), ratio.clone()]
    };
    let rows: Vec<Vec<String>> = claims.iter().map(row).collect();
    table(&["", "where in the paper", "published", "measured", "ratio"], 2, &rows)
}
