//! The comparisons that `weir` loses.

use super::contender::markdown_name;
use super::families::Family;
use super::figures::{Figures, Statistic, exceeds};
use super::goals::Comparison;
use super::{KNOWN_POLICIES, RIVALS, SAATH};
use crate::markdown;

/// The percentiles that are compared with those of Saath, and the maximum of the ratio.
const PERCENTILES: [f64; 2] = [50.0, 99.0];
const MAX_PERCENTILE_RATIO: f64 = 1.01;

/// The maximum share of coflows that take more than twice as long as under Saath.
const MAX_LATE_SHARE: f64 = 0.01;

/// A constant that changes the mean by less than this part, if halved or doubled, is not named among the shortfalls.
const SMALL_CHANGE: f64 = 0.01;

/// Lost comparisons of one kind, and the number of all of them.
#[derive(Debug, Default)]
struct Comparisons {
    lost: Vec<Vec<String>>,
    count: usize,
}

impl Comparisons {
    /// Counts a comparison of a family. It is lost if the found ratio exceeds `max`.
    fn compare(
        &mut self,
        family: &Family<'_>,
        what: String,
        found: f64,
        max: f64,
        format: impl Fn(f64) -> String,
    ) {
        self.count += 1;
        if exceeds(found, max) {
            self.lost.push(vec![family.name.clone(), what, format(found), format(max)]);
        }
    }

    /// The number of lost comparisons.
    fn lost(&self) -> String {
        match self.lost.len() {
            0 => format!("none of {}", self.count),
            lost => format!("{lost} of {}", self.count),
        }
    }

    /// A sentence with the number of lost comparisons, and their table. Nothing without comparisons.
    fn write(&self, out: &mut String, what: &str) {
        if self.count > 0 {
            *out += &format!("\n{what}: lost in {} comparisons.\n", self.lost());
        }
        if !self.lost.is_empty() {
            *out += &markdown::table(&["workloads", "comparison", "found", "limit"], 2, &self.lost);
        }
    }
}

/// The lost goals of a family.
#[derive(Debug)]
struct LostGoals {
    family: String,
    /// How many times a goal is exceeded, at most.
    excess: f64,
    goals: Vec<String>,
}

/// All comparisons of the page.
#[derive(Debug, Default)]
pub struct Shortfalls {
    lost_goals: Vec<LostGoals>,
    goals: Comparisons,
    rivals: Comparisons,
    percentiles: Comparisons,
    late: Comparisons,
    deadlines: Comparisons,
    known: Comparisons,
    variants: Comparisons,
}

fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

impl Shortfalls {
    /// Adds the comparisons of a family.
    pub fn add_family(&mut self, family: &Family<'_>, figures: &Figures) {
        self.add_goals(family, figures);
        for rival in RIVALS {
            let found = figures.ratio("weir", rival, Statistic::Mean);
            self.rivals.compare(family, format!("/ `{rival}`"), found, 1.0, ratio);
        }
        for percentage in PERCENTILES {
            let found = figures.ratio("weir", SAATH, Statistic::Percentile(percentage));
            self.percentiles.compare(family, format!("P{percentage}"), found, MAX_PERCENTILE_RATIO, ratio);
        }
        let late = figures.late_share("weir", SAATH);
        self.late.compare(family, "late coflows".to_owned(), late, MAX_LATE_SHARE, markdown::format_percent);
        if let (Some(own), Some(saath)) = (figures.met_share("weir"), figures.met_share(SAATH)) {
            // Lower is worse.
            self.deadlines.count += 1;
            if own < saath {
                let shares = [own, saath].map(markdown::format_percent);
                let line = [family.name.clone(), "met deadlines".to_owned()].into_iter().chain(shares);
                self.deadlines.lost.push(line.collect());
            }
        }
        for other in &KNOWN_POLICIES[..2] {
            let found = figures.ratio("weir:sizes=known", other, Statistic::Mean);
            self.known.compare(family, format!("/ `{other}`"), found, 1.0, ratio);
        }
    }

    fn add_goals(&mut self, family: &Family<'_>, figures: &Figures) {
        self.goals.count += family.goals.len();
        let comparisons = family.goals.iter().map(|goal| goal.compare(figures));
        let lost: Vec<Comparison> = comparisons.filter(|comparison| !comparison.is_met()).collect();
        if lost.is_empty() {
            return;
        }
        for goal in &lost {
            let line = vec![family.name.clone(), format!("/ {}", goal.other()), goal.found(), goal.limit()];
            self.goals.lost.push(line);
        }
        let describe =
            |goal: &Comparison| format!("{} times {} (goal {})", goal.found(), goal.other(), goal.limit());
        self.lost_goals.push(LostGoals {
            family: family.name.clone(),
            excess: lost.iter().map(Comparison::excess).fold(0.0, f64::max),
            goals: lost.iter().map(describe).collect(),
        });
    }

