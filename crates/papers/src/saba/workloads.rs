//! Compares the ten workloads of Table 1 with the figures that the paper publishes about them (Fig. 1a, 2, 5 and 6).

use weir_console::chart::{LineChart, Marks};
use weir_console::failure::Failure;
use weir_core::saba::profile::{Profile, SensitivityFit};
use weir_core::solve::polynomial::Degree;
use weir_sim::jobs::calibration::Quantity;
use weir_sim::jobs::workload::{DEFAULT_SECONDS, PUBLISHED_FITS, SHAPE_REPETITIONS, Workload};
use weir_sim::outcome::mean;

use crate::markdown::{format_cell, table};
use crate::picture::Pictures;

/// The mean of the ten slowdowns at 25 % of the bandwidth (section 2.1).
const PUBLISHED_MEAN_SLOWDOWN: f64 = 2.1;

/// Multiples of the profiler's data and nodes in Fig. 6b and 6c.
const DATA_AND_NODE_FACTORS: [(f64, f64); 6] =
    [(0.1, 1.0), (10.0, 1.0), (1.0, 0.5), (1.0, 2.0), (1.0, 3.0), (1.0, 4.0)];

/// The section of the page.
pub fn section(workloads: &[Workload], pictures: &mut Pictures) -> Result<String, Failure> {
    Ok(format!(
        "## Workloads (Fig. 1a, 2, 5 and 6)\n\n\
         Up to four parameters of each workload are fitted to the published figures by least squares. Where the paper \
         publishes no figure, Weir chooses the target: slowdowns at 25 % in equal steps, so that the average over the ten is \
         the published one. The exponents of data and nodes are fitted to the five published R^2 of section 4.2.\n\
         {}{}{}{}",
        published(workloads),
        pictures.add(
            "slowdowns",
            "Slowdowns of workloads by bandwidth, with published points",
            "Slowdowns of the fitted workloads for which the paper publishes points (hollow; 2.1 and Fig. 5).",
            slowdowns_chart(workloads),
        ),
        shapes_section(workloads),
        accuracy_section(workloads)?
    ))
}

