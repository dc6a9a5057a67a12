//! Compares the goals for the mean of `weir` with figures, in a table and a picture.

use weir_console::chart::{Dot, DotPlot, DotRow, DotSeries, Scale};
use weir_console::confidence_interval::ConfidenceInterval;
use weir_sim::outcome::mean;

use super::contender::{TRUE_SIZES, markdown_name};
use super::families::Family;
use super::figures::{Figures, Statistic, exceeds, interval};
use super::goal::{Goal, Yardstick};
use crate::markdown;

impl Goal {
    /// Compares it with the figures of its family.
    pub fn compare(self, figures: &Figures) -> Comparison {
        let other = figures.yardstick(self.against);
        let ratios = |policy| figures.ratios(policy, other, Statistic::Mean);
        Comparison { goal: self, other, ratios: ratios("weir"), true_sizes: ratios(TRUE_SIZES) }
    }
}

/// A goal and the ratios of a family.
#[derive(Debug, Clone)]
pub struct Comparison {
    goal: Goal,
    /// The policy that the goal is against.
    other: &'static str,
    /// By workload: the mean of `weir` divided by that of the other policy, and the same for Gittins with true sizes.
    ratios: Vec<f64>,
    true_sizes: Vec<f64>,
}

impl Comparison {
    fn max_ratio(&self) -> f64 {
        self.ratios.iter().copied().fold(0.0, f64::max)
    }

    /// Whether the ratios reach the goal, at the precision of the page.
    pub fn is_met(&self) -> bool {
        let each = self.goal.max_each.is_none_or(|max| !exceeds(self.max_ratio(), max));
        each && !exceeds(mean(&self.ratios), self.goal.max_mean)
    }

    /// How many times the goal is exceeded; at most 1 if it is met.
    pub fn excess(&self) -> f64 {
        let each = self.goal.max_each.map_or(0.0, |max| self.max_ratio() / max);
        each.max(mean(&self.ratios) / self.goal.max_mean)
    }

    /// The other policy as Markdown.
    pub fn other(&self) -> String {
        match self.goal.against {
            Yardstick::Policy(_) => markdown_name(self.other),
            Yardstick::BestRival => format!("the best without sizes, {}", markdown_name(self.other)),
        }
    }

    /// The mean ratio as Markdown.
    pub fn found(&self) -> String {
        interval(&self.ratios)
    }

    /// The goal as Markdown.
    pub fn limit(&self) -> String {
        let each = self.goal.max_each.map_or_else(String::new, |max| format!(", each workload {max}"));
        format!("{}{each}", self.goal.max_mean)
    }
}

/// The goals of all families: lines of the table, and rows of the picture.
#[derive(Default)]
pub struct Goals {
    lines: Vec<Vec<String>>,
    rows: Vec<DotRow>,
}

impl Goals {
    /// Adds the goals of a family.
    pub fn add(&mut self, family: &Family<'_>, figures: &Figures) {
        let comparisons: Vec<Comparison> = family.goals.iter().map(|goal| goal.compare(figures)).collect();
        if !comparisons.is_empty() {
            self.rows.push(DotRow::heading(family.name.as_str()));
        }
        for comparison in &comparisons {
            self.lines.push(line(family, comparison));
            self.rows.push(row(comparison));
        }
    }

    /// The table.
    pub fn table(&self) -> String {
        let head = ["workloads", "/", "mean", "goal", "maximum", "goal", "`gittins`, true sizes", "met"];
        markdown::table(&head, 2, &self.lines)
    }

    /// The picture, as SVG.
    pub fn plot(self) -> Option<String> {
        let series = vec![
            DotSeries::published("goal"),
            DotSeries::measured("mean of weir"),
            DotSeries::measured("mean of gittins, true sizes"),
        ];
        let title = "mean completion time / of the other policy";
        DotPlot { title, scale: Scale::Log, reference: Some(1.0), series, rows: self.rows }.to_svg()
    }
}

fn line(family: &Family<'_>, comparison: &Comparison) -> Vec<String> {
    let goal = &comparison.goal;
    vec![
        family.name.clone(),
        comparison.other(),
        comparison.found(),
        goal.max_mean.to_string(),
        format!("{:.3}", comparison.max_ratio()),
        goal.max_each.map_or_else(|| "-".to_owned(), |max| max.to_string()),
        interval(&comparison.true_sizes),
        if comparison.is_met() { "yes" } else { "no" }.to_owned(),
    ]
}

fn row(comparison: &Comparison) -> DotRow {
    let dot = |ratios: &[f64]| {
        let interval = ConfidenceInterval::from_values(ratios);
        // A single workload has no interval.
        let half_width = if ratios.len() > 1 { interval.half_width } else { 0.0 };
        Some(Dot { value: interval.mean, half_width })
    };
    let dots =
        vec![Some(comparison.goal.max_mean.into()), dot(&comparison.ratios), dot(&comparison.true_sizes)];
    DotRow { name: format!("/ {}", comparison.other), dots }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratios: &[f64]) -> Comparison {
        let goal = Goal { max_each: Some(1.05), ..Goal::over("varys", 1.02) };
        Comparison { goal, other: "varys", ratios: ratios.to_vec(), true_sizes: Vec::new() }
    }

    #[test]
    fn goal_of_each_workload_can_be_missed_alone() {
        assert!(comparison(&[1.05, 0.99]).is_met());
        assert!(!comparison(&[1.06, 0.9]).is_met());
    }

    #[test]
    fn excess_is_that_of_the_part_that_is_missed_most() {
        assert_eq!(comparison(&[2.04, 2.04]).excess(), 2.0);
        assert_eq!(comparison(&[2.1, 0.0]).excess(), 2.0);
        assert!(comparison(&[1.05, 0.99]).excess() <= 1.0);
    }
}
