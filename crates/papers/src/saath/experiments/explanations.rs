//! Which experiments explain which published number.

use std::fmt::Write;

use super::super::claims::{Bench, Claim};
use super::super::lab::draws_of;
use super::{Row, SPEEDUPS, SYNC, draws, quoted, with_tcps};
use crate::doc::{distance, ratio, same};

/// Each number by itself, and then all together; ends that are noticed late concern those about flows out of sync only.
pub fn section<'l>(rows: Vec<Row<'l>>, late: Vec<Row<'l>>, out: &mut String) {
    out.push_str("\n### What explains what\n\nFor each published number: whether it comes out (within 10 %) on the trace as it \
                  is with Weir's Aalo, and the experiments under which it does. An experiment explains a number only if \
                  the other number about the same thing (the other percentile, the other share) comes out there too; \
                  where it does not, the two are not the paper's setting, and one of them came out by chance.\n\n");
    for claim in &SPEEDUPS {
        explain(claim, &SPEEDUPS, &rows, out);
    }
    let rows: Vec<Row<'_>> = rows.into_iter().chain(late).collect();
    for claim in &SYNC {
        explain(claim, &SYNC, &rows, out);
    }
    together(&rows, out);
}

/// Whether a number comes out, by how much not, and under what it does.
fn explain(claim: &Claim, claims: &[Claim], rows: &[Row<'_>], out: &mut String) {
    let base = (claim.measure)(&rows[0].bench).unwrap_or(0.0);
    write!(
        out,
        "- **{}**: published {}, measured {} ({} of it). ",
        claim.name,
        claim.text(claim.published),
        claim.text(base),
        ratio(base, claim.published)
    )
    .expect("memory takes all");
    let mut found = tried(claim, rows);
    found.sort_by(|a, b| distance(a.value, claim.published).total_cmp(&distance(b.value, claim.published)));
    let others: Vec<&Claim> =
        claims.iter().filter(|c| c.name != claim.name && c.subject() == claim.subject()).collect();
    // The other numbers about the same thing that an experiment leaves wrong.
    let wrong = |t: &Tried<'_>| {
        let values = others.iter().filter_map(|c| (c.measure)(&t.bench).map(|value| (c, value)));
        let wrong = values.filter(|(c, value)| !same(*value, c.published));
        wrong.map(|(c, v)| format!("{} {}", c.aspect(), c.text(v))).collect::<Vec<_>>().join(", ")
    };
    let (hits, chances): (Vec<&Tried<'_>>, Vec<&Tried<'_>>) =
        found.iter().filter(|t| same(t.value, claim.published)).partition(|t| {
            // Two medians over draws may be of different ones.
            wrong(t).is_empty()
                && 2 * draws::count(claim, &others, &t.bench) >= draws_of(t.bench.aalo).count()
        });
    let text = if same(base, claim.published) {
        "It comes out.".to_owned()
    } else if !hits.is_empty() {
        let list = |t: &&Tried<'_>| format!("{} ({})", t.label, claim.text(t.value));
        format!("It does not come out as it is, and does under: {}.", few(&hits, list))
    } else {
        let values = found.iter().map(|t| t.value).chain([base]);
        let (least, most) =
            values.fold((f64::INFINITY, 0.0f64), |(least, most), v| (v.min(least), v.max(most)));
        let chance = |t: &&Tried<'_>| {
            let but = match wrong(t) {
                none if none.is_empty() => "in too few draws with the other".to_owned(),
                wrong => format!("but there {wrong}"),
            };
            format!("{} ({}, {but})", t.label, claim.text(t.value))
        };
        let by_chance = match chances.is_empty() {
            true => String::new(),
            false => format!(" By chance it comes out under: {}.", few(&chances, chance)),
        };
        format!(
            "**Nothing tried explains it** (the settings have {} to {}).{by_chance}{}{}",
            claim.text(least),
            claim.text(most),
            draws::hits(claim, &others, rows),
            nearest(claim, &others, &found, &rows[0].bench)
        )
    };
    writeln!(out, "{text}{}", reach(claim, rows)).expect("memory takes all");
}

/// The setting that is nearest in all numbers about the same thing, by the one that is farthest off.
fn nearest(claim: &Claim, others: &[&Claim], found: &[Tried<'_>], as_it_is: &Bench<'_>) -> String {
    let apart = |bench: &Bench<'_>| {
        let all = std::iter::once(&claim).chain(others);
        let values = all.filter_map(|c| (c.measure)(bench).map(|value| distance(value, c.published)));
        values.fold(0.0, f64::max)
    };
    let tried = found.iter().map(|t| (apart(&t.bench), t)).min_by(|(a, _), (b, _)| a.total_cmp(b));
    match tried.filter(|(tried, _)| *tried < apart(as_it_is)) {
        Some((_, t)) => {
            let others = others.iter().filter_map(|c| {
                (c.measure)(&t.bench).map(|value| format!(", {} {}", c.aspect(), c.text(value)))
            });
            let others: String = others.collect();
            format!(" Nearest: {} ({}{others}).", t.label, claim.text(t.value))
        }
        None => " None comes nearer.".to_owned(),
    }
}

