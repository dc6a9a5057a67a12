//! `weir profile`: Saba's offline profiler (sections 4 and 7.1) on a real command, whose bandwidth is limited meanwhile.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use weir_console::profile::{Place, Runs, Timed, measure};
use weir_sim::outcome::percentile;
use weir_testbed::Bed;
use weir_trace::sensitivity::{self, Profiled, Row, SensitivityTable};

use crate::args::{self, Format};
use crate::saba;
use weir_console::failure::Failure;
use weir_console::output::{self, Pending};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::table::{Align, Table, count, number, whole_percent};
use weir_console::testbed;

/// Runs that are shorter, in seconds, are mostly processes that begin and end.
const SHORT: f64 = 0.1;

/// Runs `weir profile`.
///
/// # Errors
/// Whatever ends it early.
pub fn profile(args: &args::Profile) -> Result<(), Failure> {
    // What is throttled has to be as it was again.
    let progress = Progress::new(args.quiet);
    let name = name(args)?;
    let outputs = [("--out", &args.out), ("--samples", &args.samples), ("--log", &args.log)];
    output::check_distinct(Path::new("-"), &outputs.map(|(name, path)| (name, path.as_deref())))?;
    let mut rows = args.out.as_deref().map(others).transpose()?.unwrap_or_default();
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
    let (runs, described) = at(&args.place, |place| {
        Ok((measure(&name, &command, place, args.runs.into(), &progress)?, place.describe()))
    })?;
    let degree = usize::from(args.degree);
    let profiled = Profiled::new(&name, runs.profile.clone()).map_err(Failure::undone)?;
    if let Some(mut file) = out {
        let row = profiled.row(degree);
        match rows.iter_mut().find(|other| other.name == name) {
            Some(other) => *other = row,
            None => rows.push(row),
        }
        let table = SensitivityTable::new(rows).map_err(Failure::undone)?;
        table.write(&mut file).map_err(|error| file.failure(&error))?;
        file.finish()?;
    }
    if let Some(file) = samples {
        file.fill(&record::csv(&points(&runs, &profiled)))?;
    }
    let text = match args.format {
        Format::Table => text(&described, &runs, &profiled, degree).into_bytes(),
        Format::Json => record::json(&saba::records(&[profiled], degree)).into_bytes(),
        Format::Csv => record::csv(&saba::records(&[profiled], degree)),
    };
    Ok(output::print(&text)?)
}

/// What the application is called.
fn name(args: &args::Profile) -> Result<String, Failure> {
    if let Some(name) = &args.name {
        return Ok(name.clone());
    }
    let program = Path::new(&args.command[0]).file_name().unwrap_or_default().to_string_lossy();
    args::application(&program).map_err(|expected| {
        Failure::input(format_args!("COMMAND: `{program}`: {expected}; --name says another"))
    })
}

/// The applications of a table that may not be there yet.
fn others(path: &Path) -> Result<Vec<Row>, Failure> {
    // Nothing can be read from where a table is printed.
    if path.is_file() { Ok(sensitivity::read(path)?.rows().to_vec()) } else { Ok(Vec::new()) }
}

/// Does something with the place that is asked for, which is as before then.
fn at<T>(
    args: &args::ProfilePlace,
    work: impl FnOnce(&Place<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some((interface, rate)) = args.interface.clone().zip(args.rate) {
        let place = Place::interface(interface, rate)?;
        return place.with(|| work(&place));
    }
    let name = args.bed.as_ref().expect("there is a bed if there is no interface");
    let bed = Bed::open(name).map_err(|error| testbed::failure(&error))?;
    let bed = bed.ok_or_else(|| Failure::undone(format_args!("no bed `{name}` is up")))?;
    let place = Place::hosts(&bed, &args.hosts)?;
    place.with(|| work(&place))
}

/// Lines to plot: each run, the medians, and the models from the least part that was run to all.
fn points(runs: &Runs, profiled: &Profiled) -> Vec<Record> {
    let all = runs.profile.samples().last().expect("there is one with all bandwidth").time.get();
    let point = |what: &str, part: f64, slowdown: f64| {
        let mut r = Record::default();
        r.add("application", profiled.name.as_str());
        r.add("what", what);
        r.add("bandwidth", part);
        r.add("time_s", slowdown * all);
        r.add("slowdown", slowdown);
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

fn text(place: &str, runs: &Runs, profiled: &Profiled, degree: usize) -> String {
    let mut out = format!(
        "{}: {} with each part of the bandwidth of {place}; the median counts:\n\n",
        profiled.name,
        count(runs.times[0].1.len() as u64, "run"),
    );
    let right = |name| (name, Align::Right);
    let columns = ["bandwidth", "time s", "least", "most", "slowdown", "k=1", "k=2", "k=3"].map(right);
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
    table.print(&mut out);
    if runs.profile.samples().iter().any(|sample| sample.slowdown < 1.0) {
        out.push_str("\nA slowdown below 1 is chance: times differ by that much whatever the bandwidth. More --runs tell more.\n");
    }
    let all = runs.profile.samples().last().expect("there is one with all bandwidth").time.get();
    if all < SHORT {
        out.push_str(&format!(
            "\nA run takes {} s with all bandwidth, much of which is its beginning and end: let it do more, or slowdowns say little.\n",
            number(all)
        ));
    }
    let lacks = saba::lacks(&profiled.fits[degree - 1].sensitivity);
    if !lacks.is_empty() {
        out.push_str(&format!("\nThe model of degree {degree}: {lacks}.\n"));
    }
    out
}
