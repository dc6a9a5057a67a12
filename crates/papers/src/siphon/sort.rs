//! Section 5.2: one shuffle between five regions, with each of Siphon's parts.

use weir_console::failure::Failure;
use weir_core::model::WideArea;
use weir_core::wide_area::{build, detour};
use weir_sim::outcome::{mean, percentile};
use weir_sim::wide_area::Inside;

use super::shuffle::{Job, Shuffle};
use crate::doc;
use crate::spread::Spread;

/// Bytes that the job reads.
const BYTES: f64 = 2.73e9;

/// By region of Table 1: the fraction of the data, and the number of reduce tasks, two per worker.
const DATA: [f64; 5] = [0.148, 0.250, 0.170, 0.173, 0.259];
const TASKS: [u32; 5] = [8, 16, 4, 6, 4];

/// Seconds that a task computes per byte.
const COMPUTING: f64 = 0.1e-6;

/// The time in seconds of a short read in Fig. 12.
const SHORT: f64 = 18.0;

/// A scheme of Fig. 10 to 12.
struct Scheme {
    name: &'static str,
    policy: &'static str,
    /// The order inside the coflow.
    inside: Inside,
    /// Published in Fig. 12: the slowest read in seconds, and the reads within 18 s.
    slowest: &'static str,
    short: &'static str,
}

const SCHEMES: [Scheme; 4] = [
    Scheme {
        name: "naive",
        policy: "fair",
        inside: Inside::Shared,
        slowest: "\">60 s\" (fitted)",
        short: "35 %",
    },
    Scheme {
        name: "flow groups alone",
        policy: "siphon",
        inside: Inside::LargestFirst,
        slowest: "-",
        short: "-",
    },
    Scheme {
        name: "multi-path",
        policy: "fair:detours=on",
        inside: Inside::Shared,
        slowest: "\"~ 50 s\"",
        short: "22 %",
    },
    Scheme {
        name: "Siphon: multi-path and flow groups",
        policy: "siphon:detours=on",
        inside: Inside::LargestFirst,
        slowest: "\"almost the same\"",
        short: "-",
    },
];

/// Links that section 5.2 names, with the published megabytes of the direct traffic.
const LINKS: [(&str, &str, &str); 3] =
    [("taiwan", "carolina", "the largest"), ("taiwan", "oregon", "149"), ("oregon", "carolina", "170")];

/// The section of the page.
pub fn section(area: &WideArea, seeds: u64) -> Result<String, Failure> {
    Ok(introduction(area) + &reads(area, seeds)? + &traffic(area))
}

fn draw(seed: u64) -> Shuffle {
    Shuffle::draw(seed, BYTES, &DATA, &TASKS, COMPUTING)
}

fn introduction(area: &WideArea) -> String {
    let regions = area.regions().iter().zip(DATA).zip(TASKS);
    let regions: Vec<String> =
        regions.map(|((name, data), tasks)| format!("{name} {} and {tasks}", doc::share(data))).collect();
    format!(
        "## One shuffle (section 5.2)\n\n\
         A sort reads 2.73 GB over the five regions of Table 1 (`{}`), whose bandwidths are constant. Choices where the paper \
         publishes no figure:\n\n\
         - *Data and tasks* (Fig. 13): 19 workers with two tasks each. They are fitted to the text: 149 MB go from Taiwan to Oregon, \
         170 MB from Oregon to Carolina, most from Taiwan to Carolina, and the slowest read of naive takes over 60 s. These figures \
         confirm nothing; those of the other schemes are measured. Data and tasks: {}.\n\
         - *Sizes*: the tasks of a region differ by a factor of up to three, by seed. A task computes 0.1 s per megabyte.\n\
         - *Stages* (Fig. 10 and 11): maps read nothing from other regions, so a job consists of its reads and the computation of its \
         reduce tasks.\n\
         - Naive and multi-path share links evenly between flows (\"in a round-robin manner\").\n\n",
        super::TABLE_1.0,
        regions.join(", "),
    )
}

fn reads(area: &WideArea, seeds: u64) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for scheme in &SCHEMES {
        let job = |seed| {
            let built = build(scheme.policy).map_err(Failure::input)?;
            let job = draw(seed).run(area, built, scheme.inside, seed);
            job.map_err(|error| Failure::wide_area(scheme.policy, &error))
        };
        let jobs = (1..=seeds).map(job).collect::<Result<Vec<Job>, Failure>>()?;
        let spread =
            |value: &dyn Fn(&Job) -> f64| Spread::of(&jobs.iter().map(value).collect::<Vec<f64>>()).text();
        let short = |job: &Job| job.reads.iter().filter(|read| **read <= SHORT).count() as f64;
        lines.push(vec![
            scheme.name.to_owned(),
            scheme.slowest.to_owned(),
            spread(&Job::cct),
            scheme.short.to_owned(),
            spread(&|job| 100.0 * short(job) / job.reads.len() as f64),
            spread(&|job| mean(&job.reads)),
            spread(&|job| percentile(&job.reads, 50.0)),
            spread(&|job| percentile(&job.reads, 90.0)),
            spread(&Job::end),
        ]);
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
        "### Fig. 10 to 12: reads and jobs\n{}\
         Published figures are from 5.2, Fig. 12. Siphon has \"a slight reduction in the task execution time\" over multi-path (5.2, \
         Fig. 11). The capacity of relays and of their hosts is not limited here; the paper has no figure of it.\n\n",
        doc::table(&head, 1, &lines)
    ))
}

/// The traffic of the links that section 5.2 names.
fn traffic(area: &WideArea) -> String {
    let past = area.past();
    let demand = draw(1).demand(area);
    let bytes: Vec<(u32, f64)> = demand.groups.iter().flat_map(|group| &group.flows).copied().collect();
    let (direct, relieved) = (detour::direct(&past, &bytes), detour::relieve(&past, &bytes));
    let region = |name: &str| {
        area.regions().iter().position(|region| region == name).expect("Table 1 has this region")
    };
    let link = |from: &str, to: &str| area.link(region(from), region(to)).expect("Table 1 has all links");
    let seconds = |loads: &[f64], link: u32| doc::n(loads[link as usize] * past.median(link));
    let megabytes = |loads: &[f64], link: u32| doc::n(loads[link as usize] / 1e6);
    let line = |&(from, to, published): &(&str, &str, &str)| {
        let link = link(from, to);
        vec![
            format!("{from} to {to}"),
            published.to_owned(),
            megabytes(&direct.loads, link),
            seconds(&direct.loads, link),
            megabytes(&relieved.loads, link),
            seconds(&relieved.loads, link),
        ]
    };
    let bottleneck = link(LINKS[0].0, LINKS[0].1);
    let parts = relieved.parts.iter().filter(|part| part.pair == bottleneck);
    let relayed = parts.filter_map(|part| {
        Some(format!("{} over {}", doc::share(part.share), area.regions()[part.relay? as usize]))
    });
    let relayed: Vec<String> = relayed.collect();
    let head = ["link", "direct MB, published", "direct MB", "s", "with detours MB", "s"];
    format!(
        "### Fig. 13: traffic\n\nPublished: \"the narrow link from Taiwan to S. Carolina becomes the bottleneck\", and a part of its traffic \
         goes through Oregon. Measured, of its bytes: {}.\n{}",
        relayed.join(", "),
        doc::table(&head, 1, &LINKS.iter().map(line).collect::<Vec<_>>()),
    )
}
