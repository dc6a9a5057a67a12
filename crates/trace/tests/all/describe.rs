//! Statistics: examples by hand, and the public trace.

use crate::common::read_text;
use crate::public_trace::public_trace;
use weir_core::units::Bytes;
use weir_trace::describe::{Description, Load, bin, threshold};
use weir_trace::{Limits, TraceUnit, read};

fn describe(text: &str) -> Description {
    let workload = read_text(text, TraceUnit::MB).unwrap().workload;
    Description::new(&workload, threshold(TraceUnit::MB)).unwrap()
}

/// Bins of Saath, Table 1.
#[test]
fn trace_size_bins_match_saath_table_1() {
    let hundred = threshold(TraceUnit::MB);
    assert_eq!(hundred, Bytes::new(1e8).unwrap());
    assert_eq!([bin(10, 1e8, hundred), bin(11, 1e8, hundred)], [1, 2]);
    assert_eq!([bin(10, 1e8 + 1.0, hundred), bin(11, 1e8 + 1.0, hundred)], [3, 4]);
    // 100 MB from three mappers count as 100 MB.
    assert_eq!(describe("3 1\n1 0 3 0 1 2 1 0:100").bins, [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(threshold(TraceUnit::MiB).get(), 104_857_600.0);
}

#[test]
fn trace_statistics_match_hand_computation() {
    let d = describe(
        "weir-trace 1\nports 4\n\
         coflow 1 arrival=2s parents=2\nflow 0 0 10MB\n\
         coflow 2 arrival=5s\nshuffle 0,1 2:10MB,3:10MB\n\
         coflow 3 arrival=9s parents=1\nflow 1 2 10MB\nflow 1 3 30MB\nflow 1 3 0B\n\
         coflow 4 arrival=3s\nshuffle 0,1,2,3 0:100MB,1:100MB,2:100MB\n\
         event 1s port=0 side=send rate=0\n",
    );
    assert_eq!((d.ports, d.coflows, d.flows, d.events, d.empty_flows), (4, 4, 20, 1, 1));
    assert_eq!((d.first_arrival, d.last_arrival, d.depth), (2.0, 9.0, 3));
    assert_eq!(d.widths, [1, 1, 3, 4, 12, 12, 12, 12]);
    assert_eq!((d.single, d.equal, d.unequal), (0.25, 0.5, 0.25));
    assert_eq!(d.bins, [0.75, 0.0, 0.0, 0.25]);
    assert_eq!(d.bytes, 370e6);
    assert_eq!(d.send, Load { busiest: 1, max: 125e6, mean: 92.5e6 });
    assert_eq!(d.receive, Load { busiest: 2, max: 120e6, mean: 92.5e6 });
    assert!((d.same_port - 85.0 / 370.0).abs() < 1e-12);
    // 10, 30 and 0 MB have the mean 40/3 and the standard deviation sqrt(1400/9).
    let deviation = (1400.0_f64 / 9.0).sqrt() / (40.0 / 3.0);
    assert_eq!(d.deviations.len(), 2);
    assert_eq!(d.deviations[0], (0.0, 0.75));
    assert!((d.deviations[1].0 - deviation).abs() < 1e-12 && d.deviations[1].1 == 1.0);
}

#[test]
fn empty_trace_has_no_shares() {
    let d = describe("3 0");
    assert_eq!((d.coflows, d.flows, d.bytes, d.depth), (0, 0, 0.0, 0));
    assert_eq!((d.first_arrival, d.last_arrival, d.single, d.equal, d.unequal), (0.0, 0.0, 0.0, 0.0, 0.0));
    assert_eq!((d.bins, d.widths, d.same_port), ([0.0; 4], [0; 8], 0.0));
    let d = describe("3 1\n1 0 1 0 2 1:0 2:0");
    assert_eq!((d.equal, d.same_port, d.deviations), (1.0, 0.0, vec![(0.0, 1.0)]));
}

/// Saath, 2.3: 23 % of the coflows have one flow, 50 % have several flows of equal length, 27 % have flows of
/// unequal lengths.
#[test]
fn public_trace_has_the_published_statistics() {
    let Some(path) = public_trace() else { return };
    for unit in [TraceUnit::MB, TraceUnit::MiB] {
        let workload = read(&path, unit, &Limits::default()).unwrap().workload;
        let d = Description::new(&workload, threshold(unit)).unwrap();
        assert_eq!((d.ports, d.coflows, d.flows), (150, 526, 706_397));
        assert!((d.bytes / unit.bytes() - 35_533_534.0).abs() < 1.0);
        let percent = |share: f64| (share * 1000.0).round() / 10.0;
        assert_eq!([d.single, d.equal, d.unequal].map(percent), [23.4, 49.6, 27.0]);
        assert_eq!(d.bins.map(percent), [46.8, 21.7, 4.8, 26.8]);
        assert_eq!(percent(d.same_port), 0.7);
        assert_eq!((d.widths[2], d.widths[7], d.depth, d.empty_flows), (10, 21_170, 1, 0));
        assert_eq!(d.last_arrival, 3629.235);
    }
}
