//! Writes the page of `weir reproduce django`: Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent
//! connections", JPDC '21.
//!
//! The paper:
//!
//! - shows that a coflow has a best number of connections (2.3, Fig. 2);
//! - predicts the buffer of a switch from the loss at the switch (6.2, Fig. 4);
//! - compares Django with DCTCP on a testbed of seven servers (6.3, Table 2);
//! - compares Django with Aalo+ and DCTCP in ns-3 on the Facebook trace: basic performance (Fig. 5), buffers, reducers, load
//!   and hosts (Fig. 6 to 9), running time (Fig. 10) and parameters (Fig. 11).
//!
//! The page reproduces all of these figures. Those of coflows are from the fluid simulator, in which concurrent connections
//! reduce the capacity of a receiving port as measured with real TCP. Fig. 4 uses the measured losses.
//!
//! The default setup uses measurements of steady connections, which start at different times. `live` measures the same policies.

mod connections;
mod figures;
#[cfg(all(feature = "live", target_os = "linux"))]
pub mod live;
mod prediction;
mod random_pulls;
mod replays;
mod setup;
mod timings;

use weir_console::chart::Scale;
use weir_trace::incast::IncastMeasurements;

use crate::claim::{Claim, claims_table, count_same, find};
use crate::picture::{Pictures, published_next_to_measured};
use crate::{Page, RunContext, Trace, markdown};
use weir_console::failure::Failure;
use weir_console::table::format_bytes;

use prediction::Prediction;
use replays::{AALO, DCTCP, Inputs, Replays, STRICT_AALO, Summary};
use setup::DEFAULT;
use timings::PredictorTimes;

const PLAIN_CSV: &str = include_str!("../../../examples/incast/cost-512kB.csv");
const MARKED_CSV: &str = include_str!("../../../examples/incast/cost-512kB-marks.csv");
const SMALL_CSV: &str = include_str!("../../../examples/incast/cost-64kB-marks.csv");
const STEADY_CSV: &str = include_str!("../../../examples/incast/steady-dctcp.csv");

/// The default number of draws of the coflow of Fig. 2.
pub const DEFAULT_SEEDS: u64 = 10;

/// The page: Django's figures, published and measured. `seeds` coflows are drawn for Fig. 2. `timing` adds the section of
/// processor times, which differ from run to run.
///
/// # Errors
/// If all coflows of the trace arrive at 0 s, a replay fails, or a signal stops the work.
pub fn page(trace: &Trace, seeds: u64, timing: bool, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let replays = Replays::new(inputs(trace)?);
    let records = prediction::records()?;
    let (fig4, few_records, accuracies) = prediction::fig4(&records, run_context.progress)?;
    let predictions = prediction::predictions(&records, replays.inputs.threshold())?;
    let times = timing.then(|| PredictorTimes::measure(&records)).transpose()?;
    let write = || {
        let mut pictures = Pictures::new("django");
        let fig4 = fig4.clone() + &prediction::picture(&accuracies, &mut pictures);
        let (claims, figures) =
            figures_with_claims(&replays, seeds, &fig4, &predictions, few_records.clone(), &mut pictures);
        let mut out = head(trace, seeds);
        out.push_str(&summary(&claims, &replays));
        out.push_str(&conditions(trace, &replays));
        out.push_str(&figures);
        out.push_str(&figures::assumptions(&replays));
        if let Some(times) = &times {
            out.push_str(&timings::section(&replays, times));
        }
        pictures.finish(markdown::collapse_blank_lines(out))
    };
    // The first pass only collects the required replays. Its page has placeholders and is discarded.
    write();
    replays.run(run_context.jobs, run_context.progress)?;
    Ok(write())
}

/// The inputs of replays. Fails if all coflows of the trace arrive at 0 s: times between coflows are scaled.
fn inputs(trace: &Trace) -> Result<Inputs<'_>, Failure> {
    if !trace.workload.coflows.iter().any(|coflow| coflow.arrival.get() > 0.0) {
        let name = &trace.name;
        return Err(Failure::input(format_args!(
            "{name}: all coflows arrive at 0 s; expected later arrivals"
        )));
    }
    Ok(Inputs {
        trace: &trace.workload,
        plain: read_measurements(PLAIN_CSV, "examples/incast/cost-512kB.csv")?,
        marked: read_measurements(MARKED_CSV, "examples/incast/cost-512kB-marks.csv")?,
        small: read_measurements(SMALL_CSV, "examples/incast/cost-64kB-marks.csv")?,
        steady: read_measurements(STEADY_CSV, "examples/incast/steady-dctcp.csv")?,
    })
}

fn read_measurements(text: &str, name: &str) -> Result<IncastMeasurements, Failure> {
    Ok(weir_trace::incast::read_from(text.as_bytes(), name)?)
}

fn head(trace: &Trace, seeds: u64) -> String {
    let options = trace.options();
    let option = if seeds == DEFAULT_SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    format!(
        "# Django, published and measured\n\n\
         Made by `weir reproduce django {options} --out docs/results/django.md{option}`. The paper is Zheng et al., \
         \"Django: Bilateral coflow scheduling with predictive concurrent connections\", JPDC '21. The page quotes every \
         published figure with its place; the command computes every other figure.\n\n"
    )
}

