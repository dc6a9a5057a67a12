//! `weir trace`.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_trace::describe::{self, Description, PERCENTAGES};
use weir_trace::generate::{Arrival, Kind, Law, Preset, Skew, Spec, generate, spread};
use weir_trace::{TraceUnit, WriteError, coflow_benchmark, format};

use crate::args::{self, Format, TraceFormat};
use crate::input::{self, Source};
use weir_console::failure::Failure;
use weir_console::output::{self, Pending, Sink};
use weir_console::record;
use weir_console::table::{Align, Table, bytes, count, number, percent, seconds};

/// Runs `weir trace`.
///
/// # Errors
/// Whatever ends it early.
pub fn trace(args: &args::Trace) -> Result<(), Failure> {
    match args {
        args::Trace::Check(args) => check(args),
        args::Trace::Describe(args) => describe(args),
        args::Trace::Generate(args) => generated(args),
        args::Trace::Convert(args) => convert(args),
    }
}

fn check(args: &args::Check) -> Result<(), Failure> {
    let source = Source::read(&args.input, false)?;
    let workload = &source.workload;
    let total: f64 = workload.coflows.iter().map(|c| c.bytes()).sum();
    let last = workload.coflows.iter().map(|c| c.arrival).fold(Time::ZERO, |a, b| if b > a { b } else { a });
    let line = format!(
        "ok: {}: {}; {}, {}, {}, {}, {}, arrivals until {}\n",
        source.name,
        source.understood(),
        count(workload.ports, "port"),
        count(workload.coflows.len(), "coflow"),
        count(workload.flows(), "flow"),
        bytes(total),
        count(workload.events.len(), "event"),
        seconds(last.get()),
    );
    Ok(output::print(line.as_bytes())?)
}

fn describe(args: &args::Describe) -> Result<(), Failure> {
    let output = &args.output;
    output::check_distinct(&args.input.trace, &[("--out", output.out.as_deref())])?;
    let sink = Sink::new(output.out.as_deref())?;
    let source = Source::read(&args.input, args.per_stage)?;
    let threshold = describe::threshold(source.unit().unwrap_or_default());
    let description = Description::new(&source.workload, threshold).map_err(Failure::input)?;
    let text = match output.format {
        Format::Table => for_people(&source, &description),
        Format::Json => record::json(&as_json(&source, &description)),
        Format::Csv => String::from_utf8_lossy(&record::csv(&[flat(&source, &description)])).into_owned(),
    };
    sink.fill(text.as_bytes())
}

/// The cells of Table 1, by bin.
const BINS: [&str; 4] = [
    "width <= 10, size <= 100 MB",
    "width > 10, size <= 100 MB",
    "width <= 10, size > 100 MB",
    "width > 10, size > 100 MB",
];

