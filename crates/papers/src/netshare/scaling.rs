//! Section 5.4: services with different numbers of connections on three tiers (Fig. 16, Table 3).

use weir_core::model::Plan;
use weir_sim::outcome::{mean, percentile};
use weir_sim::service::Mechanism;

use super::Making;
use super::scene::{Scene, at_the_end};
use crate::doc::{n, ratio, same, share, table, yes};
use weir_console::failure::Failure;
use weir_console::run::pool;

/// A line of Table 3.
struct Line {
    services: u32,
    /// Connections between two nodes, of the first service and of the others.
    connections: [u32; 2],
    /// Weights, if there are queues.
    weights: Option<[f64; 2]>,
    /// Mbit/s of the first service, and the most and least of the others; the paper has them in this order, but for the
    /// names of the columns.
    published: [f64; 3],
}

const fn line(services: u32, connections: [u32; 2], weights: Option<[f64; 2]>, published: [f64; 3]) -> Line {
    Line { services, connections, weights, published }
}

const EVEN: Option<[f64; 2]> = Some([1.0, 1.0]);
const TWICE: Option<[f64; 2]> = Some([1.0, 2.0]);

/// Table 3. Its columns "B (Max)" and "B (Min)" hold the lesser number first; here the greater one is first.
const TABLE: [Line; 19] = [
    line(1, [2, 0], None, [131.7, 0.0, 0.0]),
    line(1, [8, 0], None, [141.7, 0.0, 0.0]),
    line(4, [2, 2], EVEN, [35.6, 37.0, 35.1]),
    line(4, [2, 2], TWICE, [22.6, 41.5, 40.0]),
    line(4, [8, 2], EVEN, [40.2, 36.0, 34.0]),
    line(4, [8, 2], None, [83.8, 20.6, 19.4]),
    line(4, [8, 2], TWICE, [24.7, 41.9, 38.5]),
    line(4, [16, 2], EVEN, [40.1, 35.8, 35.1]),
    line(4, [16, 2], None, [105.5, 14.0, 12.2]),
    line(4, [16, 2], TWICE, [25.2, 40.7, 39.4]),
    line(8, [2, 2], EVEN, [18.3, 19.0, 17.7]),
    line(8, [2, 2], TWICE, [10.4, 20.0, 18.9]),
    line(8, [8, 2], EVEN, [20.4, 18.5, 17.1]),
    line(8, [8, 2], TWICE, [11.6, 19.8, 18.3]),
    line(8, [8, 2], None, [53.1, 13.9, 11.6]),
    line(8, [16, 2], EVEN, [20.2, 18.4, 17.1]),
    line(8, [16, 2], TWICE, [11.7, 20.2, 19.0]),
    line(8, [16, 2], None, [77.9, 10.4, 9.1]),
    // The text of 5.4 has a number of its own: "each of the four service with two connections ... get 36 Mbps".
    line(4, [2, 2], EVEN, [36.0, 36.0, 36.0]),
];

/// What is left of a link for data in ns-2 as it comes: 1000 bytes of data have 40 bytes of headers, and are acknowledged by 40
/// bytes the other way, where as much is sent.
const DATA: f64 = 1000.0 / 1080.0;

/// Of one run: the first service, the most and the least of the others, and all together.
fn run(line: &Line, seed: u64, making: &Making<'_>) -> Result<[f64; 4], Failure> {
    let [first, others] = line.weights.unwrap_or([1.0, 1.0]);
    let mut weights = vec![others; line.services as usize];
    weights[0] = first;
    let mut scene = Scene::new(Plan::NetShareFig16 { services: line.services }, &weights, 1.0).seed(seed);
    for service in 0..line.services {
        let own = format!("-A{}", service + 1);
        let connections = line.connections[usize::from(service > 0)];
        scene = scene.all_pairs(service as usize, |host| host.ends_with(&own), connections);
    }
    let mechanism = if line.weights.is_some() { Mechanism::Queues } else { Mechanism::None };
    let rates = at_the_end(&scene.run(mechanism, making)?);
    let others = rates[1..].iter().copied();
    let most = others.clone().fold(0.0, f64::max);
    let least = others.reduce(f64::min).unwrap_or(0.0);
    Ok([rates[0], most, least, rates.iter().sum()])
}