/// Whether any scheduler could have a speed-up.
fn reach(claim: &Claim, rows: &[Row<'_>]) -> String {
    let Some(most) = claim.most else { return String::new() };
    let settings: Vec<Bench<'_>> = match claim.on_tcp {
        true => with_tcps(rows).flat_map(Row::variants).collect(),
        false => rows
            .iter()
            .filter(|row| row.bench.saath.is_empty() && row.bench.parts.is_empty())
            .map(|row| row.bench.clone())
            .collect(),
    };
    let out = settings.iter().filter(|bench| claim.out_of_reach(bench)).count();
    let as_it_is = &rows[0].bench;
    let verdict = if claim.out_of_reach(as_it_is) {
        "**No scheduler could have it** as it is"
    } else {
        "As it is a scheduler could"
    };
    format!(
        " {verdict} (at most {}); it is out of reach in {out} of {} settings.",
        claim.text(most(as_it_is)),
        settings.len()
    )
}

/// A number under an experiment.
struct Tried<'l> {
    label: String,
    value: f64,
    bench: Bench<'l>,
}

/// A number under all experiments that change it.
fn tried<'r>(claim: &Claim, rows: &'r [Row<'_>]) -> Vec<Tried<'r>> {
    let mut found: Vec<Tried<'r>> = Vec::new();
    for (row, bench) in rows.iter().flat_map(|row| row.variants().map(move |bench| (row, bench))).skip(1) {
        let Some(value) = (claim.measure)(&bench) else { continue };
        if unconcerned(claim, &bench, value) {
            continue;
        }
        let as_it_is =
            Bench { saath: "", parts: "", world: rows[0].bench.world, late_ms: 0, ..bench.clone() };
        let without = (claim.measure)(&as_it_is).unwrap_or(0.0);
        if row.changed && distance(value, without) < 0.005 {
            continue;
        }
        let label = row.label(&bench, claim);
        if !found.iter().any(|t| t.label == label) {
            found.push(Tried { label, value, bench });
        }
    }
    found
}

/// Whether what is different about Saath in a setting leaves a number as it is.
pub fn unconcerned(claim: &Claim, bench: &Bench<'_>, value: f64) -> bool {
    let (saath, parts) = (Bench { saath: "", ..bench.clone() }, Bench { parts: "", ..bench.clone() });
    let [saath, parts] = [(bench.saath, saath), (bench.parts, parts)]
        .map(|(different, without)| !different.is_empty() && (claim.measure)(&without) == Some(value));
    saath || parts
}

/// The first four of a list, and how many more there are.
fn few<T>(list: &[T], text: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = list.iter().take(4).map(text).collect();
    let more = if list.len() > 4 { format!("; and {} more", list.len() - 4) } else { String::new() };
    format!("{}{more}", shown.join("; "))
}

/// Which one setting brings most of the published speed-ups at once, and which most of all numbers.
fn together(rows: &[Row<'_>], out: &mut String) {
    let speedups: Vec<&Claim> = SPEEDUPS.iter().collect();
    let settings: Vec<&Row<'_>> = rows.iter().filter(|row| row.bench.late_ms == 0).collect();
    let (tried, _, best) = most_at_once(&speedups, &settings);
    writeln!(
        out,
        "\nOf the {tried} settings tried, one under which most of the {} speed-ups come out, by medians where there are draws, is {best}.",
        speedups.len(),
    )
    .expect("memory takes all");
    let all: Vec<&Claim> = SPEEDUPS.iter().chain(&SYNC).collect();
    let (tried, count, best) = most_at_once(&all, &rows.iter().collect::<Vec<_>>());
    let none = if count == all.len() {
        ""
    } else {
        " No setting tried has them all: an experiment shows what a number can come from, not that it came from there."
    };
    writeln!(
        out,
        "Of all {} numbers most come out, in {tried} settings with those about late ends, under {best}.{none}",
        all.len(),
    )
    .expect("memory takes all");
}

/// How many settings there are, and how many numbers come out at most in one of them: which ones, as text.
fn most_at_once(claims: &[&Claim], rows: &[&Row<'_>]) -> (usize, usize, String) {
    let settings: Vec<(&str, Bench<'_>)> =
        rows.iter().flat_map(|row| row.variants().map(|bench| (row.name.as_str(), bench))).collect();
    let near = |claim: &&&Claim, bench: &Bench<'_>| {
        (claim.measure)(bench).is_some_and(|value| same(value, claim.published))
    };
    let mut best = (0, Vec::new());
    for (at, (_, bench)) in settings.iter().enumerate() {
        let names: Vec<&str> =
            claims.iter().filter(|claim| near(claim, bench)).map(|claim| claim.name).collect();
        if names.len() > best.1.len() {
            best = (at, names);
        }
    }
    let (name, bench) = &settings[best.0];
    let names = if best.1.is_empty() { "none".to_owned() } else { best.1.join("; ") };
    let text = format!(
        "\"{name}\" with {} and {}: {} ({names})",
        quoted(bench.aalo),
        quoted(bench.tcp),
        best.1.len()
    );
    (settings.len(), best.1.len(), text)
}
