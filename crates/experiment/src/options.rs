//! The network of replays, as a user requests it.

use std::path::PathBuf;

use weir_core::engine::DecidesOver;
use weir_core::units::{Rate, Time};
use weir_trace::network_file::NetworkFile;

/// The network of replays. The default is the ports of one switch.
#[derive(Debug, Clone, Default)]
pub struct NetworkOptions {
    /// The rate of each port in each direction; by default 1 Gbit/s. Not with a fabric.
    pub port_rate: Option<Rate>,
    /// The scheduling interval; by default 8 ms, and 0 between regions.
    pub interval: Option<Time>,
    /// A file of incast measurements, which reduce the rates of receiving ports.
    pub incast: Option<PathBuf>,
    /// The buffer of each port for `incast`, in packets.
    pub buffer: Option<u32>,
    /// The first buffer of a sweep that varies it.
    pub varied_buffer: Option<u32>,
    /// Links between switches or regions.
    pub fabric: Option<FabricSource>,
    /// The links of a fabric that policies decide over.
    pub decide_over: DecidesOver,
    /// The seed of the hash that selects paths.
    pub path_seed: Option<u64>,
    /// The seed of the random bandwidths between regions.
    pub bandwidth_seed: Option<u64>,
}

/// Where links between switches or regions come from.
#[derive(Debug, Clone)]
pub enum FabricSource {
    /// A file in the fabric or the wide-area format.
    File(PathBuf),
    /// A network, with a name for results.
    Network(String, Box<NetworkFile>),
}

impl FabricSource {
    /// The name in results and messages.
    pub fn name(&self) -> String {
        match self {
            FabricSource::File(path) => path.display().to_string(),
            FabricSource::Network(name, _) => name.clone(),
        }
    }
}

/// A parameter of a network, with a value.
#[derive(Debug, Clone, Copy)]
pub enum NetworkParameter {
    /// The scheduling interval.
    Interval(Time),
    /// The rate of each port.
    PortRate(Rate),
    /// The buffer of ports in packets, for measured incast.
    Buffer(u32),
    /// The seed of the random bandwidths between regions.
    BandwidthSeed(u64),
    /// The seed of the hash that selects paths.
    PathSeed(u64),
}

/// Parses the rate of a port: 1 bit/s to 8000 Tbit/s.
///
/// # Errors
/// If the text is no such rate; the message states the expectation.
pub fn parse_port_rate(text: &str) -> Result<Rate, String> {
    let rate = text.parse().ok().filter(|rate: &Rate| (0.125..=1e15).contains(&rate.get()));
    rate.ok_or_else(|| {
        "expected a rate with a unit from 1bit to 8000Tbit, such as 1Gbit or 125MB/s (`bps` is ambiguous and rejected)"
            .to_owned()
    })
}

/// Parses a scheduling interval: 0 to 1e9 s. Zero needs no unit.
///
/// # Errors
/// If the text is no such time; the message states the expectation.
pub fn parse_interval(text: &str) -> Result<Time, String> {
    if text == "0" {
        return Ok(Time::ZERO);
    }
    let interval: Time = text.parse().map_err(|error| format!("{error}, or 0 to schedule at every event"))?;
    if interval.get() <= 1e9 { Ok(interval) } else { Err("expected at most 1e9s".to_owned()) }
}

/// The duration whose multiples a reader may subtract from the times of a trace: all these intervals divide it.
pub fn shift_step(intervals: impl IntoIterator<Item = Time>) -> Option<Time> {
    const NANOSECONDS: f64 = 1e9;
    // A whole number of seconds is easy to read, and 8 ms divide a second.
    let nanoseconds = |time: Time| (time.get() * NANOSECONDS).round() as u128;
    let intervals = intervals.into_iter().map(nanoseconds).filter(|&interval| interval > 0);
    let common = intervals.fold(NANOSECONDS as u128, least_common_multiple);
    Time::new(common as f64 / NANOSECONDS)
}

fn least_common_multiple(a: u128, b: u128) -> u128 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
