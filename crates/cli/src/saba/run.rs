//! `weir saba run`: the jobs of a file side by side on its network, once under each way of sharing links.

use weir_core::model::{NodeId, Topology};
use weir_core::saba::profile::{FRACTIONS, Profile};
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::outcome::mean;
use weir_sim::stage::cluster::{self, ClusterError, Placed};
use weir_sim::stage::fabric::{Fabric, Paths};
use weir_sim::stage::sharing::{Connections, Controllers, Saba, Sharing, even_cutoffs};
use weir_sim::stage::workload::{NODES, Workload, link};
use weir_sim::stage::{Profiled, Stage};
use weir_trace::jobs::{self, Jobs, Model, Of};

use crate::args::{self, Format, Way};
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output::{self, Sink};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::run::pool;
use weir_console::table::{Align, Table, count, number};

/// The most queues of all links that are different.
const MAX_QUEUES: usize = 50_000_000;

/// Runs `weir saba run`.
///
/// # Errors
/// Whatever ends it early.
pub fn run(args: &args::SabaRun) -> Result<(), Failure> {
    output::check_distinct(&args.jobs_file, &[("--out", args.output.out.as_deref())])?;
    let sink = Sink::new(args.output.out.as_deref())?;
    let known = Workload::all();
    let names: Vec<&str> = known.iter().map(|workload| workload.name).collect();
    let file = jobs::read(&args.jobs_file, &names)?;
    let ways = ways(args);
    let is_saba = ways.iter().any(|way| way.is_saba());
    let free = file.jobs.iter().find(|job| job.model.is_none());
    if let Some(job) = free
        && args.c_saba == Fraction::ALL
        && is_saba
    {
        let (name, path) = (&job.name, args.jobs_file.display());
        return Err(Failure::input(format_args!(
            "{path}: job `{name}` does not comply, and --c-saba is 1: expected below 1, which leaves it a queue"
        )));
    }
    if args.c_saba < Fraction::ALL && args.queues.get() < 2 {
        return Err(Failure::input(
            "--queues: `1`: expected at least 2, as --c-saba below 1 leaves the last one to jobs that do not comply",
        ));
    }
    let room = Room::new(&file, &known, is_saba, args)?;
    let progress = Progress::new(args.quiet);
    let bar = progress.steps("jobs alone, then together", room.jobs.len() + ways.len());
    let mut found = pool(room.jobs.len() + ways.len(), args.jobs, |at| {
        let found = match at.checked_sub(room.jobs.len()) {
            None => room.alone(at),
            Some(way) => room.together(ways[way], args),
        };
        bar.inc(1);
        found
    })?;
    bar.finish_and_clear();
    let together = found.split_off(room.jobs.len());
    let alone: Vec<f64> = found.iter().map(|run| run.times[0]).collect();
    let report = Report { file: &file, names: &names, room: &room, ways: &ways, alone, together };
    let text = match args.output.format {
        Format::Table => report.for_people(&args.jobs_file.display().to_string()).into_bytes(),
        Format::Json => record::json(&report.records()).into_bytes(),
        Format::Csv => record::csv(&report.records()),
    };
    sink.fill(&text)
}

