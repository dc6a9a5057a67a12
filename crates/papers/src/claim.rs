//! Builds tables of published figures next to measured ones.

use weir_console::chart::DotRow;

use crate::markdown::{format_cell, format_ratio, is_same, table};

/// A figure or a statement of a paper, and what Weir measures.
#[derive(Clone)]
pub struct Claim {
    subject: String,
    citation: &'static str,
    published: String,
    measured: String,
    ratio: String,
    /// For a figure: the published and the measured value.
    values: Option<(f64, f64)>,
    /// For a figure: whether the measured value is within 10 % of the published one.
    is_same: Option<bool>,
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
        let (published_cell, measured_cell) = (format_cell(published), format_cell(measured));
        Claim {
            subject: subject.into(),
            citation,
            is_same: Some(is_same(measured, published) || measured_cell == published_cell),
            published: published_cell,
            measured: measured_cell,
            ratio,
            values: Some((published, measured)),
        }
    }

    /// A statement of the paper without a figure, and the measured values that belong to it.
    pub fn statement(subject: &str, citation: &'static str, published: &str, measured: String) -> Claim {
        let ratio = "-".to_owned();
        Claim {
            subject: subject.to_owned(),
            citation,
            published: published.to_owned(),
            measured,
            ratio,
            values: None,
            is_same: None,
        }
    }

    /// The subject.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// A row of a plot with the published and the measured value; `None` for a statement.
    pub fn to_row(&self) -> Option<DotRow> {
        let (published, measured) = self.values?;
        Some(DotRow::new(self.subject.as_str(), &[Some(published), Some(measured)]))
    }

    /// The measured and the published value as `MEASURED (published: PUBLISHED)`.
    pub fn measured_and_published(&self) -> String {
        format!("{} (published: {})", self.measured, self.published)
    }
}

/// The claim about a subject.
pub fn find<'a>(claims: &'a [Claim], subject: &str) -> &'a Claim {
    let found = claims.iter().find(|claim| claim.subject == subject);
    found.unwrap_or_else(|| panic!("no claim about {subject}"))
}

/// The number of figures whose measured value is within 10 % of the published one, and the number of figures.
pub fn count_same(claims: &[Claim]) -> (usize, usize) {
    let figures: Vec<bool> = claims.iter().filter_map(|claim| claim.is_same).collect();
    (figures.iter().filter(|&&is_same| is_same).count(), figures.len())
}

/// The claims as a Markdown table.
pub fn claims_table(claims: &[Claim]) -> String {
    let row = |claim: &Claim| {
        let Claim { subject, citation, published, measured, ratio, .. } = claim;
        vec![subject.clone(), (*citation).to_owned(), published.clone(), measured.clone(), ratio.clone()]
    };
    let rows: Vec<Vec<String>> = claims.iter().map(row).collect();
    table(&["", "where in the paper", "published", "measured", "ratio"], 2, &rows)
}
