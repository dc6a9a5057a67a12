//! Writes the speedups on the testbed: LR with PR (Fig. 1b), 500 setups (Fig. 8), and other data, nodes and degrees (Fig. 9).

use weir_console::chart::{DotPlot, DotRow, DotSeries, Scale};
use weir_console::failure::Failure;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::solve::polynomial::Degree;
use weir_sim::jobs::workload::PROFILER_NODES;

use super::setup::SetupJob;
use super::testbed::{Conditions, PAPER_CONDITIONS, Policy, SABA, Speedups, Testbed};
use crate::markdown::{format_cell, table};
use crate::picture::Pictures;

/// The published average speedup of section 8.2.
pub const PUBLISHED_MEAN_SPEEDUP: f64 = 1.88;

/// The published speedups of workloads in section 8.2, with their citations.
const PUBLISHED_WORKLOADS: [(&str, f64, &str); 4] = [
    ("LR", 3.6, "8.2, Fig. 8a: \"and LR by 3.6x\""),
    ("RF", 3.9, "8.2, Fig. 8a: \"RF is increased by 3.9x\""),
    ("PR", 0.99, "8.2, Fig. 8a: \"degraded by ... 1%\""),
    ("Sort", 0.95, "8.2, Fig. 8a: \"degraded by 5%\""),
];

/// A study of section 8.3.
struct Study {
    name: &'static str,
    /// The data and the nodes, as multiples of those of the profiler.
    data: f64,
    nodes: f64,
    degree: Degree,
    /// The published speedups: the workload (`None` for all), the citation, and the value.
    published: &'static [(Option<&'static str>, &'static str, f64)],
}

const fn study(
    name: &'static str,
    (data, nodes, degree): (f64, f64, Degree),
    published: &'static [(Option<&'static str>, &'static str, f64)],
) -> Study {
    Study { name, data, nodes, degree, published }
}

const STUDIES: [Study; 9] = {
    use Degree::{Cubic, Linear, Quadratic};
    [
        study("0.1 x data", (0.1, 1.0, Cubic), &[(None, "8.3, study 1: \"1.33x\"", 1.33)]),
        study("10 x data", (10.0, 1.0, Cubic), &[(None, "8.3, study 1: \"1.40x\"", 1.40)]),
        study("0.5 x nodes", (1.0, 0.5, Cubic), &[(None, "8.3, study 2: \"1.42x\"", 1.42)]),
        study("2 x nodes", (1.0, 2.0, Cubic), &[(None, "8.3, study 2: \"1.34x\"", 1.34)]),
        study("3 x nodes", (1.0, 3.0, Cubic), &[(None, "8.3, study 2: \"1.26x\"", 1.26)]),
        study(
            "4 x nodes",
            (1.0, 4.0, Cubic),
            &[
                (None, "8.3, study 2: \"1.09x\"", 1.09),
                (Some("SQL"), "8.3, study 2: \"SQL ... 8%\"", 0.92),
                (Some("NW"), "8.3, study 2: \"NW ... 6%\"", 0.94),
                (Some("NI"), "8.3, study 2: \"NI ... 3% drop\"", 0.97),
            ],
        ),
        study("k = 1", (1.0, 1.0, Linear), &[(None, "8.3, study 3: \"1.27x\"", 1.27)]),
        study(
            "k = 2",
            (1.0, 1.0, Quadratic),
            &[(None, "8.3, study 3: \"1.42x\"", 1.42), (Some("SQL"), "8.3, study 3: \"1.03x\"", 1.03)],
        ),
        study(
            "k = 3 (1 x data and nodes)",
            (1.0, 1.0, Cubic),
            &[(None, "8.3, study 1: \"1.54x\"", 1.54), (Some("SQL"), "8.3, study 3: \"1.22x\"", 1.22)],
        ),
    ]
};

/// Fig. 8: Saba and ideal max-min over the baseline, on all setups.
pub struct MainResults {
    /// Saba.
    pub saba: Speedups,
    ideal_max_min: Speedups,
}