/// Each number of each seed.
fn runs(line: &Line, making: &Making<'_>) -> Result<[Vec<f64>; 4], Failure> {
    let runs = pool(making.seeds as usize, making.running.jobs, |seed| run(line, seed as u64, making))?;
    Ok([0, 1, 2, 3].map(|number| runs.iter().map(|run| run[number]).collect()))
}

/// Published and measured.
///
/// # Errors
/// If a run is ended early.
pub(super) fn section(making: &Making<'_>) -> Result<String, Failure> {
    let mut lines = Vec::new();
    let (mut held, mut numbers) = (0, 0);
    // The same with headers and acknowledgements taken off, and how far the furthest is then.
    let (mut held_data, mut furthest) = (0, 1.0f64);
    // How far A's part of all is from the paper's, at most.
    let mut parts: f64 = 0.0;
    for line in &TABLE {
        let measured = runs(line, making)?;
        let Line { services, connections: [a, b], weights, published } = line;
        let mut cells = vec![
            services.to_string(),
            if *services > 1 { format!("{a}, {b}") } else { a.to_string() },
            weights.map_or_else(|| "-".to_owned(), |[a, b]| format!("{a}, {b}")),
        ];
        let all = if *services > 1 { 3 } else { 1 };
        let mut good = true;
        for at in 0..3 {
            if at >= all {
                cells.extend(["-".to_owned(), "-".to_owned()]);
                continue;
            }
            let found = mean(&measured[at]);
            numbers += 1;
            held += usize::from(same(found, published[at]));
            held_data += usize::from(same(found * DATA, published[at]));
            let off = found * DATA / published[at];
            furthest = if off.ln().abs() > furthest.ln().abs() { off } else { furthest };
            good &= same(found, published[at]);
            cells.extend([n(published[at]), n(found)]);
        }
        cells.push(ratio(mean(&measured[0]), published[0]));
        cells.push(ratio(mean(&measured[0]) * DATA, published[0]));
        cells.push(yes(good));
        if *services > 1 {
            let others = f64::from(services - 1) * f64::midpoint(published[1], published[2]);
            let part = published[0] / (published[0] + others);
            parts = parts.max((mean(&measured[0]) / mean(&measured[3]) - part).abs());
        }
        lines.push(cells);
    }
    let mut out = String::from(
        "## Section 5.4: Table 3\n\nServices on Fig. 16, each with a host at every edge, all pairs, in Mbit/s. N services; C \
         connections between two hosts, of A and of the others; W weights where there are queues. The paper's columns \"B (Max)\" and \"B \
         (Min)\" hold the lesser number first; here they are as named. The last line is from the text.\n",
    );
    let head = [
        "N",
        "C",
        "W",
        "A, published",
        "measured",
        "B most, published",
        "measured",
        "B least, published",
        "measured",
        "A, ratio",
        "ratio, data only",
        "all within 10 %",
    ];
    out.push_str(&table(&head, 3, &lines));
    out.push_str(&format!(
        "{held} of {numbers} are within 10 %. A's part of all bandwidth differs from the paper's by at most {} points: what is off is \
         the sum. The simulator counts all that links carry. In ns-2 as it comes, 1,000 bytes of data have 40 of headers and 40 of \
         acknowledgement the other way, where as much is sent; the paper does not say what it set. With {} of each measured number for data, \
         {held_data} of {numbers} are within 10 %, and the furthest is {} of the published one.\n\n",
        n(parts * 100.0),
        share(DATA),
        n(furthest),
    ));
    out.push_str(&one_service(making)?);
    Ok(out)
}

/// What one service alone gets, with more and more connections.
fn one_service(making: &Making<'_>) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for connections in [1, 2, 4, 8, 16, 64] {
        let measured = runs(&line(1, [connections, 0], None, [0.0; 3]), making)?;
        let of = |p: f64| n(percentile(&measured[0], p));
        let published = TABLE.iter().find(|line| line.services == 1 && line.connections[0] == connections);
        let published = published.map_or_else(|| "-".to_owned(), |line| n(line.published[0]));
        let average = mean(&measured[0]);
        lines.push(vec![
            connections.to_string(),
            published,
            n(average),
            of(0.0),
            of(100.0),
            n(average * DATA),
        ]);
    }
    let mut out = String::from(
        "One service alone, by connections between two hosts. Hashing leaves some links idle while others are full; the more connections, \
         the less. At most 160 Mbit/s can leave the eight edges over two links each.\n",
    );
    out.push_str(&table(&["C", "published", "mean", "least", "most", "mean, data only"], 1, &lines));
    Ok(out)
}
