//! `weir testbed incast`: what too many connections to one receiver cost.

use weir_core::model::Plan;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::incast::{Incast, IncastError, Lab, Sample, Tcp};

use crate::args::{self, Format};
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output::Sink;
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::table::{Align, BITS, Table, number, percent, rate};
use weir_console::testbed::{failure, on_a_bed};

/// A run, and which of its kind.
struct Run {
    incast: Incast,
    number: u64,
    sample: Sample,
}

/// Measures incast.
///
/// # Errors
/// Whatever ends it early.
pub fn incast(args: &args::TestbedIncast) -> Result<(), Failure> {
    let sink = Sink::new(args.output.out.as_deref())?;
    let plan = Plan::BigSwitch { hosts: args.senders + 1, rate: args.rate };
    let topology = plan.build().map_err(Failure::input)?;
    let progress = Progress::new(args.quiet);
    let (congestion, runs) = on_a_bed(&args.bed.name, &topology, |bed| {
        let tcp = Tcp { congestion: args.congestion.clone(), marks: args.marks };
        let lab = Lab::new(bed, &tcp).map_err(unmeasured)?;
        let bar = progress.steps("incast", args.buffers.len() * args.connections.len() * args.runs as usize);
        let mut runs = Vec::new();
        for &buffer in &args.buffers {
            for &connections in &args.connections {
                let incast = Incast { buffer, connections, bytes: args.bytes.get() as u64 };
                for number in 1..=args.runs {
                    let sample = lab.run(&incast, &|| !interrupt::asked()).map_err(unmeasured)?;
                    runs.push(Run { incast, number, sample });
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        Ok((lab.congestion(), runs))
    })?;
    let text = match args.output.format {
        Format::Table => for_people(args, &congestion, &runs).into_bytes(),
        Format::Json => record::json(&records(args, &congestion, &runs)).into_bytes(),
        Format::Csv => record::csv(&records(args, &congestion, &runs)),
    };
    sink.fill(&text)
}

fn unmeasured(error: IncastError) -> Failure {
    match error {
        IncastError::Bed(error) => failure(&error),
        error @ IncastError::Congestion { .. } => Failure::input(format_args!("--congestion: {error}")),
        IncastError::Interrupted => Failure::interrupted("interrupted; nothing was written"),
        other => Failure::undone(other),
    }
}

fn for_people(args: &args::TestbedIncast, congestion: &str, runs: &[Run]) -> String {
    let marks = match args.marks {
        Some(packets) => format!("marks (ECN) from {packets} packets on"),
        None => "no marks".to_owned(),
    };
    let mut out = format!(
        "Incast: connections from {} hosts to one, each sending {} at once, over links of {}, with {congestion} and {}.\n\
         Medians of {} runs; goodput counts payload until the last connection is done:\n\n",
        args.senders, args.bytes, args.rate, marks, args.runs
    );
    let heads = ["buffer packets", "connections", "loss", "goodput", "mean time s", "last s"];
    let mut table = Table::new(&heads.map(|head| (head, Align::Right)));
    for kind in runs.chunk_by(|a, b| a.incast == b.incast) {
        let incast = kind[0].incast;
        let median = |of: &dyn Fn(&Run) -> f64| percentile(&kind.iter().map(of).collect::<Vec<f64>>(), 50.0);
        table.line(vec![
            incast.buffer.to_string(),
            incast.connections.to_string(),
            percent(median(&|run| run.sample.loss)),
            rate(median(&|run| run.sample.goodput(&run.incast))),
            number(median(&|run| mean(&run.sample.times))),
            number(median(&|run| run.sample.last())),
        ]);
    }
    table.print(&mut out);
    out
}

fn records(args: &args::TestbedIncast, congestion: &str, runs: &[Run]) -> Vec<Record> {
    let record = |run: &Run| {
        let Run { incast, number, sample } = run;
        let mut r = Record::default();
        r.add("buffer_packets", incast.buffer);
        r.add("connections", incast.connections);
        r.add("bytes", incast.bytes);
        r.add("congestion", congestion);
        r.add("marks_packets", args.marks);
        r.add("run", *number);
        r.add("loss", sample.loss);
        r.add("goodput_bit_per_s", sample.goodput(incast) * BITS);
        r.add("mean_s", mean(&sample.times));
        r.add("last_s", sample.last());
        r
    };
    runs.iter().map(record).collect()
}
