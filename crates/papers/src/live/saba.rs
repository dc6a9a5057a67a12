//! Saba, Fig. 1b: jobs that are profiled, and then share the links of a bed, under equal shares and under Saba's weights.

use std::fs;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use weir_core::model::topology::Plan;
use weir_core::model::{NodeId, Routes, Topology};
use weir_core::saba::controller::{AppId, ConnectionId, Controller, Settings};
use weir_core::saba::share::FLOOR;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::Degree;
use weir_core::units::Rate;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::queues::dscp;
use weir_testbed::{Bed, Name};

use crate::doc::{n, table, yes};
use weir_console::failure::Failure;
use weir_console::profile::{self, Place, Timed};
use weir_console::progress::Progress;
use weir_console::table::whole_percent;
use weir_console::testbed;
use weir_trace::sensitivity::Profiled;

/// What every link carries, in bytes per second.
const LINK: f64 = 12.5e6;

/// Hosts under one switch. All of them have all jobs.
const HOSTS: usize = 3;

/// What the jobs have in common.
const COMMON: (&str, &str) = ("hosts.py", include_str!("../../../../examples/jobs/hosts.py"));

/// The jobs, from the most sensitive on. They are sized after Fig. 1a, for slowdowns at 25 % of the bandwidth as those of LR (3.4), the
/// average of all workloads (2.1) and PR (1.4), and the last takes longer than the first, as PR does.
const JOBS: [(&str, &str, &str); 3] = [
    ("shuffle", "network-heavy", include_str!("../../../../examples/jobs/shuffle.py")),
    ("rounds", "balanced", include_str!("../../../../examples/jobs/rounds.py")),
    ("derive", "compute-heavy", include_str!("../../../../examples/jobs/derive.py")),
];

/// How often the jobs run alone, and together under each way to share.
const REPEATS: usize = 3;

/// How long a run may take, which is a hundred times what it takes on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Fig. 1b: a workload, its slowdown under max-min, and that under skewed shares, by the text of section 2.2.
const PUBLISHED: [(&str, f64, f64); 2] = [("LR", 2.26, 1.48), ("PR", 1.21, 1.34)];

/// A way to share links, and what came of it.
struct Way {
    name: String,
    /// The queue of each job, and the weights of the queues; one queue for all if there is none.
    queues: Option<(Vec<u16>, Vec<f64>)>,
    /// For each repetition, the times of the jobs in seconds.
    times: Vec<Vec<f64>>,
}

impl Way {
    fn new(name: String, queues: Option<(Vec<u16>, Vec<f64>)>) -> Way {
        Way { name, queues, times: Vec::with_capacity(REPEATS) }
    }

    /// Median times over those alone.
    fn slowdowns(&self, alone: &[f64]) -> Vec<f64> {
        self.slowdowns_at(50.0, alone)
    }

    /// A percentile of the times over those alone.
    fn slowdowns_at(&self, p: f64, alone: &[f64]) -> Vec<f64> {
        let of = |(job, alone): (usize, &f64)| {
            let times: Vec<f64> = self.times.iter().map(|times| times[job]).collect();
            percentile(&times, p) / alone
        };
        alone.iter().enumerate().map(of).collect()
    }

    /// The weight of a job's queue.
    fn weight(&self, job: usize) -> Option<f64> {
        self.queues.as_ref().map(|(queues, weights)| weights[usize::from(queues[job])])
    }
}

/// What was measured.
struct Measured {
    profiled: Vec<(profile::Runs, Profiled)>,
    /// Median times alone.
    alone: Vec<f64>,
    ways: Vec<Way>,
}

/// Published and measured.
///
/// # Errors
/// If it cannot be measured here, or is ended early.
pub(super) fn section(bed: &Name, progress: &Progress) -> Result<String, Failure> {
    let topology = topology();
    let measured = testbed::on_a_bed(bed, &topology, |bed| measure(bed, progress))?;
    Ok(text(&measured))
}

fn topology() -> Topology {
    let rate = Rate::new(LINK).expect("a constant");
    Plan::BigSwitch { hosts: HOSTS as u32, rate }.build().expect("a constant")
}

