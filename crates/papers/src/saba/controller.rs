//! Measures the calculation time of the central controller (section 8.5, Fig. 12).

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_core::model::topology::TopologyTemplate;
use weir_core::saba::Controller;
use weir_core::solve::polynomial::Degree;
use weir_sim::outcome::{mean, percentile};

use super::scenario::{self, INSTANCES, Network};
use crate::markdown::{format_cell, table};
use weir_sim::thread_clock::thread_cpu_time;

/// The number of registered applications.
const APPLICATION_COUNT: usize = 1000;

/// The number of scenarios per row. The paper has 30,000 in total.
const SCENARIOS_PER_ROW: usize = 100;

/// The published P99 in milliseconds for k = 1, 2 and 3, by the maximum number of active applications.
const PUBLISHED: [(usize, [f64; 3]); 2] =
    [(250, [90.0, 160.0, 310.0]), (APPLICATION_COUNT, [430.0, 720.0, 1130.0])];

/// The section of the page: processor times of one thread.
pub fn section(seed: u64, progress: &Progress) -> Result<String, Failure> {
    let topology = TopologyTemplate::SabaTiers { oversubscription: 1.0 }.build().map_err(Failure::runtime)?;
    let network = Network::new(&topology);
    let bar = progress.add_step_bar("scenarios", PUBLISHED.len() * Degree::ALL.len() * SCENARIOS_PER_ROW);
    let mut lines = Vec::new();
    let controllers: Result<Vec<Controller>, _> = Degree::ALL
        .iter()
        .map(|&degree| scenario::controller(&network, seed, APPLICATION_COUNT, degree))
        .collect();
    let mut controllers = controllers.map_err(Failure::runtime)?;
    for (row, (max, published)) in PUBLISHED.into_iter().enumerate() {
        for ((degree, controller), published) in Degree::ALL.iter().zip(&mut controllers).zip(published) {
            let times = calculation_times(controller, &network, seed, (row, max), || bar.inc(1))?;
            lines.push(vec![
                format!("up to {max}"),
                (*degree as usize).to_string(),
                format_cell(published),
                format_cell(percentile(&times, 99.0)),
                format_cell(percentile(&times, 50.0)),
                format_cell(mean(&times)),
                format_cell(times[times.len() - 1]),
            ]);
        }
    }
    bar.finish_and_clear();
    let head =
        ["active applications", "k", "P99, published", "P99", "P50", "mean", "all applications active"];
    Ok(format!(
        "## Timings\n\n\
         The controller's calculation time (section 8.5, Fig. 12): processor time of one thread, in milliseconds, for the \
         weights of all {} ports of {} servers. Each application has {INSTANCES} instances, whose connections may use all \
         shortest paths. All models differ. A row has {SCENARIOS_PER_ROW} scenarios with random sets of active applications. \
         The sizes of the sets grow in equal steps up to the maximum. The paper has 30,000 scenarios of random sizes.\n\
         {}",
        network.ports(),
        network.servers(),
        table(&head, 0, &lines)
    ))
}

/// The calculation time of each scenario of a row, in milliseconds. The number of active applications grows up to `max`.
fn calculation_times(
    controller: &mut Controller,
    network: &Network,
    seed: u64,
    (row, max): (usize, usize),
    on_scenario_end: impl Fn(),
) -> Result<Vec<f64>, Failure> {
    let mut times = Vec::new();
    for number in 1..=SCENARIOS_PER_ROW {
        Failure::check_interrupt()?;
        let index = (row * SCENARIOS_PER_ROW + number) as u64;
        let active = scenario::draw(
            seed,
            index,
            network.servers(),
            APPLICATION_COUNT,
            max * number / SCENARIOS_PER_ROW,
        );
        scenario::open_connections(controller, network, &active).map_err(Failure::runtime)?;
        let before = thread_cpu_time();
        controller.update_plans();
        times.push(1e3 * (thread_cpu_time() - before).as_secs_f64());
        scenario::close_connections(controller, &active).map_err(Failure::runtime)?;
        controller.update_plans();
        on_scenario_end();
    }
    Ok(times)
}
