//! Statistics: examples by hand, and the public trace.

use crate::common::read_trace;
use crate::public_trace::public_trace;
use weir_core::units::Bytes;
use weir_trace::describe::{Load, WorkloadStatistics, bin_threshold, saath_bin};
use weir_trace::{TraceOptions, TraceUnit, read};

fn workload_statistics(text: &str) -> WorkloadStatistics {
    let workload = read_trace(text, TraceUnit::MB).unwrap().workload;
    WorkloadStatistics::new(&workload, bin_threshold(TraceUnit::MB)).unwrap()
}

/// Bins of Saath, Table 1.
#[test]
fn trace_size_bins_match_saath_table_1() {
    let hundred = bin_threshold(TraceUnit::MB);
    assert_eq!(hundred, Bytes::new(1e8).unwrap());
    assert_eq!([saath_bin(10, 1e8, hundred), saath_bin(11, 1e8, hundred)], [1, 2]);
    assert_eq!([saath_bin(10, 1e8 + 1.0, hundred), saath_bin(11, 1e8 + 1.0, hundred)], [3, 4]);
    // 100 MB from three mappers count as 100 MB.
    assert_eq!(workload_statistics("3 1\n1 0 3 0 1 2 1 0:100").bin_shares, [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(bin_threshold(TraceUnit::MiB).get(), 104_857_600.0);
}

#[test]
fn trace_statistics_match_hand_computation() {
    let d = workload_statistics(
        "weir-trace 1\nports 4\n\
         coflow 1 arrival=2s parents=2\nflow 0 0 10MB\n\
         coflow 2 arrival=5s\nshuffle 0,1 2:10MB,3:10MB\n\
         coflow 3 arrival=9s parents=1\nflow 1 2 10MB\nflow 1 3 30MB\nflow 1 3 0B\n\
         coflow 4 arrival=3s\nshuffle 0,1,2,3 0:100MB,1:100MB,2:100MB\n\
         event 1s port=0 side=send rate=0\n",
    );
    assert_eq!((d.ports, d.coflows, d.flows, d.events, d.empty_flows), (4, 4, 20, 1, 1));
    assert_eq!((d.first_arrival, d.last_arrival, d.longest_chain), (2.0, 9.0, 3));
    assert_eq!(d.width_percentiles, [1, 1, 3, 4, 12, 12, 12, 12]);
    assert_eq!((d.single_flow_share, d.equal_flows_share, d.unequal_flows_share), (0.25, 0.5, 0.25));
    assert_eq!(d.bin_shares, [0.75, 0.0, 0.0, 0.25]);
    assert_eq!(d.bytes, 370e6);
    assert_eq!(d.send_load, Load { busiest_port: 1, max_bytes: 125e6, mean_bytes: 92.5e6 });
    assert_eq!(d.receive_load, Load { busiest_port: 2, max_bytes: 120e6, mean_bytes: 92.5e6 });
    assert!((d.same_port_fraction - 85.0 / 370.0).abs() < 1e-12);
    // 10, 30 and 0 MB have the mean 40/3 and the standard deviation sqrt(1400/9).
    let deviation = (1400.0_f64 / 9.0).sqrt() / (40.0 / 3.0);
    assert_eq!(d.deviation_distribution.len(), 2);
    assert_eq!(d.deviation_distribution[0], (0.0, 0.75));
    assert!(
        (d.deviation_distribution[1].0 - deviation).abs() < 1e-12 && d.deviation_distribution[1].1 == 1.0
    );
}

#[test]
fn empty_trace_has_no_shares() {
    let d = workload_statistics("3 0");
    assert_eq!((d.coflows, d.flows, d.bytes, d.longest_chain), (0, 0, 0.0, 0));
    assert_eq!(
        (d.first_arrival, d.last_arrival, d.single_flow_share, d.equal_flows_share, d.unequal_flows_share),
        (0.0, 0.0, 0.0, 0.0, 0.0)
    );
    assert_eq!((d.bin_shares, d.width_percentiles, d.same_port_fraction), ([0.0; 4], [0; 8], 0.0));
    let d = workload_statistics("3 1\n1 0 1 0 2 1:0 2:0");
    assert_eq!(
        (d.equal_flows_share, d.same_port_fraction, d.deviation_distribution),
        (1.0, 0.0, vec![(0.0, 1.0)])
    );
}

/// Saath, 2.3: 23 % of the coflows have one flow, 50 % have several flows of equal length, 27 % have flows of
/// unequal lengths.
#[test]
fn public_trace_has_the_published_statistics() {
    let Some(path) = public_trace() else { return };
    for unit in [TraceUnit::MB, TraceUnit::MiB] {
        let workload = read(&path, &TraceOptions { unit, ..TraceOptions::default() }).unwrap().workload;
        let d = WorkloadStatistics::new(&workload, bin_threshold(unit)).unwrap();
        assert_eq!((d.ports, d.coflows, d.flows), (150, 526, 706_397));
        assert!((d.bytes / unit.bytes() - 35_533_534.0).abs() < 1.0);
        let percent = |share: f64| (share * 1000.0).round() / 10.0;
        assert_eq!(
            [d.single_flow_share, d.equal_flows_share, d.unequal_flows_share].map(percent),
            [23.4, 49.6, 27.0]
        );
        assert_eq!(d.bin_shares.map(percent), [46.8, 21.7, 4.8, 26.8]);
        assert_eq!(percent(d.same_port_fraction), 0.7);
        assert_eq!(
            (d.width_percentiles[2], d.width_percentiles[7], d.longest_chain, d.empty_flows),
            (10, 21_170, 1, 0)
        );
        assert_eq!(d.last_arrival, 3629.235);
    }
}
