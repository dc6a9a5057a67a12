//! Runs `weir testbed incast`: measures loss and goodput of many connections to one receiver.

use std::time::Duration;

use weir_agent::ecn::QueueLengths;
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output::ResultDestination;
use weir_console::progress::Progress;
use weir_console::record::Record;
use weir_console::table::{Alignment, BITS_PER_BYTE, Table, format_number, format_percent, format_rate};
use weir_console::testbed::{failure, with_bed};
use weir_core::model::TopologyTemplate;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::congestion::CongestionError;
use weir_testbed::incast::{
    ConnectionStarts, IncastBed, IncastError, IncastParameters, IncastSample, SteadyTimes,
};
use weir_testbed::tcp_bed::{TcpBedError, TcpOptions};

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
    let ((congestion_text, congestion), runs) = with_bed(&args.testbed.name, &topology, |bed| {
        let tcp = TcpOptions { congestion_control: args.congestion.clone(), ecn_threshold: args.marks };
        let setup = IncastBed::new(bed, &tcp).map_err(incast_failure)?;
        let bar =
            progress.add_step_bar("incast", args.buffers.len() * args.connections.len() * args.runs as usize);
        let combinations = (&args.buffers[..], &args.connections[..]);
        let keep_running = || !interrupt::is_requested();
        let traffic = (args.bytes.get() as u64, connection_starts(args));
        let runs = setup.run_all(combinations, traffic, args.runs, &keep_running, || bar.inc(1));
        bar.finish_and_clear();
        let congestion = setup.congestion_control();
        Ok((
            (congestion.to_string(), congestion.name().to_string_lossy().into_owned()),
            runs.map_err(incast_failure)?,
        ))
    })?;
    let table = || table(args, &congestion_text, &runs);
    sink.write_text(render::list(args.output.format, table, || records(args, &congestion, &runs)))
}

fn connection_starts(args: &args::TestbedIncast) -> ConnectionStarts {
    if !args.steady {
        return ConnectionStarts::Together;
    }
    let [warm_up, window] = [args.warm_up, args.window].map(|time| Duration::from_secs_f64(time.get()));
    ConnectionStarts::Steady(SteadyTimes { warm_up, window })
}

fn incast_failure(error: IncastError) -> Failure {
    match error {
        IncastError::Bed(TcpBedError::Bed(error)) => failure(&error),
        error @ IncastError::Bed(TcpBedError::CongestionControl(CongestionError::Unknown { .. })) => {
            Failure::input(format_args!("--congestion: {error}"))
        }
        IncastError::Interrupted => Failure::interrupted("interrupted; nothing was written"),
        other => Failure::runtime(other),
    }
}

fn table(args: &args::TestbedIncast, congestion: &str, runs: &[Run]) -> String {
    let heads = [
        "buffer packets",
        "connections",
        "loss",
        "mean queue",
        "max queue",
        "goodput",
        "mean time s",
        "last s",
    ];
    let mut table = Table::new(&heads.map(|head| (head, Alignment::Right)));
    for combination in runs.chunk_by(|(a, ..), (b, ..)| a == b) {
        let incast = combination[0].0;
        let values = |metric: &dyn Fn(&IncastSample) -> Option<f64>| -> Vec<f64> {
            combination.iter().filter_map(|(.., sample)| metric(sample)).collect()
        };
        let median =
            |metric: &dyn Fn(&IncastSample) -> f64| percentile(&values(&|sample| Some(metric(sample))), 50.0);
        let median_time = |metric: &dyn Fn(&IncastSample) -> Option<f64>| match &values(metric)[..] {
            [] => "-".to_owned(),
            times => format_number(percentile(times, 50.0)),
        };
        let queue = |metric: &dyn Fn(&QueueLengths) -> f64| {
            let is_measured = combination.iter().all(|(.., sample)| sample.queue.is_some());
            let length = |sample: &IncastSample| sample.queue.as_ref().map_or(f64::NAN, metric);
            if is_measured { format_number(median(&length)) } else { "-".to_owned() }
        };
        table.add_row(vec![
            incast.buffer_packets.to_string(),
            incast.connections.to_string(),
            format_percent(median(&|sample| sample.loss)),
            queue(&|queue| queue.mean),
            queue(&|queue| queue.max as f64),
            format_rate(median(&|sample| sample.goodput)),
            median_time(&mean_completion),
            median_time(&IncastSample::last_completion),
        ]);
    }
    let args::TestbedIncast { senders, bytes, rate, .. } = args;
    let marks = match args.marks {
        Some(packets) => format!("marks (ECN) from {packets} packets on"),
        None => "no marks".to_owned(),
    };
    let (starts, counted) = if args.steady {
        let times = format!(
            "in {} after {}; times are those of connections that completed",
            args.window, args.warm_up
        );
        ("one after the other and again after it completes", times)
    } else {
        ("at once", "until the last connection completes".to_owned())
    };
    format!(
        "Incast: connections from {senders} hosts to one, each sending {bytes} {starts}, over links of {rate}, with {congestion}, and {marks}.\n\
         Medians of {} runs; queues are the packets that an arriving packet finds; goodput counts payload {counted}:\n\n{table}",
        args.runs
    )
}

/// The mean duration of connections, in seconds. `None` if no connection completed.
fn mean_completion(sample: &IncastSample) -> Option<f64> {
    (!sample.completion_secs.is_empty()).then(|| mean(&sample.completion_secs))
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
        r.add("goodput_bit_per_s", sample.goodput * BITS_PER_BYTE);
        r.add("mean_s", mean_completion(sample));
        r.add("last_s", sample.last_completion());
        r.add("starts", if args.steady { "steady" } else { "together" });
        r
    };
    runs.iter().map(record).collect()
}
