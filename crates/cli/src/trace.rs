//! `weir trace`.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use weir_console::failure::Failure;
use weir_console::output::{self, Pending};
use weir_console::record::Record;
use weir_console::table::{Align, Table, bytes, count, number, percent, seconds};
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_trace::describe::{self, Description, PERCENTAGES};
use weir_trace::generate::{self, Arrival, Kind, Preset, Spec};
use weir_trace::{TraceUnit, WriteError, coflow_benchmark, format};

use crate::args::{self, TraceFormat};
use crate::render;
use crate::source::{self, Source};

/// Runs `weir trace`.
pub fn trace(args: &args::Trace) -> Result<(), Failure> {
    match args {
        args::Trace::Check(args) => check(args),
        args::Trace::Describe(args) => describe(args),
        args::Trace::Generate(args) => generate(args),
        args::Trace::Convert(args) => convert(args),
    }
}

fn check(args: &args::Input) -> Result<(), Failure> {
    let source = Source::read(args, false)?;
    let workload = &source.workload;
    let last = workload.coflows.iter().map(|c| c.arrival).fold(Time::ZERO, |a, b| if b > a { b } else { a });
    let line = format!(
        "ok: {}: {}; {}, {}, {}, {}, {}, arrivals until {}\n",
        source.name,
        source.format_text(),
        count(workload.ports, "port"),
        count(workload.coflows.len(), "coflow"),
        count(workload.flows(), "flow"),
        bytes(source.bytes()),
        count(workload.events.len(), "event"),
        seconds(last.get()),
    );
    Ok(output::print(line)?)
}

fn describe(args: &args::Describe) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.input.trace)?;
    let source = Source::read(&args.input, args.per_stage)?;
    let threshold = describe::threshold(source.unit().unwrap_or_default());
    let description = Description::new(&source.workload, threshold).map_err(Failure::input)?;
    sink.fill(render::object(
        args.output.format,
        || tables(&source, &description),
        || object(&source, &description),
        || vec![record(&source, &description)],
    ))
}

/// The cells of Table 1, by bin.
const BINS: [&str; 4] = [
    "width <= 10, size <= 100 MB",
    "width > 10, size <= 100 MB",
    "width <= 10, size > 100 MB",
    "width > 10, size > 100 MB",
];

fn tables(source: &Source, d: &Description) -> String {
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
        let (max, mean) = (bytes(load.max), bytes(load.mean));
        line(side, format!("port {}: {max}; the average port: {mean}", load.busiest));
    }
    let mut out = format!("{} ({})\n\n{table}", source.name, source.format_text());

    let heads = PERCENTAGES.map(|percentage| match percentage {
        0 => "min".to_owned(),
        100 => "max".to_owned(),
        percentage => format!("P{percentage}"),
    });
    let heads: Vec<(&str, Align)> = heads.iter().map(|h| (h.as_str(), Align::Right)).collect();
    let mut table = Table::new(&heads);
    table.line(d.widths.iter().map(ToString::to_string).collect());
    out += &format!("\nWidths, in flows:\n\n{table}");

    let mut table = Table::new(&[("bin", Align::Right), ("", Align::Left), ("coflows", Align::Right)]);
    for (place, (name, share)) in BINS.iter().zip(d.bins).enumerate() {
        table.line(vec![(place + 1).to_string(), (*name).to_owned(), percent(share)]);
    }
    out += &format!("\nCoflows by width and size (Saath, Table 1):\n\n{table}");

    let mut table = Table::new(&[("", Align::Left), ("coflows", Align::Right)]);
    for (name, share) in
        [("one flow", d.single), ("several, equally long", d.equal), ("of different lengths", d.unequal)]
    {
        table.line(vec![name.to_owned(), percent(share)]);
    }
    out += &format!("\nLengths of the flows of a coflow (Saath, Fig. 2):\n\n{table}");
    if d.unequal > 0.0 {
        let mut table = Table::new(&[("for coflows", Align::Right), ("", Align::Right)]);
        for share in [0.5, 0.75, 0.9, 0.95, 1.0] {
            let point = d.deviations.iter().find(|(_, below)| *below >= share - 1e-12);
            table.line(vec![percent(share), point.map_or_else(|| "-".to_owned(), |p| number(p.0))]);
        }
        out += &format!("\nTheir standard deviation divided by their mean is at most:\n\n{table}");
    }
    out
}

