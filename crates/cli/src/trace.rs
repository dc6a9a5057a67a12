//! Runs `weir trace`: checks, describes, generates and converts traces.

use std::path::{Path, PathBuf};

use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile};
use weir_console::table::{
    Alignment, Table, format_bytes, format_count, format_number, format_percent, format_seconds,
};
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_experiment::descriptions::{trace_object, trace_record};
use weir_experiment::source::Source;
use weir_fields::FileError;
use weir_sim::ReplayOptions;
use weir_trace::describe::{self, PERCENTILES, WorkloadStatistics};
use weir_trace::generate::{Cdf, GeneratorOptions};
use weir_trace::{OutputFormat, TraceOptions, TraceUnit};

use crate::args::{self, LocalFlows, TraceFormat};
use crate::inputs::read_source;
use crate::render;

/// Runs `weir trace`.
pub fn trace(args: &args::Trace) -> Result<(), Failure> {
    match args {
        args::Trace::Check(args) => check(args),
        args::Trace::Describe(args) => describe(args),
        args::Trace::Generate(args) => generate(args),
        args::Trace::Convert(args) => convert(args),
        args::Trace::Merge(args) => merge(args),
    }
}

fn input_options(input: &args::TraceInput) -> TraceOptions {
    let step = input.arrivals.shift_step([ReplayOptions::default().interval]);
    input.read_options.trace_options(step)
}

/// Reads a trace or jobs.
fn read_coflows(
    input: &args::TraceInput,
    options: &TraceOptions,
    unit: Option<TraceUnit>,
    per_stage: bool,
) -> Result<Source, Failure> {
    let source = read_source(std::slice::from_ref(&input.trace), options, unit, per_stage)?;
    match &source.services {
        None => Ok(source),
        Some(services) => Err(Failure::input(format_args!(
            "{}: connections of services have no sizes; expected a trace or jobs",
            services.name
        ))),
    }
}

fn check(args: &args::TraceInput) -> Result<(), Failure> {
    let source = read_coflows(args, &input_options(args), args.read_options.trace_unit, false)?;
    let workload = &source.workload;
    let last = workload.coflows.iter().map(|c| c.arrival).fold(Time::ZERO, |a, b| if b > a { b } else { a });
    let line = format!(
        "ok: {}: {}; {}, {}, {}, {}, {}, arrivals until {}\n",
        source.name,
        source.format_text(),
        format_count(workload.ports, "port"),
        format_count(workload.coflows.len(), "coflow"),
        format_count(workload.flow_count(), "flow"),
        format_bytes(source.bytes()),
        format_count(workload.events.len(), "event"),
        format_seconds(last.get()),
    );
    Ok(output::print(line)?)
}

fn describe(args: &args::Describe) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.input.trace)?;
    let unit = args.input.read_options.trace_unit;
    let source = read_coflows(&args.input, &input_options(&args.input), unit, args.per_stage)?;
    let threshold = describe::bin_threshold(source.unit().unwrap_or_default());
    let description = WorkloadStatistics::new(&source.workload, threshold).map_err(Failure::input)?;
    sink.write_text(render::object(
        args.output.format,
        || tables(&source, &description),
        || trace_object(&source, &description),
        || vec![trace_record(&source, &description)],
    ))
}

/// The bins of Table 1 in the Saath paper.
const BINS: [&str; 4] = [
    "width <= 10, size <= 100 MB",
    "width > 10, size <= 100 MB",
    "width <= 10, size > 100 MB",
    "width > 10, size > 100 MB",
];

