//! `weir reproduce siphon`: sections 5.3 and 5.2 of Siphon (ATC '18).

mod inter;
mod quality;
mod sort;

use std::fmt::Write;

use weir_core::model::WideArea;

use crate::{Running, Trace, doc};
use weir_console::failure::Failure;

/// The links of section 5.3.
const PRIVATE_CLOUD: &str = include_str!("../../../examples/wide-area/private-cloud.toml");

/// The links of Table 1.
const TABLE_1: &str = include_str!("../../../examples/wide-area/table-1.toml");

fn area(text: &str, name: &str) -> Result<WideArea, Failure> {
    Ok(weir_trace::wide_area::read_from(text.as_bytes(), name)?)
}

/// The default number of seeds.
pub const SEEDS: u64 = 5;

/// The page: Siphon's figures, published and measured, as means over at least two `seeds`.
///
/// # Errors
/// If a replay has no outcome, or a signal stops the work.
pub fn page(trace: &Trace, seeds: u64, running: &Running<'_>) -> Result<String, Failure> {
    let cloud = area(PRIVATE_CLOUD, "examples/wide-area/private-cloud.toml")?;
    let inter = inter::Inter::run(&trace.workload, &cloud, seeds, running.jobs, running.progress)?;
    let five = area(TABLE_1, "examples/wide-area/table-1.toml")?;
    let sort = sort::section(&five, seeds)?;
    let mut out = head(trace, seeds);
    out.push_str(&inter.section());
    out.push_str(&quality::section(&cloud)?);
    out.push_str(&sort);
    Ok(doc::tidy(out))
}

fn head(trace: &Trace, seeds: u64) -> String {
    let options = trace.options();
    let option = if seeds == SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    let mut out = String::from("# Siphon, published and measured\n\n");
    write!(
        out,
        "Made by `weir reproduce siphon {options} --out docs/results/siphon.md{option}`. The paper is Liu, Chen and Li, \"Siphon: \
         Expediting Inter-Datacenter Coflows in Wide-Area Data Analytics\", ATC '18. Its numbers are quoted with the place where they \
         stand; every other number was computed by that one command, and so was every \"yes\" and \"no\" and every sentence that says what \
         comes out.\n\n\
         - Links between regions are all that is short ([the wide-area format](../wide-area-format.md)); a simulator without packets, losses \
         and delays of messages.\n\
         - {seeds} seeds. Numbers are means over them, with the 95 % confidence interval of the mean (Student's t).\n\
         - Not done again: Spark itself (5.1, Table 2, and *Spark* in Fig. 10 to 12). Its disadvantage is single TCP connections over a long way, \
         which a simulator without packets does not have.\n\n"
    )
    .expect("memory takes all");
    out
}
