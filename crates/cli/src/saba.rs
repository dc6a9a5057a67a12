//! Runs `weir saba`: profiles simulated workloads, and computes weights at one port.

use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile};
use weir_console::record::Record;
use weir_console::table::{Alignment, Table, format_number, format_whole_percent};
use weir_core::saba::Sensitivity;
use weir_core::saba::app_weights::AppWeights;
use weir_core::saba::controller::AppId;
use weir_core::solve::polynomial::Polynomial;
use weir_core::solve::separable::SeparableSolver;
use weir_sim::jobs::workload::Workload;
use weir_trace::sensitivity::{self, ImplausibleModel, ProfiledApplication, SensitivityTable};

use crate::args;
use crate::render;

/// Runs `weir saba`.
pub fn saba(args: &args::Saba) -> Result<(), Failure> {
    match args {
        args::Saba::Profile(args) => profile_workloads(args),
        args::Saba::Weights(args) => compute_weights(args),
        args::Saba::Run { .. } => Err(Failure::input(
            "weir saba run: expected `weir compare JOBS --policies fair,pfp,sincronia,saba`, which replays jobs under any policy",
        )),
    }
}

fn profile_workloads(args: &args::SabaProfile) -> Result<(), Failure> {
    let all = Workload::all();
    let selected = select_workloads(&all, &args.workload)?;
    let file = args.out.as_deref().map(OutputFile::create).transpose()?;
    let profiled: Result<Vec<ProfiledApplication>, Failure> =
        selected.into_iter().map(profile_workload).collect();
    let profiled = profiled?;
    let degree = usize::from(args.degree);
    if let Some(mut file) = file {
        let rows = profiled.iter().map(|p| p.row(degree)).collect();
        let table = SensitivityTable::new(rows).map_err(Failure::runtime)?;
        table.write(&mut file).map_err(|error| file.failure(&error))?;
        file.finish()?;
    }
    let table = || table(&profiled, degree);
    Ok(output::print(render::list(args.format, table, || records(&profiled, degree)))?)
}

fn profile_workload(workload: &Workload) -> Result<ProfiledApplication, Failure> {
    let profile =
        workload.profile().map_err(|error| Failure::runtime(format_args!("{}: {error}", workload.name)))?;
    ProfiledApplication::new(workload.name, profile).map_err(Failure::runtime)
}

/// The workloads with the given names without duplicates, in the order of Table 1.
fn select_workloads<'a>(all: &'a [Workload], names: &[String]) -> Result<Vec<&'a Workload>, Failure> {
    let known: Vec<&str> = all.iter().map(|workload| workload.name).collect();
    if let Some(name) = names.iter().find(|name| *name != "all" && !known.contains(&name.as_str())) {
        let known = known.join(", ");
        return Err(Failure::input(format!(
            "--workload: `{name}` is unknown; expected all or some of {known}"
        )));
    }
    let is_selected = |workload: &&Workload| names.iter().any(|name| name == "all" || name == workload.name);
    Ok(all.iter().filter(is_selected).collect())
}

/// The properties of a slowdown that a model lacks, as text; empty if it has both.
pub fn missing_properties(sensitivity: &Sensitivity) -> &'static str {
    let shape = sensitivity.shape();
    match (shape.is_decreasing, shape.is_convex) {
        (true, true) => "",
        (true, false) => "not convex",
        (false, true) => "rises",
        (false, false) => "rises, not convex",
    }
}

/// A record for each profile, with the models of this degree.
pub fn records(profiled: &[ProfiledApplication], degree: usize) -> Vec<Record> {
    let record = |p: &ProfiledApplication| {
        let mut r = Record::default();
        r.add("workload", p.name.as_str());
        for sample in p.profile().runs() {
            r.add_named(format!("slowdown_{}", sample.bandwidth.get()), sample.slowdown);
        }
        for (fit, degree) in p.fits.iter().zip(1..) {
            r.add_named(format!("r2_k{degree}"), fit.r2);
        }
        let fit = &p.fits[degree - 1];
        for (c, power) in fit.sensitivity.model().coefficients().iter().zip(0..) {
            r.add_named(format!("c{power}"), *c);
        }
        r.add("is_decreasing", fit.sensitivity.shape().is_decreasing);
        r.add("convex", fit.sensitivity.shape().is_convex);
        r
    };
    profiled.iter().map(record).collect()
}

