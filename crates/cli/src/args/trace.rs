//! Defines the options of `weir trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use weir_trace::generate::{ArrivalProcess, Distribution, Preset, Skew};

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

    /// The number of services, among which coflows are distributed evenly at random; more than one needs Weir's own format
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub services: usize,

    /// The number of applications of each service, distributed likewise
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub applications: usize,

    #[command(flatten)]
    pub read_options: ReadOptions,

    /// The format of the written trace [default: weir for a file named *.weir, else coflow-benchmark]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = OUTPUT_HEADING)]
    pub to: Option<TraceFormat>,

    /// Write to this file instead of the standard output; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub out: Option<PathBuf>,
}

/// Arguments of `weir trace convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command refuses a trace with fields that the format cannot express. The trace unit applies to both files."
)]
pub struct Convert {
    #[command(flatten)]
    pub input: TraceInput,

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
