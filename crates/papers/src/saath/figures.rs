//! The figures of sections 2 and 6 that are not sweeps, one function each.

use std::fmt::Write;

use weir_sim::outcome::{mean, percentile};
use weir_trace::describe::Description;

use super::claims::{Bench, Claim, SPEEDUPS, STEPS, SYNC};
use super::experiments::AALOS;
use super::lab::Lab;
use crate::doc::{n, ratio, same, share, spread, table, yes};

/// Shares of coflows, as section 2.3 has them.
const WIDTHS: [(&str, f64); 3] =
    [("a single flow", 0.23), ("several equal flows", 0.50), ("unequal flows", 0.27)];

/// Published and measured, claim by claim, each under every Aalo.
pub fn headline(lab: &Lab<'_>) -> String {
    let mut out = String::from("\n## In short\n");
    let (mut came, mut out_of_reach) = (0, 0);
    let lines: Vec<Vec<String>> = SPEEDUPS
        .iter()
        .chain(&SYNC)
        .map(|claim| {
            let measured = (claim.measure)(&Bench::plain(lab)).unwrap_or(0.0);
            let out = same(measured, claim.published);
            came += usize::from(out);
            out_of_reach += usize::from(claim.out_of_reach(&Bench::plain(lab)));
            vec![
                claim.name.to_owned(),
                claim.source.to_owned(),
                claim.text(claim.published),
                claim.text(measured),
                ratio(measured, claim.published),
                yes(out),
            ]
        })
        .collect();
    writeln!(
        out,
        "\n{came} of {} numbers come out within 10 % with the parameters of the paper, the trace as it is and `{}`; {out_of_reach} of the others no \
         scheduler could have there. The paper does not say which Aalo it means; the tables below have all four readings, and the section \"Experiments\" says for each \
         number what it takes to get it.",
        lines.len(),
        AALOS[0]
    )
    .expect("memory takes all");
    let head = ["", "where in the paper", "published", "measured", "ratio", "within 10 %"];
    out.push_str(&table(&head, 2, &lines));
    out
}

/// Figures 2a and 2b: the trace itself.
pub fn fig2(lab: &Lab<'_>, description: &Description) -> String {
    let shares = [description.single, description.equal, description.unequal];
    let lines: Vec<Vec<String>> = WIDTHS
        .iter()
        .zip(shares)
        .map(|((name, published), measured)| {
            vec![
                format!("coflows of {name}"),
                share(*published),
                share(measured),
                ratio(measured, *published),
                yes((measured - published).abs() < 0.01),
            ]
        })
        .collect();
    let mut out =
        String::from("\n## Fig. 2: the trace, and Aalo out of sync\n\nFig. 2a, numbers of section 2.3:\n");
    out.push_str(&table(&["", "published", "measured", "ratio", "to the percent"], 1, &lines));
    let at = |part: f64| {
        description.deviations.iter().find(|(_, s)| *s >= part).map_or(0.0, |(deviation, _)| *deviation)
    };
    writeln!(
        out,
        "Fig. 2b (plot only, no numbers in the text): the deviation of flow lengths is 0 for {} of the coflows, at most {} for 80 %, \
         {} for 90 %, {} for 95 % and {} for all.",
        share(description.single + description.equal),
        n(at(0.8)),
        n(at(0.9)),
        n(at(0.95)),
        n(at(1.0)),
    )
    .expect("memory takes all");
    out.push_str("\nFig. 2c, the deviation of flow completion times under Aalo over their mean (single flows left out):\n");
    out.push_str(&by_aalo(lab, &SYNC[..4]));
    out
}

