//! Prints the result of `weir saba run`: times, slowdowns and speedups of jobs.

use weir_console::record::Record;
use weir_console::table::{Alignment, Table, format_count, format_number};
use weir_sim::outcome::mean;
use weir_sim::stage::job_set::Durations;
use weir_trace::jobs::{Jobs, WorkloadRef};

use crate::args::SharingMode;

/// The durations of jobs alone, and together under each mode.
pub struct Report<'a> {
    /// The jobs.
    pub jobs_file: &'a Jobs,
    /// The names of the built-in workloads.
    pub builtin_names: &'a [&'a str],
    /// The number of links that jobs cross, and the number of distinct ones.
    pub link_counts: (usize, usize),
    /// The modes; the first is the baseline.
    pub modes: &'a [SharingMode],
    /// The durations of the jobs alone, in seconds, by job.
    pub alone_secs: Vec<f64>,
    /// The durations of the jobs together, by mode.
    pub durations_by_mode: Vec<Durations>,
}

impl Report<'_> {
    fn workload(&self, job: usize) -> &str {
        match self.jobs_file.jobs[job].workload {
            WorkloadRef::InFile(at) => &self.jobs_file.workloads[at].name,
            WorkloadRef::Predefined(at) => self.builtin_names[at],
        }
    }

    /// The time of a job divided by its time alone; 1 for a job without any work.
    fn slowdown(&self, mode: usize, job: usize) -> f64 {
        ratio(self.durations_by_mode[mode].seconds[job], self.alone_secs[job])
    }

    /// The time of a job under the baseline divided by its time under a mode.
    fn speedup(&self, mode: usize, job: usize) -> f64 {
        ratio(self.durations_by_mode[0].seconds[job], self.durations_by_mode[mode].seconds[job])
    }

    /// A record for each mode and job.
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (n, mode) in self.modes.iter().enumerate() {
            for (index, job) in self.jobs_file.jobs.iter().enumerate() {
                let time = self.durations_by_mode[n].seconds[index];
                let mut r = Record::default();
                r.add("sharing", mode.name());
                r.add("job", job.name.as_str());
                r.add("workload", self.workload(index));
                r.add("servers", job.servers.len());
                let start = job.start.get();
                r.add_all(["start_s", "end_s", "time_s"], [start, start + time, time]);
                let ratios = [self.alone_secs[index], self.slowdown(n, index), self.speedup(n, index)];
                r.add_all(["alone_s", "slowdown", "speedup"], ratios);
                records.push(r);
            }
        }
        records
    }

    /// The slowdowns of the jobs, and statistics over all jobs, as tables.
    pub fn tables(&self, path: &str) -> String {
        let mut out = format!(
            "{path}: {} on {}; they cross {}, {} of which differ in rate or in the flows that cross them\n\n\
             Slowdown: the time of a job divided by its time with the network to itself.\n\n{}\n\
             Over all jobs. Speedup: the time of a job under `{}` divided by its time; averages are geometric means.\n\n{}",
            format_count(self.jobs_file.jobs.len(), "job"),
            format_count(self.jobs_file.topology.hosts(), "host"),
            format_count(self.link_counts.0, "link"),
            self.link_counts.1,
            self.slowdown_table(),
            self.modes[0].name(),
            self.summary_table(),
        );
        for (mode, run) in
            self.modes.iter().zip(&self.durations_by_mode).filter(|(_, run)| run.unsettled_computations > 0)
        {
            let (mode, unsettled, solutions) =
                (mode.name(), run.unsettled_computations, run.rate_computations);
            out += &format!("\n{mode}: {unsettled} of {solutions} computations of rates did not settle.\n");
        }
        out
    }

    fn slowdown_table(&self) -> Table {
        let [left, right] = [Alignment::Left, Alignment::Right].map(|align| move |name| (name, align));
        let mut columns =
            vec![left("job"), left("workload"), right("hosts"), right("start s"), right("alone s")];
        let modes: Vec<String> = self.modes.iter().map(|mode| mode.name()).collect();
        columns.extend(modes.iter().map(|mode| right(mode)));
        let mut table = Table::new(&columns);
        for (index, job) in self.jobs_file.jobs.iter().enumerate() {
            let mut line =
                vec![job.name.clone(), self.workload(index).to_owned(), job.servers.len().to_string()];
            line.extend([job.start.get(), self.alone_secs[index]].map(format_number));
            line.extend((0..self.modes.len()).map(|mode| format_number(self.slowdown(mode, index))));
            table.add_row(line);
        }
        table
    }

    fn summary_table(&self) -> Table {
        let columns = ["mean slowdown", "max", "average speedup", "min", "max", "last end s"];
        let columns = columns.map(|name| (name, Alignment::Right));
        let mut table = Table::new(&[&[("sharing", Alignment::Left)], &columns[..]].concat());
        let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        for (index, mode) in self.modes.iter().enumerate() {
            let jobs = 0..self.jobs_file.jobs.len();
            let slowdowns: Vec<f64> = jobs.clone().map(|job| self.slowdown(index, job)).collect();
            let speedups: Vec<f64> = jobs.clone().map(|job| self.speedup(index, job)).collect();
            let logs: Vec<f64> = speedups.iter().map(|speedup| speedup.ln()).collect();
            let ends: Vec<f64> = jobs
                .map(|job| self.jobs_file.jobs[job].start.get() + self.durations_by_mode[index].seconds[job])
                .collect();
            let numbers = [
                mean(&slowdowns),
                max(&slowdowns),
                mean(&logs).exp(),
                speedups.iter().copied().fold(f64::INFINITY, f64::min),
                max(&speedups),
                max(&ends),
            ];
            table.add_row([mode.name()].into_iter().chain(numbers.map(format_number)).collect());
        }
        table
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 1.0 }
}
