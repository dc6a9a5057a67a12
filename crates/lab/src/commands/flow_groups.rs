//! `weir-lab flow-groups`: the case in which the order of flow groups matters (Siphon, ATC '18, Fig. 3 to 5), with real traffic.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use weir_core::model::WideArea;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::units::{Rate, Time};
use weir_lab::LabError;
use weir_lab::coflows::{PlannedCoflow, PlannedFlow, replay};
use weir_lab::overlay::Overlay;
use weir_lab::regions::{Distance, Regions, RegionsSettings};

use super::coflows::{SEGMENT_BYTES, raise_priority};
use super::regions::duration;

/// The datacenter with both reduce tasks; the others send to it.
const RECEIVING: usize = 1;

/// The flows of Fig. 3: the sending datacenter, the flow group, and the units of time that its data takes on a link.
const FLOWS: [(usize, u8, f64); 6] =
    [(0, 1, 1.5), (0, 1, 1.5), (0, 2, 1.0), (0, 2, 1.0), (2, 1, 1.0), (2, 2, 1.0)];

/// The time from the start of the overlay to the arrival of the coflow.
const FIRST_ARRIVAL: Duration = Duration::from_millis(500);

/// Arguments of `weir-lab flow-groups`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir-lab flow-groups
  weir-lab flow-groups --unit 1s --rounds 1")]
pub struct Args {
    /// The rate of each link
    #[arg(long, value_name = "RATE", default_value = "40Mbit")]
    rate: Rate,

    /// The time that stands for the paper's unit of time, in which a link carries 50 MB
    #[arg(long, value_name = "TIME", default_value = "4s")]
    unit: Time,

    /// The number of measurements of each order
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// The `weir` command that runs the coordinator and the relays; by default the one next to this program
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
}

/// An order of both flow groups.
struct Order {
    name: &'static str,
    policy: &'static str,
    /// Whether the framework registers the sizes of both groups exchanged, so that the smaller one is first.
    is_exchanged: bool,
    /// When the groups complete if links have no delay.
    computed: [f64; 2],
    /// The figure with its completion time of the job.
    published: &'static str,
}

const ORDERS: [Order; 3] = [
    Order {
        name: "largest group first",
        policy: "siphon:groups=on",
        is_exchanged: false,
        computed: [3.0, 5.0],
        published: "8 (Fig. 4)",
    },
    Order {
        name: "smallest group first",
        policy: "siphon:groups=on",
        is_exchanged: true,
        computed: [5.0, 2.0],
        published: "9 (Fig. 5)",
    },
    Order { name: "no order", policy: "fair", is_exchanged: false, computed: [5.0, 4.0], published: "-" },
];

/// Measures each order, and prints a section of Markdown.
pub fn run(args: &Args) -> Result<(), LabError> {
    super::raise_open_files();
    raise_priority();
    let mut sums = [[0.0; 2]; ORDERS.len()];
    for round in 1..=args.rounds {
        for (order, sum) in ORDERS.iter().zip(&mut sums) {
            let ends = measure(args, order)?;
            eprintln!("round {round} of {}, {}: groups complete at {ends:.2?}", args.rounds, order.name);
            sum.iter_mut().zip(ends).for_each(|(sum, end)| *sum += end);
        }
    }
    print!("{}", section(args, &sums.map(|sum| sum.map(|end| end / f64::from(args.rounds)))));
    Ok(())
}

