//! Runs `weir profile`: Saba's offline profiler (Saba, sections 4 and 7.1) on a real command at limited bandwidth.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile};
use weir_console::profile::{ClusterHosts, MeasuredRuns, ProfileTarget, TimedCommand, measure};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::table::{Alignment, Table, format_count, format_number, format_whole_percent};
use weir_console::testbed;
use weir_sim::outcome::percentile;
use weir_testbed::Bed;
use weir_trace::sensitivity::{self, ProfiledApplication, SensitivityTable};

use crate::args;
use crate::ctl;
use crate::render;
use crate::saba;

/// The run time, in seconds, below which a run mostly starts and ends processes; the output then has a note.
const MIN_RUN_SECS: f64 = 0.1;

/// Runs `weir profile`.
pub fn profile(args: &args::Profile) -> Result<(), Failure> {
    // From here on, a signal does not end the process before the bandwidth is restored.
    let progress = Progress::new(args.quiet);
    let name = application_name(args)?;
    let outputs = [("--out", &args.out), ("--samples", &args.samples), ("--log", &args.log)];
    output::check_distinct(Path::new("-"), &outputs.map(|(name, path)| (name, path.as_deref())))?;
    let existing = args.out.as_deref().map(existing_table).transpose()?.unwrap_or_default();
    let out = args.out.as_deref().map(OutputFile::create).transpose()?;
    let samples = args.samples.as_deref().map(OutputFile::create).transpose()?;
    let log = args.log.as_deref().map(|path| {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map_err(|error| Failure::output(path, &error))
    });
    let command = TimedCommand {
        command_line: args.command.clone(),
        environment: Vec::new(),
        timeout: Duration::from_secs_f64(args.timeout.get()),
        output_file: log.transpose()?,
    };
    let (runs, link_description) = with_limited_links(args, |place| {
        Ok((measure(&name, &command, place, args.runs.into(), &progress)?, place.describe()))
    })?;
    let degree = usize::from(args.degree);
    let profiled = ProfiledApplication::new(&name, runs.profile.clone()).map_err(Failure::runtime)?;
    if let Some(mut file) = out {
        let table = existing.with_row(profiled.row(degree)).map_err(Failure::runtime)?;
        table.write(&mut file).map_err(|error| file.failure(&error))?;
        file.finish()?;
    }
    if let Some(file) = samples {
        file.write_and_finish(record::csv(&plot_records(&runs, &profiled)))?;
    }
    let table = || table(&link_description, &runs, &profiled, degree);
    let profiled = std::slice::from_ref(&profiled);
    Ok(output::print(render::list(args.format, table, || saba::records(profiled, degree)))?)
}

/// The name of the application: that of `--name`, or of the program.
fn application_name(args: &args::Profile) -> Result<String, Failure> {
    if let Some(name) = &args.name {
        return Ok(name.clone());
    }
    let program = Path::new(&args.command[0]).file_name().unwrap_or_default().to_string_lossy();
    args::parse_application_name(&program).map_err(|expected| {
        Failure::input(format_args!("COMMAND: `{program}`: {expected}; help: use --name"))
    })
}

/// The sensitivity table in a file; empty if `path` is not a regular file.
fn existing_table(path: &Path) -> Result<SensitivityTable, Failure> {
    if path.is_file() { Ok(sensitivity::read(path)?) } else { Ok(SensitivityTable::default()) }
}

