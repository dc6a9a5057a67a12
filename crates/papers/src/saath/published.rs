//! Writes the table of the numbers in the paper's text next to the measured ones.

use crate::markdown;

/// A number of the paper, and the same quantity measured.
pub struct Comparison {
    quantity: &'static str,
    citation: &'static str,
    published: f64,
    measured: f64,
    format: fn(f64) -> String,
}

impl Comparison {
    /// A number.
    pub fn number(
        quantity: &'static str,
        citation: &'static str,
        published: f64,
        measured: f64,
    ) -> Comparison {
        Comparison { quantity, citation, published, measured, format: markdown::format_cell }
    }

    /// A fraction, which is printed as a percentage.
    pub fn fraction(
        quantity: &'static str,
        citation: &'static str,
        published: f64,
        measured: f64,
    ) -> Comparison {
        Comparison { quantity, citation, published, measured, format: markdown::format_percent }
    }
}

/// The section with all numbers, in the order of the paper.
pub fn section(groups: &[Vec<Comparison>]) -> String {
    let lines: Vec<Vec<String>> = groups
        .iter()
        .flatten()
        .map(|number| {
            vec![
                number.quantity.to_owned(),
                number.citation.to_owned(),
                (number.format)(number.published),
                (number.format)(number.measured),
                markdown::format_ratio(number.measured, number.published),
            ]
        })
        .collect();
    let head = ["Quantity", "Place in the paper", "Published", "Measured", "Measured / published"];
    format!(
        "\n\
         ## Published numbers\n\n\
         The policies have their default parameters. The paper does not say which variant of Aalo it compares with; the next \
         section has other variants.\n\
         {}",
        markdown::table(&head, 2, &lines)
    )
}
