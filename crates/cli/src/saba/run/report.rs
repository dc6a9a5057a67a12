//! The result of `weir saba run`.

use weir_console::record::Record;
use weir_console::table::{Align, Table, count, number};
use weir_sim::outcome::mean;
use weir_sim::stage::job_set::Durations;
use weir_trace::jobs::{Jobs, Of};

use crate::args::SharingMode;

/// How long jobs took alone, and together under each mode.
pub struct Report<'a> {
    /// The jobs.
    pub file: &'a Jobs,
    /// The names of the workloads that are not the file's.
    pub known: &'a [&'a str],
    /// The links that jobs cross, and how many of them are distinct.
    pub links: (usize, usize),
    /// The modes; the first is the baseline.
    pub modes: &'a [SharingMode],
    /// By job, in seconds.
    pub alone: Vec<f64>,
    /// By mode.
    pub together: Vec<Durations>,
}

impl Report<'_> {
    fn workload(&self, job: usize) -> &str {
        match self.file.jobs[job].workload {
            Of::File(at) => &self.file.workloads[at].name,
            Of::Known(at) => self.known[at],
        }
    }

    /// The time of a job divided by its time alone; 1 for a job without any work.
    fn slowdown(&self, mode: usize, job: usize) -> f64 {
        ratio(self.together[mode].seconds[job], self.alone[job])
    }

    /// The time of a job under the baseline divided by its time under a mode.
    fn speedup(&self, mode: usize, job: usize) -> f64 {
        ratio(self.together[0].seconds[job], self.together[mode].seconds[job])
    }

    /// A record for each mode and job.
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (n, mode) in self.modes.iter().enumerate() {
            for (at, job) in self.file.jobs.iter().enumerate() {
                let time = self.together[n].seconds[at];
                let mut r = Record::default();
                r.add("sharing", mode.name());
                r.add("job", job.name.as_str());
                r.add("workload", self.workload(at));
                r.add("servers", job.servers.len());
                let start = job.start.get();
                r.add_all(["start_s", "end_s", "time_s"], [start, start + time, time]);
                let ratios = [self.alone[at], self.slowdown(n, at), self.speedup(n, at)];
                r.add_all(["alone_s", "slowdown", "speedup"], ratios);
                records.push(r);
            }
        }
        records
    }

    /// The slowdowns of the jobs, and sums over jobs.
    pub fn tables(&self, path: &str) -> String {
        let mut out = format!(
            "{path}: {} on {}; they cross {}, {} of which differ in rate or in the flows that cross them\n\n\
             Slowdown: the time of a job divided by its time with the network to itself.\n\n{}\n\
             Over all jobs. Speedup: the time of a job under `{}` divided by its time; averages are geometric means.\n\n{}",
            count(self.file.jobs.len(), "job"),
            count(self.file.topology.hosts(), "host"),
            count(self.links.0, "link"),
            self.links.1,
            self.slowdowns(),
            self.modes[0].name(),
            self.summary(),
        );
        for (mode, run) in self.modes.iter().zip(&self.together).filter(|(_, run)| run.unsettled > 0) {
            let (mode, unsettled, solutions) = (mode.name(), run.unsettled, run.solutions);
            out += &format!("\n{mode}: {unsettled} of {solutions} computations of rates did not settle.\n");
        }
        out
    }

    fn slowdowns(&self) -> Table {
        let [left, right] = [Align::Left, Align::Right].map(|align| move |name| (name, align));
        let mut columns =
            vec![left("job"), left("workload"), right("hosts"), right("start s"), right("alone s")];
        let modes: Vec<String> = self.modes.iter().map(|mode| mode.name()).collect();
        columns.extend(modes.iter().map(|mode| right(mode)));
        let mut table = Table::new(&columns);
        for (at, job) in self.file.jobs.iter().enumerate() {
            let mut line =
                vec![job.name.clone(), self.workload(at).to_owned(), job.servers.len().to_string()];
            line.extend([job.start.get(), self.alone[at]].map(number));
            line.extend((0..self.modes.len()).map(|mode| number(self.slowdown(mode, at))));
            table.line(line);
        }
        table
    }

    fn summary(&self) -> Table {
        let columns = ["mean slowdown", "max", "average speedup", "min", "max", "last end s"];
        let columns = columns.map(|name| (name, Align::Right));
        let mut table = Table::new(&[&[("sharing", Align::Left)], &columns[..]].concat());
        let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        for (at, mode) in self.modes.iter().enumerate() {
            let jobs = 0..self.file.jobs.len();
            let slowdowns: Vec<f64> = jobs.clone().map(|job| self.slowdown(at, job)).collect();
            let speedups: Vec<f64> = jobs.clone().map(|job| self.speedup(at, job)).collect();
            let logs: Vec<f64> = speedups.iter().map(|speedup| speedup.ln()).collect();
            let ends: Vec<f64> =
                jobs.map(|job| self.file.jobs[job].start.get() + self.together[at].seconds[job]).collect();
            let numbers = [
                mean(&slowdowns),
                max(&slowdowns),
                mean(&logs).exp(),
                speedups.iter().copied().fold(f64::INFINITY, f64::min),
                max(&speedups),
                max(&ends),
            ];
            table.line([mode.name()].into_iter().chain(numbers.map(number)).collect());
        }
        table
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 1.0 }
}