fn measure(bed: &Bed, progress: &Progress) -> Result<Measured, Failure> {
    let scripts = Scripts::write(bed)?;
    let place = Place::hosts(bed, &[])?;
    let mut profiled = Vec::with_capacity(JOBS.len());
    for (job, (name, ..)) in JOBS.iter().enumerate() {
        let runs =
            place.with(|| profile::measure(name, &scripts.command(job, 0), &place, REPEATS, progress))?;
        let fitted = Profiled::new(name, runs.profile.clone()).map_err(Failure::undone)?;
        profiled.push((runs, fitted));
    }
    let mut ways = vec![
        Way::new("one queue".to_owned(), None),
        Way::new("equal".to_owned(), Some(((0..JOBS.len() as u16).collect(), vec![1.0; JOBS.len()]))),
    ];
    for degree in 0..Degree::ALL.len() {
        let models = profiled.iter().map(|(_, fitted)| fitted.fits[degree].sensitivity).collect();
        ways.push(Way::new(format!("Saba, k={}", degree + 1), Some(weights(bed, models)?)));
    }
    let bar = progress.steps("jobs alone and together", REPEATS * (JOBS.len() + ways.len()));
    let mut alone = vec![Vec::with_capacity(REPEATS); JOBS.len()];
    // One after the other, so that whatever else the machine does is shared by all.
    for _ in 0..REPEATS {
        for (job, alone) in alone.iter_mut().enumerate() {
            bed.set_queues(None).map_err(|error| testbed::failure(&error))?;
            alone.extend(together(&place, &[scripts.command(job, 0)])?);
            bar.inc(1);
        }
        for way in &mut ways {
            let set = match &way.queues {
                Some((_, weights)) => bed.set_queues_everywhere(weights),
                None => bed.set_queues(None),
            };
            set.map_err(|error| testbed::failure(&error))?;
            let mark = |job: usize| way.queues.as_ref().map_or(0, |(queues, _)| dscp(queues[job].into()));
            let all: Vec<Timed> = (0..JOBS.len()).map(|job| scripts.command(job, mark(job))).collect();
            way.times.push(together(&place, &all)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let alone = alone.iter().map(|times| percentile(times, 50.0)).collect();
    Ok(Measured { profiled, alone, ways })
}

/// The jobs as files that are gone with this.
struct Scripts {
    place: TempDir,
    /// The namespaces of the hosts.
    namespaces: Vec<String>,
}

impl Scripts {
    fn write(bed: &Bed) -> Result<Scripts, Failure> {
        let place = tempfile::tempdir().map_err(Failure::undone)?;
        let scripts = JOBS.iter().map(|(name, _, text)| (format!("{name}.py"), *text));
        for (name, text) in scripts.chain([(COMMON.0.to_owned(), COMMON.1)]) {
            let path = place.path().join(name);
            fs::write(&path, text).map_err(|error| Failure::output(&path, &error))?;
        }
        let namespaces = bed.plan().nodes[..HOSTS].iter().map(|node| node.namespace.clone()).collect();
        Ok(Scripts { place, namespaces })
    }

    fn path(&self, job: usize) -> PathBuf {
        self.place.path().join(format!("{}.py", JOBS[job].0))
    }

    /// A job whose packets have this mark.
    fn command(&self, job: usize, mark: u8) -> Timed {
        let mut words = vec!["python3".into(), self.path(job).into()];
        words.extend(self.namespaces.iter().map(Into::into));
        let environment = vec![("WEIR_DSCP", mark.to_string())];
        Timed { words, environment, timeout: TIMEOUT, log: None }
    }
}

/// Runs commands at the same time, and answers with their times.
fn together(place: &Place<'_>, commands: &[Timed]) -> Result<Vec<f64>, Failure> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            commands.iter().map(|command| scope.spawn(move || command.run(place, || ()))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        // All of them are over before the first failure is told.
        let ended: Vec<Result<Duration, Failure>> = ended.collect();
        ended.into_iter().map(|took| Ok(took?.as_secs_f64())).collect()
    })
}

/// The queue of each job and the weights of the queues, as Saba's controller has them.
fn weights(bed: &Bed, models: Vec<Sensitivity>) -> Result<(Vec<u16>, Vec<f64>), Failure> {
    let links = bed.topology().links().len();
    let levels = NonZeroU16::new(8).expect("a constant");
    let settings = Settings { c_saba: Fraction::ALL, floor: FLOOR, levels };
    let jobs = models.len();
    let mut controller =
        Controller::central(models, settings, &vec![jobs as u16; links]).map_err(Failure::undone)?;
    let mut routes = Routes::new(bed.topology().clone(), 0);
    let (mut path, mut next) = (Vec::new(), 0);
    for job in 0..jobs {
        let app = AppId(job as u64);
        controller.register(app, job).map_err(Failure::undone)?;
        let hosts = || (0..HOSTS as u32).map(NodeId);
        for (from, to) in hosts().flat_map(|a| hosts().map(move |b| (a, b))).filter(|(a, b)| a != b) {
            routes.path(from, to, 0, &mut path);
            let ports: Vec<u32> = path.iter().map(|link| link.0).collect();
            controller.open(ConnectionId(next), app, &ports).map_err(Failure::undone)?;
            next += 1;
        }
    }
    controller.update();
    // All ports have the same jobs, and so the same plan.
    let plan = controller.plan(0).expect("all jobs have connections over all links");
    let queue = |job: usize| {
        let level = controller.level(AppId(job as u64)).expect("it is registered");
        plan.queue_of[usize::from(level)]
    };
    // Jobs that are alike share a queue, and the last ones are nobody's then.
    let weights = plan.weights.iter().copied().filter(|weight| *weight > 0.0).collect();
    Ok(((0..jobs).map(queue).collect(), weights))
}

fn text(measured: &Measured) -> String {
    let Measured { profiled, alone, ways } = measured;
    let kinds: Vec<String> = JOBS.iter().map(|(name, kind, _)| format!("`{name}` ({kind})")).collect();
    let mut out = format!(
        "## Saba: jobs of unlike sensitivity\n\n\
         The jobs of `examples/jobs`, programs that know nothing of Weir but the mark of their packets: {}. They are sized after Fig. 1a: at 25 % of the \
         bandwidth LR is 3.4 times slower, the average of all workloads 2.1, and PR 1.4. {HOSTS} hosts under one switch, links of {} \
         Mbit/s. Each is profiled first, as `weir profile` does it, with {REPEATS} runs at each part of the bandwidth of all hosts. Slowdowns:\n",
        kinds.join(", "),
        n(LINK * 8e-6),
    );
    let parts: Vec<String> = profiled[0].0.times.iter().map(|(part, _)| whole_percent(part.get())).collect();
    let mut head = vec!["job"];
    head.extend(parts.iter().map(String::as_str));
    head.extend(["R^2 k=1", "k=2", "k=3"]);
    let line = |(runs, fitted): &(profile::Runs, Profiled)| {
        let mut line = vec![fitted.name.clone()];
        line.extend(runs.profile.samples().iter().map(|sample| n(sample.slowdown)));
        line.extend(fitted.fits.iter().map(|fit| n(fit.r2)));
        line
    };
    out.push_str(&table(&head, 1, &profiled.iter().map(line).collect::<Vec<_>>()));
    out.push_str(&format!(
        "Then all of them begin at the same time on the same hosts: with one queue at each port, which is TCP by itself; with a queue for each \
         job and equal weights; and with the weights that Saba's controller finds by Eq. 2 from these profiles, with models of each degree. Queues \
         are classes of HTB at every port, of hosts as well, and the command has Saba's controller in it: no coordinator and no agents here. The hosts \
         share this machine's processors, so jobs together may also wait for these. A slowdown is the median time of {REPEATS} runs over that alone, which is {}; in brackets are the shortest and the longest.\n",
        JOBS.iter()
            .zip(alone)
            .map(|((name, ..), alone)| format!("{} s for `{name}`", n(*alone)))
            .collect::<Vec<_>>()
            .join(", "),
    ));
    let names = JOBS.map(|(name, ..)| name);
    let weights = names.map(|name| format!("weight of {name}"));
    let mut head = vec!["way"];
    head.extend(weights.iter().map(String::as_str));
    head.extend(names);
    head.push("average");
    let line = |way: &Way| {
        let slowdowns = way.slowdowns(alone);
        let sum: f64 = way.queues.iter().flat_map(|(_, weights)| weights).sum();
        let mut line = vec![way.name.clone()];
        line.extend((0..JOBS.len()).map(|job| way.weight(job).map_or("-".to_owned(), |w| n(w / sum))));
        let ends = way.slowdowns_at(0.0, alone).into_iter().zip(way.slowdowns_at(100.0, alone));
        let cell = |(median, (least, most)): (&f64, (f64, f64))| {
            format!("{} ({} to {})", n(*median), n(least), n(most))
        };
        line.extend(slowdowns.iter().zip(ends).map(cell));
        line.push(n(mean(&slowdowns)));
        line
    };
    out.push_str(&table(&head, 1, &ways.iter().map(line).collect::<Vec<_>>()));
    out.push_str(&against_equal(measured));
    out
}

/// How much better Saba is than equal shares, published and measured.
fn against_equal(measured: &Measured) -> String {
    let Measured { profiled, alone, ways } = measured;
    let better = |equal: f64, saba: f64| vec![n(equal), n(saba), n(equal / saba), yes(saba < equal)];
    let mut lines = Vec::new();
    let mut add = |who: &str, what: &str, equal: f64, saba: f64| {
        let line = [who.to_owned(), what.to_owned()].into_iter().chain(better(equal, saba));
        lines.push(line.collect::<Vec<String>>());
    };
    for (name, equal, skewed) in PUBLISHED {
        add("2.2, Fig. 1b", name, equal, skewed);
    }
    let average = |of: fn(&(&str, f64, f64)) -> f64| mean(&PUBLISHED.each_ref().map(of));
    add("2.2, Fig. 1b", "average", average(|p| p.1), average(|p| p.2));
    let (equal, saba) = ways[1..].split_first().expect("equal shares come second");
    let (tcp, equal) = (ways[0].slowdowns(alone), equal.slowdowns(alone));
    let (mut averages, mut sensitive) = (0, 0);
    let (mut above, mut sooner) = (Vec::new(), Vec::new());
    for way in saba {
        let slowdowns = way.slowdowns(alone);
        for (job, (name, ..)) in JOBS.iter().enumerate() {
            add(&way.name, name, equal[job], slowdowns[job]);
        }
        add(&way.name, "average", mean(&equal), mean(&slowdowns));
        averages += usize::from(mean(&slowdowns) < mean(&equal));
        sensitive += usize::from(slowdowns[0] < equal[0]);
        let both = [(&mut above, mean(&slowdowns), mean(&tcp)), (&mut sooner, slowdowns[0], tcp[0])];
        for (list, with, without) in both {
            if with < without {
                list.push(way.name.as_str());
            }
        }
    }
    let head = ["", "job", "slowdown, equal", "Saba", "equal over Saba", "better"];
    let mut out =
        "Beside Fig. 1b, whose equal shares are max-min and whose skewed ones are 75 and 25 %:\n".to_owned();
    out.push_str(&table(&head, 2, &lines));
    out.push_str(&format!(
        "With models of {averages} of {} degrees the average is better than under equal shares, and with those of {sensitive} `{}` is, the most \
         sensitive of the jobs. Beside TCP by itself, one queue, where the average is {} and `{}` has {}: the average is better with {}, and `{}` with {}. {}\n\n",
        saba.len(),
        JOBS[0].0,
        n(mean(&tcp)),
        JOBS[0].0,
        n(tcp[0]),
        these(&above),
        JOBS[0].0,
        these(&sooner),
        risers(profiled),
    ));
    out
}

fn these(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(" and ") }
}

/// Which models take more bandwidth to do harm.
fn risers(profiled: &[(profile::Runs, Profiled)]) -> String {
    let of = |degree: usize| {
        let rises = |fitted: &&Profiled| !fitted.fits[degree].sensitivity.shape().falls;
        let names: Vec<&str> = profiled
            .iter()
            .map(|(_, fitted)| fitted)
            .filter(rises)
            .map(|fitted| fitted.name.as_str())
            .collect();
        (!names.is_empty()).then(|| format!("k={}: {}", degree + 1, names.join(", ")))
    };
    let all: Vec<String> = (0..Degree::ALL.len()).filter_map(of).collect();
    if all.is_empty() {
        return "No model rises anywhere.".to_owned();
    }
    format!("Models that rise somewhere, where more bandwidth seems to do harm to Eq. 2: {}.", all.join("; "))
}
