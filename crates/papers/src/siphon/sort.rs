//! Simulates section 5.2: one shuffle between five regions, with each of Siphon's parts.

use weir_console::chart::{LineChart, Marks, distribution};
use weir_console::confidence_interval::ConfidenceInterval;
use weir_console::failure::Failure;
use weir_core::model::WideArea;
use weir_core::wide_area::detour;
use weir_sim::outcome::{mean, percentile};
use weir_sim::regions::link_of_flow;

use super::shuffle::{JobOutcome, Shuffle};
use crate::markdown;
use crate::picture::Pictures;

/// The bytes that the job reads.
const JOB_BYTES: f64 = 2.73e9;

/// The fraction of the data in each region of Table 1.
const DATA_FRACTIONS: [f64; 5] = [0.148, 0.250, 0.170, 0.173, 0.259];

/// The number of reduce tasks in each region of Table 1: two per worker.
const REDUCE_TASKS: [u32; 5] = [8, 16, 4, 6, 4];

/// The seconds that a task computes per byte.
const COMPUTE_SECS_PER_BYTE: f64 = 0.1e-6;

/// The maximum time of a short read in Fig. 12, in seconds.
const SHORT_READ_SECS: f64 = 18.0;

/// A scheme of Fig. 10 to 12.
struct PublishedScheme {
    name: &'static str,
    policy: &'static str,
    /// The slowest read in Fig. 12, in seconds.
    published_slowest_read: &'static str,
    /// The fraction of reads within [`SHORT_READ_SECS`] in Fig. 12.
    published_short_reads: &'static str,
    /// Both as points: seconds, and the fraction of reads within these.
    published_points: &'static [(f64, f64)],
}

const SCHEMES: [PublishedScheme; 4] = [
    PublishedScheme {
        name: "naive",
        policy: "fair",
        published_slowest_read: "\">60 s\" (fitted)",
        published_short_reads: "35 %",
        published_points: &[(SHORT_READ_SECS, 0.35), (60.0, 1.0)],
    },
    PublishedScheme {
        name: "flow groups alone",
        policy: "siphon:groups=on",
        published_slowest_read: "-",
        published_short_reads: "-",
        published_points: &[],
    },
    PublishedScheme {
        name: "multi-path",
        policy: "fair:detours=on",
        published_slowest_read: "\"~ 50 s\"",
        published_short_reads: "22 %",
        published_points: &[(SHORT_READ_SECS, 0.22), (50.0, 1.0)],
    },
    PublishedScheme {
        name: "Siphon: multi-path and flow groups",
        policy: "siphon:detours=on:groups=on",
        published_slowest_read: "\"almost the same\"",
        published_short_reads: "-",
        published_points: &[],
    },
];

/// The links that section 5.2 names: their regions, and the published megabytes of direct traffic.
const NAMED_LINKS: [(&str, &str, &str); 3] =
    [("taiwan", "carolina", "the largest"), ("taiwan", "oregon", "149"), ("oregon", "carolina", "170")];

/// The section of the page.
pub fn section(area: &WideArea, seeds: u64, pictures: &mut Pictures) -> Result<String, Failure> {
    Ok(introduction(area) + &reads_section(area, seeds, pictures)? + &traffic_section(area))
}

fn draw_shuffle(seed: u64) -> Shuffle {
    Shuffle::draw(seed, JOB_BYTES, &DATA_FRACTIONS, &REDUCE_TASKS, COMPUTE_SECS_PER_BYTE)
}

fn introduction(area: &WideArea) -> String {
    let regions = area.regions().iter().zip(DATA_FRACTIONS).zip(REDUCE_TASKS);
    let regions: Vec<String> = regions
        .map(|((name, data), tasks)| format!("{name} {} and {tasks}", markdown::format_percent(data)))
        .collect();
    format!(
        "## One shuffle (section 5.2)\n\n\
         A sort reads 2.73 GB over the five regions of Table 1 (`{}`), whose bandwidths are constant. Choices where the \
         paper publishes no figure:\n\n\
         - *Data and tasks* (Fig. 13): 19 workers with two tasks each. Both are fitted to the text: 149 MB go from Taiwan to \
         Oregon, 170 MB from Oregon to Carolina, most from Taiwan to Carolina, and the slowest read of naive takes over 60 \
         s. These figures are inputs and confirm nothing; those of the other schemes are measured. Data and tasks: {}.\n\
         - *Sizes*: the tasks of a region differ by a factor of up to three, by seed. A task computes 0.1 s per megabyte.\n\
         - *Stages* (Fig. 10 and 11): maps read nothing from other regions, so a job consists of its reads and the \
         computation of its reduce tasks.\n\
         - Naive and multi-path share links evenly between flows (\"in a round-robin manner\").\n\n",
        super::TABLE_1.0,
        regions.join(", "),
    )
}

