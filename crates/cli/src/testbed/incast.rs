//! Runs `weir testbed incast`: measures loss and goodput of many connections to one receiver.

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output::ResultDestination;
use weir_console::progress::Progress;
use weir_console::record::Record;
use weir_console::table::{Alignment, BITS_PER_BYTE, Table, format_number, format_percent, format_rate};
use weir_console::testbed::{failure, with_bed};
use weir_core::model::TopologyTemplate;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::incast::{IncastBed, IncastError, IncastParameters, IncastSample, TcpOptions};

use crate::args;
use crate::render;

/// A run: its parameters, its number among the runs with these parameters, and its measurements.
type Run = (IncastParameters, u64, IncastSample);

/// Runs `weir testbed incast`.
pub fn incast(args: &args::TestbedIncast) -> Result<(), Failure> {
    let sink = ResultDestination::new(args.output.out.as_deref())?;
    let plan = TopologyTemplate::BigSwitch { hosts: args.senders + 1, rate: args.rate };
    let topology = plan.build().map_err(Failure::input)?;
    let progress = Progress::new(args.quiet);
    let (congestion, runs) = with_bed(&args.testbed.name, &topology, |bed| {
        let tcp = TcpOptions { congestion_control: args.congestion.clone(), ecn_threshold: args.marks };
        let setup = IncastBed::new(bed, &tcp).map_err(incast_failure)?;
        let bar =
            progress.add_step_bar("incast", args.buffers.len() * args.connections.len() * args.runs as usize);
        let combinations = (&args.buffers[..], &args.connections[..]);
        let keep_running = || !interrupt::is_requested();
        let runs =
            setup.run_all(combinations, args.bytes.get() as u64, args.runs, &keep_running, || bar.inc(1));
        bar.finish_and_clear();
        Ok((setup.congestion_control(), runs.map_err(incast_failure)?))
    })?;
    let table = || table(args, &congestion, &runs);
    sink.write_text(render::list(args.output.format, table, || records(args, &congestion, &runs)))
}

fn incast_failure(error: IncastError) -> Failure {
    match error {
        IncastError::Bed(error) => failure(&error),
        error @ IncastError::UnknownCongestionControl { .. } => {
            Failure::input(format_args!("--congestion: {error}"))
        }
        IncastError::Interrupted => Failure::interrupted("interrupted; nothing was written"),
        other => Failure::runtime(other),
    }
}

fn table(args: &args::TestbedIncast, congestion: &str, runs: &[Run]) -> String {
    let heads = ["buffer packets", "connections", "loss", "goodput", "mean time s", "last s"];
    let mut table = Table::new(&heads.map(|head| (head, Alignment::Right)));
    for combination in runs.chunk_by(|(a, ..), (b, ..)| a == b) {
        let incast = combination[0].0;
        let median = |metric: &dyn Fn(&IncastSample) -> f64| {
            percentile(&combination.iter().map(|(.., sample)| metric(sample)).collect::<Vec<f64>>(), 50.0)
        };
        table.add_row(vec![
            incast.buffer_packets.to_string(),
            incast.connections.to_string(),
            format_percent(median(&|sample| sample.loss)),
            format_rate(median(&|sample| sample.goodput(&incast))),
            format_number(median(&|sample| mean(&sample.completion_secs))),
            format_number(median(&|sample| sample.last_completion())),
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
        r.add("buffer_packets", incast.buffer_packets);
        r.add("connections", incast.connections);
        r.add("bytes", incast.bytes_per_connection);
        r.add("congestion", congestion);
        r.add("marks_packets", args.marks);
        r.add("run", *number);
        r.add("loss", sample.loss);
        r.add("goodput_bit_per_s", sample.goodput(incast) * BITS_PER_BYTE);
        r.add("mean_s", mean(&sample.completion_secs));
        r.add("last_s", sample.last_completion());
        r
    };
    runs.iter().map(record).collect()
}
