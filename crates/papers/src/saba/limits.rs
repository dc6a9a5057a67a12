//! What weights could do for the jobs of section 8.2: Eq. 2 with ever better models, weights found by search, and no rivals at all.

use super::lab::{Lab, Model, PLAIN, SABA, Way, World};
use super::testbed::{PUBLISHED, TRIED, cell, compared};
use crate::doc::{n, table};
use weir_console::failure::Failure;

/// Setups that weights are searched for, at most: each takes hundreds of runs.
const SEARCHED: usize = 5;

/// What was tried, in the order of the table.
const WAYS: [(&str, Way); 10] = [
    ("Saba", SABA),
    ("a queue for each job", Way::Queues(Model::Cubic)),
    ("the cubic, made to fall", Way::Queues(Model::Falling)),
    ("straight lines between what was profiled", Way::Queues(Model::Profile)),
    ("the workload's slowdown, as profiled", Way::Queues(Model::Profiled)),
    ("the job's slowdown, as it runs", Way::Queues(Model::Own)),
    ("the logarithm of that", Way::Queues(Model::Logarithm)),
    ("no Eq. 2: even weights", Way::Applications),
    ("no Eq. 2: one over the square of the bytes of a server", Way::Small),
    ("each job alone", Way::Alone),
];

/// A line of the table.
struct Line {
    name: &'static str,
    setups: usize,
    /// The averages as it is, and with limits.
    all: [f64; 2],
    workloads: Vec<Option<f64>>,
}

/// What was found.
pub struct Limits {
    lines: Vec<Line>,
    /// Setups that weights were searched for.
    searched: usize,
    /// Of [`WAYS`], and of searches for each workload and each job.
    own: [f64; 2],
    logarithm: [f64; 2],
    by_workload: [f64; 2],
    by_job: [f64; 2],
    alone: [f64; 2],
}

impl Limits {
    /// Runs and searches for all.
    pub fn measure(lab: &mut Lab<'_>) -> Result<Limits, Failure> {
        let worlds = [PLAIN, World { limited: true, ..PLAIN }];
        let count = lab.setups().len().min(TRIED);
        let few = count.min(SEARCHED);
        let mut lines = Vec::new();
        for (name, way) in WAYS {
            lines.push(line(lab, name, way, count)?);
        }
        lines.push(line(lab, "Saba, on the setups that are searched", SABA, few)?);
        let mut searched = |name, search: &dyn Fn(&Lab<'_>, World) -> Result<f64, Failure>| {
            let all = [search(lab, worlds[0])?, search(lab, worlds[1])?];
            lines.push(Line { name, setups: few, all, workloads: vec![None; lab.workloads().len()] });
            Ok::<_, Failure>(all)
        };
        let by_workload =
            searched("searched: a weight for each workload", &|lab, world| lab.best_by_workload(world, few))?;
        let by_job = searched("searched: a weight for each job", &|lab, world| lab.best_by_job(world, few))?;
        lines.push(line(lab, "each job alone, on these setups", Way::Alone, few)?);
        let of = |wanted| {
            let at = WAYS.iter().position(|(_, way)| *way == wanted);
            at.map_or([1.0; 2], |at| lines[at].all)
        };
        Ok(Limits {
            own: of(Way::Queues(Model::Own)),
            logarithm: of(Way::Queues(Model::Logarithm)),
            alone: of(Way::Alone),
            by_workload,
            by_job,
            searched: few,
            lines,
        })
    }

    /// What it comes to, in a few sentences.
    pub fn summary(&self) -> String {
        let published = PUBLISHED[0].1;
        let most = self.by_job[0].max(self.by_job[1]);
        let reached = if most < published {
            "No weights that were found come to the published number over an exact max-min baseline"
        } else {
            "Only weights that know each job beforehand come to the published number over an exact max-min baseline"
        };
        format!(
            "- {reached}. With the slowdown that each job really has in place of the cubic, Eq. 2 makes {} (with limits as LR's {}), and of its logarithm, which is what is averaged, {} ({}). \
             Searched for on {} setups with all their jobs known: a weight for each workload, which is what Saba can know, makes {} ({}), one for each job {} ({}). A job alone \
             on all links is {} ({}) times faster than under the baseline, and the published averages of RF and LR are near that.\n",
            n(self.own[0]),
            n(self.own[1]),
            n(self.logarithm[0]),
            n(self.logarithm[1]),
            self.searched,
            n(self.by_workload[0]),
            n(self.by_workload[1]),
            n(self.by_job[0]),
            n(self.by_job[1]),
            n(self.alone[0]),
            n(self.alone[1]),
        )
    }

    /// The table and what it says.
    pub fn section(&self, lab: &Lab<'_>) -> String {
        let mut lines = Vec::new();
        for line in &self.lines {
            let mut cells =
                vec![line.name.to_owned(), line.setups.to_string(), n(line.all[0]), n(line.all[1])];
            cells.extend(line.workloads.iter().map(|value| cell(*value)));
            lines.push(cells);
        }
        let mut head = vec!["weights", "setups", "average", "with limits"];
        head.extend(lab.workloads().iter().map(|w| w.name));
        format!(
            "### How much better weights could do\n\nSpeed-ups over the baseline; all but the first line have a queue for each job. First Eq. 2 with something else in place of the polynomial, solved on its convex hull. Then weights without Eq. 2: \
             even ones, and ones that put small jobs first. Then weights that a search found, the same at all ports and all the time, by the average speed-up itself: \
             from even weights, each up or down by a factor as long as that helps (a local search: there may be better ones). A job alone is the limit of all. The second average is where all have a limit as LR has.\n{}\
             The paper's Eq. 2 has no least weight and no other condition than the sum; C_saba is 100 % (8.1); weights are those of applications, however many connections they have (5.1), and WFQ gives what others leave (5.2), so that a weight is the least that \
             an application has. The cubic costs what is between the first lines and that of the job's slowdown: a sum that is right about every job makes {}. With the mean logarithm as the objective it makes {}. What is left up to {} \
             takes to tell jobs of one workload apart, which Saba cannot: the best that was found with a weight for each workload makes {}. Jobs differ in their data by up to 100 times, which is drawn apart from the workload.\n\n",
            table(&head, 1, &lines),
            n(self.own[0]),
            n(self.logarithm[0]),
            n(self.by_job[0]),
            n(self.by_workload[0]),
        )
    }
}

fn line(lab: &mut Lab<'_>, name: &'static str, way: Way, setups: usize) -> Result<Line, Failure> {
    let limited = World { limited: true, ..PLAIN };
    let plain = compared(lab, PLAIN, way, (PLAIN, Way::Flows), setups)?;
    let other = compared(lab, limited, way, (limited, Way::Flows), setups)?;
    Ok(Line { name, setups, all: [plain.all, other.all], workloads: plain.workloads })
}
