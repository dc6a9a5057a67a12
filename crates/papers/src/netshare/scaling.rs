//! Simulates section 5.4: services with different numbers of connections on three tiers (Fig. 16, Table 3).

use weir_console::chart::{LineChart, Marks};
use weir_core::model::TopologyTemplate;
use weir_sim::outcome::mean;
use weir_sim::service::Mechanism;

use super::Context;
use super::scenario::{ScenarioBuilder, final_rates};
use crate::markdown::{format_cell, format_ratio, is_same, table};
use crate::picture::Pictures;
use weir_console::failure::Failure;
use weir_console::run::run_concurrently;

/// The payload as a fraction of the bytes that links carry with ns-2's defaults. A packet has 1,000 bytes of data and 40
/// bytes of headers, and links carry an acknowledgement of 40 bytes in the other direction.
pub(super) const PAYLOAD_FRACTION: f64 = 1000.0 / 1080.0;

/// A row of Table 3.
struct Row {
    services: u32,
    /// The number of connections between two hosts, of the first service and of the others.
    connections: [u32; 2],
    /// The weights of the first service and of the others. `None` without queues.
    weights: Option<[f64; 2]>,
    /// The rate of the first service, and the maximum and minimum rates of the others, in Mbit/s. 0 if there are no others.
    published_mbit: [f64; 3],
}

const fn row(services: u32, connections: [u32; 2], weights: Option<[f64; 2]>, published: [f64; 3]) -> Row {
    Row { services, connections, weights, published_mbit: published }
}

const EQUAL_WEIGHTS: Option<[f64; 2]> = Some([1.0, 1.0]);
const OTHERS_TWICE: Option<[f64; 2]> = Some([1.0, 2.0]);

/// Table 3. The paper's columns "B (Max)" and "B (Min)" are swapped; here the maximum comes first.
const TABLE_3: [Row; 19] = [
    row(1, [2, 0], None, [131.7, 0.0, 0.0]),
    row(1, [8, 0], None, [141.7, 0.0, 0.0]),
    row(4, [2, 2], EQUAL_WEIGHTS, [35.6, 37.0, 35.1]),
    row(4, [2, 2], OTHERS_TWICE, [22.6, 41.5, 40.0]),
    row(4, [8, 2], EQUAL_WEIGHTS, [40.2, 36.0, 34.0]),
    row(4, [8, 2], None, [83.8, 20.6, 19.4]),
    row(4, [8, 2], OTHERS_TWICE, [24.7, 41.9, 38.5]),
    row(4, [16, 2], EQUAL_WEIGHTS, [40.1, 35.8, 35.1]),
    row(4, [16, 2], None, [105.5, 14.0, 12.2]),
    row(4, [16, 2], OTHERS_TWICE, [25.2, 40.7, 39.4]),
    row(8, [2, 2], EQUAL_WEIGHTS, [18.3, 19.0, 17.7]),
    row(8, [2, 2], OTHERS_TWICE, [10.4, 20.0, 18.9]),
    row(8, [8, 2], EQUAL_WEIGHTS, [20.4, 18.5, 17.1]),
    row(8, [8, 2], OTHERS_TWICE, [11.6, 19.8, 18.3]),
    row(8, [8, 2], None, [53.1, 13.9, 11.6]),
    row(8, [16, 2], EQUAL_WEIGHTS, [20.2, 18.4, 17.1]),
    row(8, [16, 2], OTHERS_TWICE, [11.7, 20.2, 19.0]),
    row(8, [16, 2], None, [77.9, 10.4, 9.1]),
    // Not in the table; from the text of 5.4: "each of the four service with two connections ... get 36 Mbps".
    row(4, [2, 2], EQUAL_WEIGHTS, [36.0, 36.0, 36.0]),
];

impl Row {
    /// The measured figures, as in [`Row::published_mbit`]: means over seeds.
    fn mean_rates(&self, context: &Context<'_>) -> Result<[f64; 3], Failure> {
        let runs = run_concurrently(context.seeds as usize, context.run_context.jobs, |seed| {
            self.rates_of_seed(seed as u64, context)
        })?;
        Ok([0, 1, 2].map(|index| mean(&runs.iter().map(|run: &[f64; 3]| run[index]).collect::<Vec<f64>>())))
    }

