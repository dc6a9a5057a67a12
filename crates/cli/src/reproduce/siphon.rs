//! `weir reproduce siphon`: sections 5.3 and 5.2 of Siphon (ATC '18).

mod inter;
mod quality;
mod sort;

use std::fmt::Write;

use weir_core::model::WideArea;

use super::doc;
use crate::args;
use crate::failure::Failure;
use crate::input::limits;
use crate::output::{self, Sink};
use crate::progress::Progress;

/// The links of section 5.3.
const PRIVATE_CLOUD: &str = include_str!("../../../../examples/wide-area/private-cloud.toml");

/// The links of Table 1.
const TABLE_1: &str = include_str!("../../../../examples/wide-area/table-1.toml");

fn area(text: &str, name: &str) -> Result<WideArea, Failure> {
    Ok(weir_trace::wide_area::read_from(text.as_bytes(), name)?)
}

/// Runs `weir reproduce siphon`.
///
/// # Errors
/// Whatever ends it early.
pub fn siphon(args: &args::SiphonReproduction) -> Result<(), Failure> {
    output::check_distinct(&args.trace, &[("--out", args.making.out.as_deref())])?;
    let sink = Sink::new(args.making.out.as_deref())?;
    let trace = weir_trace::read(&args.trace, args.reading.trace_unit, &limits(&args.reading))?;
    let name = args.trace.file_name().unwrap_or(args.trace.as_os_str()).to_string_lossy().into_owned();
    let progress = Progress::new(args.making.running.quiet);
    let cloud = area(PRIVATE_CLOUD, "examples/wide-area/private-cloud.toml")?;
    let inter = inter::Inter::run(&trace.workload, &cloud, args.seeds, args.making.running.jobs, &progress)?;
    let five = area(TABLE_1, "examples/wide-area/table-1.toml")?;
    let sort = sort::section(&five, args.seeds)?;
    let mut out = head(args, &name);
    out.push_str(&inter.section());
    out.push_str(&quality::section(&cloud)?);
    out.push_str(&sort);
    sink.fill(doc::tidy(out).as_bytes())
}

fn head(args: &args::SiphonReproduction, trace: &str) -> String {
    let seeds =
        if args.seeds == args::SIPHON_SEEDS { String::new() } else { format!(" --seeds {}", args.seeds) };
    let unit = args.reading.trace_unit.to_string();
    let unit = if unit == "MB" { String::new() } else { format!(" --trace-unit {unit}") };
    let mut out = String::from("# Siphon, published and measured\n\n");
    write!(
        out,
        "Made by `weir reproduce siphon --trace {trace} --out docs/results/siphon.md{unit}{seeds}`. The paper is Liu, Chen and Li, \"Siphon: \
         Expediting Inter-Datacenter Coflows in Wide-Area Data Analytics\", ATC '18. Its numbers are quoted with the place where they \
         stand; every other number was computed by that one command, and so was every \"yes\" and \"no\" and every sentence that says what \
         comes out.\n\n\
         - Links between regions are all that is short ([the wide-area format](../wide-area-format.md)); a simulator without packets, losses \
         and delays of messages.\n\
         - {} seeds. Numbers are means over them, with the 95 % confidence interval of the mean (Student's t).\n\
         - Not done again: Spark itself (5.1, Table 2, and *Spark* in Fig. 10 to 12). Its disadvantage is single TCP connections over a long way, \
         which a simulator without packets does not have.\n\n",
        args.seeds,
    )
    .expect("memory takes all");
    out
}
