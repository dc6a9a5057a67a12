//! Writes the table of the numbers in the paper's text next to the measured ones.

use weir_console::chart::{DotRow, Scale};

use crate::markdown;
use crate::picture::{Pictures, published_next_to_measured};

/// A number of the paper, and the same quantity measured.
pub struct Comparison {
    quantity: &'static str,
    citation: &'static str,
    published: f64,
    measured: f64,
    /// Whether it is printed as a percentage.
    is_fraction: bool,
}

impl Comparison {
    /// A number.
    pub fn number(
        quantity: &'static str,
        citation: &'static str,
        published: f64,
        measured: f64,
    ) -> Comparison {
        Comparison { quantity, citation, published, measured, is_fraction: false }
    }

    /// A fraction, which is printed as a percentage.
    pub fn fraction(
        quantity: &'static str,
        citation: &'static str,
        published: f64,
        measured: f64,
    ) -> Comparison {
        Comparison { quantity, citation, published, measured, is_fraction: true }
    }

    fn format(&self, value: f64) -> String {
        if self.is_fraction { markdown::format_percent(value) } else { markdown::format_cell(value) }
    }
}

/// The section with the most important numbers, and the number of measured ones within 10 % of the published ones.
pub fn summary(numbers: &[Comparison]) -> String {
    let same = numbers.iter().filter(|number| markdown::is_same(number.measured, number.published)).count();
    let median = |other: &str| {
        let quantity = format!("Saath over {other}, P50");
        let found = numbers.iter().find(|number| number.quantity == quantity);
        let number = found.expect("the published numbers have this median speedup");
        format!("{} (published: {})", number.format(number.measured), number.format(number.published))
    };
    format!(
        "## Summary\n\n\
         - Reproduced, on the public trace: the statistics of coflows out of sync (Fig. 2, 13), clairvoyant orders (Fig. 3), \
         speedups (Fig. 9), the parts of Saath (Fig. 10, 11), sensitivity (Fig. 14), and the testbed's speedups (Fig. 15) by \
         simulation.\n\
         - {same} of {} published numbers are within 10 %. The median speedup of Saath over Aalo is {}, and over UC-TCP {}.\n\
         - The paper does not say which variant of Aalo it compares with. Other readings of Aalo and UC-TCP change these \
         speedups most ([assumptions](#assumptions-that-change-a-result-most)).\n\
         - Not reproduced: Fig. 12 and all other numbers of the OSP trace, which is not public; Fig. 16, whose compute times \
         are not public; CPU and memory of Table 2, which [another page](live.md) measures on real traffic.\n\n",
        numbers.len(),
        median("Aalo"),
        median("UC-TCP"),
    )
}

/// The section with all numbers, in the order of the paper.
pub fn section(numbers: &[Comparison], pictures: &mut Pictures) -> String {
    let lines: Vec<Vec<String>> = numbers
        .iter()
        .map(|number| {
            vec![
                number.quantity.to_owned(),
                number.citation.to_owned(),
                number.format(number.published),
                number.format(number.measured),
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
         {}{}",
        markdown::table(&head, 2, &lines),
        pictures_of(numbers, pictures)
    )
}

/// The numbers in two pictures: speedups, and percentages.
fn pictures_of(numbers: &[Comparison], pictures: &mut Pictures) -> String {
    let rows = |is_fraction: bool| -> Vec<DotRow> {
        let factor = if is_fraction { 100.0 } else { 1.0 };
        let numbers = numbers.iter().filter(|number| number.is_fraction == is_fraction);
        let values =
            |number: &Comparison| [number.published, number.measured].map(|value| Some(factor * value));
        numbers.map(|number| DotRow::new(number.quantity, &values(number))).collect()
    };
    let speedups = published_next_to_measured("speedup", Scale::Log, Some(1.0), rows(false));
    let shares = published_next_to_measured("%", Scale::Linear, None, rows(true));
    pictures.add(
        "speedups",
        "Speedups of Saath and of its parts: published and measured",
        "The speedups of the table. Right of the line at 1, coflows are faster.",
        speedups,
    ) + &pictures.add(
        "shares",
        "Shares of coflows, and deviations of flow completion times: published and measured",
        "The percentages of the table.",
        shares,
    )
}
