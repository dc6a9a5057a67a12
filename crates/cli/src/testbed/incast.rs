//! `weir testbed incast`: loss and goodput of many connections to one receiver.

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output::Sink;
use weir_console::progress::Progress;
use weir_console::record::Record;
use weir_console::table::{Align, BITS, Table, number, percent, rate};
use weir_console::testbed::{failure, on_a_bed};
use weir_core::model::Plan;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::incast::{Incast, IncastError, Sample, Setup, Tcp};

use crate::args;
use crate::render;

/// A run, and its number among the runs of its combination.
type Run = (Incast, u64, Sample);

/// Measures incast.
pub fn incast(args: &args::TestbedIncast) -> Result<(), Failure> {
    let sink = Sink::new(args.output.out.as_deref())?;
    let plan = Plan::BigSwitch { hosts: args.senders + 1, rate: args.rate };
    let topology = plan.build().map_err(Failure::input)?;
    let progress = Progress::new(args.quiet);
    let (congestion, runs) = on_a_bed(&args.bed.name, &topology, |bed| {
        let tcp = Tcp { congestion: args.congestion.clone(), marks: args.marks };
        let lab = Setup::new(bed, &tcp).map_err(incast_failure)?;
        let bar = progress.steps("incast", args.buffers.len() * args.connections.len() * args.runs as usize);
        let combinations = (&args.buffers[..], &args.connections[..]);
        let go_on = || !interrupt::asked();
        let runs = lab.run_all(combinations, args.bytes.get() as u64, args.runs, &go_on, || bar.inc(1));
        bar.finish_and_clear();
        Ok((lab.congestion(), runs.map_err(incast_failure)?))
    })?;
    let table = || table(args, &congestion, &runs);
    sink.fill(render::list(args.output.format, table, || records(args, &congestion, &runs)))
}

fn incast_failure(error: IncastError) -> Failure {
    match error {
        IncastError::Bed(error) => failure(&error),
        error @ IncastError::Congestion { .. } => Failure::input(format_args!("--congestion: {error}")),
        IncastError::Interrupted => Failure::interrupted("interrupted; nothing was written"),
        other => Failure::undone(other),
    }
}

fn table(args: &args::TestbedIncast, congestion: &str, runs: &[Run]) -> String {
    let heads = ["buffer packets", "connections", "loss", "goodput", "mean time s", "last s"];
    let mut table = Table::new(&heads.map(|head| (head, Align::Right)));
    for kind in runs.chunk_by(|(a, ..), (b, ..)| a == b) {
        let incast = kind[0].0;
        let median = |of: &dyn Fn(&Sample) -> f64| {
            percentile(&kind.iter().map(|(.., sample)| of(sample)).collect::<Vec<f64>>(), 50.0)
        };
        table.line(vec![
            incast.buffer.to_string(),
            incast.connections.to_string(),
            percent(median(&|sample| sample.loss)),
            rate(median(&|sample| sample.goodput(&incast))),
            number(median(&|sample| mean(&sample.times))),
            number(median(&|sample| sample.last())),
        ]);
    }
    let args::TestbedIncast { senders, bytes, rate, .. } = args;
    let marks = match args.marks {
        Some(packets) => format!("marks (ECN) from {packets} packets on"),
        None => "no marks".to_owned(),
    };
    format!(
        "Incast: connections from {senders} hosts to one, each sending {bytes} at once, over links of {rate}, with {congestion} and {marks}.\n\
         Medians of {} runs; goodput counts payload until the last connection completes:\n\n{table}",
        args.runs
    )
}

fn records(args: &args::TestbedIncast, congestion: &str, runs: &[Run]) -> Vec<Record> {
    let record = |(incast, number, sample): &Run| {
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
