//! `weir profile`: Saba's offline profiler (sections 4 and 7.1) on a real command at limited bandwidth.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use weir_console::failure::Failure;
use weir_console::output::{self, Pending};
use weir_console::profile::{Place, Runs, Timed, measure};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::table::{Align, Table, count, number, whole_percent};
use weir_console::testbed;
use weir_sim::outcome::percentile;
use weir_testbed::Bed;
use weir_trace::sensitivity::{self, Profiled, SensitivityTable};

use crate::args;
use crate::render;
use crate::saba;

/// Shorter runs, in seconds, consist mostly of starting and ending processes.
const MIN_RUN: f64 = 0.1;

/// Runs `weir profile`.
pub fn profile(args: &args::Profile) -> Result<(), Failure> {
    // From here on, signals do not end the process before bandwidth is restored.
    let progress = Progress::new(args.quiet);
    let name = name(args)?;
    let outputs = [("--out", &args.out), ("--samples", &args.samples), ("--log", &args.log)];
    output::check_distinct(Path::new("-"), &outputs.map(|(name, path)| (name, path.as_deref())))?;
    let existing = args.out.as_deref().map(existing_table).transpose()?.unwrap_or_default();
    let out = args.out.as_deref().map(Pending::begin).transpose()?;
    let samples = args.samples.as_deref().map(Pending::begin).transpose()?;
    let log = args.log.as_deref().map(|path| {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map_err(|error| Failure::output(path, &error))
    });
    let command = Timed {
        words: args.command.clone(),
        environment: Vec::new(),
        timeout: Duration::from_secs_f64(args.timeout.get()),
        log: log.transpose()?,
    };
    let (runs, described) = at_place(&args.place, |place| {
        Ok((measure(&name, &command, place, args.runs.into(), &progress)?, place.describe()))
    })?;
    let degree = usize::from(args.degree);
    let profiled = Profiled::new(&name, runs.profile.clone()).map_err(Failure::undone)?;
    if let Some(mut file) = out {
        let table = existing.with_row(profiled.row(degree)).map_err(Failure::undone)?;
        table.write(&mut file).map_err(|error| file.failure(&error))?;
        file.finish()?;
    }
    if let Some(file) = samples {
        file.fill(record::csv(&points(&runs, &profiled)))?;
    }
    let table = || table(&described, &runs, &profiled, degree);
    let profiled = std::slice::from_ref(&profiled);
    Ok(output::print(render::list(args.format, table, || saba::records(profiled, degree)))?)
}

/// The name of the application.
fn name(args: &args::Profile) -> Result<String, Failure> {
    if let Some(name) = &args.name {
        return Ok(name.clone());
    }
    let program = Path::new(&args.command[0]).file_name().unwrap_or_default().to_string_lossy();
    args::application(&program).map_err(|expected| {
        Failure::input(format_args!("COMMAND: `{program}`: {expected}; help: use --name"))
    })
}

/// The table in a file; empty if there is no file, or a device or a pipe.
fn existing_table(path: &Path) -> Result<SensitivityTable, Failure> {
    if path.is_file() { Ok(sensitivity::read(path)?) } else { Ok(SensitivityTable::default()) }
}

/// Runs `work` at the requested place, and restores its bandwidth.
fn at_place<T>(
    args: &args::ProfilePlace,
    work: impl FnOnce(&Place<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some((interface, rate)) = args.interface.clone().zip(args.rate) {
        let place = Place::interface(interface, rate)?;
        return place.with(|| work(&place));
    }
    let name = args.bed.as_ref().expect("clap requires --bed if there is no --interface");
    let bed = Bed::open(name).map_err(|error| testbed::failure(&error))?;
    let bed = bed.ok_or_else(|| Failure::undone(format_args!("no bed `{name}` is up")))?;
    let place = Place::hosts(&bed, &args.hosts)?;
    place.with(|| work(&place))
}

/// Records to plot: each run, the medians, and the models from 5 to 100 % of the bandwidth.
fn points(runs: &Runs, profiled: &Profiled) -> Vec<Record> {
    let all = runs.profile.samples().last().expect("the last sample is at full bandwidth").time.get();
    let point = |what: &str, part: f64, slowdown: f64| {
        let mut r = Record::default();
        r.add("application", profiled.name.as_str());
        r.add("what", what);
        r.add_all(["bandwidth", "time_s", "slowdown"], [part, slowdown * all, slowdown]);
        r
    };
    let mut out = Vec::new();
    for (part, times) in &runs.times {
        out.extend(times.iter().map(|time| point("run", part.get(), time / all)));
    }
    let samples = runs.profile.samples().iter();
    out.extend(samples.map(|sample| point("median", sample.bandwidth.get(), sample.slowdown)));
    for (fit, degree) in profiled.fits.iter().zip(1..) {
        let parts = (5..=100).map(|percent| f64::from(percent) / 100.0);
        out.extend(parts.map(|part| point(&format!("k{degree}"), part, fit.sensitivity.model().at(part))));
    }
    out
}

fn table(place: &str, runs: &Runs, profiled: &Profiled, degree: usize) -> String {
    let right = |name| (name, Align::Right);
    let columns = ["bandwidth", "time s", "min", "max", "slowdown", "k=1", "k=2", "k=3"].map(right);
    let mut table = Table::new(&columns);
    for ((part, times), sample) in runs.times.iter().zip(runs.profile.samples()) {
        let ends = [0.0, 100.0].map(|p| percentile(times, p));
        let mut line = vec![whole_percent(part.get())];
        line.extend([sample.time.get(), ends[0], ends[1], sample.slowdown].map(number));
        line.extend(profiled.fits.iter().map(|fit| number(fit.sensitivity.slowdown(*part))));
        table.line(line);
    }
    let mut line = vec!["R^2".to_owned()];
    line.resize(5, String::new());
    line.extend(profiled.fits.iter().map(|fit| number(fit.r2)));
    table.line(line);
    let runs_each = count(runs.times[0].1.len() as u64, "run");
    let mut out = format!(
        "{}: {runs_each} at each fraction of the bandwidth of {place}; the median counts:\n\n{table}",
        profiled.name
    );
    if runs.profile.samples().iter().any(|sample| sample.slowdown < 1.0) {
        out += "\nA slowdown below 1 is noise: times vary by that much at any bandwidth. More --runs reduce it.\n";
    }
    let all = runs.profile.samples().last().expect("the last sample is at full bandwidth").time.get();
    if all < MIN_RUN {
        let all = number(all);
        out += &format!(
            "\nA run takes {all} s at full bandwidth, mostly to start and end: longer runs give better slowdowns.\n"
        );
    }
    let lacks = saba::lacks(&profiled.fits[degree - 1].sensitivity);
    if !lacks.is_empty() {
        out += &format!("\nThe model of degree {degree}: {lacks}.\n");
    }
    out
}
