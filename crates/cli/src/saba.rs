//! `weir saba`: Saba's profiler on simulated workloads, its weights at one port, and jobs on a network.

mod run;

use weir_console::failure::Failure;
use weir_console::output::{self, Pending};
use weir_console::record::Record;
use weir_console::table::{Align, Table, number, whole_percent};
use weir_core::saba::Sensitivity;
use weir_core::saba::controller::AppId;
use weir_core::saba::share::Shares;
use weir_core::solve::polynomial::Polynomial;
use weir_core::solve::separable::Solver;
use weir_sim::stage::workload::Workload;
use weir_trace::sensitivity::{self, Concern, Profiled, SensitivityTable};

use crate::args;
use crate::render;

/// Runs `weir saba`.
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
    let table = || table(&profiled, degree);
    Ok(output::print(render::list(args.format, table, || records(&profiled, degree)))?)
}

fn simulated(workload: &Workload) -> Result<Profiled, Failure> {
    let profile =
        workload.profile().map_err(|error| Failure::undone(format_args!("{}: {error}", workload.name)))?;
    Profiled::new(workload.name, profile).map_err(Failure::undone)
}

/// The workloads of these names, each once, in the order of Table 1.
fn choose<'a>(all: &'a [Workload], names: &[String]) -> Result<Vec<&'a Workload>, Failure> {
    let known: Vec<&str> = all.iter().map(|workload| workload.name).collect();
    if let Some(name) = names.iter().find(|name| *name != "all" && !known.contains(&name.as_str())) {
        let known = known.join(", ");
        return Err(Failure::input(format!("--workload: `{name}`: expected all or some of {known}")));
    }
    let is_chosen = |workload: &&Workload| names.iter().any(|name| name == "all" || name == workload.name);
    Ok(all.iter().filter(is_chosen).collect())
}

/// The properties that a model lacks, in words.
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

fn table(profiled: &[Profiled], degree: usize) -> String {
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
    format!("Slowdowns of simulated workloads on 8 servers, by the fraction of the bandwidth:\n\n{table}")
}

/// An application at the port: its name, its weight, and the slowdown that its model predicts.
type Weighed = (String, f64, f64);

fn weights(args: &args::SabaWeights) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.table)?;
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
    let args::SabaShares { c_saba, floor } = args.shares;
    let shares = Shares::of(&mut Solver::default(), &apps, &models, c_saba, floor);
    let weighed: Vec<Weighed> = args
        .apps
        .iter()
        .zip(&models)
        .zip(&shares.apps)
        .map(|((name, model), &(_, weight))| (name.clone(), weight, model.at(weight)))
        .collect();
    let mut concerns = table.concerns();
    concerns.retain(|concern| args.apps.contains(&concern.name));
    sink.fill(render::list(
        args.output.format,
        || weights_table(&weighed, &shares, args.shares, &concerns),
        || weights_records(&weighed, &shares),
    ))
}

fn weights_records(weighed: &[Weighed], shares: &Shares) -> Vec<Record> {
    let record = |(name, weight, slowdown): &Weighed| {
        let mut r = Record::default();
        r.add("application", name.clone());
        let bound = shares.slowdown - shares.gap;
        r.add_all(["weight", "slowdown", "sum", "bound"], [*weight, *slowdown, shares.slowdown, bound]);
        r
    };
    weighed.iter().map(record).collect()
}

fn weights_table(
    weighed: &[Weighed],
    shares: &Shares,
    args: args::SabaShares,
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
    let bound = number(shares.slowdown - shares.gap);
    let (c_saba, floor) = (number(args.c_saba.get()), number(args.floor.get()));
    let mut out = format!(
        "{table}\nC_saba is {c_saba}. No weights of at least {floor} of an even share each have a sum of slowdowns below {bound}.\n"
    );
    if !concerns.is_empty() {
        out += "\nEq. 2 uses models unmodified, although no real slowdown has these shapes:\n\n";
    }
    out.extend(concerns.iter().map(|concern| format!("{concern}\n")));
    if weighed.iter().any(|(_, _, slowdown)| *slowdown < 1.0) {
        out += "\nA slowdown below 1 is the model's error: a polynomial fitted to runs need not be 1 at full bandwidth, nor\n\
                at least 1 below. Weights are computed from the unmodified models.\n";
    }
    out
}