/// Runs all setups.
pub fn main_results(testbed: &Testbed<'_>) -> Result<MainResults, Failure> {
    let cases = [(PAPER_CONDITIONS, SABA), (PAPER_CONDITIONS, Policy::IdealMaxMin)];
    let mut results = testbed.compare(testbed.setups(), PAPER_CONDITIONS, &cases)?.into_iter();
    let mut next = || results.next().expect("`compare` returns one result per case");
    Ok(MainResults { saba: next(), ideal_max_min: next() })
}

/// The sections of the page.
pub fn section(
    testbed: &Testbed<'_>,
    main: &MainResults,
    pictures: &mut Pictures,
) -> Result<String, Failure> {
    Ok(lr_and_pr_section(testbed)? + &fig8(testbed, main, pictures) + &fig9(testbed, pictures)?)
}

/// One instance of each workload on the same servers.
fn one_job_per_workload(workloads: usize, data: f64, servers: u32) -> Vec<SetupJob> {
    (0..workloads)
        .map(|workload| SetupJob { workload, data_factor: data, servers: (0..servers).collect() })
        .collect()
}

/// LR and PR on the profiler's servers (section 2.2).
fn lr_and_pr_section(testbed: &Testbed<'_>) -> Result<String, Failure> {
    let all = one_job_per_workload(testbed.workloads().len(), 1.0, PROFILER_NODES);
    let pair = ["LR", "PR"].map(|name| all[testbed.workload_position(name)].clone());
    let mut lines = Vec::new();
    let cases = [
        (Policy::Baseline, "max-min", [("2.26x", 2.26), ("1.21x", 1.21)], [0.5, 0.5]),
        (SABA, "skewed", [("1.48x", 1.48), ("1.34x", 1.34)], [0.75, 0.25]),
    ];
    for (policy, name, published, shares) in cases {
        let ends = testbed.run(PAPER_CONDITIONS, policy, &pair)?;
        for (job, end) in ends.iter().enumerate() {
            let workload = &testbed.workloads()[pair[job].workload];
            lines.push(vec![
                workload.name.to_owned(),
                name.to_owned(),
                format!("2.2, Fig. 1b: \"{}\"", published[job].0),
                format_cell(published[job].1),
                format_cell(end / workload.seconds),
                format_cell(workload.shape.slowdown(shares[job])),
            ]);
        }
    }
    let head =
        ["workload", "sharing", "place in the paper", "published", "measured", "alone with that share"];
    Ok(format!(
        "## LR and PR together (Fig. 1b)\n\n\
         Slowdowns on 8 servers. In the paper, skewed sharing gives 75 % to LR and 25 % to PR; the measured column has Saba. \
         The last column is the slowdown of the workload alone with 50, 75 or 25 % of the bandwidth. Measured slowdowns are \
         smaller, because each workload has all bandwidth while the other computes.\n\
         {}",
        table(&head, 3, &lines)
    ))
}

