//! What the paper says, beside what came out.

use crate::doc;

/// A sentence of the paper.
pub struct Claim {
    pub what: String,
    /// Where it stands, and its words.
    pub place: &'static str,
    pub published: String,
    pub measured: String,
    pub holds: bool,
}

impl Claim {
    /// A number: it holds within [`doc::SAME`].
    pub fn number(what: &str, place: &'static str, published: f64, measured: f64) -> Claim {
        Claim {
            what: what.to_owned(),
            place,
            published: doc::n(published),
            measured: doc::n(measured),
            holds: doc::same(measured, published),
        }
    }

    /// A statement.
    pub fn says(what: &str, place: &'static str, measured: String, holds: bool) -> Claim {
        Claim { what: what.to_owned(), place, published: "yes".to_owned(), measured, holds }
    }
}

/// All of them in a table.
pub fn table(claims: &[Claim]) -> String {
    let line = |claim: &Claim| {
        let Claim { what, place, published, measured, holds } = claim;
        vec![what.clone(), (*place).to_owned(), published.clone(), measured.clone(), doc::yes(*holds)]
    };
    let lines: Vec<Vec<String>> = claims.iter().map(line).collect();
    doc::table(&["claim", "where", "published", "measured", "holds"], 2, &lines)
}
