//! Published distributions of the sizes of flows.

use weir_trace::generate::FlowSizes;

/// The payload of a packet, the unit of the tables.
const PACKET_BYTES: f64 = 1_460.0;

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
        let error = sizes.cdf().mean() / (packets * PACKET_BYTES) - 1.0;
        assert!(error.abs() < 1e-5, "{}: {} packets", sizes.name(), sizes.cdf().mean() / PACKET_BYTES);
    }
}

#[test]
fn sample_inverts_the_distribution() {
    let packets = |sizes: FlowSizes, p| sizes.cdf().sample(p) / PACKET_BYTES;
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
    const PARTS: u32 = 100_000;
    for sizes in FlowSizes::ALL {
        // The middle of each part is exact where the distribution is linear, which is everywhere but at its few points.
        let cdf = sizes.cdf();
        let samples = (0..PARTS).map(|part| cdf.sample((f64::from(part) + 0.5) / f64::from(PARTS)));
        let mean = samples.sum::<f64>() / f64::from(PARTS);
        assert!((mean / sizes.cdf().mean() - 1.0).abs() < 1e-4, "{}: {mean}", sizes.name());
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