fn table(profiled: &[ProfiledApplication], degree: usize) -> String {
    let samples = profiled.first().map_or(&[][..], |p| p.profile().runs());
    let bandwidths: Vec<String> = samples.iter().map(|s| format_whole_percent(s.bandwidth.get())).collect();
    let mut columns = vec![("workload", Alignment::Left)];
    columns.extend(bandwidths.iter().map(|b| (b.as_str(), Alignment::Right)));
    columns.extend(["R^2 k=1", "k=2", "k=3"].map(|name| (name, Alignment::Right)));
    let properties_head = format!("the model of degree {degree}");
    columns.push((&properties_head, Alignment::Left));
    let mut table = Table::new(&columns);
    for p in profiled {
        let mut line = vec![p.name.clone()];
        line.extend(p.profile().runs().iter().map(|s| format_number(s.slowdown)));
        line.extend(p.fits.iter().map(|fit| format_number(fit.r2)));
        line.push(missing_properties(&p.fits[degree - 1].sensitivity).to_owned());
        table.add_row(line);
    }
    format!("Slowdowns of simulated workloads on 8 servers, by the fraction of the bandwidth:\n\n{table}")
}

/// An application at the port: name, weight, and the slowdown that its model predicts.
type WeightedApplication = (String, f64, f64);

fn compute_weights(args: &args::SabaWeights) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.table)?;
    let table = sensitivity::read(&args.table)?;
    let mut models: Vec<Polynomial> = Vec::with_capacity(args.apps.len());
    for name in &args.apps {
        let index = table.position(name).ok_or_else(|| {
            let known: Vec<&str> = table.rows().iter().map(|row| row.name.as_str()).collect();
            let known = known.join(", ");
            Failure::input(format!(
                "--apps: `{name}` is not in the table; expected names in {}: {known}",
                args.table.display()
            ))
        })?;
        models.push(*table.rows()[index].sensitivity.model());
    }
    let apps: Vec<AppId> = (0..models.len() as u64).map(AppId).collect();
    let args::SabaWeightOptions { c_saba, floor } = args.weight_options;
    let shares = AppWeights::solve(&mut SeparableSolver::default(), &apps, &models, c_saba, floor);
    let weighted: Vec<WeightedApplication> = args
        .apps
        .iter()
        .zip(&models)
        .zip(&shares.weights)
        .map(|((name, model), &(_, weight))| (name.clone(), weight, model.evaluate(weight)))
        .collect();
    let mut concerns = table.implausible_models();
    concerns.retain(|concern| args.apps.contains(&concern.name));
    sink.write_text(render::list(
        args.output.format,
        || weights_table(&weighted, &shares, args.weight_options, &concerns),
        || weights_records(&weighted, &shares),
    ))
}

fn weights_records(weighted: &[WeightedApplication], shares: &AppWeights) -> Vec<Record> {
    let record = |(name, weight, slowdown): &WeightedApplication| {
        let mut r = Record::default();
        r.add("application", name.clone());
        let bound = shares.total_slowdown - shares.optimality_gap;
        r.add_all(["weight", "slowdown", "sum", "bound"], [*weight, *slowdown, shares.total_slowdown, bound]);
        r
    };
    weighted.iter().map(record).collect()
}

fn weights_table(
    weighted: &[WeightedApplication],
    shares: &AppWeights,
    args: args::SabaWeightOptions,
    concerns: &[ImplausibleModel],
) -> String {
    let columns = [
        ("application", Alignment::Left),
        ("weight", Alignment::Right),
        ("predicted slowdown", Alignment::Right),
    ];
    let mut table = Table::new(&columns);
    for (name, weight, slowdown) in weighted {
        table.add_row(vec![name.clone(), format_number(*weight), format_number(*slowdown)]);
    }
    let sum: f64 = weighted.iter().map(|(_, weight, _)| weight).sum();
    table.add_row(vec!["sum".to_owned(), format_number(sum), format_number(shares.total_slowdown)]);
    let bound = format_number(shares.total_slowdown - shares.optimality_gap);
    let (c_saba, floor) = (format_number(args.c_saba.get()), format_number(args.floor.get()));
    let mut out = format!(
        "{table}\nC_saba is {c_saba}. No weights of at least {floor} of an even share each have a sum of slowdowns below {bound}.\n"
    );
    if !concerns.is_empty() {
        out += "\nEq. 2 uses models unmodified, although no real slowdown has these shapes:\n\n";
    }
    out.extend(concerns.iter().map(|concern| format!("{concern}\n")));
    if weighted.iter().any(|(_, _, slowdown)| *slowdown < 1.0) {
        out += "\nA slowdown below 1 is the model's error: a polynomial fitted to runs need not be 1 at full bandwidth, nor\n\
                at least 1 below. Weights are computed from the unmodified models.\n";
    }
    out
}
