//! Section 8.5 (Fig. 12): the time that a central controller takes to find the weights of all ports.

use weir_core::model::topology::Plan;
use weir_core::solve::polynomial::Degree;
use weir_sim::outcome::{mean, percentile};
use weir_sim::stage::scenario::{self, INSTANCES, Ways};

use crate::clock::spent;
use crate::doc::{n, ratio, table};
use weir_console::failure::Failure;
use weir_console::progress::Progress;

/// The most applications of the paper.
const APPLICATIONS: usize = 1000;

/// Scenarios of a line. The paper has 30,000 in all, of random sizes; here sizes are in even steps, the last the greatest, so that fewer do.
const SCENARIOS: usize = 100;

/// The P99 of the text, in seconds: sizes up to so many, for k = 1, 2, 3.
const PUBLISHED: [(usize, [f64; 3]); 2] = [(250, [0.09, 0.16, 0.31]), (APPLICATIONS, [0.43, 0.72, 1.13])];

/// What is wanted of the controller with all applications at k = 3, in milliseconds.
const AIM: f64 = 10.0;

/// What one scenario took.
struct Took {
    /// Milliseconds for all ports.
    all: f64,
    /// How often Eq. 2 was solved.
    solved: usize,
}

/// What was measured.
pub struct Overhead {
    ports: usize,
    servers: usize,
    /// For each line of [`PUBLISHED`] and each degree all scenarios.
    took: Vec<[Vec<Took>; 3]>,
}

impl Overhead {
    /// Measures all on one thread.
    pub fn measure(seed: u64, progress: &Progress) -> Result<Overhead, Failure> {
        let topology = Plan::SabaTiers { oversubscription: 1.0 }.build().map_err(Failure::undone)?;
        let ways = Ways::new(&topology);
        let bar = progress.steps("scenarios", PUBLISHED.len() * Degree::ALL.len() * SCENARIOS);
        let mut took: Vec<[Vec<Took>; 3]> = PUBLISHED.iter().map(|_| Default::default()).collect();
        for (at, degree) in Degree::ALL.into_iter().enumerate() {
            let mut controller =
                scenario::controller(&ways, seed, APPLICATIONS, degree).map_err(Failure::undone)?;
            for (line, (most, _)) in PUBLISHED.iter().enumerate() {
                for number in 1..=SCENARIOS {
                    Failure::unless_asked()?;
                    let size = most * number / SCENARIOS;
                    let index = (line * SCENARIOS + number) as u64;
                    let active = scenario::draw(seed, index, ways.servers(), APPLICATIONS, size);
                    scenario::open(&mut controller, &ways, &active).map_err(Failure::undone)?;
                    let before = spent();
                    let update = controller.update();
                    took[line][at]
                        .push(Took { all: 1e3 * (spent() - before).as_secs_f64(), solved: update.solved });
                    scenario::close(&mut controller, &active).map_err(Failure::undone)?;
                    controller.update();
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        Ok(Overhead { ports: ways.ports(), servers: ways.servers(), took })
    }

    /// What comes out, in a sentence.
    pub fn summary(&self) -> String {
        let whole = self.whole();
        format!(
            "- The controller of section 8.5 takes {} ms (P99) for up to {APPLICATIONS} applications at k = 3 on all {} ports, where the paper has 1,130 ms; {} ms for all {APPLICATIONS}, of which {AIM} ms were wanted.\n",
            n(percentile(&times(&self.took[PUBLISHED.len() - 1][2]), 99.0)),
            self.ports,
            n(whole),
        )
    }

    /// The time of the scenario with all applications at k = 3.
    fn whole(&self) -> f64 {
        self.took[PUBLISHED.len() - 1][2].last().map_or(0.0, |took| took.all)
    }

    /// Fig. 12, and what the runs of section 8.4 took: how many, all of them and the longest, in seconds.
    pub fn section(&self, (runs, took, longest): (usize, f64, f64)) -> String {
        let mut out = head();
        out.push_str(&format!(
            "The fabric has {} servers and {} ports. Each application has {INSTANCES} instances and may use all shortest paths between them; no two have the same model. Scenarios of a line: {SCENARIOS} with a random set of active applications, of sizes in even steps up to \
             the greatest (the paper: 30,000 in all). Connections are open, nothing is known of the ports; timed is what finds the weights of all of them, on one thread. Sets are what Eq. 2 is solved for: ports with the same applications are solved once.\n",
            self.servers, self.ports,
        ));
        let mut lines = Vec::new();
        for ((most, published), took) in PUBLISHED.iter().zip(&self.took) {
            for (degree, (published, took)) in Degree::ALL.iter().zip(published.iter().zip(took)) {
                let all = times(took);
                let p99 = percentile(&all, 99.0);
                let each: Vec<f64> =
                    took.iter().map(|took| 1e3 * took.all / took.solved.max(1) as f64).collect();
                let last = took.last();
                lines.push(vec![
                    format!("up to {most}"),
                    (*degree as usize).to_string(),
                    n(1e3 * published),
                    n(p99),
                    ratio(p99, 1e3 * published),
                    n(percentile(&all, 50.0)),
                    n(mean(&all)),
                    last.map_or(0, |last| last.solved).to_string(),
                    n(percentile(&each, 50.0)),
                    n(last.map_or(0.0, |last| last.all)),
                ]);
            }
        }
        let head = [
            "active applications",
            "k",
            "P99 published (ms)",
            "P99 (ms)",
            "ratio",
            "P50 (ms)",
            "mean (ms)",
            "sets, most applications",
            "P50 of a set (us)",
            "most applications (ms)",
        ];
        out.push_str(&table(&head, 1, &lines));
        out.push_str(&format!(
            "The simulations of section 8.4 above are {runs} runs of 20 workloads or more on {} servers. They took {} s of the clock one by one, the longest {} s.\n",
            self.servers,
            n(took),
            n(longest),
        ));
        out
    }
}

/// The sentence of a document without times.
pub fn no_summary() -> String {
    "- The controller's times (section 8.5) are left out of this document.\n".to_owned()
}

/// The section of a document without times.
pub fn no_section() -> String {
    let mut out = head();
    out.push_str("Times are left out.\n");
    out
}

fn head() -> String {
    "## Fig. 12: the controller's time (section 8.5)\n\nProcessor time of one thread, and for simulations of the clock, so the machine has its part in it; everything else in this document is the same wherever it is made. ".to_owned()
}

fn times(took: &[Took]) -> Vec<f64> {
    took.iter().map(|took| took.all).collect()
}