/// Claims, published and measured under every Aalo, with ratios.
fn by_aalo(lab: &Lab<'_>, claims: &[Claim]) -> String {
    let mut head = vec!["".to_owned(), "published".to_owned()];
    for aalo in AALOS {
        head.extend([format!("`{aalo}`"), "ratio".to_owned()]);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let lines: Vec<Vec<String>> = claims
        .iter()
        .map(|claim| {
            let mut cells = vec![claim.name.to_owned(), claim.text(claim.published)];
            for aalo in AALOS {
                let measured = (claim.measure)(&Bench { aalo, ..Bench::plain(lab) }).unwrap_or(0.0);
                cells.extend([claim.text(measured), ratio(measured, claim.published)]);
            }
            cells
        })
        .collect();
    table(&head, 1, &lines)
}

/// Figure 3: orders that know sizes.
pub fn fig3(lab: &Lab<'_>) -> String {
    let mut out = String::from(
        "\n## Fig. 3: SCF, SRTF and LWTF over Aalo\n\nThe text has no numbers: \"LWTF outperforms SRTF and SCF\"; by the caption \"the curves for SRTF \
         and LWTF overlap in (a)\", and (b) is the average CCT.\n",
    );
    let aalo = lab.plain("aalo");
    let policies = ["scf", "srtf", "lwtf"];
    let mut lines = Vec::new();
    for policy in policies {
        let run = lab.plain(policy);
        let mut cells = vec![format!("`{policy}`")];
        for of in AALOS {
            cells.push(spread(&run.over(&lab.plain(of))).map(n).join(" / "));
        }
        cells.push(n(run.mean()));
        cells.push(n(aalo.mean() / run.mean()));
        lines.push(cells);
    }
    let mut head = vec!["".to_owned()];
    head.extend(AALOS.iter().map(|of| format!("P10 / P50 / P90 over `{of}`")));
    head.extend(["mean CCT, s".to_owned(), "mean CCT of `aalo` over it".to_owned()]);
    out.push_str(&table(&head.iter().map(String::as_str).collect::<Vec<_>>(), 1, &lines));
    let [scf, srtf, lwtf] = policies.map(|policy| lab.plain(policy));
    let curve = |of: &super::lab::Summary| -> Vec<f64> {
        let ups = of.over(&aalo);
        (1..100).map(|p| percentile(&ups, f64::from(p))).collect()
    };
    let apart = curve(&srtf).iter().zip(curve(&lwtf)).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
    writeln!(
        out,
        "Published against measured: the curves of SRTF and LWTF overlap: {} (percentiles P1 to P99 are apart by at most {}). LWTF has a lower \
         average CCT than SCF: {} ({} s and {} s), and than SRTF: {} ({} s).",
        yes(apart < 0.05),
        share(apart),
        yes(lwtf.mean() < scf.mean()),
        n(lwtf.mean()),
        n(scf.mean()),
        yes(lwtf.mean() < srtf.mean()),
        n(srtf.mean()),
    )
    .expect("memory takes all");
    out
}

/// Figure 9: Saath over the others.
pub fn fig9(lab: &Lab<'_>) -> String {
    let mut out = String::from(
        "\n## Fig. 9: speed-up of Saath over other policies\n\nP10 is in the plot only. For Varys the text has no number but \"close to that of \
         SEBF\", which is taken for 1.\n",
    );
    let bench = Bench::plain(lab);
    let published = |over: &str| match over {
        "varys" => (Some(1.0), None),
        "fair" => (Some(154.0), None),
        _ => (Some(1.53), Some(4.5)),
    };
    let mut lines = Vec::new();
    for over in AALOS.iter().copied().chain(["varys", "fair"]) {
        let [p10, p50, p90] = bench.speedup(2, over);
        let (median, tail) = published(over);
        let pair = |published: Option<f64>, measured: f64| {
            let known = published.map_or("-".to_owned(), n);
            [known, n(measured), published.map_or("-".to_owned(), |p| ratio(measured, p))]
        };
        let mut cells = vec![format!("`{over}`"), n(p10)];
        cells.extend(pair(median, p50));
        cells.extend(pair(tail, p90));
        cells.push(n(mean(&bench.step(2).over(&bench.get(over)))));
        lines.push(cells);
    }
    let head = [
        "over",
        "P10 measured",
        "P50 published",
        "measured",
        "ratio",
        "P90 published",
        "measured",
        "ratio",
        "mean measured",
    ];
    out.push_str(&table(&head, 1, &lines));
    out
}

/// Figures 10 and 11: the ablation.
pub fn fig10(lab: &Lab<'_>) -> String {
    let mut out = String::from(
        "\n## Fig. 10: what the parts of Saath bring\n\nSpeed-ups over Aalo (6.2). A/N is all-or-none with FIFO, P/F adds per-flow \
         thresholds, Saath adds least contention first.\n",
    );
    out.push_str(&by_aalo(lab, &SPEEDUPS[2..6]));
    out.push_str(&by_aalo(lab, &SPEEDUPS[..2]));
    let means: Vec<String> =
        (0..3).map(|s| format!("{} {} s", STEPS[s].0, n(Bench::plain(lab).step(s).mean()))).collect();
    let same_as_fifo = Bench::plain(lab).step(1).ccts == Bench::plain(lab).step(2).ccts;
    writeln!(out, "Mean CCTs: {}; Aalo {} s.", means.join(", "), n(lab.plain("aalo").mean()))
        .expect("memory takes all");
    if same_as_fifo {
        out.push_str(
            "\nWith the trace as it is, least contention first changes no completion time at all. Contention is mutual: of two \
 coflows that meet in a queue each blocks one other, which is a tie, and ties go by arrival; it takes three in one queue to differ.\n",
        );
    }
    out
}

/// Figure 11: the ablation by the bins of Table 1.
pub fn fig11(lab: &Lab<'_>) -> String {
    let mut out = String::from(
        "\n## Fig. 11: by the bins of Table 1\n\nBin 1: at most 10 flows and 100 MB; bin 2: more flows; bin 3: more bytes; bin 4: more of both. Medians over the \
         same bin under Aalo. Shares and medians are in the plot only; what the text of 6.2 says of them is checked below. \
         Fig. 12 is the same for the trace of an online service provider, which is not public, so nothing is measured for it here.\n",
    );
    let bench = Bench::plain(lab);
    let count = lab.facts.len() as f64;
    for aalo in ["aalo", "aalo:sharing=strict"] {
        let bench = Bench { aalo, ..bench.clone() };
        let all = [0, 1, 2].map(|step| bins(&bench, step));
        let lines: Vec<Vec<String>> = (0..4)
            .map(|bin| {
                let here = lab.facts.iter().filter(|f| f.bin == bin + 1).count() as f64;
                let mut cells = vec![format!("{}", bin + 1), share(here / count)];
                cells.extend((0..3).flat_map(|s| [n(all[s][bin][1]), n(all[s][bin][2])]));
                cells
            })
            .collect();
        writeln!(out, "\nOver `{aalo}`:").expect("memory takes all");
        let head = ["bin", "coflows", "A/N P50", "P90", "+ P/F P50", "P90", "Saath P50", "P90"];
        out.push_str(&table(&head, 1, &lines));
        let least = |from: usize, to: usize, bin: usize| all[to][bin][1] / all[from][bin][1];
        let best = (0..4).max_by(|&a, &b| all[0][a][1].total_cmp(&all[0][b][1])).unwrap_or(0);
        writeln!(
            out,
            "A/N helps bin 1 most (\"effective for small, thin CoFlows\"): {} (bin {} has the highest median). P/F lifts the medians of bins 2 and \
             4: {} (x{} and x{}). LCoF lifts the median of every bin: {} (x{}).",
            yes(best == 0),
            best + 1,
            yes(least(0, 1, 1) > 1.005 && least(0, 1, 3) > 1.005),
            n(least(0, 1, 1)),
            n(least(0, 1, 3)),
            yes((0..4).all(|bin| least(1, 2, bin) > 1.005)),
            [0, 1, 2, 3].map(|bin| n(least(1, 2, bin))).join(", x"),
        )
        .expect("memory takes all");
    }
    out
}

/// Percentiles P10, P50 and P90 of the speed-up of a step over Aalo in each bin of Table 1.
pub fn bins(bench: &Bench<'_>, step: usize) -> [[f64; 3]; 4] {
    let (base, run) = (bench.aalo(), bench.step(step));
    [1, 2, 3, 4].map(|bin| {
        let pick = |of: &[f64]| -> Vec<f64> {
            of.iter().zip(&bench.lab.facts).filter(|(_, f)| f.bin == bin).map(|(&v, _)| v).collect()
        };
        spread(&weir_sim::outcome::speedups(&pick(&base.ccts), &pick(&run.ccts)))
    })
}

/// Figure 13: out of sync under Saath and Aalo.
pub fn fig13(lab: &Lab<'_>) -> String {
    let mut out = String::from(
        "\n## Fig. 13: out of sync under Saath and Aalo\n\nShares of the coflows with several equally long flows (6.2). \"At the same time\" is a deviation of 0 but \
         for rounding.\n",
    );
    out.push_str(&by_aalo(lab, &SYNC[4..]));
    out
}

/// Section 7.1: a testbed, for orientation only.
pub fn testbed(lab: &Lab<'_>) -> String {
    let mut out = String::from(
        "\n## Fig. 15 and section 7.1: the testbed\n\nPublished on 150 machines, measured in simulation: for orientation. \"Speeds up\" means that the CCT falls by \
         more than 0.1 %.\n",
    );
    let bench = Bench::plain(lab);
    let mut lines =
        vec![["**published**", "1.88", "1.43", "0.09", "12.15", "over 70 %"].map(str::to_owned).to_vec()];
    for aalo in AALOS {
        let ups = bench.step(2).over(&bench.get(aalo));
        let faster = ups.iter().filter(|&&up| up > 1.001).count() as f64 / ups.len().max(1) as f64;
        lines.push(vec![
            format!("over `{aalo}`"),
            n(mean(&ups)),
            n(percentile(&ups, 50.0)),
            n(percentile(&ups, 0.0)),
            n(percentile(&ups, 100.0)),
            share(faster),
        ]);
    }
    out.push_str(&table(&["", "mean", "median", "least", "most", "speeds up"], 1, &lines));
    out
}
