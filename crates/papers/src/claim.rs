//! Builds tables of published figures next to measured ones.

use crate::markdown::{format_cell, format_ratio, table};

/// A figure or a statement of a paper, and what Weir measures.
#[derive(Clone)]
pub struct Claim {
    subject: String,
    citation: &'static str,
    published: String,
    measured: String,
    ratio: String,
}

impl Claim {
    /// A figure, and the measured value divided by the published one. `citation` names the section or figure and quotes the paper.
    pub fn number(
        subject: impl Into<String>,
        citation: &'static str,
        published: f64,
        measured: f64,
    ) -> Claim {
        let ratio = format_ratio(measured, published);
        Claim {
            subject: subject.into(),
            citation,
            published: format_cell(published),
            measured: format_cell(measured),
            ratio,
        }
    }

    /// A statement of the paper without a figure, and the measured values that belong to it.
    pub fn statement(subject: &str, citation: &'static str, published: &str, measured: String) -> Claim {
        let ratio = "-".to_owned();
        Claim { subject: subject.to_owned(), citation, published: published.to_owned(), measured, ratio }
    }
}

/// The claims as a Markdown table.
pub fn claims_table(claims: &[Claim]) -> String {
    let row = |claim: &Claim| {
        let Claim { subject, citation, published, measured, ratio } = claim;
        vec![subject.clone(), (*citation).to_owned(), published.clone(), measured.clone(), ratio.clone()]
    };
    let rows: Vec<Vec<String>> = claims.iter().map(row).collect();
    table(&["", "where in the paper", "published", "measured", "ratio"], 2, &rows)
}
