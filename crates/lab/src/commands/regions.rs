//! `weir-lab regions`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueHint;
use serde::Deserialize;
use weir_console::interrupt;
use weir_console::table::{Alignment, Table};
use weir_core::model::WideArea;
use weir_core::units::Time;
use weir_lab::delay_line::Report;
use weir_lab::regions::{Distance, MAX_WORKERS, Regions, RegionsSettings};
use weir_lab::{LabError, Process};

/// Arguments of `weir-lab regions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir-lab regions examples/wide-area/table-1.toml --distances examples/wide-area/table-1-delays.csv --scale 0.2
  weir-lab regions examples/wide-area/table-1.toml -- ip netns exec wlab-regions-oregon-1 sh job.sh")]
pub struct Args {
    /// The regions and the bandwidth between them: docs/wide-area-format.md
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    wide_area: PathBuf,

    /// Delay and loss between regions, in CSV with the columns from, to, delay and loss
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    distances: Option<PathBuf>,

    /// The delay in each direction between regions that the file does not list
    #[arg(long, value_name = "TIME", default_value = "40ms")]
    delay: Time,

    /// The workers of each region
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_WORKERS)))]
    workers: u8,

    /// Multiplies all bandwidths, so that the processors are not the bottleneck
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,

    /// The maximum time that a packet waits for a link
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    queue: Time,

    /// Determines the changes of bandwidth, as in simulations, and which segments are lost
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The name of the network: namespaces are named wlab-NAME-REGION and wlab-NAME-REGION-WORKER
    #[arg(long, value_name = "NAME", default_value = "regions")]
    name: String,

    /// A command to run while the regions exist; without it, they exist until Ctrl-C
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn parse_scale(text: &str) -> Result<f64, &'static str> {
    let scale = text.parse().ok().filter(|scale| (1e-3..=1e3).contains(scale));
    scale.ok_or("expected a factor of 0.001 to 1000")
}

/// A line of the file of distances.
#[derive(Debug, Deserialize)]
struct DistanceLine {
    from: String,
    to: String,
    delay: String,
    loss: f64,
}

/// Creates the regions, prints their namespaces, and removes them after the command or a signal.
pub fn run(args: &Args) -> Result<(), LabError> {
    let wide_area =
        weir_trace::wide_area::read(&args.wide_area).map_err(|error| LabError::Other(error.to_string()))?;
    let distances = match &args.distances {
        Some(path) => DistanceMap::read(path, &wide_area)?,
        None => DistanceMap::default(),
    };
    let default = Distance { delay: duration(args.delay), loss: 0.0 };
    let distance = |from, to| distances.get(from, to).unwrap_or(default);
    let settings = RegionsSettings {
        wide_area: &wide_area,
        scale: args.scale,
        seed: args.seed,
        queue: duration(args.queue),
        workers: args.workers,
    };
    let regions = Regions::create(&args.name, &settings, distance)?;
    print_nodes(&regions);
    let result = run_or_wait(&args.command);
    print_reports(&regions.stop()?);
    result
}

pub(super) fn duration(time: Time) -> Duration {
    Duration::from_secs_f64(time.get())
}

/// Distances by the positions of their regions.
#[derive(Debug, Default)]
pub(super) struct DistanceMap(Vec<((usize, usize), Distance)>);

impl DistanceMap {
    /// The distances of a file.
    pub(super) fn read(path: &Path, area: &WideArea) -> Result<DistanceMap, LabError> {
        let failure = |error: csv::Error| LabError::Other(format!("{}: {error}", path.display()));
        let mut reader = csv::Reader::from_path(path).map_err(failure)?;
        let header = reader.headers().map_err(failure)?.clone();
        let mut distances = Vec::new();
        for record in reader.records() {
            let record = record.map_err(failure)?;
            let line = record.deserialize(Some(&header)).map_err(failure)?;
            let number = record.position().map_or(0, csv::Position::line);
            let at_line = |message| LabError::Other(format!("{}:{number}: {message}", path.display()));
            distances.push(distance(&line, area).map_err(at_line)?);
        }
        Ok(DistanceMap(distances))
    }

    /// The distance between two regions, if the file lists it.
    pub(super) fn get(&self, from: usize, to: usize) -> Option<Distance> {
        let listed = self.0.iter().find(|(pair, _)| *pair == (from, to) || *pair == (to, from));
        listed.map(|&(_, distance)| distance)
    }
}

