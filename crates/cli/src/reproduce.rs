//! Runs `weir reproduce`: repeats a paper's evaluation, and writes its page with its pictures.

use std::fs;
use std::path::Path;

use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile, ResultDestination};
use weir_console::progress::Progress;
use weir_papers::{
    PICTURE_FOLDER, Page, RunContext, Trace, composition, django, fabrics, netshare, own_policy, saath, saba,
    siphon,
};

use crate::args;

/// Runs `weir reproduce`.
pub fn reproduce(args: &args::Reproduce) -> Result<(), Failure> {
    match args {
        args::Reproduce::Saath(args) => {
            let options = saath::Options {
                port_rate: args.port_rate,
                interval: args.interval,
                seeds: args.seeds,
                timing: !args.no_timing,
            };
            write_replay_page(
                &args.input.trace,
                &args.input.read_options,
                &args.page_options,
                |trace, run_context| saath::page(trace, &options, run_context),
            )
        }
        args::Reproduce::Netshare(args) => {
            write_page(&args.page_options, |run_context| netshare::page(args.seeds, run_context))
        }
        args::Reproduce::Saba(args) => {
            let options = saba::Options { setups: args.setups, seed: args.seed, timing: !args.no_timing };
            write_page(&args.page_options, |run_context| saba::page(&options, run_context))
        }
        args::Reproduce::Siphon(args) => write_replay_page(
            &args.input.trace,
            &args.input.read_options,
            &args.page_options,
            |trace, run_context| siphon::page(trace, args.seeds, run_context),
        ),
        args::Reproduce::Django(args) => write_replay_page(
            &args.input.trace,
            &args.input.read_options,
            &args.page_options,
            |trace, run_context| django::page(trace, args.seeds, !args.no_timing, run_context),
        ),
        args::Reproduce::Composition(args) => {
            write_page(&args.page_options, |run_context| composition::page(args.seeds, run_context))
        }
        args::Reproduce::Fabrics(args) => {
            write_page(&args.page_options, |run_context| fabrics::page(args.seeds, run_context))
        }
        args::Reproduce::Weir(args) => write_weir_page(args),
        #[cfg(all(feature = "live", target_os = "linux"))]
        args::Reproduce::Live(args) => write_live_page(args),
        #[cfg(all(feature = "live", target_os = "linux"))]
        args::Reproduce::DjangoLive(args) => write_django_live_page(args),
    }
}

/// Builds a page, and writes it to a file with its pictures next to it, or without pictures to the standard output or a device.
fn write_page(
    args: &args::PageOptions,
    build: impl FnOnce(&RunContext<'_>) -> Result<Page, Failure>,
) -> Result<(), Failure> {
    if let Some(out) = args.out.as_deref().filter(|out| out.ends_with(PICTURE_FOLDER)) {
        let name = out.display();
        return Err(Failure::input(format_args!(
            "--out: `{name}` is the folder of pictures; expected another name"
        )));
    }
    let sink = ResultDestination::new(args.out.as_deref())?;
    let progress = Progress::new(args.run_options.quiet);
    let run_context = RunContext { jobs: args.run_options.jobs, progress: &progress };
    let page = build(&run_context)?;
    match args.out.as_deref().filter(|path| !output::is_device(path)) {
        Some(path) => {
            // Pictures first, so that a complete page refers to complete pictures.
            write_pictures(path, &page)?;
            sink.write_text(page.text)
        }
        None => sink.write_text(page.text_without_pictures()),
    }
}

/// Writes the pictures of the page `path` to a folder next to it.
fn write_pictures(path: &Path, page: &Page) -> Result<(), Failure> {
    if page.pictures.is_empty() {
        return Ok(());
    }
    let folder = path.with_file_name(PICTURE_FOLDER);
    fs::create_dir_all(&folder).map_err(|error| Failure::output(&folder, &error))?;
    for picture in &page.pictures {
        OutputFile::create(&folder.join(&picture.file_name))?.write_and_finish(&picture.svg)?;
    }
    Ok(())
}

/// Writes the page of Weir's own policy. The trace is optional, since parts of the page need none.
fn write_weir_page(args: &args::WeirReproduction) -> Result<(), Failure> {
    let options =
        own_policy::Options { seeds: args.seeds, first_seed: args.first_seed, only: args.only.clone() };
    let page = &args.page_options;
    match &args.trace {
        _ if args.priors => write_page(page, |run_context| own_policy::priors_page(&options, run_context)),
        None => write_page(page, |run_context| own_policy::page(&options, None, run_context)),
        Some(trace) => write_replay_page(trace, &args.read_options, page, |trace, run_context| {
            own_policy::page(&options, Some(trace), run_context)
        }),
    }
}

/// Writes the page of an evaluation that replays a trace.
fn write_replay_page(
    path: &Path,
    options: &args::ReadOptions,
    page: &args::PageOptions,
    build: impl FnOnce(&Trace, &RunContext<'_>) -> Result<Page, Failure>,
) -> Result<(), Failure> {
    output::check_distinct(path, &[("--out", page.out.as_deref())])?;
    let trace = read_trace(path, options)?;
    write_page(page, |run_context| build(&trace, run_context))
}

fn read_trace(path: &Path, options: &args::ReadOptions) -> Result<Trace, Failure> {
    let options = options.trace_options(None);
    let read = weir_trace::read(path, &options)?;
    Ok(Trace { name: file_name(path), workload: read.workload, unit: options.unit })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(all(feature = "live", target_os = "linux"))]
fn write_live_page(args: &args::LiveReproduction) -> Result<(), Failure> {
    use weir_papers::live;
    let sink = ResultDestination::new(args.out.as_deref())?;
    let mut experiments = live::Experiment::ALL.to_vec();
    experiments.retain(|experiment| args.only.is_empty() || args.only.contains(experiment));
    let options = live::Options {
        experiments,
        phase: args.phase,
        coflows: args.coflows as usize,
        volume: args.volume,
        bed: args.testbed.name.clone(),
    };
    sink.write_text(live::page(&options, &Progress::new(args.quiet))?.as_bytes())
}

#[cfg(all(feature = "live", target_os = "linux"))]
fn write_django_live_page(args: &args::DjangoLiveReproduction) -> Result<(), Failure> {
    let trace = read_trace(&args.input.trace, &args.input.read_options)?;
    output::check_distinct(&args.input.trace, &[("--out", args.out.as_deref())])?;
    let sink = ResultDestination::new(args.out.as_deref())?;
    let options = django::live::Options { coflows: args.coflows as usize, bed: args.testbed.name.clone() };
    sink.write_text(django::live::page(&trace, &options, &Progress::new(args.quiet))?.as_bytes())
}