/// Slowdowns by bandwidth of the workloads with published slowdowns.
fn slowdowns_chart(workloads: &[Workload]) -> Option<String> {
    let published = |workload: &Workload| -> Vec<(f64, f64)> {
        let targets = workload.targets.iter().filter(|target| target.source.is_some());
        let mut points: Vec<(f64, f64)> = targets
            .filter_map(|target| match target.quantity {
                Quantity::Slowdown(bandwidth) => Some((100.0 * bandwidth, target.value)),
                _ => None,
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let shown: Vec<&Workload> = workloads.iter().filter(|workload| !published(workload).is_empty()).collect();
    let names: Vec<String> = shown.iter().map(|workload| workload.name.to_owned()).collect();
    let line = |workload: &&Workload| -> Vec<(f64, f64)> {
        (5..=100)
            .map(|percent| (f64::from(percent), workload.shape.slowdown(f64::from(percent) / 100.0)))
            .collect()
    };
    let lines: Vec<Vec<(f64, f64)>> = shown.iter().map(line).collect();
    let y_max = lines.iter().flatten().map(|point| point.1).fold(1.0, f64::max);
    let marks = |(position, workload): (usize, &&Workload)| {
        Marks::published(format!("{}, published", workload.name), Some(position), &published(workload))
    };
    LineChart {
        x_title: "bandwidth (%)",
        y_title: "slowdown",
        y_max: 1.05 * y_max,
        lines,
        names: &names,
        marks: shown.iter().enumerate().map(marks).collect(),
        ..LineChart::default()
    }
    .to_svg()
}

fn quantity_text(quantity: Quantity) -> String {
    match quantity {
        Quantity::Slowdown(b) => format!("slowdown at {:.0} %", 100.0 * b),
        Quantity::SlowdownRatio(a, b) => {
            format!("time at {:.0} % / time at {:.0} %", 100.0 * a, 100.0 * b)
        }
        Quantity::ModelR2(degree) => format!("R^2, k = {}", degree as usize),
    }
}

/// All published figures and targets next to the fitted values.
fn published(workloads: &[Workload]) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, quantity: String, source: &str, published: f64, fitted: f64| {
        lines.push(vec![
            name.to_owned(),
            quantity,
            source.to_owned(),
            format_cell(published),
            format_cell(fitted),
        ]);
    };
    for workload in workloads {
        for target in &workload.targets {
            let source = target.source.unwrap_or("not published; chosen");
            let fitted = workload.shape.value_of(target.quantity);
            line(workload.name, quantity_text(target.quantity), source, target.value, fitted);
        }
    }
    let quarters: Vec<f64> = workloads.iter().map(|w| w.shape.slowdown(0.25)).collect();
    let average = "slowdown at 25 %, mean".to_owned();
    line("all", average, "2.1: \"an average of 2.1x\"", PUBLISHED_MEAN_SLOWDOWN, mean(&quarters));
    for drift in &PUBLISHED_FITS {
        let Some(workload) = workloads.iter().find(|w| w.name == drift.name) else { continue };
        let quantity = match drift.node_scale {
            1.0 => format!("R^2, k = 3, {} x data", drift.data_scale),
            nodes => format!("R^2, k = 3, {nodes} x nodes"),
        };
        let fitted = workload.model_r2(Degree::Cubic, drift.data_scale, drift.node_scale);
        line(drift.name, quantity, drift.source, drift.r2, fitted);
    }
    table(&["workload", "quantity", "place in the paper", "published", "fitted"], 3, &lines)
}

fn shapes_section(workloads: &[Workload]) -> String {
    let bandwidths = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9];
    let line = |w: &Workload| {
        let s = &w.shape;
        let limit = if s.max_transfer_time.is_finite() {
            format_cell(s.max_transfer_time)
        } else {
            "none".to_owned()
        };
        let mut line = vec![format!("{} ({})", w.name, w.description)];
        line.extend([s.compute(), s.transfer, s.overlapped_compute].map(format_cell));
        line.push(limit);
        line.extend(
            [s.second_transfer, w.seconds, w.growth_exponents.0, w.growth_exponents.1].map(format_cell),
        );
        line.extend(bandwidths.map(|bandwidth| format_cell(s.slowdown(bandwidth))));
        line
    };
    let head = [
        "workload",
        "compute",
        "transfer",
        "compute during the transfer",
        "limit",
        "transfer without limit",
        "time (s)",
        "data exponent",
        "node exponent",
        "5 %",
        "10 %",
        "25 %",
        "50 %",
        "75 %",
        "90 %",
    ];
    format!(
        "A job has {SHAPE_REPETITIONS} equal rounds (a choice). The parts of a round are fractions of its time with all \
         bandwidth. A stage does not wait for bytes that arrive after the limit. Bytes grow with a power of the data and \
         shrink with a power of the nodes. Section 2.3 gives the times of LR and PR; the others are {DEFAULT_SECONDS} s (a \
         choice). The last columns are slowdowns by bandwidth.\n\
         {}",
        table(&head, 1, &workloads.iter().map(line).collect::<Vec<_>>())
    )
}

/// Fig. 6: the R^2 of the models.
fn accuracy_section(workloads: &[Workload]) -> Result<String, Failure> {
    let mut lines = Vec::new();
    let (mut monotonic, mut convex) = (0, 0);
    for workload in workloads {
        let profile = workload.profile().map_err(|error| workload_failure(workload, &error))?;
        let fit = |degree| fit_model(workload, &profile, degree);
        let mut line = vec![workload.name.to_owned()];
        for degree in Degree::ALL {
            line.push(format_cell(fit(degree)?.r2));
        }
        line.extend(
            DATA_AND_NODE_FACTORS
                .map(|(data, nodes)| format_cell(workload.model_r2(Degree::Cubic, data, nodes))),
        );
        lines.push(line);
        let shape = fit(Degree::Cubic)?.sensitivity.shape();
        monotonic += usize::from(shape.is_decreasing);
        convex += usize::from(shape.is_convex);
    }
    let head = [
        "workload",
        "k = 1",
        "k = 2",
        "k = 3",
        "0.1 x data",
        "10 x data",
        "0.5 x nodes",
        "2 x nodes",
        "3 x nodes",
        "4 x nodes",
    ];
    Ok(format!(
        "The table has R^2 of the models that the profiler fits on 8 servers with throttled links (section 7.1). It also has \
         R^2 of the model with k = 3 on other data or nodes. In section 4.2, all R^2 are above 0.60 at k = 1, above 0.55 \
         with 0.1 and 10 times the data, and above 0.50 with 0.5 to 3 times the nodes. Workloads with small transfers have a \
         lower R^2 here, because their slowdown varies little.\n\
         {}Cubic models that decrease monotonically: {monotonic} of {}; convex cubic models: {convex}. Where the slowdown of a model \
         rises with the bandwidth, Eq. 2 can wrongly take bandwidth from the application.\n\n",
        table(&head, 1, &lines),
        workloads.len()
    ))
}

fn fit_model(workload: &Workload, profile: &Profile, degree: Degree) -> Result<SensitivityFit, Failure> {
    profile.fit(degree).map_err(|error| workload_failure(workload, &error))
}

fn workload_failure(workload: &Workload, error: &dyn std::fmt::Display) -> Failure {
    Failure::runtime(format!("{}: {error}", workload.name))
}
