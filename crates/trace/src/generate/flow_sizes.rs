//! Published distributions of flow sizes in data centers.
//!
//! The papers draw them as cumulative distributions. The points are those that packet simulators tabulate from the figures, in packets of
//! [`PACKET_BYTES`]; between two points, the distribution is linear.

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

    /// The mean size, in bytes.
    pub fn mean(self) -> f64 {
        let parts = self.points().zip(self.points().skip(1));
        parts.map(|((smaller, before), (larger, until))| (until - before) * (smaller + larger) / 2.0).sum()
    }

    /// The inverse of the distribution: the size in bytes that a flow exceeds with the probability `1 - p`, for `p` from 0 to 1. A
    /// uniform `p` gives a random size.
    pub fn sample(self, p: f64) -> f64 {
        let (mut smaller, mut before) = (0.0, 0.0);
        for (size, until) in self.points() {
            if p <= until && until > before {
                return smaller + (size - smaller) * (p - before).max(0.0) / (until - before);
            }
            (smaller, before) = (size, until);
        }
        smaller
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

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::super::SeededRng;
    use super::*;

    #[test]
    fn means_are_those_of_the_tables() {
        // Sums over the parts of each table: probability times the mean of the two sizes, in packets.
        let packets = [
            (FlowSizes::WebSearch, 1_140.98),
            (FlowSizes::DataMining, 5_116.6),
            (FlowSizes::Cache, 623.755),
            (FlowSizes::Hadoop, 2_832.395),
        ];
        for (sizes, packets) in packets {
            let error = sizes.mean() / (packets * PACKET_BYTES) - 1.0;
            assert!(error.abs() < 1e-5, "{}: {} packets", sizes.name(), sizes.mean() / PACKET_BYTES);
        }
    }

    #[test]
    fn sample_inverts_the_distribution() {
        let packets = |sizes: FlowSizes, p| sizes.sample(p) / PACKET_BYTES;
        let is_close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-12;
        for (sizes, smallest, median, largest) in [
            // 0.5 lies 10/13 between the points 33:0.4 and 53:0.53.
            (FlowSizes::WebSearch, 6.0, 33.0 + 20.0 * 10.0 / 13.0, 20_000.0),
            (FlowSizes::DataMining, 1.0, 1.0, 666_667.0),
            (FlowSizes::Cache, 1.0, 13.0, 33_333.0),
            (FlowSizes::Hadoop, 1.0, 50.0, 333_333.0),
        ] {
            for (p, expected) in [(0.0, smallest), (0.5, median), (1.0, largest)] {
                let found = packets(sizes, p);
                assert!(is_close(found, expected), "{} at {p}: {found}", sizes.name());
            }
        }
        // Inside the step of 33 packets from 0.3 to 0.4, and in the parts next to it.
        for (p, expected) in [(0.25, 31.5), (0.35, 33.0), (0.45, 41.5)] {
            assert!(is_close(packets(FlowSizes::Hadoop, p), expected), "{p}");
        }
    }

    #[test]
    fn mean_of_samples_is_the_mean() {
        let mut rng = SeededRng(ChaCha8Rng::seed_from_u64(1));
        for sizes in FlowSizes::ALL {
            let samples: Vec<f64> = (0..200_000).map(|_| sizes.sample(rng.uniform())).collect();
            let count = samples.len() as f64;
            let mean = samples.iter().sum::<f64>() / count;
            let variance = samples.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / count;
            let tolerance = 4.0 * (variance / count).sqrt();
            assert!((mean - sizes.mean()).abs() < tolerance, "{}: {mean} ± {tolerance}", sizes.name());
        }
    }

    #[test]
    fn points_ascend_from_probability_0_to_1() {
        for sizes in FlowSizes::ALL {
            let points: Vec<(f64, f64)> = sizes.points().collect();
            assert_eq!((points[0].1, points[points.len() - 1].1), (0.0, 1.0), "{}", sizes.name());
            assert!(points.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 < w[1].1), "{}", sizes.name());
        }
    }
}
