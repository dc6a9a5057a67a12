//! Published distributions of flow sizes in data centers.
//!
//! The papers draw them as cumulative distributions. The points are those that packet simulators tabulate from the figures, in packets of
//! [`PACKET_BYTES`]; between two points, the distribution is linear.

use std::fmt;

use super::Cdf;

/// The bytes of a packet in the tables.
const PACKET_BYTES: f64 = 1460.0;

/// A published distribution of the sizes of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowSizes {
    /// Queries, short messages and background flows of a cluster for web search.
    WebSearch,
    /// A cluster for data mining: half of the flows have one packet, one in a hundred has 97 MB to 1 GB.
    DataMining,
    /// The cache followers of a social network.
    Cache,
    /// The Hadoop clusters of the same network.
    Hadoop,
}

impl FlowSizes {
    /// All distributions.
    pub const ALL: [FlowSizes; 4] =
        [FlowSizes::WebSearch, FlowSizes::DataMining, FlowSizes::Cache, FlowSizes::Hadoop];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            FlowSizes::WebSearch => "web search",
            FlowSizes::DataMining => "data mining",
            FlowSizes::Cache => "cache follower",
            FlowSizes::Hadoop => "Hadoop",
        }
    }

    /// The paper with the measurement, and the figure.
    pub fn source(self) -> &'static str {
        match self {
            FlowSizes::WebSearch => {
                "Alizadeh et al., \"Data Center TCP (DCTCP)\", SIGCOMM '10; tabulated for pFabric, SIGCOMM '13, Fig. 4a"
            }
            FlowSizes::DataMining => {
                "Greenberg et al., \"VL2\", SIGCOMM '09, Fig. 2; tabulated for pFabric, SIGCOMM '13, Fig. 4b"
            }
            FlowSizes::Cache | FlowSizes::Hadoop => {
                "Roy et al., \"Inside the Social Network's (Datacenter) Network\", SIGCOMM '15, Fig. 6"
            }
        }
    }

    /// The points of the distribution, ascending: the size in bytes, and the probability of a size up to it. Two points with the same size
    /// are a step.
    pub fn points(self) -> impl ExactSizeIterator<Item = (f64, f64)> + Clone {
        self.packets().iter().map(|&(packets, probability)| (packets * PACKET_BYTES, probability))
    }

    fn packets(self) -> &'static [(f64, f64)] {
        match self {
            FlowSizes::WebSearch => &WEB_SEARCH,
            FlowSizes::DataMining => &DATA_MINING,
            FlowSizes::Cache => &CACHE,
            FlowSizes::Hadoop => &HADOOP,
        }
    }

    /// The distribution, in bytes.
    pub fn cdf(self) -> Cdf {
        Cdf::new(self.points())
    }
}

/// The text is that of the command line, such as `web-search`.
impl fmt::Display for FlowSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FlowSizes::WebSearch => "web-search",
            FlowSizes::DataMining => "data-mining",
            FlowSizes::Cache => "cache-follower",
            FlowSizes::Hadoop => "hadoop",
        })
    }
}

/// In packets, as all below.
const WEB_SEARCH: [(f64, f64); 12] = [
    (6.0, 0.0),
    (6.0, 0.15),
    (13.0, 0.2),
    (19.0, 0.3),
    (33.0, 0.4),
    (53.0, 0.53),
    (133.0, 0.6),
    (667.0, 0.7),
    (1_333.0, 0.8),
    (3_333.0, 0.9),
    (6_667.0, 0.97),
    (20_000.0, 1.0),
];

const DATA_MINING: [(f64, f64); 9] = [
    (1.0, 0.0),
    (1.0, 0.5),
    (2.0, 0.6),
    (3.0, 0.7),
    (7.0, 0.8),
    (267.0, 0.9),
    (2_107.0, 0.95),
    (66_667.0, 0.99),
    (666_667.0, 1.0),
];

const CACHE: [(f64, f64); 12] = [
    (1.0, 0.0),
    (1.0, 0.36),
    (2.0, 0.4),
    (7.0, 0.46),
    (13.0, 0.5),
    (67.0, 0.6),
    (133.0, 0.7),
    (667.0, 0.78),
    (1_333.0, 0.8),
    (2_000.0, 0.9),
    (2_667.0, 0.99),
    (33_333.0, 1.0),
];

const HADOOP: [(f64, f64); 15] = [
    (1.0, 0.0),
    (24.0, 0.1),
    (30.0, 0.2),
    (33.0, 0.3),
    (33.0, 0.4),
    (50.0, 0.5),
    (53.0, 0.6),
    (67.0, 0.7),
    (120.0, 0.8),
    (160.0, 0.9),
    (200.0, 0.95),
    (667.0, 0.96),
    (6_667.0, 0.97),
    (66_667.0, 0.99),
    (333_333.0, 1.0),
];