/// Calls `run` with the links whose bandwidth it can limit, and restores their bandwidth.
fn with_limited_links<T>(
    args: &args::Profile,
    run: impl FnOnce(&ProfileTarget<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let args::Profile { limited_links: args, credentials, .. } = args;
    if let Some(coordinator) = &args.coordinator {
        let coordinator = ctl::connect(coordinator, credentials)?;
        let place = ProfileTarget::Cluster(ClusterHosts::new(coordinator, &args.hosts)?);
        return place.run_and_restore(|| run(&place));
    }
    if let Some((interface, rate)) = args.interface.clone().zip(args.rate) {
        let place = ProfileTarget::interface(interface, rate)?;
        return place.run_and_restore(|| run(&place));
    }
    let name = args.bed.as_ref().expect("clap requires --bed if there is no --interface");
    let bed = Bed::open(name).map_err(|error| testbed::failure(&error))?;
    let bed = bed.ok_or_else(|| Failure::runtime(format_args!("testbed `{name}` does not exist")))?;
    let place = ProfileTarget::hosts(&bed, &args.hosts)?;
    place.run_and_restore(|| run(&place))
}

/// Records for plots: each run, the medians, and the models at 5 to 100 % of the bandwidth.
fn plot_records(runs: &MeasuredRuns, profiled: &ProfiledApplication) -> Vec<Record> {
    let full_bandwidth_secs =
        runs.profile.runs().last().expect("the last sample is at full bandwidth").time.get();
    let point = |kind: &str, fraction: f64, slowdown: f64| {
        let mut r = Record::default();
        r.add("application", profiled.name.as_str());
        r.add("kind", kind);
        r.add_all(["bandwidth", "time_s", "slowdown"], [fraction, slowdown * full_bandwidth_secs, slowdown]);
        r
    };
    let mut out = Vec::new();
    for (fraction, times) in &runs.durations {
        out.extend(times.iter().map(|time| point("run", fraction.get(), time / full_bandwidth_secs)));
    }
    let samples = runs.profile.runs().iter();
    out.extend(samples.map(|sample| point("median", sample.bandwidth.get(), sample.slowdown)));
    for (fit, degree) in profiled.fits.iter().zip(1..) {
        let fractions = (5..=100).map(|percent| f64::from(percent) / 100.0);
        out.extend(fractions.map(|fraction| {
            point(&format!("k{degree}"), fraction, fit.sensitivity.model().evaluate(fraction))
        }));
    }
    out
}

fn table(place: &str, runs: &MeasuredRuns, profiled: &ProfiledApplication, degree: usize) -> String {
    let right = |name| (name, Alignment::Right);
    let columns = ["bandwidth", "time s", "min", "max", "slowdown", "k=1", "k=2", "k=3"].map(right);
    let mut table = Table::new(&columns);
    for ((fraction, times), sample) in runs.durations.iter().zip(runs.profile.runs()) {
        let min_max = [0.0, 100.0].map(|p| percentile(times, p));
        let mut line = vec![format_whole_percent(fraction.get())];
        line.extend([sample.time.get(), min_max[0], min_max[1], sample.slowdown].map(format_number));
        line.extend(profiled.fits.iter().map(|fit| format_number(fit.sensitivity.slowdown(*fraction))));
        table.add_row(line);
    }
    let mut line = vec!["R^2".to_owned()];
    line.resize(5, String::new());
    line.extend(profiled.fits.iter().map(|fit| format_number(fit.r2)));
    table.add_row(line);
    let runs_each = format_count(runs.durations[0].1.len() as u64, "run");
    let mut out = format!(
        "{}: {runs_each} at each fraction of the bandwidth of {place}; times are medians:\n\n{table}",
        profiled.name
    );
    if runs.profile.runs().iter().any(|sample| sample.slowdown < 1.0) {
        out += "\nA slowdown below 1 is noise: times vary by that much at any bandwidth; help: use more --runs.\n";
    }
    let full_bandwidth_secs =
        runs.profile.runs().last().expect("the last sample is at full bandwidth").time.get();
    if full_bandwidth_secs < MIN_RUN_SECS {
        let full_bandwidth_secs = format_number(full_bandwidth_secs);
        out += &format!(
            "\nA run takes {full_bandwidth_secs} s at full bandwidth, mostly to start and end processes; help: profile a longer run.\n"
        );
    }
    let missing_properties = saba::missing_properties(&profiled.fits[degree - 1].sensitivity);
    if !missing_properties.is_empty() {
        out += &format!("\nThe model of degree {degree}: {missing_properties}.\n");
    }
    out
}
