//! Aalo with one flow at a time, whose numbers depend on which flow that is.

use std::fmt::Write;

use super::super::claims::{Bench, Claim, STEPS};
use super::super::lab::{DRAWS, draws_of, order_of};
use super::explanations::unconcerned;
use super::{Row, SPEEDUPS};
use crate::doc::{n, same, table};

const ABOUT: &str = "\n\
### One flow at a time\n\n\
This is a guess. In the public simulator of a later system by authors of this paper (github.com/coflowPhilae/simulator) a flow has the whole of its two ports \
or nothing, and every sender has one that is \"currently allocated\". There flows are matched over the whole fabric, which is what `at=both` with strict \
queues does with rates in place of whole ports; no Aalo of that kind is public. But under Aalo ports \"act independently in scheduling flows\", \"by enumerating flows from the highest to lowest priority queues\" (2.2). So what if \
each sender sends one flow of the coflow that it serves (strict queues by total bytes, FIFO inside), with its whole port, and then another one, and \
receivers share evenly among the flows that come in? What that leaves of a sender's port nobody has. Three orders are \
tried: any, drawn for every sender; a ring of the receiving ports, which every sender begins at one that is drawn; and the same \
ring with the same beginning for all senders, which are then in each other's way. Saath stays as it is, but for \"Saath alike\": there the coordinator, which knows both ends, gives \
a coflow all of whose ports are free one flow at every sender, to receivers that have none yet, and work conservation gives what is left to the others in the same way. Against \
\"Saath alike\" speaks that flows which follow one another do not end together: its share of coflows whose flows end at once is under \"Flows that end out of sync\".";

/// The speed-ups over it: least, median and most over all draws, and in how many both percentiles come out.
pub fn section(rows: &[Row<'_>], out: &mut String) {
    writeln!(
        out,
        "{ABOUT} What is drawn is drawn {DRAWS} times: below are the medians and, in brackets, the least and the most; \"both\" counts the draws in which P50 \
         and P90 are within 10 % of the published. All other tables have the medians over the draws, each number's by itself.",
    )
    .expect("memory takes all");
    let mut lines = vec![vec!["**published**".to_owned(), String::new()]];
    for step in STEPS {
        let [p50, p90] = of_step(step.0);
        lines[0].extend([
            format!("**{}**", n(p50.published)),
            format!("**{}**", n(p90.published)),
            String::new(),
        ]);
    }
    for row in single_flow(rows) {
        let mut line = vec![row.name.clone(), row.bench.aalo.to_owned()];
        for step in STEPS {
            let [p50, p90] = of_step(step.0);
            line.extend([range(p50, row), range(p90, row), of_draws(count(p50, &[p90], &row.bench), row)]);
        }
        lines.push(line);
    }
    // The whole of Saath is what the section is about, and comes first.
    for line in &mut lines {
        line[2..].rotate_right(3);
    }
    let head = [
        "experiment",
        "Aalo",
        "Saath P50",
        "P90",
        "both",
        "A/N P50",
        "P90",
        "both",
        "A/N + P/F P50",
        "P90",
        "both",
    ];
    out.push_str(&table(&head, 2, &lines));
}

/// Under which settings a number and the others about the same thing come out in some draws.
pub fn hits(claim: &Claim, others: &[&Claim], rows: &[Row<'_>]) -> String {
    if !claim.on_aalo {
        return String::new();
    }
    let concerned = single_flow(rows).filter(|row| {
        (claim.measure)(&row.bench).is_some_and(|value| !unconcerned(claim, &row.bench, value))
    });
    let counts = concerned.map(|row| (row, count(claim, others, &row.bench)));
    let found: Vec<String> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(row, count)| format!("{} ({})", row.label(&row.bench, claim), of_draws(count, row)))
        .collect();
    if found.is_empty() {
        String::new()
    } else {
        format!(" In single draws all come out, by chance or not: {}.", found.join("; "))
    }
}

fn single_flow<'r, 'l>(rows: &'r [Row<'l>]) -> impl Iterator<Item = &'r Row<'l>> {
    rows.iter().filter(|row| order_of(row.bench.aalo).is_some())
}

/// The two numbers about a step of the ablation.
fn of_step(step: &str) -> [&'static Claim; 2] {
    let find = |aspect| {
        let of = |claim: &&Claim| claim.on_aalo && claim.name == format!("{step} over Aalo, {aspect}");
        SPEEDUPS.iter().find(of).expect("every step has both")
    };
    [find("median"), find("P90")]
}

/// A number at each draw.
fn values(claim: &Claim, bench: &Bench<'_>) -> Vec<f64> {
    let at = |draw| (claim.measure)(&Bench { draw: Some(draw), ..bench.clone() });
    draws_of(bench.aalo).filter_map(at).collect()
}

fn range(claim: &Claim, row: &Row<'_>) -> String {
    let values = values(claim, &row.bench);
    let (least, most) =
        values.iter().fold((f64::INFINITY, 0.0), |(least, most), &v| (v.min(least), v.max(most)));
    let all = n((claim.measure)(&row.bench).unwrap_or(0.0));
    if values.len() == 1 { all } else { format!("{all} ({} to {})", n(least), n(most)) }
}

/// In how many draws all of the numbers come out, of those that the setting has.
pub fn count(claim: &Claim, others: &[&Claim], bench: &Bench<'_>) -> usize {
    let all = std::iter::once(claim).chain(others.iter().copied());
    let values: Vec<(f64, Vec<f64>)> = all.map(|claim| (claim.published, values(claim, bench))).collect();
    let comes_out = |at: &usize| {
        values.iter().all(|(published, drawn)| drawn.get(*at).is_none_or(|&value| same(value, *published)))
    };
    (0..draws_of(bench.aalo).count()).filter(comes_out).count()
}

fn of_draws(count: usize, row: &Row<'_>) -> String {
    format!("{count} of {}", draws_of(row.bench.aalo).count())
}