    fn rates_of_seed(&self, seed: u64, context: &Context<'_>) -> Result<[f64; 3], Failure> {
        let [first, others] = self.weights.unwrap_or([1.0, 1.0]);
        let mut weights = vec![others; self.services as usize];
        weights[0] = first;
        let plan = TopologyTemplate::NetShareFig16 { services: self.services };
        let mut builder = ScenarioBuilder::new(plan, &weights, 1.0);
        builder.0.seed = seed;
        for service in 0..self.services {
            let suffix = format!("-A{}", service + 1);
            let connections = self.connections[usize::from(service > 0)];
            builder = builder.all_pairs(service as usize, |host| host.ends_with(&suffix), connections);
        }
        let mechanism = if self.weights.is_some() { Mechanism::Queues } else { Mechanism::None };
        let rates = final_rates(&builder.simulate(mechanism, context)?);
        let others = rates[1..].iter().copied();
        let max = others.clone().fold(0.0, f64::max);
        let min = others.reduce(f64::min).unwrap_or(0.0);
        Ok([rates[0], max, min])
    }
}

/// Table 3, measured: the figures of each row, in the order of [`Row::published_mbit`].
pub(super) struct Table3(Vec<[f64; 3]>);

impl Table3 {
    /// Simulates all rows.
    pub(super) fn run(context: &Context<'_>) -> Result<Table3, Failure> {
        Ok(Table3(TABLE_3.iter().map(|row| row.mean_rates(context)).collect::<Result<_, Failure>>()?))
    }

    /// The number of measured figures that, multiplied by `factor`, are within 10 % of the published ones, and the number of
    /// all figures.
    pub(super) fn count_within_10_percent(&self, factor: f64) -> (usize, usize) {
        let pairs = TABLE_3
            .iter()
            .zip(&self.0)
            .flat_map(|(row, measured)| row.published_mbit.into_iter().zip(*measured));
        let positive = pairs.filter(|(published, _)| *published > 0.0);
        let is_within: Vec<bool> =
            positive.map(|(published, rate)| is_same(rate * factor, published)).collect();
        (is_within.iter().filter(|&&within| within).count(), is_within.len())
    }
}

/// The rates of Table 3: published on the x axis, measured on the y axis.
fn rates_chart(Table3(measured): &Table3) -> Option<String> {
    let names = ["A", "B max", "B min"];
    let marks = |(index, name): (usize, &str)| {
        let points =
            TABLE_3.iter().zip(measured).map(|(row, rates)| (row.published_mbit[index], rates[index]));
        Marks {
            name: name.to_owned(),
            line: Some(index + 2),
            is_published: false,
            points: points.filter(|(published, _)| *published > 0.0).collect(),
        }
    };
    let marks: Vec<Marks> = names.into_iter().enumerate().map(marks).collect();
    let max = marks
        .iter()
        .flat_map(|marks| &marks.points)
        .fold(0.0, |max: f64, point| max.max(point.0).max(point.1));
    LineChart {
        x_title: "published (Mbit/s)",
        y_title: "measured (Mbit/s)",
        y_max: 1.05 * max,
        lines: vec![vec![(0.0, 0.0), (max, max)], vec![(0.0, 0.0), (max * PAYLOAD_FRACTION, max)]],
        names: &["measured = published".to_owned(), "measured payload = published".to_owned()],
        marks,
        ..LineChart::default()
    }
    .to_svg()
}

/// The section of the page.
pub(super) fn section(measured: &Table3, pictures: &mut Pictures) -> String {
    let cells = |(row, measured): (&Row, &[f64; 3])| {
        let Row { services, connections: [a, b], weights, published_mbit: published } = row;
        let mut cells = vec![
            services.to_string(),
            if *services > 1 { format!("{a}, {b}") } else { a.to_string() },
            weights.map_or_else(|| "-".to_owned(), |[a, b]| format!("{a}, {b}")),
        ];
        for (&published, &rate) in published.iter().zip(measured) {
            let is_published = published > 0.0;
            cells.extend(
                [published, rate].map(|rate| if is_published { format_cell(rate) } else { "-".to_owned() }),
            );
        }
        cells.push(format_ratio(measured[0], published[0]));
        cells
    };
    let rows: Vec<Vec<String>> = TABLE_3.iter().zip(&measured.0).map(cells).collect();
    let head = "N|C|W|A, published|measured|B max, published|measured|B min, published|measured|A, ratio";
    format!(
        "## Section 5.4: Table 3\n\n\
         Rates in Mbit/s of services on the network of Fig. 16. Each service has a host at every edge switch, and \
         connections between all pairs of its hosts. N: services. C: connections between two hosts, of A and of the others. \
         W: weights; \"-\" means no queues. The paper's columns \"B (Max)\" and \"B (Min)\" are swapped; here the maximum \
         comes first. The last row is from the text. The simulator counts all bytes that links carry \
         ([assumptions](#assumptions)).\n\
         {}{}",
        table(&head.split('|').collect::<Vec<_>>(), 3, &rows),
        pictures.add(
            "table-3",
            "Rates of Table 3: published and measured",
            "Each rate of the table, by its published and its measured value. On the lines, the rate of all bytes, or of the payload alone, \
             is the published one.",
            rates_chart(measured),
        )
    )
}