fn fig8(
    testbed: &Testbed<'_>,
    MainResults { saba, ideal_max_min: ideal }: &MainResults,
    pictures: &mut Pictures,
) -> String {
    let count = testbed.setups().len();
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    let mut line = |name: &str, published: Option<(&str, f64)>, saba: Option<f64>, ideal: Option<f64>| {
        lines.push(vec![
            name.to_owned(),
            published.map_or("-", |(citation, _)| citation).to_owned(),
            optional_cell(published.map(|(_, value)| value)),
            optional_cell(saba),
            optional_cell(ideal),
        ]);
        rows.push(DotRow::new(name, &[published.map(|(_, value)| value), saba, ideal]));
    };
    let average = Some(("8.2, Fig. 8a: \"by 1.88x compared to the baseline\"", PUBLISHED_MEAN_SPEEDUP));
    line("all", average, Some(saba.mean), Some(ideal.mean));
    for (index, workload) in testbed.workloads().iter().enumerate() {
        let published = PUBLISHED_WORKLOADS.iter().find(|(name, ..)| *name == workload.name);
        let published = published.map(|(_, value, citation)| (*citation, *value));
        line(workload.name, published, saba.workloads[index], ideal.workloads[index]);
    }
    let max_speedup = |speedups: &Speedups| speedups.workloads.iter().flatten().copied().reduce(f64::max);
    line("best workload", Some(("1: \"by up to 3.94x\"", 3.94)), max_speedup(saba), max_speedup(ideal));
    let range = |speedups: &Speedups| {
        let setups = &speedups.setups;
        [setups[0], setups[setups.len() - 1]].map(Some)
    };
    let ([saba_min, saba_max], [ideal_min, ideal_max]) = (range(saba), range(ideal));
    line("worst setup", Some(("8.2, Fig. 8b: \"from 0.94x\"", 0.94)), saba_min, ideal_min);
    line("best setup", Some(("8.2, Fig. 8b: \"to 2.92x\"", 2.92)), saba_max, ideal_max);
    let setups_below_one = |speedups: &Speedups| speedups.setups.iter().filter(|all| **all < 1.0).count();
    let head = ["jobs", "place in the paper", "published", "Saba", "ideal max-min"];
    format!(
        "## The testbed (Fig. 8)\n\nSpeedups over the baseline in {count} setups of 16 jobs on 32 servers, drawn with seed {}: one \
         switch, links of 56 Gbit/s, 8 queues per port, 16 priority levels, k = 3.\n{}\
         Setups with an average below 1: published 2 of 500 (8.2, Fig. 8b), measured {} of {count}; with ideal max-min {}.\n\n{}",
        testbed.seed,
        table(&head, 2, &lines),
        setups_below_one(saba),
        setups_below_one(ideal),
        pictures.add(
            "testbed",
            "Speedups of Saba by workload on the testbed: published and measured",
            "The speedups of the table. Right of the line at 1, jobs are faster than under the baseline.",
            speedups_plot(["Saba", "ideal max-min"], rows),
        )
    )
}

/// Published speedups, and two measured ones with these names.
fn speedups_plot(measured: [&str; 2], rows: Vec<DotRow>) -> Option<String> {
    let [first, second] = measured.map(DotSeries::measured);
    let series = vec![DotSeries::published("published"), first, second];
    DotPlot { title: "speedup", scale: Scale::Log, reference: Some(1.0), series, rows }.to_svg()
}

fn optional_cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), format_cell)
}

fn fig9(testbed: &Testbed<'_>, pictures: &mut Pictures) -> Result<String, Failure> {
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for study in &STUDIES {
        let servers = (study.nodes * f64::from(PROFILER_NODES)) as u32;
        let jobs = [one_job_per_workload(testbed.workloads().len(), study.data, servers)];
        let policy = Policy::Saba(study.degree, DEFAULT_MIN_SHARE);
        let profiled_like_study =
            Conditions { profiled_factors: (study.data, study.nodes), ..PAPER_CONDITIONS };
        let speedups = testbed.compare(
            &jobs,
            PAPER_CONDITIONS,
            &[(PAPER_CONDITIONS, policy), (profiled_like_study, policy)],
        )?;
        for (workload, citation, published) in study.published {
            let speedup = |speedups: &Speedups| match workload {
                Some(name) => speedups.workloads[testbed.workload_position(name)],
                None => Some(speedups.mean),
            };
            let measured = [speedup(&speedups[0]), speedup(&speedups[1])];
            let name = format!("{}, {}", study.name, workload.unwrap_or("all"));
            rows.push(DotRow::new(name, &[Some(*published), measured[0], measured[1]]));
            lines.push(vec![
                study.name.to_owned(),
                workload.unwrap_or("all").to_owned(),
                (*citation).to_owned(),
                format_cell(*published),
                optional_cell(measured[0]),
                optional_cell(measured[1]),
            ]);
        }
    }
    let head = [
        "study",
        "workload",
        "place in the paper",
        "published",
        "measured",
        "models of these data and nodes",
    ];
    Ok(format!(
        "## Data, nodes and degree (Fig. 9)\n\n\
         Speedups of Saba over the baseline, with one instance of each of the ten workloads on every server. Models are \
         fitted with the data and the nodes of the profiler. In the last column, the profiler runs with the data and the \
         nodes of the study.\n\
         {}{}",
        table(&head, 3, &lines),
        pictures.add(
            "studies",
            "Speedups of Saba with other data, nodes and degrees: published and measured",
            "The speedups of the table.",
            speedups_plot(["measured", "with models of these data and nodes"], rows),
        )
    ))
}
