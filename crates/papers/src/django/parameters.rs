//! Fig. 11: Django's parameters; and worlds that differ in one thing, which say what the differences come from.

use super::claim::{self, Claim};
use super::figures::three;
use super::lab::{Cost, Lab, World};
use super::world;
use crate::doc;

/// What is varied, what else is set, and the values. The paper's figure has the first three.
const PARAMETERS: [(&str, &str, [f64; 5]); 7] = [
    ("alpha", "", [0.02, 0.1, 0.3, 0.5, 0.9]),
    ("beta", "", [0.3, 0.5, 0.7, 0.8, 0.9]),
    ("eta", "", [0.2, 0.4, 0.6, 0.8, 1.0]),
    ("lambda", "", [0.0, 0.1, 0.2, 0.5, 1.0]),
    ("theta", "", [0.0, 0.1, 0.25, 0.5, 0.9]),
    ("alpha", "theta=0", [0.02, 0.1, 0.3, 0.5, 0.9]),
    ("eta", "theta=0", [0.2, 0.4, 0.6, 0.8, 1.0]),
];

/// The parameters.
pub fn fig11(lab: &Lab<'_>) -> String {
    let mut lines = Vec::new();
    let mut best = Vec::new();
    for (name, fixed, values) in PARAMETERS {
        let colon = if fixed.is_empty() { "" } else { ":" };
        let mean = |value| lab.django(world(), &format!("{colon}{fixed}:{name}={value}")).mean();
        let means = values.map(|value| (value, mean(value)));
        let shown = if fixed.is_empty() { name.to_owned() } else { format!("{name}, with {fixed}") };
        lines.extend(means.iter().map(|&(value, mean)| vec![shown.clone(), value.to_string(), doc::n(mean)]));
        let least = means.iter().map(|&(_, mean)| mean).fold(f64::INFINITY, f64::min);
        // Values that nobody can tell from the best are as good.
        let good: Vec<f64> =
            means.iter().filter(|(_, mean)| *mean <= 1.01 * least).map(|&(value, _)| value).collect();
        best.push(good);
    }
    let listed = |values: &[f64]| values.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ");
    // If all are as good, none is best.
    let claim = |what, place, at: usize, fits: &dyn Fn(f64) -> bool| {
        let tells = best[at].len() < PARAMETERS[at].2.len();
        let measured = if tells { listed(&best[at]) } else { "all are alike".to_owned() };
        Claim::says(what, place, measured, tells && best[at].iter().any(|&value| fits(value)))
    };
    let claims = [
        claim("a small alpha is best", "6.4, Fig. 11(a)", 0, &|alpha| alpha <= 0.1),
        claim("beta from 0.7 to 0.9 is best", "6.4, Fig. 11(b): \"[0.7 0.9]\"", 1, &|beta| {
            (0.7..=0.9).contains(&beta)
        }),
        claim("eta around 0.6 is best", "6.4, Fig. 11(c)", 2, &|eta| eta == 0.6),
    ];
    // Whether one matters where the tracker looks for candidates whatever a downlink has left.
    let tells = |at: usize| best[at].len() < PARAMETERS[at].2.len();
    let why = |name: &str, plain: usize, open: usize| match (tells(plain), tells(open)) {
        (true, _) => format!("{name} matters."),
        (false, true) => format!(
            "{name} matters only with theta = 0: what it rules, one more connection of a reducer without priority, waits until the downlink has more \
             than theta left, and then little is left for it to rule."
        ),
        (false, false) => format!("{name} does not matter even with theta = 0."),
    };
    format!(
        "## Fig. 11: alpha, beta and eta\n\nOne at a time, with {} connections; the others are 0.1, 0.7 and 0.6, lambda 0.2 and \
         theta 0.5. Best are those within 1 % of the least mean.\n{}{}{} {}\n\n",
        lab.connections(&world()),
        doc::table(&["parameter", "value", "mean CCT s"], 1, &lines),
        claim::table(&claims),
        why("alpha", 0, 5),
        why("eta", 2, 6),
    )
}

/// Worlds that differ in one thing.
pub fn experiments(lab: &Lab<'_>) -> String {
    let worlds = [
        ("as above", world()),
        ("connections cost nothing", World { cost: Cost::None, ..world() }),
        ("as plain TCP pays, without marks", World { cost: Cost::Plain, ..world() }),
        ("as measured with 64 kB a connection", World { cost: Cost::Small, ..world() }),
        ("links of 1 Gbit, on which a stall costs ten times as much", World { pace: 1.0, ..world() }),
    ];
    let mut lines = Vec::new();
    let mut parts = Vec::new();
    for (name, world) in worlds {
        let all = three(lab, world);
        let mut line = vec![name.to_owned(), lab.connections(&world).to_string()];
        for tail in [false, true] {
            let of = all.each_ref().map(|summary| if tail { summary.tail(95.0) } else { summary.mean() });
            line.push(doc::n(of[0]));
            line.extend([1, 2].map(|rival| doc::n(of[0] / of[rival])));
        }
        parts.push([1, 2].map(|rival| all[0].mean() / all[rival].mean()));
        lines.push(line);
    }
    let says = |rival: usize, name: &str, published: f64| {
        let (with, without) = (parts[0][rival], parts[1][rival]);
        let gain = if with < 1.0 && without >= 1.0 {
            format!("Django's gain over {name} is that of its connections: without their cost there is none.")
        } else if with < 1.0 {
            format!("Django gains over {name} also if connections cost nothing, by its order of coflows.")
        } else {
            format!("Django does not gain over {name} where connections cost what was measured.")
        };
        let (least, most) = (with.min(without), with.max(without));
        let lies = if (least..=most).contains(&published) { "lies between" } else { "does not lie between" };
        format!(
            "{gain} The published {} of {name}'s mean {lies} what comes out with the cost, {}, and without, {}.",
            doc::n(published),
            doc::n(with),
            doc::n(without)
        )
    };
    format!(
        "## What the differences come from\n\nOne thing changed at a time.\n{}{}\n\n{}\n",
        doc::table(
            &[
                "world",
                "m",
                "mean s",
                "over Aalo+'s",
                "over DCTCP's",
                "P95 s",
                "over Aalo+'s",
                "over DCTCP's"
            ],
            1,
            &lines
        ),
        says(0, "Aalo+", 0.85),
        says(1, "DCTCP", 0.65),
    )
}
