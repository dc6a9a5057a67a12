//! Writes Fig. 2: a coflow whose reducers pull from random mappers, by the number of connections of a host, without Django.

use weir_console::chart::{LineChart, Marks, Scale};
use weir_console::table::format_bytes;
use weir_sim::outcome::mean;

use super::replays::{DCTCP, PUBLISHED_BEST, Replays};
use super::setup::{ConnectionCost, DEFAULT, MEAN_FLOW_BYTES, Setup, TASKS_PER_SIDE, WorkloadSource};
use crate::claim::Claim;
use crate::markdown;
use crate::picture::Pictures;

/// Numbers of connections of a host. A host has four reducers, each with at least one connection and at most one from each host.
const CONNECTIONS: [usize; 13] = [4, 6, 8, 11, 13, 16, 20, 24, 28, 32, 40, 48, 64];

/// The CCT with 13 connections, in seconds (2.3: "about 2.4").
const PUBLISHED_CCT_WITH_13: f64 = 2.4;

/// CCTs by the number of connections, in seconds.
type Ccts = [f64; CONNECTIONS.len()];

/// Fig. 2: the best number of connections, over `seeds` draws of the sizes and of the order of pulls.
pub fn fig2(replays: &Replays<'_>, seeds: u64, claims: &mut Vec<Claim>, pictures: &mut Pictures) -> String {
    let mean_cct = |cost, cct: &dyn Fn(Setup) -> f64| {
        let setup = |seed| Setup { source: WorkloadSource::Shuffle(seed), cost, ..DEFAULT };
        mean(&(1..=seeds).map(|seed| cct(setup(seed))).collect::<Vec<f64>>())
    };
    let pulls = |cost, count: usize| mean_cct(cost, &|setup| replays.random_pulls(setup, count).mean());
    let goodput = replays.inputs.goodput(&DEFAULT).expect("the default setup has measured losses");
    let ccts = CONNECTIONS.map(|count| pulls(DEFAULT.cost, count));
    let free_ccts = CONNECTIONS.map(|count| pulls(ConnectionCost::None, count));
    let django_ccts = CONNECTIONS
        .map(|count| mean_cct(DEFAULT.cost, &|setup| replays.django_with(setup, count, "").mean()));
    let row =
        |name: &str, cells: [String; CONNECTIONS.len()]| [vec![name.to_owned()], cells.to_vec()].concat();
    let rows = [
        row("CCT s", ccts.map(markdown::format_cell)),
        row("CCT s if connections cost nothing", free_ccts.map(markdown::format_cell)),
        row("CCT s under Django, not in the paper", django_ccts.map(markdown::format_cell)),
        row("measured loss", CONNECTIONS.map(|count| markdown::format_percent(goodput.loss(count)))),
    ];
    let best = CONNECTIONS.into_iter().zip(ccts).min_by(|a, b| a.1.total_cmp(&b.1));
    let best = best.expect("`CONNECTIONS` is not empty").0;
    claims.extend([
        Claim::number(
            "best number of connections",
            "2.3, Fig. 2(a): \"11\"",
            PUBLISHED_BEST as f64,
            best as f64,
        ),
        Claim::number(
            "CCT with 13 connections, s",
            "2.3: \"about 2.4\"",
            PUBLISHED_CCT_WITH_13,
            pulls(DEFAULT.cost, 13),
        ),
        Claim::number("loss with 13 connections", "2.3: \"10^-4\"", 1e-4, goodput.loss(13)),
    ]);
    let names = CONNECTIONS.map(|count| count.to_string());
    let head: Vec<&str> = ["connections"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let unlimited = mean_cct(DEFAULT.cost, &|setup| replays.summary(setup, DCTCP).mean());
    introduction(seeds, unlimited)
        + &markdown::table(&head, 1, &rows)
        + &pictures.add(
            "connections",
            "Completion time of a coflow by the number of connections, with the published point",
            "CCTs of the table. Hollow: the published CCT with 13 connections. The y axis does not start at 0.",
            chart(ccts, free_ccts, django_ccts),
        )
}

/// The text above the table. Without a limit on connections, DCTCP takes `unlimited` seconds.
fn introduction(seeds: u64, unlimited: f64) -> String {
    format!(
        "## Fig. 2: number of connections\n\n\
         One coflow of {TASKS_PER_SIDE} mappers and {TASKS_PER_SIDE} reducers, spread evenly over {} hosts. A mapper sends \
         {} to each reducer on average. As in the paper, Django does not schedule this coflow. Each host divides its \
         connections evenly between its four reducers; the first ones get a remainder. Each reducer pulls from hosts in a \
         random order, and connections share links max-min. Figures are means over {seeds} draws of the sizes and the \
         orders. Without a limit on connections, DCTCP (`{DCTCP}`) takes {} s.\n",
        DEFAULT.hosts,
        format_bytes(MEAN_FLOW_BYTES * DEFAULT.rate_scale),
        markdown::format_cell(unlimited),
    )
}

fn chart(ccts: Ccts, free_ccts: Ccts, django_ccts: Ccts) -> Option<String> {
    let line = |ccts: Ccts| CONNECTIONS.iter().map(|&count| count as f64).zip(ccts).collect();
    let published = Marks::published("published", None, &[(13.0, PUBLISHED_CCT_WITH_13)]);
    let all = || ccts.into_iter().chain(free_ccts).chain(django_ccts);
    LineChart {
        x_title: "connections",
        y_title: "CCT (s)",
        x_scale: Scale::Log,
        y_min: 0.95 * all().fold(PUBLISHED_CCT_WITH_13, f64::min),
        y_max: 1.05 * all().fold(PUBLISHED_CCT_WITH_13, f64::max),
        lines: [ccts, free_ccts, django_ccts].map(line).to_vec(),
        names: &["measured costs", "connections cost nothing", "Django"].map(str::to_owned),
        marks: vec![published],
        ..LineChart::default()
    }
    .to_svg()
}
