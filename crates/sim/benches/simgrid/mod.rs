//! Compares `fair` with SimGrid's fluid model, which computes max-min rates of the same flows over the same links.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use weir_core::model::{TopologyTemplate, Trunks, Workload};
use weir_core::policy;
use weir_core::units::{Rate, Time};
use weir_sim::{NetworkModel, NoObserver, ReplayOptions, replay};
use weir_trace::TraceOptions;

use super::{Result, SEED, Table, fastest, format_significant, read_or_generate_workload, strings};

/// SimGrid counts whole bytes. Sizes and capacities are multiplied by this factor, which keeps all times.
const SCALE: f64 = 1024.0;

/// The fluid model alone: no latency, no overhead of packets, no limit by the window of TCP, no effect of acknowledgements.
const MODEL: [&str; 5] = [
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/crosstraffic:0",
    "--cfg=maxmin/precision:1e-9",
    "--log=root.thresh:error",
];

pub fn print_table() -> Result<()> {
    println!("## Comparison with SimGrid\n");
    let Some(program) = compile()? else {
        println!("SimGrid is not installed (Debian: `libsimgrid-dev`): not measured.\n");
        return Ok(());
    };
    println!(
        "The same flows over the same links under `fair`, and in SimGrid's fluid model (`crates/sim/benches/simgrid`). Processor seconds \
         of the simulation, without reading. The last column is the maximum relative difference in a coflow's completion time.\n"
    );
    let mut table =
        Table::new(&["workload and network", "flows", "SimGrid (s)", "Weir (s)", "ratio", "difference"]);
    for (name, workload, trunks) in cases()? {
        eprintln!("SimGrid: {name}");
        let (simgrid_seconds, expected) = run_simgrid(&program, &input(&workload, trunks.as_ref()))?;
        let options = ReplayOptions {
            interval: Time::ZERO,
            network: NetworkModel { trunks: trunks.map(Arc::new), ..NetworkModel::default() },
            ..ReplayOptions::default()
        };
        let fair = || {
            replay(&workload, policy::build("fair").expect("the policy exists"), &options, &mut NoObserver)
        };
        let (weir_seconds, outcome) = fastest(5, fair);
        let ccts = outcome?.ccts();
        let differences = ccts.iter().zip(&expected).map(|(a, b)| (a - b).abs() / b.max(1e-9));
        table.line(strings(&[
            &name,
            &workload.flow_count(),
            &format_significant(simgrid_seconds),
            &format_significant(weir_seconds),
            &format_significant(simgrid_seconds / weir_seconds),
            &format!("{:.0e}", differences.fold(0.0, f64::max)),
        ]));
    }
    table.print();
    Ok(())
}

type Case = (String, Workload, Option<Trunks>);

/// The demo trace and the first coflows of the public trace, on one switch and over leaves and spines.
fn cases() -> Result<Vec<Case>> {
    let demo_file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.txt");
    let demo = weir_trace::read(&demo_file, &TraceOptions::default())?.workload;
    let public = read_or_generate_workload()?;
    let first = |count: usize| Workload { coflows: public.coflows[..count].to_vec(), ..public.clone() };
    let fabric = |leaves, hosts, spines, oversubscription| {
        let template =
            TopologyTemplate::LeafSpine { leaves, hosts, spines, oversubscription, rate: Rate::GBIT };
        Ok::<_, Box<dyn std::error::Error>>(Some(Trunks::new(template.build()?, SEED)?))
    };
    Ok(vec![
        ("demo, one switch".to_owned(), demo.clone(), None),
        ("100 coflows, one switch".to_owned(), first(100), None),
        ("demo, 5 x 10 hosts, one spine, 4:1".to_owned(), demo, fabric(5, 10, 1, 4.0)?),
        ("100 coflows, 10 x 15 hosts, one spine, 3:1".to_owned(), first(100), fabric(10, 15, 1, 3.0)?),
        ("100 coflows, 10 x 15 hosts, 4 spines, 3:1".to_owned(), first(100), fabric(10, 15, 4, 3.0)?),
    ])
}

