//! `weir reproduce`: writes the page of a paper's evaluation.

use std::path::Path;

use weir_console::failure::Failure;
use weir_console::output::{self, Sink};
use weir_console::progress::Progress;
use weir_papers::{Running, Trace, composition, django, netshare, saath, saba, siphon};

use crate::args;
use crate::source::limits;

/// Runs `weir reproduce`.
pub fn reproduce(args: &args::Reproduce) -> Result<(), Failure> {
    match args {
        args::Reproduce::Saath(args) => {
            let options = saath::Options {
                port_rate: args.port_rate,
                interval: args.interval,
                timing: !args.no_timing,
            };
            replayed(&args.replayed, &args.page, |trace, running| saath::page(trace, &options, running))
        }
        args::Reproduce::Netshare(args) => page(&args.page, |running| netshare::page(args.seeds, running)),
        args::Reproduce::Saba(args) => {
            let options = saba::Options { setups: args.setups, seed: args.seed, timing: !args.no_timing };
            page(&args.page, |running| saba::page(&options, running))
        }
        args::Reproduce::Siphon(args) => {
            replayed(&args.replayed, &args.page, |trace, running| siphon::page(trace, args.seeds, running))
        }
        args::Reproduce::Django(args) => replayed(&args.replayed, &args.page, |trace, running| {
            django::page(trace, args.seeds, !args.no_timing, running)
        }),
        args::Reproduce::Composition(args) => {
            page(&args.page, |running| composition::page(args.seeds, running))
        }
        #[cfg(all(feature = "live", target_os = "linux"))]
        args::Reproduce::Live(args) => live(args),
    }
}

/// Writes a page.
fn page(
    args: &args::Page,
    make: impl FnOnce(&Running<'_>) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let sink = Sink::new(args.out.as_deref())?;
    let progress = Progress::new(args.running.quiet);
    let running = Running { jobs: args.running.jobs, progress: &progress };
    sink.fill(make(&running)?.as_bytes())
}

/// Writes the page of an evaluation that replays a trace.
fn replayed(
    args: &args::Replayed,
    out: &args::Page,
    make: impl FnOnce(&Trace, &Running<'_>) -> Result<String, Failure>,
) -> Result<(), Failure> {
    output::check_distinct(&args.trace, &[("--out", out.out.as_deref())])?;
    let read = weir_trace::read(&args.trace, args.reading.trace_unit, &limits(&args.reading))?;
    let trace =
        Trace { name: file_name(&args.trace), workload: read.workload, unit: args.reading.trace_unit };
    page(out, |running| make(&trace, running))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(all(feature = "live", target_os = "linux"))]
fn live(args: &args::LiveReproduction) -> Result<(), Failure> {
    use weir_papers::live;
    let sink = Sink::new(args.out.as_deref())?;
    let mut only = live::Experiment::ALL.to_vec();
    only.retain(|one| args.only.is_empty() || args.only.contains(one));
    let options =
        live::Options { only, phase: args.phase, coflows: args.coflows as usize, bed: args.bed.name.clone() };
    sink.fill(live::page(&options, &Progress::new(args.quiet))?.as_bytes())
}