fn tables(source: &Source, d: &WorkloadStatistics) -> String {
    let mut table = Table::new(&[("", Alignment::Left), ("", Alignment::Left)]);
    let mut line = |name: &str, value: String| table.add_row(vec![name.to_owned(), value]);
    line("ports", d.ports.to_string());
    line("coflows", d.coflows.to_string());
    line("flows", format!("{}, {} of them without bytes", d.flows, d.empty_flows));
    line(
        "bytes",
        format!("{}, {} of them within a port", format_bytes(d.bytes), format_percent(d.same_port_fraction)),
    );
    line("arrivals", format!("{} to {}", format_seconds(d.first_arrival), format_seconds(d.last_arrival)));
    line("events", d.events.to_string());
    line("services", format!("{}, of {} in all", d.services, format_count(d.applications, "application")));
    line("longest chain of parents", d.longest_chain.to_string());
    for (side, load) in [("busiest sender", d.send_load), ("busiest receiver", d.receive_load)] {
        let (max, mean) = (format_bytes(load.max_bytes), format_bytes(load.mean_bytes));
        line(side, format!("port {}: {max}; the average port: {mean}", load.busiest_port));
    }
    let mut out = format!("{} ({})\n\n{table}", source.name, source.format_text());

    let heads = PERCENTILES.map(|percentage| match percentage {
        0 => "min".to_owned(),
        100 => "max".to_owned(),
        percentage => format!("P{percentage}"),
    });
    let heads: Vec<(&str, Alignment)> = heads.iter().map(|h| (h.as_str(), Alignment::Right)).collect();
    let mut table = Table::new(&heads);
    table.add_row(d.width_percentiles.iter().map(ToString::to_string).collect());
    out += &format!("\nWidths, in flows:\n\n{table}");

    let mut table =
        Table::new(&[("bin", Alignment::Right), ("", Alignment::Left), ("coflows", Alignment::Right)]);
    for (bin, (name, share)) in BINS.iter().zip(d.bin_shares).enumerate() {
        table.add_row(vec![(bin + 1).to_string(), (*name).to_owned(), format_percent(share)]);
    }
    out += &format!("\nCoflows by width and size (Saath, Table 1):\n\n{table}");

    let mut table = Table::new(&[("", Alignment::Left), ("coflows", Alignment::Right)]);
    for (name, share) in [
        ("one flow", d.single_flow_share),
        ("several, equally long", d.equal_flows_share),
        ("of different lengths", d.unequal_flows_share),
    ] {
        table.add_row(vec![name.to_owned(), format_percent(share)]);
    }
    out += &format!("\nLengths of the flows of a coflow (Saath, Fig. 2):\n\n{table}");
    if d.unequal_flows_share > 0.0 {
        let mut table = Table::new(&[("for coflows", Alignment::Right), ("", Alignment::Right)]);
        for share in [0.5, 0.75, 0.9, 0.95, 1.0] {
            let point = d.deviation_distribution.iter().find(|(_, fraction)| *fraction >= share - 1e-12);
            table.add_row(vec![
                format_percent(share),
                point.map_or_else(|| "-".to_owned(), |p| format_number(p.0)),
            ]);
        }
        out += &format!("\nTheir standard deviation divided by their mean is at most:\n\n{table}");
    }
    out
}

fn generate(args: &args::Generate) -> Result<(), Failure> {
    let to_failure = |error| Failure::input(format_args!("--cdf: {error}"));
    let options = GeneratorOptions {
        preset: args.preset,
        seed: args.seed,
        ports: args.ports,
        coflows: args.coflows,
        mappers: args.mappers,
        reducers: args.reducers,
        size: args.size,
        skew: args.skew,
        arrival: args.arrival,
        sizes: args.cdf.as_deref().map(Cdf::find).transpose().map_err(to_failure)?,
        load: args.load,
        port_rate: args.port_rate,
        incast_degree: args.incast_degree,
        incast_load: args.incast_load,
        incast_size: args.incast_degree.map(|_| args.incast_size),
        services: args.services,
        applications: args.applications,
    };
    let unit = args.read_options.trace_unit.unwrap_or_default();
    let format = output_format(args.output.to, unit, args.output.out.as_deref());
    // Invalid parameters fail before a file is created.
    let limits = args.read_options.trace_options(None).limits;
    let workload = options.generate(format.resolution(), unit, &limits)?;
    write(&workload, &[], format, args.output.out.as_deref())
}