/// Compiles the program against SimGrid. Returns `None` if SimGrid or a compiler of C++ is missing.
fn compile() -> Result<Option<PathBuf>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/simgrid/fluid.cpp");
    let program = std::env::current_exe()?.with_file_name("simgrid-fluid");
    let probe = Command::new("c++")
        .args(["-std=c++17", "-include", "simgrid/s4u.hpp", "-fsyntax-only", "-x", "c++", "/dev/null"])
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let status = Command::new("c++")
        .args(["-std=c++17", "-O2"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-lsimgrid")
        .status()?;
    if status.success() { Ok(Some(program)) } else { Err("fluid.cpp did not compile".into()) }
}

/// The input of the program: links, routes and coflows. Links are the sending ports, the receiving ports and the trunks.
fn input(workload: &Workload, trunks: Option<&Trunks>) -> String {
    let ports = workload.ports as usize;
    let mut trunks = trunks.cloned();
    let (port_rates, trunk_rates) = match &trunks {
        Some(trunks) => (
            trunks.port_rates()[..ports].iter().map(|rate| rate.get()).collect(),
            trunks.capacities().to_vec(),
        ),
        None => (vec![ReplayOptions::default().port_rate.get(); ports], Vec::new()),
    };
    let mut links_of_paths: BTreeMap<(u32, u32), Vec<Vec<u32>>> = BTreeMap::new();
    let (mut coflows, mut path) = (String::new(), Vec::new());
    for (index, coflow) in workload.coflows.iter().enumerate() {
        let _ = write!(coflows, "\n{} {}", coflow.arrival.get(), coflow.flows.len());
        for (position, flow) in coflow.flows.iter().enumerate() {
            if let Some(trunks) = &mut trunks {
                trunks.compute_path(flow.src, flow.dst, index, position as u32, &mut path);
            }
            let paths = links_of_paths.entry((flow.src, flow.dst)).or_default();
            let number = paths.iter().position(|other| *other == path).unwrap_or_else(|| {
                paths.push(path.clone());
                paths.len() - 1
            });
            let _ = write!(coflows, " {} {} {number} {}", flow.src, flow.dst, flow.bytes.get() * SCALE);
        }
    }
    let mut out = format!("{}", 2 * ports + trunk_rates.len());
    let capacities = port_rates.iter().chain(&port_rates).chain(&trunk_rates);
    capacities.for_each(|rate| out += &format!(" {}", rate * SCALE));
    let max_paths = links_of_paths.values().map(Vec::len).max().unwrap_or(1);
    let routes: usize = links_of_paths.values().map(Vec::len).sum();
    let _ = write!(out, "\n{ports} {max_paths}\n{routes}");
    for ((src, dst), paths) in &links_of_paths {
        for (number, path) in paths.iter().enumerate() {
            let _ = write!(out, "\n{src} {dst} {number} {} {src} {}", path.len() + 2, ports + *dst as usize);
            path.iter().for_each(|&trunk| out += &format!(" {}", 2 * ports + trunk as usize));
        }
    }
    let _ = write!(out, "\n{}{coflows}\n", workload.coflows.len());
    out
}

/// Runs the program. Returns its processor seconds and the completion times of coflows.
fn run_simgrid(program: &Path, input: &str) -> Result<(f64, Vec<f64>)> {
    let mut child = Command::new(program).args(MODEL).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("its input was piped")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("SimGrid ended with {}", output.status).into());
    }
    let mut numbers = std::str::from_utf8(&output.stdout)?.lines().map(str::parse);
    let seconds = numbers.next().ok_or("SimGrid printed nothing")??;
    Ok((seconds, numbers.collect::<std::result::Result<_, _>>()?))
}