fn summary(claims: &[Claim], replays: &Replays<'_>) -> String {
    let (same, figures) = count_same(claims);
    let ratio = |subject: &str| find(claims, subject).measured_and_published();
    let [django, weighted, strict, _] = replays.compare_policies(DEFAULT);
    let ratio_to =
        |rival: &Summary, value: fn(&Summary) -> f64| markdown::format_cell(value(&django) / value(rival));
    let weighted_ratio = |value| ratio_to(&weighted, value);
    let strict_ratio = |value| ratio_to(&strict, value);
    format!(
        "## Summary\n\n\
         - **Differs**: the best number of connections (Fig. 2) is {}, and buffers hardly matter (Fig. 6). The reason: steady connections under DCTCP reduce the goodput by at most {} %, so many of them cost little. \
         [Those that start together](#assumptions) cost more.\n\
         - Reproduced by simulation, with measured costs of connections: the prediction of buffers (Fig. 4), CCTs (Fig. 5), \
         reducers, load and hosts (Fig. 7 to 9), parameters (Fig. 11), and seven servers (Table 2).\n\
         - Within 10 % of the published figures: {same} of {figures}. The mean CCT under Django, divided by that under Aalo+, is \
         {}; divided by that under DCTCP, it is {}. The smallest coflows take longer under Django, which opens connections at \
         intervals: P10 is {} s, and {} s under Aalo+.\n\
         - Aalo+ is sensitive to a choice that the paper does not state. With [strict queues](#aalo-with-strict-queues) at \
         senders, as Django has, the ratio to Aalo+ is {} for the mean and {} for P95, instead of {} and {}.\n\
         - [Assumptions](#assumptions) has the choices that change a result most.\n\
         - Not simulated: packets, and so the queue length of Fig. 2(b). [Django on real traffic](django-live.md) measures queues.\n\n",
        ratio("best number of connections"),
        markdown::format_cell(100.0 * replays.inputs.max_reduction()),
        ratio("mean CCT / Aalo+'s"),
        ratio("mean CCT / DCTCP's"),
        markdown::format_cell(django.percentile(10.0)),
        markdown::format_cell(weighted.percentile(10.0)),
        strict_ratio(Summary::mean),
        strict_ratio(Summary::p95),
        weighted_ratio(Summary::mean),
        weighted_ratio(Summary::p95),
    )
}

fn conditions(trace: &Trace, replays: &Replays<'_>) -> String {
    let workload = DEFAULT.workload(&trace.workload);
    let total: f64 = workload.coflows.iter().map(|coflow| coflow.total_bytes()).sum();
    let flows = workload.flow_count();
    format!(
        "## Conditions\n\n\
         - **Trace**: {} coflows, {flows} flows, {}; a flow has {} on average. Port p of the trace is host p modulo {}, and \
         the ports of a host are separate reducers. A reducer fetches the data of all mappers on one host over one connection. At a load ratio of 1, one coflow arrives \
         per second on average (6.4). Sizes are scaled so that the load of the ports is that of the trace.\n\
         - **Network**: one switch with a buffer of {} packets per port and links of {}, the rate at which costs were \
         measured. Sizes are a tenth of those for the paper's 1 Gbit/s, so transfers take equally long. Policies compute a \
         schedule every 8 ms.\n\
         - **Rivals**: `{DCTCP}`, per-flow max-min, in place of DCTCP; `{AALO}` for Aalo+; `{STRICT_AALO}` for Aalo+ with \
         strict queues (\"Aalo+ strict\").\n\
         - **Cost of connections**: under every policy, concurrent connections reduce the capacity of a receiving port. The \
         reduction was [measured](../incast-format.md) with {} and {} per connection. Connections started one after the other, and a \
         completed one was replaced. More than {} connections were not measured; they cost as much as {}.\n\
         - **Connections**: Django uses q - k connections for each host (theorem 4.1). The buffer holds q packets, and the \
         switch marks from k = {} packets on. The default is {} connections.\n\n",
        workload.coflows.len(),
        format_bytes(total),
        format_bytes(total / flows.max(1) as f64),
        DEFAULT.hosts,
        DEFAULT.buffer_packets,
        DEFAULT.rate(),
        replays.inputs.base(),
        format_bytes(replays.inputs.base().incast.bytes()),
        replays.inputs.max_connections(),
        replays.inputs.max_connections(),
        replays.inputs.threshold(),
        replays.inputs.connections(&DEFAULT),
    )
}

/// The paper's statements, and the sections with their table and the figures.
fn figures_with_claims(
    replays: &Replays<'_>,
    seeds: u64,
    fig4: &str,
    predictions: &[Prediction],
    few_records: Claim,
    pictures: &mut Pictures,
) -> (Vec<Claim>, String) {
    let mut list = Vec::new();
    let fig2 = connections::fig2(replays, seeds, &mut list, pictures);
    list.push(few_records);
    let theorem = prediction::theorem(replays, predictions, &mut list);
    let fig5 = figures::fig5(replays, &mut list, pictures);
    list.extend(figures::claims_6_to_9(replays));
    let fig11 = figures::fig11(replays, &mut list);
    let table2 = figures::table2(replays, &mut list);
    let sections = format!(
        "## Published and measured\n\n{}{}{}{fig2}{fig4}{theorem}{fig5}{}{fig11}{table2}",
        claims_table(&list),
        ratios_picture(&list, pictures),
        figures::strict_aalo(replays),
        figures::fig6_to_9(replays, pictures)
    );
    (list, sections)
}

/// The claims that compare policies: ratios of CCTs, and speedups.
fn ratios_picture(claims: &[Claim], pictures: &mut Pictures) -> String {
    let is_ratio = |claim: &&Claim| claim.subject().contains("speedup") || claim.subject().contains(" / ");
    let rows = claims.iter().filter(is_ratio).filter_map(Claim::to_row).collect();
    pictures.add(
        "published",
        "Ratios of completion times and speedups of Django: published and measured",
        "The ratios and speedups of the table.",
        published_next_to_measured("ratio or speedup", Scale::Log, Some(1.0), rows),
    )
}