/// The ways that were asked for, each once, behind the one that others are compared with.
fn ways(args: &args::SabaRun) -> Vec<Way> {
    let mut ways = vec![args.baseline];
    for &way in &args.sharing {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

/// What jobs run on, and what is known of them.
struct Room<'a> {
    topology: &'a Topology,
    paths: Paths,
    jobs: Vec<Placed>,
    fabric: Fabric,
    models: Vec<Sensitivity>,
}

/// How long each job took, in seconds, and how often rates were found and had not settled.
struct Run {
    times: Vec<f64>,
    solutions: u64,
    unsettled: u64,
}

impl<'a> Room<'a> {
    /// Only Saba asks for models.
    fn new(
        file: &'a Jobs,
        known: &[Workload],
        is_saba: bool,
        args: &args::SabaRun,
    ) -> Result<Room<'a>, Failure> {
        let topology = &file.topology;
        let degree = args.degree();
        let mut models: Vec<Sensitivity> =
            file.sensitivity.iter().flat_map(|table| table.rows()).map(|row| row.sensitivity).collect();
        let mut profiled: Vec<Of> = Vec::new();
        let mut placed = Vec::with_capacity(file.jobs.len());
        for job in &file.jobs {
            let own = rate(topology, job.servers.iter().copied());
            let nodes = job.servers.len() as f64 / f64::from(NODES);
            let model = match job.model {
                Some(Model::Row(row)) => Some(row),
                Some(Model::Profiled(_)) if !is_saba => None,
                Some(Model::Profiled(of)) => {
                    let known_at = profiled.iter().position(|other| *other == of);
                    if known_at.is_none() {
                        profiled.push(of);
                        models.push(profile(file, known, of, degree)?);
                    }
                    Some(known_at.unwrap_or(models.len() - 1))
                }
                None => None,
            };
            let stages = stages(file, known, job.workload, (job.data, nodes), own);
            placed.push(Placed { stages, servers: job.servers.clone(), model, start: job.start });
        }
        let paths = args.hash.map_or(Paths::Even, Paths::Hashed);
        let servers: Vec<Vec<u32>> = placed.iter().map(|job| job.servers.clone()).collect();
        let fabric = Fabric::new(topology, &servers, paths).map_err(|error| failure("jobs", &error))?;
        let queues = fabric.links().1.saturating_mul(usize::from(args.queues.get()));
        if queues > MAX_QUEUES {
            return Err(Failure::input(format_args!(
                "--queues: `{}`: {queues} queues on all links: expected at most {MAX_QUEUES}",
                args.queues
            )));
        }
        Ok(Room { topology, paths, jobs: placed, fabric, models })
    }

    /// A job with the network to itself, from time 0.
    fn alone(&self, number: usize) -> Result<Run, Failure> {
        let job = Placed { start: Time::ZERO, ..self.jobs[number].clone() };
        let fabric = Fabric::alone(self.topology, &job.servers, number, self.paths);
        let fabric = fabric.map_err(|error| failure("jobs", &error))?;
        simulate(&[job], &fabric, &Sharing::Flows, "a job alone")
    }

    fn together(&self, way: Way, args: &args::SabaRun) -> Result<Run, Failure> {
        simulate(&self.jobs, &self.fabric, &self.sharing(way, args), way.name())
    }

    fn sharing(&self, way: Way, args: &args::SabaRun) -> Sharing {
        let controllers = match way {
            Way::Fair => return Sharing::Flows,
            Way::Applications => return Sharing::Applications,
            Way::Homa => {
                let flows: Vec<_> =
                    self.jobs.iter().map(|job| (job.stages.as_slice(), job.servers.len())).collect();
                return Sharing::Sizes(even_cutoffs(&flows, u32::from(args.queues.get())));
            }
            Way::Sincronia => return Sharing::Coflows,
            Way::Saba => Controllers::Central,
            Way::SabaDistributed => Controllers::Distributed,
        };
        Sharing::Saba(Saba {
            models: self.models.clone(),
            queues: args.queues.get(),
            levels: args.levels,
            c_saba: args.c_saba,
            floor: args.floor,
            connections: Connections::Transfer,
            controllers,
        })
    }
}

fn simulate(jobs: &[Placed], fabric: &Fabric, sharing: &Sharing, what: &str) -> Result<Run, Failure> {
    let ended = cluster::run_on(jobs, fabric, sharing, |_| !interrupt::asked());
    let ended = ended.map_err(|error| failure(what, &error))?;
    let times = ended.ends.iter().zip(jobs).map(|(end, job)| end.get() - job.start.get()).collect();
    Ok(Run { times, solutions: ended.solutions, unsettled: ended.unsettled })
}

/// What kept jobs from their ends, and under what.
fn failure(what: &str, error: &ClusterError) -> Failure {
    let Failure { code, message } = Failure::jobs(error);
    Failure { code, message: format!("{what}: {message}") }
}

/// What the slowest of these hosts' links carries.
fn rate(topology: &Topology, hosts: impl Iterator<Item = u32>) -> Rate {
    let rates = hosts.map(|host| topology.link(topology.out(NodeId(host))[0]).rate);
    rates.min_by(|a, b| a.get().total_cmp(&b.get())).unwrap_or(Rate::ZERO)
}

/// The stages of a workload with so many times the data on so many times the nodes. Those of the paper move less where links carry less
/// than in its testbed, so that alone they take as long as there.
fn stages(file: &Jobs, known: &[Workload], of: Of, scale: (f64, f64), rate: Rate) -> Vec<Stage> {
    match of {
        Of::File(at) => {
            let stage = |stage: &jobs::Stage| Stage {
                compute: stage.compute,
                beside: stage.beside,
                bytes: stage.bytes,
                patience: stage.limit,
            };
            file.workloads[at].stages.iter().map(stage).collect()
        }
        Of::Known(at) => {
            let mut stages = known[at].stages(scale.0, scale.1);
            for stage in &mut stages {
                let bytes = stage.bytes.get() * rate.get() / link().get();
                stage.bytes = Bytes::new(bytes).unwrap_or(stage.bytes);
            }
            stages
        }
    }
}

/// What the profiler finds out about a workload, on its own servers, whose links carry what the slowest host's of the network does.
fn profile(file: &Jobs, known: &[Workload], of: Of, degree: Degree) -> Result<Sensitivity, Failure> {
    let hosts = file.jobs.iter().flat_map(|job| job.servers.iter().copied());
    let rate = rate(&file.topology, hosts);
    let stages = stages(file, known, of, (1.0, 1.0), rate);
    let mut job = Profiled { stages, servers: NODES, rate };
    let profile = Profile::of(&mut job, &FRACTIONS).map_err(Failure::undone)?;
    Ok(profile.fit(degree).map_err(Failure::undone)?.sensitivity)
}