/// When both groups complete, in units of time.
fn measure(args: &Args, order: &Order) -> Result<[f64; 2], LabError> {
    let area = three_regions(args.rate);
    let settings = RegionsSettings {
        wide_area: &area,
        scale: 1.0,
        seed: 1,
        queue: Duration::from_millis(100),
        workers: 1,
    };
    let distance = |_, _| Distance { delay: Duration::ZERO, loss: 0.0 };
    let regions = Regions::create("groups", &settings, distance)?;
    let weir = super::weir_path(args.weir.as_deref())?;
    let overlay = Overlay::start(&regions, &area, order.policy, &weir)?;
    let unit = duration(args.unit);
    let (payload, packet) = SEGMENT_BYTES;
    let unit_bytes = args.rate.get() * payload / packet * unit.as_secs_f64();
    let to_bytes = |units: f64| (units * unit_bytes) as u64;
    let flow = |&(from, group, units): &(usize, u8, f64)| {
        let other = FLOWS.iter().find(|flow| flow.0 == from && flow.1 != group).map_or(units, |flow| flow.2);
        PlannedFlow {
            from,
            to: RECEIVING,
            bytes: to_bytes(units),
            registered_bytes: to_bytes(if order.is_exchanged { other } else { units }),
            group: Some(group),
        }
    };
    let arrival = regions.bandwidth_start().elapsed() + FIRST_ARRIVAL;
    let coflow = PlannedCoflow { arrival, flows: FLOWS.iter().map(flow).collect() };
    let measured = replay(&regions, &overlay, &[coflow], |_| {})?;
    drop(overlay);
    regions.stop()?;
    let end = |group: u8| {
        let ends = FLOWS.iter().zip(&measured[0].flow_seconds).filter(|(flow, _)| flow.1 == group);
        ends.map(|(_, seconds)| seconds / unit.as_secs_f64()).fold(0.0, f64::max)
    };
    Ok([1, 2].map(end))
}

/// Three datacenters with equal links.
fn three_regions(rate: Rate) -> WideArea {
    let pairs = (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let links = pairs.map(|(from, to)| LinkMeasurement { from, to, samples: vec![rate] }).collect();
    let names = (1..=3).map(|number| format!("dc{number}")).collect();
    WideArea::new(names, links, Time::new(1.0).expect("1 s is a valid time"), 0.0)
        .expect("equal rates of three regions are a valid wide area")
}

/// When the tasks end that receive the groups: they compute for as long as all of their data takes on a link.
fn task_ends(group_ends: [f64; 2]) -> [f64; 2] {
    let units = |group: u8| FLOWS.iter().filter(|flow| flow.1 == group).map(|flow| flow.2).sum::<f64>();
    [group_ends[0] + units(1), group_ends[1] + units(2)]
}

fn section(args: &Args, measured: &[[f64; 2]; ORDERS.len()]) -> String {
    let mut out = format!(
        "## The order of flow groups (section 3.2, Fig. 3 to 5)\n\n\
         Reduce tasks R1 and R2 in datacenter 2 receive flow groups of 200 and 150 MB in the paper, over the links from datacenters 1 and 3. A \
         task begins when its group is complete, and computes for as long as its data takes on a link. Times are in the paper's units, in \
         which a link carries 50 MB; here a unit is {}, and a link has {}. Measured times are means (rounds: {}), with a coordinator, a relay in each \
         datacenter and the client library. Computation is added, not run.\n\n\
         | order | group 1 complete, computed | measured | group 2 complete, computed | measured | R1 ends | R2 ends | job ends, computed | measured | published |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        args.unit, args.rate, args.rounds
    );
    for (order, ends) in ORDERS.iter().zip(measured) {
        let last = |ends: [f64; 2]| task_ends(ends).into_iter().fold(0.0, f64::max);
        let [first, second] = task_ends(*ends);
        let _ = writeln!(
            out,
            "| {} | {:.0} | {:.2} | {:.0} | {:.2} | {first:.2} | {second:.2} | {:.0} | {:.2} | {} |",
            order.name,
            order.computed[0],
            ends[0],
            order.computed[1],
            ends[1],
            last(order.computed),
            last(*ends),
            order.published
        );
    }
    out += "\nFor the smallest group first, the framework registers the sizes of both groups exchanged.\n";
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_completion_times_are_those_of_the_paper() {
        let job = |ends| task_ends(ends).into_iter().fold(0.0, f64::max);
        assert_eq!(ORDERS.map(|order| job(order.computed)), [8.0, 9.0, 9.0]);
        // Each group has its size, and the links are busy until the last group is complete.
        assert_eq!(task_ends([0.0, 0.0]), [4.0, 3.0]);
        let busy: f64 = FLOWS.iter().filter(|flow| flow.0 == 0).map(|flow| flow.2).sum();
        assert!(ORDERS.iter().all(|order| order.computed.into_iter().fold(0.0, f64::max) == busy));
    }
}
