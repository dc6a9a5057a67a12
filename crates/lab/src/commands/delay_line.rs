//! `weir-lab delay-line`.

use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use weir_console::interrupt;
use weir_core::units::{Rate, Time};
use weir_lab::delay_line::{End, PathSettings, Report, Schedule};
use weir_lab::{DelayLine, LabError};

/// Arguments of `weir-lab delay-line`. Both directions have the same settings.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  weir-lab delay-line a=10.1.0.1/24 b=10.1.0.2/24 --delay 25ms --rate 1Gbit --loss 0.001")]
pub struct Args {
    /// The namespace and address of the first end
    #[arg(value_name = "NAMESPACE=ADDRESS/PREFIX")]
    first: EndArg,

    /// The same of the second end
    #[arg(value_name = "NAMESPACE=ADDRESS/PREFIX")]
    second: EndArg,

    /// The name of the TUN devices
    #[arg(long, value_name = "NAME", default_value = "wan0")]
    device: String,

    /// The delay in each direction; several values follow each other
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_value = "25ms")]
    delay: Vec<Time>,

    /// The rate in each direction; several values follow each other
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "1Gbit")]
    rate: Vec<Rate>,

    /// How long each of several delays and rates lasts
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Time,

    /// The maximum time that a packet waits in the queue
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    queue: Time,

    /// The probability that a segment is lost
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.0, value_parser = parse_probability)]
    loss: f64,

    /// Determines which segments are lost
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// A namespace with the address that its end of the delay line gets.
#[derive(Debug, Clone)]
struct EndArg {
    namespace: String,
    address: Ipv4Addr,
    prefix: u8,
}

impl FromStr for EndArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<EndArg, Self::Err> {
        const EXPECTED: &str = "expected NAMESPACE=ADDRESS/PREFIX, such as a=10.1.0.1/24";
        let (namespace, network) = text.split_once('=').ok_or(EXPECTED)?;
        let (address, prefix) = network.split_once('/').ok_or(EXPECTED)?;
        let address = address.parse().map_err(|_| EXPECTED)?;
        let prefix = prefix.parse().ok().filter(|&bits| bits <= 32).ok_or(EXPECTED)?;
        Ok(EndArg { namespace: namespace.to_owned(), address, prefix })
    }
}

fn parse_probability(text: &str) -> Result<f64, &'static str> {
    let probability = text.parse().ok().filter(|p| (0.0..=1.0).contains(p));
    probability.ok_or("expected a probability of 0 to 1")
}

/// Runs the delay line until a signal arrives, and prints its counters.
pub fn run(args: &Args) -> Result<(), LabError> {
    let [first, second] = [&args.first, &args.second].map(|end| End {
        namespace: end.namespace.clone(),
        device: args.device.clone(),
        address: end.address,
        prefix: end.prefix,
    });
    let path = path_settings(args)?;
    let back = PathSettings { seed: args.seed.wrapping_add(1), ..path.clone() };
    let line = DelayLine::start([&first, &second], [path, back])?;
    println!("ready");
    while !interrupt::is_requested() && line.is_running() {
        std::thread::sleep(Duration::from_millis(100));
    }
    print_report(&line.stop()?);
    Ok(())
}

fn path_settings(args: &Args) -> Result<PathSettings, LabError> {
    let duration = |time: Time| Duration::from_secs_f64(time.get());
    let empty = || LabError::Other("--interval: expected a time above 0".to_owned());
    let interval = duration(args.interval);
    let delays = args.delay.iter().copied().map(duration).collect();
    Ok(PathSettings {
        delay: Schedule::new(delays, interval).ok_or_else(empty)?,
        rate: Schedule::new(args.rate.clone(), interval).ok_or_else(empty)?,
        queue: duration(args.queue),
        loss: args.loss,
        seed: args.seed,
    })
}

fn print_report(report: &Report) {
    for (path, direction) in report.paths.iter().zip(["forward", "back"]) {
        println!("{direction}: {} segments, {} lost, {} dropped", path.forwarded, path.lost, path.dropped);
    }
    println!("lateness: mean {:?}, maximum {:?}", report.mean_lateness, report.max_lateness);
    println!("processor time: {:?}", report.cpu);
}