/// What is printed.
struct Report<'a> {
    file: &'a Jobs,
    names: &'a [&'a str],
    room: &'a Room<'a>,
    ways: &'a [Way],
    /// By job.
    alone: Vec<f64>,
    /// By way.
    together: Vec<Run>,
}

impl Report<'_> {
    fn workload(&self, job: usize) -> &str {
        match self.file.jobs[job].workload {
            Of::File(at) => &self.file.workloads[at].name,
            Of::Known(at) => self.names[at],
        }
    }

    /// A job's time over what it takes alone; 1 where it takes none.
    fn slowdown(&self, way: usize, job: usize) -> f64 {
        ratio(self.together[way].times[job], self.alone[job])
    }

    /// A job's time under the baseline over that under a way.
    fn speedup(&self, way: usize, job: usize) -> f64 {
        ratio(self.together[0].times[job], self.together[way].times[job])
    }

    fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (n, way) in self.ways.iter().enumerate() {
            for (at, job) in self.file.jobs.iter().enumerate() {
                let time = self.together[n].times[at];
                let mut r = Record::default();
                r.add("sharing", way.name());
                r.add("job", job.name.as_str());
                r.add("workload", self.workload(at));
                r.add("servers", job.servers.len());
                r.add("start_s", job.start.get());
                r.add("end_s", job.start.get() + time);
                r.add("time_s", time);
                r.add("alone_s", self.alone[at]);
                r.add("slowdown", self.slowdown(n, at));
                r.add("speedup", self.speedup(n, at));
                records.push(r);
            }
        }
        records
    }

    fn for_people(&self, path: &str) -> String {
        let (crossed, different) = self.room.fabric.links();
        let mut out = format!(
            "{path}: {} on {}; they cross {}, {different} of which differ in rate or in whose flows cross them\n\n\
             Slowdowns: the time of a job over what it takes with the network to itself.\n\n",
            count(self.file.jobs.len(), "job"),
            count(self.file.topology.hosts(), "host"),
            count(crossed, "link"),
        );
        let mut columns = vec![
            ("job", Align::Left),
            ("workload", Align::Left),
            ("hosts", Align::Right),
            ("start s", Align::Right),
            ("alone s", Align::Right),
        ];
        columns.extend(self.ways.iter().map(|way| (way.name(), Align::Right)));
        let mut table = Table::new(&columns);
        for (at, job) in self.file.jobs.iter().enumerate() {
            let mut line = vec![
                job.name.clone(),
                self.workload(at).to_owned(),
                job.servers.len().to_string(),
                number(job.start.get()),
                number(self.alone[at]),
            ];
            line.extend((0..self.ways.len()).map(|way| number(self.slowdown(way, at))));
            table.line(line);
        }
        table.print(&mut out);
        out.push_str(&format!(
            "\nOf all jobs; speed-ups are a job's time under {} over its time, and their average is the geometric mean:\n\n",
            self.ways[0].name()
        ));
        let columns = [
            ("sharing", Align::Left),
            ("mean slowdown", Align::Right),
            ("most", Align::Right),
            ("average speed-up", Align::Right),
            ("least", Align::Right),
            ("most", Align::Right),
            ("last end s", Align::Right),
        ];
        let mut table = Table::new(&columns);
        for (at, way) in self.ways.iter().enumerate() {
            let jobs = 0..self.file.jobs.len();
            let slowdowns: Vec<f64> = jobs.clone().map(|job| self.slowdown(at, job)).collect();
            let speedups: Vec<f64> = jobs.clone().map(|job| self.speedup(at, job)).collect();
            let logs: Vec<f64> = speedups.iter().map(|speedup| speedup.ln()).collect();
            let last = jobs.map(|job| self.file.jobs[job].start.get() + self.together[at].times[job]);
            table.line(vec![
                way.name().to_owned(),
                number(mean(&slowdowns)),
                number(slowdowns.iter().copied().fold(0.0, f64::max)),
                number(mean(&logs).exp()),
                number(speedups.iter().copied().fold(f64::INFINITY, f64::min)),
                number(speedups.iter().copied().fold(0.0, f64::max)),
                number(last.fold(0.0, f64::max)),
            ]);
        }
        table.print(&mut out);
        for (way, run) in self.ways.iter().zip(&self.together).filter(|(_, run)| run.unsettled > 0) {
            out.push_str(&format!(
                "\n{}: {} of {} times that rates were found, they had not settled.\n",
                way.name(),
                run.unsettled,
                run.solutions
            ));
        }
        out
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 1.0 }
}
