//! `weir-lab relay-cost`.

mod cases;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use weir_console::interrupt;
use weir_console::table::{Alignment, Table};
use weir_core::units::Time;
use weir_lab::LabError;
use weir_lab::chain::Chain;
use weir_lab::experiment::{Measurement, Times, Variant, measure};
use weir_lab::relays::{Programs, Relay};

use cases::{Case, NamedLoad};
use summary::Cells;

/// Arguments of `weir-lab relay-cost`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir-lab relay-cost
  weir-lab relay-cost --cases saturated --relays weir,haproxy-splice --rounds 5")]
pub struct Args {
    /// The cases to measure; all by default
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    cases: Vec<Case>,

    /// The loads to measure, by the first column of a table; all by default
    #[arg(long, value_name = "LOAD", value_delimiter = ',')]
    loads: Vec<String>,

    /// The relays to measure; all by default
    #[arg(long, value_name = "RELAY", value_delimiter = ',')]
    relays: Vec<Relay>,

    /// The number of rounds, each of which measures every relay once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// The duration of a measurement, without its warm-up
    #[arg(long, value_name = "TIME", default_value = "3s")]
    duration: Time,

    /// The time until the measurement starts; by default 1 s, and 4 s on long paths
    #[arg(long, value_name = "TIME")]
    warm_up: Option<Time>,

    /// The `weir` command that runs Weir's relay; by default the one next to this program
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,

    /// Further arguments of `weir relay run`, such as "--congestion-control cubic"
    #[arg(
        long,
        value_name = "ARGUMENTS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    weir_args: String,
}

/// Measures all cases, and prints a table for each.
pub fn run(args: &Args) -> Result<(), LabError> {
    super::raise_open_files();
    let weir_args = args.weir_args.split_whitespace().map(str::to_owned).collect();
    let programs = Programs { weir: super::weir_path(args.weir.as_deref())?, weir_args };
    let relays = installed(args, &programs);
    let cases = if args.cases.is_empty() { Case::value_variants() } else { &args.cases };
    for &case in cases {
        if case.variants(&relays).is_empty() {
            eprintln!("{}: skipped: none of the relays is measured in this case", case.title());
            continue;
        }
        println!("## {}\n\n{}\n", case.title(), case.explanation());
        let mut table = Table::new(&header(case));
        for (peers, mut loads) in case.networks() {
            loads.retain(|named| args.loads.is_empty() || args.loads.contains(&named.label));
            if loads.is_empty() {
                continue;
            }
            let rounds = measure_rounds(case, peers, &loads, &relays, args, &programs)?;
            add_rows(&mut table, case, &loads, &rounds);
        }
        println!("{table}");
    }
    Ok(())
}

/// The requested relays whose programs are installed. The others are named on the standard error.
fn installed(args: &Args, programs: &Programs) -> Vec<Relay> {
    let requested = if args.relays.is_empty() { Relay::value_variants() } else { &args.relays };
    let is_installed = |relay: &Relay| match relay.missing(programs) {
        None => true,
        Some(reason) => {
            eprintln!("{relay}: skipped: {reason}");
            false
        }
    };
    requested.iter().copied().filter(is_installed).collect()
}

/// The measurements of a variant: for each load, one for each round that succeeded.
struct VariantRounds {
    variant: Variant,
    loads: Vec<Vec<Option<Measurement>>>,
}

/// Measures a case on one network. Variants take turns in each round, so that slow changes of the machine affect all of them.
fn measure_rounds(
    case: Case,
    peers: u8,
    loads: &[NamedLoad],
    relays: &[Relay],
    args: &Args,
    programs: &Programs,
) -> Result<Vec<VariantRounds>, LabError> {
    let chain = Chain::create("relays", &case.link(), peers)?;
    let warm_up = args.warm_up.map_or(case.warm_up(), |time| Duration::from_secs_f64(time.get()));
    let times = Times { warm_up, duration: Duration::from_secs_f64(args.duration.get()) };
    let variants = case.variants(relays).into_iter();
    let mut rounds: Vec<_> =
        variants.map(|variant| VariantRounds { variant, loads: vec![Vec::new(); loads.len()] }).collect();
    for round in 1..=args.rounds {
        for (index, named) in loads.iter().enumerate() {
            for VariantRounds { variant, loads } in &mut rounds {
                if named.load.bulk_flows > variant.relay.max_flows() {
                    loads[index].push(None);
                    continue;
                }
                let congestion = variant.congestion.unwrap_or("own");
                eprintln!("round {round}: {}: {}, {congestion}", named.label, variant.relay);
                let result = measure(&chain, *variant, named.load, times, programs);
                if interrupt::is_requested() {
                    return Err(LabError::Interrupted);
                }
                let failed = |error: &LabError| eprintln!("  failed: {error}");
                loads[index].push(result.inspect_err(failed).ok());
            }
        }
    }
    Ok(rounds)
}

fn header(case: Case) -> Vec<(&'static str, Alignment)> {
    let text = [case.load_name(), "relay", "TCP"].map(|name| (name, Alignment::Left));
    let figures = case.cells().names().map(|name| (name, Alignment::Right));
    text.into_iter().chain(figures).collect()
}

/// Adds a line for each load and variant.
fn add_rows(table: &mut Table, case: Case, loads: &[NamedLoad], rounds: &[VariantRounds]) {
    let weir_rounds = |index: usize| {
        let rounds = rounds.iter().find(|rounds| rounds.variant.relay == Relay::Weir);
        rounds.map(|rounds| &rounds.loads[index][..]).unwrap_or_default()
    };
    for (index, named) in loads.iter().enumerate() {
        for VariantRounds { variant, loads } in rounds {
            let mut line = vec![
                named.label.clone(),
                variant.relay.to_string(),
                variant.congestion.unwrap_or("own").to_owned(),
            ];
            line.extend(case.cells().values(&loads[index], weir_rounds(index)));
            table.add_row(line);
        }
    }
}