/// The numbers of a description.
fn record(source: &Source, d: &Description) -> Record {
    let mut r = Record::default();
    r.add("trace", source.name.as_str());
    r.add("trace_unit", source.unit_value());
    r.add("ports", d.ports);
    r.add("coflows", d.coflows);
    r.add("flows", d.flows);
    r.add("empty_flows", d.empty_flows);
    // The sum of no bytes is a negative zero.
    r.add("bytes", d.bytes.abs());
    r.add("same_port", d.same_port);
    r.add_all(["first_arrival_s", "last_arrival_s"], [d.first_arrival, d.last_arrival]);
    r.add("events", d.events);
    r.add("services", d.services);
    r.add("applications", d.applications);
    r.add("depth", d.depth);
    for (percentage, width) in PERCENTAGES.iter().zip(d.widths) {
        r.add_named(format!("width_p{percentage}"), width);
    }
    r.add_all(["single", "equal", "unequal"], [d.single, d.equal, d.unequal]);
    r.add_all(["bin1", "bin2", "bin3", "bin4"], d.bins);
    r.add("send_busiest", d.send.busiest);
    r.add_all(["send_max_bytes", "send_mean_bytes"], [d.send.max, d.send.mean]);
    r.add("recv_busiest", d.receive.busiest);
    r.add_all(["recv_max_bytes", "recv_mean_bytes"], [d.receive.max, d.receive.mean]);
    r
}

/// The numbers, and the distribution of Fig. 2b.
fn object(source: &Source, d: &Description) -> Record {
    let mut r = record(source, d);
    let points: Vec<Value> =
        d.deviations.iter().map(|(value, share)| json!({ "deviation": value, "share": share })).collect();
    r.add("deviations", points);
    r
}

fn generate(args: &args::Generate) -> Result<(), Failure> {
    let spec = specification(args);
    let unit = args.reading.trace_unit;
    // Bad parameters are refused before a file is touched.
    let mut workload = generate::generate(&spec, unit, &source::limits(&args.reading))?;
    generate::spread(&mut workload, args.services, args.applications, spec.seed)?;
    write(&workload, args.to, unit, args.out.as_deref())
}

fn specification(args: &args::Generate) -> Spec {
    let args::Generate { mappers, reducers, size, skew, seed, .. } = *args;
    let mut spec = if mappers.is_some() || reducers.is_some() || size.is_some() || skew.is_some() {
        let default = Kind::default();
        let kind = Kind {
            mappers: mappers.unwrap_or(default.mappers),
            reducers: reducers.unwrap_or(default.reducers),
            size: size.unwrap_or(default.size),
            skew: skew.unwrap_or(default.skew),
            ..default
        };
        let arrival = Arrival::Poisson { mean: Time::new(1.0).unwrap_or(Time::ZERO) };
        Spec { ports: 50, coflows: 100, seed, arrival, kinds: vec![kind] }
    } else {
        args.preset.unwrap_or(Preset::Small).spec(seed)
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

/// Writes a workload in a format, by default that of the file's name: all of it or nothing. Prints a line about a written file.
fn write(
    workload: &Workload,
    to: Option<TraceFormat>,
    unit: TraceUnit,
    path: Option<&Path>,
) -> Result<(), Failure> {
    let path = path.filter(|path| !output::is_stdout(path));
    let named = path.is_some_and(|path| path.extension().is_some_and(|extension| extension == "weir"));
    let to = to.unwrap_or(if named { TraceFormat::Weir } else { TraceFormat::CoflowBenchmark });
    let (mut text, as_weir) = (Vec::new(), |out: &mut dyn io::Write| format::write(workload, out));
    let (written, format) = match to {
        TraceFormat::Weir => (as_weir(&mut text), "Weir's own format".to_owned()),
        TraceFormat::CoflowBenchmark => {
            (coflow_benchmark::write(workload, unit, &mut text), format!("coflow-benchmark, {unit}"))
        }
    };
    written.map_err(|error| match error {
        WriteError::Inexpressible { .. } if as_weir(&mut io::sink()).is_ok() => {
            Failure::undone(format_args!("{error}; expected --to weir, which can express it"))
        }
        error => error.into(),
    })?;
    let Some(path) = path else { return Ok(output::print(text)?) };
    Pending::begin(path)?.fill(text)?;
    let (coflows, flows) = (count(workload.coflows.len(), "coflow"), count(workload.flows(), "flow"));
    Ok(output::print(format!("wrote {}: {coflows}, {flows} ({format})\n", path.display()))?)
}
