//! Writes the page of `weir reproduce saath`: the figures of Saath, published next to measured.
//!
//! Jajoo, Gandhi, Hu and Koh, "Saath: Speeding up CoFlows by Exploiting the Spatial Dimension", CoNEXT '17. The paper
//! measures with its own simulator (sections 2 and 6) and on 150 machines (section 7), with the public Facebook trace
//! and one that is not public.
//!
//! | Figure | The paper measures | Reproduced by |
//! |---|---|---|
//! | 2, 13 | the spread of the flow completion times of a coflow, under Aalo and Saath | `synchrony` |
//! | 3 | Aalo against three orders that know sizes: SCF, SRTF and LWTF | `speedups` |
//! | 9 | the speedup of Saath over Aalo, Varys and uncoordinated TCP | `speedups` |
//! | 10, 11 | the speedup that each part of Saath adds, in total and by coflow size and width | `speedups` |
//! | 12 | the same as 11 for the other trace | not reproduced: the trace is not public |
//! | 14 | the sensitivity to S, E, the interval, the arrival rate and d | `sensitivity` |
//! | 15 | the speedup of Saath over Aalo on the machines | `speedups`, in simulation |
//! | 16 | job completion times on the machines | not reproduced: the compute times are not public |
//! | Table 2 | the time of a schedule; CPU and memory | `timings` has the time; `crate::live` the rest |
//!
//! `published` prints the numbers of the paper's text, `assumptions` the choices that change a result most, `estimates` the effect of the
//! estimated flow lengths of section 4.3.

mod assumptions;
mod estimates;
mod published;
mod replays;
mod sensitivity;
mod speedups;
mod synchrony;
mod timings;

use std::fmt::Write;

use weir_console::failure::Failure;
use weir_console::table::format_bytes;
use weir_core::units::{Rate, Time};
use weir_trace::describe::{self, WorkloadStatistics};

use crate::picture::Pictures;
use crate::{Page, RunContext, Trace, markdown};
use replays::Replays;

/// The default number of generated workloads.
pub const DEFAULT_SEEDS: u64 = 10;

/// Options of the page.
pub struct Options {
    /// The rate of each port, in each direction.
    pub port_rate: Rate,
    /// The scheduling interval, except where a figure varies it.
    pub interval: Time,
    /// The number of generated workloads for the rule of section 4.3.
    pub seeds: u64,
    /// Whether the page ends with the section `## Timings`. All other sections depend on the trace and the options only.
    pub timing: bool,
}

/// The page: Saath's figures, published next to measured.
///
/// # Errors
/// If the trace has no coflows or is invalid, a replay fails, or a signal stops the work.
pub fn page(trace: &Trace, options: &Options, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let name = &trace.name;
    if trace.workload.coflows.is_empty() {
        return Err(Failure::input(format_args!("{name}: no coflows; expected a trace with coflows")));
    }
    let threshold = describe::bin_threshold(trace.unit);
    let description = WorkloadStatistics::new(&trace.workload, threshold)
        .map_err(|error| Failure::input(format_args!("{name}: {error}")))?;

    let settings = [
        assumptions::settings(),
        synchrony::settings(),
        speedups::settings(),
        sensitivity::settings(),
        estimates::settings(),
    ];
    let replays = Replays::run(trace, options, settings.concat(), run_context)?;

    let numbers: Vec<published::Comparison> = [
        synchrony::published(&replays, &description),
        speedups::published(&replays),
        sensitivity::published(&replays),
        speedups::published_testbed(&replays),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut pictures = Pictures::new("saath");
    let mut out = head(trace, options);
    out.push_str(&published::summary(&numbers));
    out.push_str(&conditions(trace, options, &description));
    out.push_str(&published::section(&numbers, &mut pictures));
    out.push_str(&assumptions::section(&replays));
    out.push_str(&synchrony::section(&replays, &trace.workload, &mut pictures));
    out.push_str(&speedups::section(&replays, threshold, &mut pictures));
    out.push_str(&sensitivity::section(&replays, &mut pictures));
    out.push_str(&estimates::section(trace, &replays, options, run_context)?);
    if options.timing {
        out.push_str(&timings::section(trace, options, run_context)?);
    }
    let mut out = markdown::collapse_blank_lines(out);
    out.truncate(out.trim_end().len());
    out.push('\n');
    Ok(pictures.finish(out))
}

/// The start of the page: the paper and the command.
fn head(trace: &Trace, options: &Options) -> String {
    let mut command = format!("weir reproduce saath {} --out docs/results/saath.md", trace.options());
    for (value, default, option) in [
        (options.port_rate.to_string(), "1Gbit", "--port-rate"),
        (options.interval.to_string(), "8ms", "--interval"),
        (options.seeds.to_string(), &DEFAULT_SEEDS.to_string(), "--seeds"),
    ] {
        if value != default {
            write!(command, " {option} {value}").expect("writing to a String does not fail");
        }
    }
    format!(
        "# Saath, published and measured\n\n\
         Made by `{command}`. The paper is Jajoo, Gandhi, Hu and Koh, \"Saath: Speeding up CoFlows by Exploiting the Spatial \
         Dimension\", CoNEXT '17. The page quotes every published number with its place; the command computes every other \
         number.\n\n"
    )
}

/// The trace, the network and the parameters of the replays.
fn conditions(trace: &Trace, options: &Options, description: &WorkloadStatistics) -> String {
    format!(
        "## Conditions\n\n\
         - Trace: `{}`, {} coflows, {} flows, {} on {} ports; {}.\n\
         - Network: ports of {}, a schedule every {}. The simulator has no packets, losses or message delays.\n\
         - Parameters (section 6): S = 10 MB, E = 10, K = 10, d = 2. `weir policies saath` and `weir policies aalo` list \
         them.\n\
         - CCT is the coflow completion time, FCT the flow completion time. The speedup of a coflow is its CCT under the \
         other policy divided by its CCT under Saath.\n",
        trace.name,
        description.coflows,
        description.flows,
        format_bytes(description.bytes),
        description.ports,
        format_args!("1 {} is {} bytes", trace.unit, trace.unit.bytes()),
        options.port_rate,
        options.interval,
    )
}
