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
