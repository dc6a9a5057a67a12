//! `weir saba`: Saba's profiler on simulated workloads, its weights at one port, and jobs on a network.

mod run;

use std::collections::BTreeSet;

use weir_core::saba::controller::AppId;
use weir_core::saba::share::Shares;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::Polynomial;
use weir_core::solve::separable::Solver;
use weir_sim::stage::workload::Workload;
use weir_trace::sensitivity::{self, Concern, Profiled, SensitivityTable};

use crate::args::{self, Format};
use weir_console::failure::Failure;
use weir_console::output::{self, Pending, Sink};
use weir_console::record::{self, Record};
use weir_console::table::{Align, Table, number, whole_percent};

/// Runs `weir saba`.
///
/// # Errors
/// Whatever ends it early.
pub fn saba(args: &args::Saba) -> Result<(), Failure> {
    match args {
        args::Saba::Profile(args) => profile(args),
        args::Saba::Weights(args) => weights(args),
        args::Saba::Run(args) => run::run(args),
    }
}

fn profile(args: &args::SabaProfile) -> Result<(), Failure> {
    let all = Workload::all();
    let chosen = choose(&all, &args.workload)?;
    let file = args.out.as_deref().map(Pending::begin).transpose()?;
    let profiled: Result<Vec<Profiled>, Failure> = chosen.into_iter().map(simulated).collect();
    let profiled = profiled?;
    let degree = usize::from(args.degree);
    if let Some(mut file) = file {
        let rows = profiled.iter().map(|p| p.row(degree)).collect();
        let table = SensitivityTable::new(rows).map_err(Failure::undone)?;
        table.write(&mut file).map_err(|error| file.failure(&error))?;
        file.finish()?;
    }
    let text = match args.format {
        Format::Table => text(&profiled, degree).into_bytes(),
        Format::Json => record::json(&records(&profiled, degree)).into_bytes(),
        Format::Csv => record::csv(&records(&profiled, degree)),
    };
    Ok(output::print(&text)?)
}

fn simulated(workload: &Workload) -> Result<Profiled, Failure> {
    let profile =
        workload.profile().map_err(|error| Failure::undone(format_args!("{}: {error}", workload.name)))?;
    Profiled::new(workload.name, profile).map_err(Failure::undone)
}

/// The workloads of these names, each once, in the order of Table 1.
fn choose<'a>(all: &'a [Workload], names: &[String]) -> Result<Vec<&'a Workload>, Failure> {
    let mut wanted = BTreeSet::new();
    for name in names {
        match all.iter().position(|workload| workload.name == name) {
            Some(at) => drop(wanted.insert(at)),
            None if name == "all" => wanted.extend(0..all.len()),
            None => {
                let known: Vec<&str> = all.iter().map(|workload| workload.name).collect();
                let known = known.join(", ");
                return Err(Failure::input(format!("--workload: `{name}`: expected all or some of {known}")));
            }
        }
    }
    Ok(wanted.into_iter().map(|at| &all[at]).collect())
}

/// What a model lacks.
pub fn lacks(sensitivity: &Sensitivity) -> &'static str {
    let shape = sensitivity.shape();
    match (shape.falls, shape.convex) {
        (true, true) => "",
        (true, false) => "not convex",
        (false, true) => "rises",
        (false, false) => "rises, not convex",
    }
}

/// Profiles for programs, with the models of this degree.
pub fn records(profiled: &[Profiled], degree: usize) -> Vec<Record> {
    let record = |p: &Profiled| {
        let mut r = Record::default();
        r.add("workload", p.name.as_str());
        for sample in p.profile().samples() {
            r.add_named(format!("slowdown_{}", sample.bandwidth.get()), sample.slowdown);
        }
        for (fit, degree) in p.fits.iter().zip(1..) {
            r.add_named(format!("r2_k{degree}"), fit.r2);
        }
        let fit = &p.fits[degree - 1];
        for (c, power) in fit.sensitivity.model().coefficients().iter().zip(0..) {
            r.add_named(format!("c{power}"), *c);
        }
        r.add("falls", fit.sensitivity.shape().falls);
        r.add("convex", fit.sensitivity.shape().convex);
        r
    };
    profiled.iter().map(record).collect()
}