fn for_people(source: &Source, d: &Description) -> String {
    let mut out = format!("{} ({})\n\n", source.name, source.understood());
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    let mut line = |name: &str, value: String| table.line(vec![name.to_owned(), value]);
    line("ports", d.ports.to_string());
    line("coflows", d.coflows.to_string());
    line("flows", format!("{}, {} of them without bytes", d.flows, d.empty_flows));
    line("bytes", format!("{}, {} of them within a port", bytes(d.bytes), percent(d.same_port)));
    line("arrivals", format!("{} to {}", seconds(d.first_arrival), seconds(d.last_arrival)));
    line("events", d.events.to_string());
    line("services", format!("{}, of {} in all", d.services, count(d.applications, "application")));
    line("longest chain of parents", d.depth.to_string());
    for (side, load) in [("busiest sender", d.send), ("busiest receiver", d.receive)] {
        let (most, mean) = (bytes(load.max), bytes(load.mean));
        line(side, format!("port {}: {most}; the average port: {mean}", load.busiest));
    }
    table.print(&mut out);

    out.push_str("\nWidths, in flows:\n\n");
    let heads: Vec<String> = PERCENTAGES
        .iter()
        .map(|p| match p {
            0 => "least".to_owned(),
            100 => "most".to_owned(),
            p => format!("P{p}"),
        })
        .collect();
    let heads: Vec<(&str, Align)> = heads.iter().map(|h| (h.as_str(), Align::Right)).collect();
    let mut table = Table::new(&heads);
    table.line(d.widths.iter().map(ToString::to_string).collect());
    table.print(&mut out);

    out.push_str("\nCoflows by width and size (Saath, Table 1):\n\n");
    let mut table = Table::new(&[("bin", Align::Right), ("", Align::Left), ("coflows", Align::Right)]);
    for (place, (name, share)) in BINS.iter().zip(d.bins).enumerate() {
        table.line(vec![(place + 1).to_string(), (*name).to_owned(), percent(share)]);
    }
    table.print(&mut out);

    out.push_str("\nLengths of the flows of a coflow (Saath, Fig. 2):\n\n");
    let mut table = Table::new(&[("", Align::Left), ("coflows", Align::Right)]);
    for (name, share) in
        [("one flow", d.single), ("several, equally long", d.equal), ("of different lengths", d.unequal)]
    {
        table.line(vec![name.to_owned(), percent(share)]);
    }
    table.print(&mut out);
    if d.unequal > 0.0 {
        out.push_str("\nTheir standard deviation over their mean is at most:\n\n");
        let mut table = Table::new(&[("for coflows", Align::Right), ("", Align::Right)]);
        for share in [0.5, 0.75, 0.9, 0.95, 1.0] {
            let point = d.deviations.iter().find(|(_, below)| *below >= share - 1e-12);
            table.line(vec![percent(share), point.map_or_else(|| "-".to_owned(), |p| number(p.0))]);
        }
        table.print(&mut out);
    }
    out
}

/// The numbers of a description.
fn flat(source: &Source, d: &Description) -> record::Record {
    let mut r = record::Record::default();
    r.add("trace", source.name.clone());
    r.add("trace_unit", source.unit_value());
    r.add("ports", d.ports);
    r.add("coflows", d.coflows);
    r.add("flows", d.flows);
    r.add("empty_flows", d.empty_flows);
    // The sum of no bytes is a negative zero.
    r.add("bytes", d.bytes.abs());
    r.add("same_port", d.same_port);
    r.add("first_arrival_s", d.first_arrival);
    r.add("last_arrival_s", d.last_arrival);
    r.add("events", d.events);
    r.add("services", d.services);
    r.add("applications", d.applications);
    r.add("depth", d.depth);
    let widths = [
        "width_p0",
        "width_p25",
        "width_p50",
        "width_p75",
        "width_p90",
        "width_p95",
        "width_p99",
        "width_p100",
    ];
    for (name, width) in widths.into_iter().zip(d.widths) {
        r.add(name, width);
    }
    r.add("single", d.single);
    r.add("equal", d.equal);
    r.add("unequal", d.unequal);
    for (name, share) in ["bin1", "bin2", "bin3", "bin4"].into_iter().zip(d.bins) {
        r.add(name, share);
    }
    r.add("send_busiest", d.send.busiest);
    r.add("send_max_bytes", d.send.max);
    r.add("send_mean_bytes", d.send.mean);
    r.add("recv_busiest", d.receive.busiest);
    r.add("recv_max_bytes", d.receive.max);
    r.add("recv_mean_bytes", d.receive.mean);
    r
}

/// The numbers, and the distribution of Fig. 2b.
fn as_json(source: &Source, d: &Description) -> record::Record {
    let mut r = flat(source, d);
    let points: Vec<Value> =
        d.deviations.iter().map(|(value, share)| json!({ "deviation": value, "share": share })).collect();
    r.add("deviations", points);
    r
}