fn convert(args: &args::Convert) -> Result<(), Failure> {
    let options = TraceOptions {
        format: args.input_format()?,
        keeps_local_flows: args.local_flows.map(|local| local == LocalFlows::Keep),
        ..input_options(&args.input)
    };
    let out = Some(args.to_file.as_path());
    // The coflow-benchmark format has the unit that the options name.
    let format = output_format(args.to, options.unit, out);
    let is_weir = format == OutputFormat::Weir;
    let unit = args.input.read_options.trace_unit.filter(|_| is_weir);
    let source = read_coflows(&args.input, &options, unit, args.per_stage)?;
    output::check_distinct(&args.input.trace, &[("TO_FILE", out)])?;
    if source.time_shift != Time::ZERO {
        let (name, shift) = (&source.name, source.time_shift);
        eprintln!("weir: {name}: times are {shift} earlier than in the file");
    }
    write(&source.workload, &source.port_names, format, out)
}

fn merge(args: &args::Merge) -> Result<(), Failure> {
    for trace in &args.traces {
        output::check_distinct(trace, &[("--out", args.output.out.as_deref())])?;
    }
    let options = args.read_options.trace_options(Some(ReplayOptions::default().interval));
    let read = |trace: &PathBuf| {
        let read = weir_trace::read(trace, &options)?;
        read.warnings.iter().for_each(|warning| eprintln!("weir: {}: {warning}", trace.display()));
        Ok(read)
    };
    let traces = args.traces.iter().map(read).collect::<Result<Vec<_>, FileError>>()?;
    let (workload, port_names) = weir_trace::merge::merge(traces).map_err(Failure::input)?;
    if workload.flow_count() > options.limits.max_flows {
        let (flows, max) = (workload.flow_count(), options.limits.max_flows);
        return Err(Failure::input(format_args!(
            "{flows} flows in total; expected at most {max} (--max-flows)"
        )));
    }
    let out = args.output.out.as_deref();
    write(&workload, &port_names, output_format(args.output.to, options.unit, out), out)
}

/// The format of a written trace: the one given, or that of the file's name.
fn output_format(to: Option<TraceFormat>, unit: TraceUnit, path: Option<&Path>) -> OutputFormat {
    let is_weir = path.is_some_and(OutputFormat::is_weir_file);
    match to.unwrap_or(if is_weir { TraceFormat::Weir } else { TraceFormat::CoflowBenchmark }) {
        TraceFormat::Weir => OutputFormat::Weir,
        TraceFormat::CoflowBenchmark => OutputFormat::CoflowBenchmark(unit),
    }
}

/// Writes a workload. A file appears once it is complete, and a line about it is printed.
fn write(
    workload: &Workload,
    port_names: &[String],
    format: OutputFormat,
    path: Option<&Path>,
) -> Result<(), Failure> {
    let path = path.filter(|path| !output::is_stdout(path));
    let text = format.write(workload, port_names).map_err(|error| {
        match OutputFormat::needs_weir(&error, workload, port_names) {
            true => Failure::input(format_args!("{error}; expected --to weir, which can express it")),
            false => error.into(),
        }
    })?;
    let Some(path) = path else { return Ok(output::print(text)?) };
    OutputFile::create(path)?.write_and_finish(text)?;
    let (coflows, flows) =
        (format_count(workload.coflows.len(), "coflow"), format_count(workload.flow_count(), "flow"));
    let format = match format {
        OutputFormat::Weir => "Weir's own format".to_owned(),
        OutputFormat::CoflowBenchmark(unit) => format!("coflow-benchmark, {unit}"),
    };
    Ok(output::print(format!("wrote {}: {coflows}, {flows} ({format})\n", path.display()))?)
}