    /// Adds these variants of `weir`.
    pub fn add_variants<'a>(
        &mut self,
        family: &Family<'_>,
        figures: &Figures,
        variants: impl Iterator<Item = &'a str>,
    ) {
        for variant in variants {
            let found = figures.ratio("weir", variant, Statistic::Mean);
            let what = format!("/ {}", markdown_name(variant));
            self.variants.compare(family, what, found, 1.0 + SMALL_CHANGE, ratio);
        }
    }

    /// The summary of the page: lost goals first, the worst family first.
    pub fn summary(&self) -> String {
        let mut out =
            format!("## Summary\n\n- Goals for the mean: missed in {} comparisons", self.goals.lost());
        let mut families: Vec<&LostGoals> = self.lost_goals.iter().collect();
        families.sort_by(|a, b| b.excess.total_cmp(&a.excess));
        out += if families.is_empty() { ".\n" } else { ", by family, the worst first:\n" };
        for LostGoals { family, goals, .. } in families {
            out += &format!("  - {family}: {}\n", goals.join("; "));
        }
        out += &format!(
            "- The mean is higher than that of a policy without knowledge of sizes in {} comparisons.\n\
             - P50 or P99 is more than {MAX_PERCENTILE_RATIO} of that of `saath` in {} comparisons.\n\
             - More than {} of the coflows take more than twice as long as under `saath` in {} families.\n\
             - No paper has this policy. Its goal is the mean completion time of `varys` without knowledge of sizes.\n\
             - The page has simulations only; [another page](live.md#a-slice-of-coflows) has `weir` on real sockets.\n\n",
            self.rivals.lost(),
            self.percentiles.lost(),
            markdown::format_percent(MAX_LATE_SHARE),
            self.late.lost(),
        );
        out
    }

    /// The first section of the page.
    pub fn section(&self) -> String {
        let mut out = "## Where `weir` is worse\n\nAll comparisons that `weir` loses, at three decimals. Ratios are of completion times; above the \
                       limit is worse.\n"
            .to_owned();
        self.goals.write(&mut out, "Goals for the mean");
        self.rivals.write(&mut out, "Mean against policies that know no sizes");
        self.percentiles.write(&mut out, "Percentiles over those of `saath`");
        let late = format!(
            "Coflows that take more than twice as long as under `saath`, at most {}",
            markdown::format_percent(MAX_LATE_SHARE)
        );
        self.late.write(&mut out, &late);
        self.deadlines.write(&mut out, "Share of met deadlines, at least that of `saath`");
        self.known.write(&mut out, "Mean of `weir:sizes=known` against policies that know all sizes");
        let variants = format!(
            "Mean of `weir` against a variant or a scaled constant, at most {:.0} % worse",
            100.0 * SMALL_CHANGE
        );
        self.variants.write(&mut out, &variants);
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::TRUE_SIZES;
    use super::super::families::{Source, Timed};
    use super::super::figures::Times;
    use super::super::goal::Goal;
    use super::*;

    fn family(name: &str, goals: Vec<Goal>) -> Family<'static> {
        let source = Source::Trace(None, 1.0);
        Family { name: name.to_owned(), description: String::new(), goals, timed: Timed::Coflows, source }
    }

    /// Figures of one workload with one coflow: its time by policy, 2 s under all others.
    fn figures(times: &[(&str, f64)]) -> Figures {
        let mut figures = Figures::new(Vec::new());
        for policy in [&KNOWN_POLICIES[..], &RIVALS, &["weir", TRUE_SIZES]].concat() {
            let time = times.iter().find(|(name, _)| *name == policy).map_or(2.0, |(_, time)| *time);
            figures.add(policy, vec![Times { times: vec![time], met_share: None }]);
        }
        figures
    }

    #[test]
    fn section_lists_lost_comparisons_with_their_numbers() {
        let mut shortfalls = Shortfalls::default();
        // `weir` takes 3 s: 1.5 times as long as under all others but Aalo.
        let figures = figures(&[("weir", 3.0), ("aalo", 4.0)]);
        shortfalls.add_family(&family("F", vec![Goal::over("varys", 1.02)]), &figures);
        let section = shortfalls.section();
        assert!(section.contains("Goals for the mean: lost in 1 of 1 comparisons."), "{section}");
        assert!(section.contains("| F | / `varys` | 1.500 | 1.02 |"), "{section}");
        assert!(
            section.contains("Mean against policies that know no sizes: lost in 6 of 7 comparisons."),
            "{section}"
        );
        assert!(section.contains("| F | P50 | 1.500 | 1.010 |"), "{section}");
        assert!(!section.contains("aalo"), "{section}");
        // No figures of variants and deadlines were added.
        assert!(!section.contains("variant") && !section.contains("deadlines"), "{section}");
    }

    #[test]
    fn summary_starts_with_the_family_that_misses_its_goals_most() {
        let mut shortfalls = Shortfalls::default();
        for (name, seconds) in [("A", 3.0), ("B", 8.0), ("C", 2.0)] {
            let goals = vec![Goal::over("varys", 1.02), Goal::over("fair", 5.0)];
            shortfalls.add_family(&family(name, goals), &figures(&[("weir", seconds)]));
        }
        let summary = shortfalls.summary();
        let expected = "- Goals for the mean: missed in 2 of 6 comparisons, by family, the worst first:\n  \
                        - B: 4.000 times `varys` (goal 1.02)\n  - A: 1.500 times `varys` (goal 1.02)\n- The mean";
        assert!(summary.contains(expected), "{summary}");
    }
}
