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

/// The section with the most important numbers, and the number of measured ones within 10 % of the published ones.
pub fn summary(numbers: &[Comparison]) -> String {
    let same = numbers.iter().filter(|number| markdown::is_same(number.measured, number.published)).count();
    let median = |other: &str| {
        let quantity = format!("Saath over {other}, P50");
        let found = numbers.iter().find(|number| number.quantity == quantity);
        let number = found.expect("the published numbers have this median speedup");
        format!("{} (published: {})", (number.format)(number.measured), (number.format)(number.published))
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
pub fn section(numbers: &[Comparison]) -> String {
    let lines: Vec<Vec<String>> = numbers
        .iter()
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