/// Distributions of the times of reads, over all seeds.
fn reads_chart(reads_by_scheme: Vec<Vec<f64>>) -> Option<String> {
    let names: Vec<String> = SCHEMES.iter().map(|scheme| scheme.name.to_owned()).collect();
    let marks = SCHEMES.iter().enumerate().filter(|(_, scheme)| !scheme.published_points.is_empty());
    LineChart {
        x_title: "time of a read (s)",
        y_title: "part of the reads",
        y_max: 1.0,
        lines: reads_by_scheme.iter().map(|reads| distribution(reads)).collect(),
        names: &names,
        marks: marks
            .map(|(position, scheme)| {
                let name = format!("{}, published", scheme.name);
                Marks::published(name, Some(position), scheme.published_points)
            })
            .collect(),
        ..LineChart::default()
    }
    .to_svg()
}

fn reads_section(area: &WideArea, seeds: u64, pictures: &mut Pictures) -> Result<String, Failure> {
    let (mut lines, mut reads) = (Vec::new(), Vec::new());
    for scheme in &SCHEMES {
        let job = |seed| draw_shuffle(seed).run(area, scheme.policy, seed);
        let jobs = (1..=seeds).map(job).collect::<Result<Vec<JobOutcome>, Failure>>()?;
        let confidence_interval = |value: &dyn Fn(&JobOutcome) -> f64| {
            markdown::format_interval(&ConfidenceInterval::from_values(
                &jobs.iter().map(value).collect::<Vec<f64>>(),
            ))
        };
        let short_reads = |job: &JobOutcome| {
            job.read_ends_secs.iter().filter(|read| **read <= SHORT_READ_SECS).count() as f64
        };
        lines.push(vec![
            scheme.name.to_owned(),
            scheme.published_slowest_read.to_owned(),
            confidence_interval(&JobOutcome::cct),
            scheme.published_short_reads.to_owned(),
            confidence_interval(&|job| 100.0 * short_reads(job) / job.read_ends_secs.len() as f64),
            confidence_interval(&|job| mean(&job.read_ends_secs)),
            confidence_interval(&|job| percentile(&job.read_ends_secs, 50.0)),
            confidence_interval(&|job| percentile(&job.read_ends_secs, 90.0)),
            confidence_interval(&JobOutcome::end),
        ]);
        reads.push(jobs.into_iter().flat_map(|job| job.read_ends_secs).collect());
    }
    let head = [
        "scheme",
        "slowest read, published",
        "s",
        "reads within 18 s, published",
        "%",
        "mean read s",
        "P50 s",
        "P90 s",
        "job s",
    ];
    Ok(format!(
        "### Fig. 10 to 12: reads and jobs\n\
         {}Published figures are from 5.2, Fig. 12. Siphon has \"a slight reduction in the task execution time\" over \
         multi-path (5.2, Fig. 11). The capacity of relays and of their hosts is not limited here; the paper publishes no \
         figure for it.\n\n{}",
        markdown::table(&head, 1, &lines),
        pictures.add(
            "reads",
            "Distributions of the times of reads under four schemes, with published points",
            "Part of the reads of all seeds that take at most this time. Hollow: published points of Fig. 12.",
            reads_chart(reads),
        )
    ))
}

/// The traffic of [`NAMED_LINKS`], without and with detours.
fn traffic_section(area: &WideArea) -> String {
    let past = area.bandwidth_history();
    let (workload, _) = draw_shuffle(1).workload(area);
    let link_bytes = |flow| Some((link_of_flow(flow, area, workload.ports)?, flow.bytes.get()));
    let bytes: Vec<(u32, f64)> = workload.coflows[0].flows.iter().filter_map(link_bytes).collect();
    let (direct, detoured) =
        (detour::direct_paths(&past, &bytes), detour::relieve_bottlenecks(&past, &bytes));
    let region = |name: &str| {
        area.regions().iter().position(|region| region == name).expect("Table 1 has this region")
    };
    let link =
        |from: &str, to: &str| area.link_between(region(from), region(to)).expect("Table 1 has all links");
    let seconds = |loads: &[f64], link: u32| {
        markdown::format_cell(loads[link as usize] * past.median_seconds_per_byte(link))
    };
    let megabytes = |loads: &[f64], link: u32| markdown::format_cell(loads[link as usize] / 1e6);
    let line = |&(from, to, published): &(&str, &str, &str)| {
        let link = link(from, to);
        vec![
            format!("{from} to {to}"),
            published.to_owned(),
            megabytes(&direct.link_bytes, link),
            seconds(&direct.link_bytes, link),
            megabytes(&detoured.link_bytes, link),
            seconds(&detoured.link_bytes, link),
        ]
    };
    let bottleneck = link(NAMED_LINKS[0].0, NAMED_LINKS[0].1);
    let parts = detoured.path_shares.iter().filter(|part| part.direct_link == bottleneck);
    let relayed_parts = parts.filter_map(|part| {
        Some(format!(
            "{} over {}",
            markdown::format_percent(part.fraction),
            area.regions()[part.relay? as usize]
        ))
    });
    let relayed_parts: Vec<String> = relayed_parts.collect();
    let head = ["link", "direct MB, published", "direct MB", "s", "with detours MB", "s"];
    format!(
        "### Fig. 13: traffic\n\n\
         Published: \"the narrow link from Taiwan to S. Carolina becomes the bottleneck\", and a part of its traffic goes \
         through Oregon. Measured detours of its bytes: {}.\n\
         {}",
        relayed_parts.join(", "),
        markdown::table(&head, 1, &NAMED_LINKS.iter().map(line).collect::<Vec<_>>()),
    )
}