fn text(profiled: &[Profiled], degree: usize) -> String {
    let samples = profiled.first().map_or(&[][..], |p| p.profile().samples());
    let bandwidths: Vec<String> = samples.iter().map(|s| whole_percent(s.bandwidth.get())).collect();
    let mut columns = vec![("workload", Align::Left)];
    columns.extend(bandwidths.iter().map(|b| (b.as_str(), Align::Right)));
    columns.extend(["R^2 k=1", "k=2", "k=3"].map(|name| (name, Align::Right)));
    let lacks_head = format!("the model of degree {degree}");
    columns.push((&lacks_head, Align::Left));
    let mut table = Table::new(&columns);
    for p in profiled {
        let mut line = vec![p.name.clone()];
        line.extend(p.profile().samples().iter().map(|s| number(s.slowdown)));
        line.extend(p.fits.iter().map(|fit| number(fit.r2)));
        line.push(lacks(&p.fits[degree - 1].sensitivity).to_owned());
        table.line(line);
    }
    let mut out =
        String::from("Slowdowns with a part of the bandwidth, of simulated workloads on 8 servers:\n\n");
    table.print(&mut out);
    out
}

/// An application at the port: its name, its weight, and the slowdown that its model predicts.
type Weighed = (String, f64, f64);

fn weights(args: &args::SabaWeights) -> Result<(), Failure> {
    output::check_distinct(&args.table, &[("--out", args.output.out.as_deref())])?;
    let table = sensitivity::read(&args.table)?;
    let mut models: Vec<Polynomial> = Vec::with_capacity(args.apps.len());
    for name in &args.apps {
        let at = table.position(name).ok_or_else(|| {
            let known: Vec<&str> = table.rows().iter().map(|row| row.name.as_str()).collect();
            let known = known.join(", ");
            Failure::input(format!("--apps: `{name}`: expected names in {}: {known}", args.table.display()))
        })?;
        models.push(*table.rows()[at].sensitivity.model());
    }
    let apps: Vec<AppId> = (0..models.len() as u64).map(AppId).collect();
    let shares = Shares::of(&mut Solver::default(), &apps, &models, args.c_saba, args.floor);
    let weighed: Vec<Weighed> = args
        .apps
        .iter()
        .zip(&models)
        .zip(&shares.apps)
        .map(|((name, model), &(_, weight))| (name.clone(), weight, model.at(weight)))
        .collect();
    let text = match args.output.format {
        Format::Table => {
            let mut concerns = table.concerns();
            concerns.retain(|concern| args.apps.contains(&concern.name));
            weights_text(&weighed, &shares, (args.c_saba, args.floor), &concerns).into_bytes()
        }
        Format::Json => record::json(&weights_records(&weighed, &shares)).into_bytes(),
        Format::Csv => record::csv(&weights_records(&weighed, &shares)),
    };
    Sink::new(args.output.out.as_deref())?.fill(&text)
}

fn weights_records(weighed: &[Weighed], shares: &Shares) -> Vec<Record> {
    let record = |(name, weight, slowdown): &Weighed| {
        let mut r = Record::default();
        r.add("application", name.clone());
        r.add("weight", *weight);
        r.add("slowdown", *slowdown);
        r.add("sum", shares.slowdown);
        r.add("bound", shares.slowdown - shares.gap);
        r
    };
    weighed.iter().map(record).collect()
}

fn weights_text(
    weighed: &[Weighed],
    shares: &Shares,
    (c_saba, floor): (Fraction, Fraction),
    concerns: &[Concern],
) -> String {
    let columns =
        [("application", Align::Left), ("weight", Align::Right), ("predicted slowdown", Align::Right)];
    let mut table = Table::new(&columns);
    for (name, weight, slowdown) in weighed {
        table.line(vec![name.clone(), number(*weight), number(*slowdown)]);
    }
    let sum: f64 = weighed.iter().map(|(_, weight, _)| weight).sum();
    table.line(vec!["sum".to_owned(), number(sum), number(shares.slowdown)]);
    let mut out = String::new();
    table.print(&mut out);
    let bound = number(shares.slowdown - shares.gap);
    let (all, floor) = (number(c_saba.get()), number(floor.get()));
    out.push_str(&format!("\nC_saba is {all}. No weights of at least {floor} of an even share each have a sum of slowdowns below {bound}.\n"));
    if !concerns.is_empty() {
        out.push_str("\nEq. 2 takes models as they are, also where no slowdown is like that:\n\n");
    }
    concerns.iter().for_each(|concern| out.push_str(&format!("{concern}\n")));
    if weighed.iter().any(|(_, _, slowdown)| *slowdown < 1.0) {
        out.push_str(
            "\nA slowdown below 1 is the model's error: a polynomial through the runs need not be 1 with all of the bandwidth, nor\n\
             at least 1 before. Weights are found with the models as they are.\n",
        );
    }
    out
}
