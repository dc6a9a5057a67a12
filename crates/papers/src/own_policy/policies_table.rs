//! The table of policies of a family.

use super::SAATH;
use super::contender::markdown_name;
use super::figures::{Figures, Statistic, interval};
use crate::markdown;

/// What the columns are, before the first table.
pub const HEAD: &str = "## Policies\n\nThe mean over `varys` and over `saath`, and the median, 90th and 99th percentiles over `saath`, are ratios \
    of completion times: below 1, the policy is better. *Bound* is the mean divided by a lower bound for every schedule. *Late* is the share of \
    coflows that take more than twice as long as under `saath`. *Met* is the share of deadlines that are met. Of several workloads, the mean \
    of the ratios with its 95 % confidence interval.\n";

/// The table of these policies.
pub fn policies_table<'a>(policies: impl IntoIterator<Item = &'a str>, figures: &Figures) -> String {
    let mut head =
        vec!["policy", "mean / `varys`", "/ `saath`", "P50 / `saath`", "P90", "P99", "bound", "late"];
    let has_deadlines = figures.met_share("weir").is_some();
    if has_deadlines {
        head.push("met");
    }
    let line = |policy: &'a str| {
        let means = ["varys", SAATH].map(|other| figures.ratios(policy, other, Statistic::Mean));
        let percentiles = [50.0, 90.0, 99.0].map(|p| figures.ratio(policy, SAATH, Statistic::Percentile(p)));
        let bound = figures.over_bound(policy).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let mut line = vec![markdown_name(policy)];
        line.extend(means.iter().map(|ratios| interval(ratios)));
        line.extend(percentiles.iter().map(|ratio| format!("{ratio:.3}")));
        line.extend([bound, markdown::format_percent(figures.late_share(policy, SAATH))]);
        line.extend(figures.met_share(policy).map(markdown::format_percent));
        line
    };
    markdown::table(&head, 1, &policies.into_iter().map(line).collect::<Vec<_>>())
}