/// The distance that a line states, or the error in the line.
fn distance(line: &DistanceLine, area: &WideArea) -> Result<((usize, usize), Distance), String> {
    let region = |name: &str| {
        let expected =
            || format!("region `{name}` does not exist; expected one of {}", area.regions().join(", "));
        area.regions().iter().position(|region| region == name).ok_or_else(expected)
    };
    let delay: Time = line.delay.parse().map_err(|error| format!("delay: {error}"))?;
    if !(0.0..=1.0).contains(&line.loss) {
        return Err(format!("loss {}: expected a probability of 0 to 1", line.loss));
    }
    let pair = (region(&line.from)?, region(&line.to)?);
    Ok((pair, Distance { delay: duration(delay), loss: line.loss }))
}

fn print_nodes(regions: &Regions) {
    let mut table =
        Table::new(&["region", "role", "namespace", "address"].map(|name| (name, Alignment::Left)));
    for node in regions.nodes() {
        let role = node.worker.map_or("gateway".to_owned(), |worker| format!("worker {worker}"));
        table.add_row(vec![node.region.clone(), role, node.namespace.clone(), node.address.to_string()]);
    }
    println!("{table}ready");
}

/// Runs the command, or waits for a signal.
fn run_or_wait(command: &[OsString]) -> Result<(), LabError> {
    let Some((program, arguments)) = command.split_first() else {
        while !interrupt::is_requested() {
            std::thread::sleep(Duration::from_millis(100));
        }
        return Ok(());
    };
    let mut child = Command::new(program);
    child.args(arguments);
    let mut process = Process::spawn(child)?;
    loop {
        let exited = process.wait(Duration::from_millis(100)).map_err(LabError::system("the command"))?;
        match exited {
            Some(true) => return Ok(()),
            Some(false) => return Err(LabError::Other("the command failed".to_owned())),
            None if interrupt::is_requested() => return Err(LabError::Interrupted),
            None => {}
        }
    }
}

fn print_reports(reports: &[(String, Report)]) {
    let columns = ["segments", "lost", "dropped", "mean lateness", "max lateness", "CPU"];
    let mut header = vec![("line", Alignment::Left)];
    header.extend(columns.map(|name| (name, Alignment::Right)));
    let mut table = Table::new(&header);
    for (name, report) in reports {
        let sum = |count: fn(&weir_lab::delay_line::PathCounters) -> u64| {
            report.paths.iter().map(count).sum::<u64>().to_string()
        };
        table.add_row(vec![
            name.clone(),
            sum(|path| path.forwarded),
            sum(|path| path.lost),
            sum(|path| path.dropped),
            format!("{:.3} ms", report.mean_lateness.as_secs_f64() * 1e3),
            format!("{:.3} ms", report.max_lateness.as_secs_f64() * 1e3),
            format!("{:.2} s", report.cpu.as_secs_f64()),
        ]);
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/wide-area").join(name)
    }

    #[test]
    fn examples_list_the_distance_of_each_pair_of_regions_once() {
        for name in ["table-1", "private-cloud"] {
            let area = weir_trace::wide_area::read(&example(&format!("{name}.toml"))).unwrap();
            let DistanceMap(distances) =
                DistanceMap::read(&example(&format!("{name}-delays.csv")), &area).unwrap();
            let mut pairs: Vec<_> = distances.iter().map(|&((a, b), _)| (a.min(b), a.max(b))).collect();
            pairs.sort_unstable();
            let regions = area.regions().len();
            let expected: Vec<_> = (0..regions).flat_map(|a| (a + 1..regions).map(move |b| (a, b))).collect();
            assert_eq!(pairs, expected);
        }
    }

    #[test]
    fn invalid_distances_name_line_and_expectation() {
        let area = weir_trace::wide_area::read(&example("table-1.toml")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (line, expected) in [
            ("oregon,mars,1ms,0", ":2: region `mars` does not exist; expected one of "),
            ("oregon,tokyo,1,0", ":2: delay: "),
            ("oregon,tokyo,1ms,1.5", ":2: loss 1.5: expected a probability of 0 to 1"),
        ] {
            let path = folder.path().join("distances.csv");
            std::fs::write(&path, format!("from,to,delay,loss\n{line}\n")).unwrap();
            let error = DistanceMap::read(&path, &area).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
