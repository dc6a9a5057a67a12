//! Defines the options of `weir trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use weir_console::failure::Failure;
use weir_core::units::{Bytes, Rate};
use weir_experiment::options::parse_port_rate;
use weir_trace::InputFormat;
use weir_trace::generate::{ArrivalProcess, Distribution, Incasts, Preset, Skew};
use weir_trace::import::Columns;

use super::{INPUT_HEADING, OUTPUT_HEADING, Output, ReadOptions, TraceInput};

/// The subcommands of `weir trace`.
#[derive(Debug, Subcommand)]
pub enum Trace {
    /// Check that a trace can be read, and print its size
    Check(TraceInput),
    /// Describe a trace by the statistics that papers report
    Describe(Describe),
    /// Generate a random trace from a seed
    Generate(Generate),
    /// Write a trace in another format
    Convert(Convert),
    /// Write the coflows and events of several traces, at their times, as one trace
    Merge(Merge),
}

/// Arguments of `weir trace describe`.
#[derive(Debug, Args)]
pub struct Describe {
    #[command(flatten)]
    pub input: TraceInput,

    /// First merge the coflows of each job, stage and wave into one coflow (Saath, section 4.3)
    #[arg(long, help_heading = INPUT_HEADING)]
    pub per_stage: bool,

    #[command(flatten)]
    pub output: Output,
}

/// The formats in which traces are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// The format of the public coflow-benchmark trace
    CoflowBenchmark,
    /// Weir's own format, with more fields
    Weir,
}

/// Arguments of `weir trace generate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Distributions (DIST): constant:V, uniform:MIN,MAX, exponential:MEAN, pareto:SHAPE,MIN,MAX, \
lognormal:MEDIAN,SIGMA,MIN,MAX"
)]
pub struct Generate {
    /// A predefined specification: `facebook` resembles the public trace, `small` has the same shape on 50 ports
    /// [default: small, unless --mappers, --reducers, --size or --skew is given]
    #[arg(long, conflicts_with_all = ["mappers", "reducers", "size", "skew"])]
    pub preset: Option<Preset>,

    /// The seed of the random trace
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// The number of ports of the fabric [default: the preset's, or 50]
    #[arg(long, value_name = "N")]
    pub ports: Option<u32>,

    /// The number of coflows [default: the preset's, or 100]
    #[arg(long, value_name = "N")]
    pub coflows: Option<usize>,

    /// The number of mappers of a coflow, rounded, from 1 to the number of ports [default: uniform:1,10]
    #[arg(long, value_name = "DIST")]
    pub mappers: Option<Distribution>,

    /// The number of reducers of a coflow, rounded, from 1 to the number of ports [default: uniform:1,10]
    #[arg(long, value_name = "DIST")]
    pub reducers: Option<Distribution>,

    /// The mean size of a coflow's reducers, in megabytes; sizes are rounded to bytes, those of a preset to whole megabytes
    /// (at least 1) as in the public trace [default: lognormal:10,1.5,1,1000]
    #[arg(long, value_name = "DIST")]
    pub size: Option<Distribution>,

    /// The difference between sizes of a coflow's reducers: none, spread:FRACTION (up to that fraction more or less) or
    /// zipf:EXPONENT [default: none]
    #[arg(long, value_name = "SKEW")]
    pub skew: Option<Skew>,

    /// The arrival process of coflows: poisson:MEAN, every:GAP, lognormal:MEDIAN,SIGMA or burst; times have units, such as
    /// poisson:2s; arrivals are rounded to nanoseconds, those of a preset to milliseconds [default: the preset's, or poisson:1s]
    #[arg(long, value_name = "ARRIVAL")]
    pub arrival: Option<ArrivalProcess>,

    /// The sizes of reducers, or of flows with one mapper and one reducer, which is then the default: web-search, data-mining,
    /// cache-follower, hadoop, or a file with a size in bytes and a cumulative percentage in each line. No port sends to itself
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["preset", "size"])]
    pub cdf: Option<PathBuf>,

    /// The mean load of ports, as a fraction of their rate: all gaps between arrivals are scaled to it
    #[arg(long, value_name = "FRACTION")]
    pub load: Option<f64>,

    /// The rate of ports, with a unit, for loads
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = parse_port_rate)]
    pub port_rate: Rate,

    /// Add incasts: coflows from this number of random ports to one, at times of a Poisson process
    #[arg(long, value_name = "N", requires = "incast_load")]
    pub incast_degree: Option<u32>,

    /// The mean load of incasts, in addition to that of the other coflows
    #[arg(long, value_name = "FRACTION", requires = "incast_degree")]
    pub incast_load: Option<f64>,

    /// What each sender of an incast sends, with a unit
    #[arg(long, value_name = "SIZE", default_value_t = Incasts::default_size(), requires = "incast_degree")]
    pub incast_size: Bytes,

    /// The number of services, among which coflows are distributed evenly at random; more than one needs Weir's own format
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub services: usize,

    /// The number of applications of each service, distributed likewise
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub applications: usize,

    #[command(flatten)]
    pub read_options: ReadOptions,

    #[command(flatten)]
    pub output: TraceOutput,
}