fn generated(args: &args::Generate) -> Result<(), Failure> {
    let spec = specification(args);
    let unit = args.reading.trace_unit;
    // What can be wrong with it is said before a file is touched.
    let mut workload = generate(&spec, unit, &input::limits(&args.reading))?;
    spread(&mut workload, args.services, args.applications, spec.seed)?;
    write(&workload, args.to, unit, args.out.as_deref())
}

fn specification(args: &args::Generate) -> Spec {
    let own = args.mappers.is_some() || args.reducers.is_some() || args.size.is_some() || args.skew.is_some();
    let mut spec = if own {
        let kind = Kind {
            share: 1.0,
            mappers: args.mappers.unwrap_or(Law::Uniform { min: 1.0, max: 10.0 }),
            reducers: args.reducers.unwrap_or(Law::Uniform { min: 1.0, max: 10.0 }),
            size: args.size.unwrap_or(Law::LogNormal { median: 10.0, sigma: 1.5, min: 1.0, max: 1000.0 }),
            skew: args.skew.unwrap_or(Skew::None),
        };
        let second = Time::new(1.0).unwrap_or(Time::ZERO);
        let arrival = Arrival::Poisson { mean: second };
        Spec { ports: 50, coflows: 100, seed: args.seed, arrival, kinds: vec![kind] }
    } else {
        args.preset.unwrap_or(Preset::Small).spec(args.seed)
    };
    spec.ports = args.ports.unwrap_or(spec.ports);
    spec.coflows = args.coflows.unwrap_or(spec.coflows);
    spec.arrival = args.arrival.unwrap_or(spec.arrival);
    spec
}

fn convert(args: &args::Convert) -> Result<(), Failure> {
    let source = Source::read(&args.input, args.per_stage)?;
    let out = Some(args.to_file.as_path());
    output::check_distinct(&args.input.trace, &[("TO_FILE", out)])?;
    write(&source.workload, args.to, args.input.reading.trace_unit, out)
}

/// Writes a workload in a format, or in the one that the file's name asks for: all of it or nothing. Says what it wrote to a
/// file.
fn write(
    workload: &Workload,
    to: Option<TraceFormat>,
    unit: TraceUnit,
    path: Option<&Path>,
) -> Result<(), Failure> {
    let path = path.filter(|path| !output::is_stdout(path));
    let named = path.is_some_and(|path| path.extension().is_some_and(|extension| extension == "weir"));
    let to = to.unwrap_or(if named { TraceFormat::Weir } else { TraceFormat::CoflowBenchmark });
    let put = |out: &mut dyn io::Write| match to {
        TraceFormat::CoflowBenchmark => coflow_benchmark::write(workload, unit, out),
        TraceFormat::Weir => format::write(workload, out),
    };
    let refused = |error: WriteError| match (&error, to) {
        (WriteError::Inexpressible { .. }, TraceFormat::CoflowBenchmark)
            if format::write(workload, io::sink()).is_ok() =>
        {
            Failure::undone(format_args!("{error}; expected --to weir, the format that can say it"))
        }
        _ => error.into(),
    };
    match path {
        Some(path) => {
            let mut file = Pending::begin(path)?;
            match put(&mut file) {
                Ok(()) => {
                    file.finish()?;
                    let form = match to {
                        TraceFormat::CoflowBenchmark => format!("coflow-benchmark, {unit}"),
                        TraceFormat::Weir => "Weir's own format".to_owned(),
                    };
                    let coflows = count(workload.coflows.len(), "coflow");
                    let flows = count(workload.flows(), "flow");
                    let line = format!("wrote {}: {coflows}, {flows} ({form})\n", path.display());
                    Ok(output::print(line.as_bytes())?)
                }
                Err(WriteError::Io(error)) => Err(file.failure(&error)),
                Err(other) => Err(refused(other)),
            }
        }
        None => {
            // In memory first: the standard output gets nothing of a trace that cannot be said in full.
            let mut text = Vec::new();
            put(&mut text).map_err(refused)?;
            Ok(output::print(&text)?)
        }
    }
}