/// The written trace.
#[derive(Debug, Args)]
pub struct TraceOutput {
    /// The format of the written trace [default: weir for a file named *.weir, else coflow-benchmark]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = OUTPUT_HEADING)]
    pub to: Option<TraceFormat>,

    /// Write to this file instead of the standard output; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub out: Option<PathBuf>,
}

/// The formats that traces are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReadFormat {
    /// The format of the public coflow-benchmark trace
    CoflowBenchmark,
    /// Weir's own format
    Weir,
    /// Sunflow's variant of the public trace, without a header
    Sunflow,
    /// The output of Sincronia's generator, with each flow of a coflow
    Sincronia,
    /// Connections of the packet simulator htsim, with triggers
    Htsim,
    /// The list of flows of HPCC's simulator
    Hpcc,
    /// The event log of a Spark application; sources and times of its coflows are estimates
    Spark,
    /// A table with a flow in each line, with --columns
    Flows,
}

/// Flows from a port to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LocalFlows {
    /// Keep their bytes: they use the port in both directions
    Keep,
    /// Set their bytes to 0: they complete at their release
    Drop,
}

/// Arguments of `weir trace convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command refuses a trace with fields that the format cannot express. The trace unit applies to both files."
)]
pub struct Convert {
    #[command(flatten)]
    pub input: TraceInput,

    /// The format of the trace that is read [default: as its first lines show, or flows with --columns]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = INPUT_HEADING)]
    pub from: Option<ReadFormat>,

    /// The columns of a table of flows: src, dst and bytes, and optionally start, coflow, service, application, weight and deadline, each
    /// with the name of its column in the first line, or its number from 1, such as
    /// start=start_ms:ms,src=from,dst=to,bytes=size_kB:kB,coflow=shuffle; units are s, ms, us, ns or ps [default: s], and those of sizes
    /// [default: B]
    #[arg(long, value_name = "LIST", help_heading = INPUT_HEADING)]
    pub columns: Option<Columns>,

    /// Flows from a port to itself [default: keep in the coflow-benchmark format and in Weir's own, drop in formats of other programs]
    #[arg(long, value_enum, value_name = "ACTION", help_heading = INPUT_HEADING)]
    pub local_flows: Option<LocalFlows>,

    /// The file to write; the file appears once it is complete. `-` is the standard output
    #[arg(value_hint = ValueHint::FilePath, help_heading = None)]
    pub to_file: PathBuf,

    /// The format of the written trace [default: weir for a file named *.weir, else coflow-benchmark]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = OUTPUT_HEADING)]
    pub to: Option<TraceFormat>,

    /// Merge the coflows of each job, stage and wave into one coflow (Saath, section 4.3)
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub per_stage: bool,
}

/// Arguments of `weir trace merge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Ports with the same name are the same; without names, those with the same number. Numbers of coflows and jobs that two \
traces have in common increase in the later one. Times do not change."
)]
pub struct Merge {
    /// The traces
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath, help_heading = None, required = true, num_args = 1..)]
    pub traces: Vec<PathBuf>,

    #[command(flatten)]
    pub read_options: ReadOptions,

    #[command(flatten)]
    pub output: TraceOutput,
}

impl Convert {
    /// The format to read; none if the first lines decide.
    ///
    /// # Errors
    /// If only one of a table and its columns is given.
    pub fn input_format(&self) -> Result<Option<InputFormat>, Failure> {
        let columns = self.columns.clone();
        Ok(match (self.from, columns) {
            (None | Some(ReadFormat::Flows), Some(columns)) => Some(InputFormat::Flows(Box::new(columns))),
            (Some(_), Some(_)) => {
                return Err(Failure::input("--columns: expected --from flows, or no --from"));
            }
            (Some(ReadFormat::Flows), None) => {
                return Err(Failure::input(
                    "--from flows: expected --columns, such as --columns src=1,dst=2,bytes=3",
                ));
            }
            (None, None) => None,
            (Some(ReadFormat::CoflowBenchmark), None) => Some(InputFormat::CoflowBenchmark),
            (Some(ReadFormat::Weir), None) => Some(InputFormat::Weir),
            (Some(ReadFormat::Sunflow), None) => Some(InputFormat::Sunflow),
            (Some(ReadFormat::Sincronia), None) => Some(InputFormat::Sincronia),
            (Some(ReadFormat::Htsim), None) => Some(InputFormat::Htsim),
            (Some(ReadFormat::Spark), None) => Some(InputFormat::Spark),
            (Some(ReadFormat::Hpcc), None) => Some(InputFormat::Hpcc),
        })
    }
}
