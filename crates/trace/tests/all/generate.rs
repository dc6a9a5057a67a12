//! The trace generator: its statistics and its errors.

use crate::property_settings::config_with_cases;
use proptest::prelude::*;
use weir_core::model::Workload;
use weir_core::units::{Bytes, Rate};
use weir_trace::describe::{WorkloadStatistics, bin_threshold};
use weir_trace::generate::{
    ArrivalProcess, CoflowKind, Distribution, Incasts, Load, Preset, Resolution, Skew, WorkloadSpec,
    assign_services as spread_over, generate,
};
use weir_trace::{Limits, TraceOptions, TraceUnit, coflow_benchmark, format};

#[test]
fn services_and_applications_are_spread_evenly_over_coflows() {
    let plain = generate_workload(&Preset::Small.spec(7));
    let mut spread = plain.clone();
    spread_over(&mut spread, 3, 4, 7).unwrap();
    assert!(spread.check().is_ok());
    assert_eq!((spread.names.services(), spread.names.application_count()), (3, 12));
    let mut counts = std::collections::BTreeMap::new();
    for coflow in &spread.coflows {
        *counts.entry((coflow.service, coflow.application)).or_insert(0usize) += 1;
    }
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    assert!(counts.len() == 12 && most - least <= 1, "{counts:?}");
    let mut again = plain.clone();
    spread_over(&mut again, 3, 4, 7).unwrap();
    assert_eq!(again, spread);
    for coflow in &mut spread.coflows {
        (coflow.service, coflow.application) = (0, 0);
    }
    spread.names = plain.names.clone();
    assert_eq!(spread, plain);
    assert!(spread_over(&mut spread, 0, 1, 7).is_err());
    assert!(spread_over(&mut spread, 65, 64, 7).unwrap_err().to_string().contains("4096"));
}

fn generate_workload(spec: &WorkloadSpec) -> Workload {
    generate(spec, TraceUnit::MB, &Limits::default()).expect("the specification can be met")
}

fn assert_within(quantity: &str, value: f64, published: f64, tolerance: f64) {
    assert!(
        (value - published).abs() <= tolerance,
        "{quantity}: {value}, published {published} +- {tolerance}"
    );
}

/// The statistics of the public trace: Saath, 2.3 (shares of single flows, of equal and unequal flow
/// lengths), Table 1's bins, and the counts and totals that its publishers give.
#[test]
fn facebook_model_matches_public_trace_statistics() {
    for seed in 0..12 {
        let workload = generate_workload(&Preset::Facebook.spec(seed));
        workload.check().unwrap();
        let d = WorkloadStatistics::new(&workload, bin_threshold(TraceUnit::MB)).unwrap();
        assert_eq!((d.ports, d.coflows, d.first_arrival, d.longest_chain), (150, 526, 0.0, 1));
        assert_within("single", d.single_flow_share, 0.23, 0.03);
        assert_within("equal", d.equal_flows_share, 0.50, 0.03);
        assert_within("unequal", d.unequal_flows_share, 0.27, 0.03);
        for (share, published) in d.bin_shares.into_iter().zip([0.468, 0.217, 0.048, 0.268]) {
            assert_within("bin", share, published, 0.01);
        }
        assert_within("median width", d.width_percentiles[2] as f64, 10.0, 4.0);
        assert_within("90th percentile of widths", d.width_percentiles[4] as f64, 3626.0, 1800.0);
        assert_within("largest width", d.width_percentiles[7] as f64, 21_170.0, 3000.0);
        assert_within("flows", d.flows as f64, 706_397.0, 200_000.0);
        assert_within("terabytes", d.bytes / 1e12, 35.5, 15.0);
        assert_within("seconds", d.last_arrival, 3600.0, 1200.0);
        assert_within("same port", d.same_port_fraction, 0.007, 0.002);
        // Few coflows have nearly all bytes.
        let mut sizes: Vec<f64> = workload.coflows.iter().map(|c| c.total_bytes()).collect();
        sizes.sort_by(|a, b| b.total_cmp(a));
        let tenth: f64 = sizes[..53].iter().sum();
        assert!(tenth > 0.97 * d.bytes, "the largest tenth has {} of the bytes", tenth / d.bytes);
    }
}

#[test]
fn small_model_keeps_shape_and_load() {
    for seed in 0..12 {
        let workload = generate_workload(&Preset::Small.spec(seed));
        let d = WorkloadStatistics::new(&workload, bin_threshold(TraceUnit::MB)).unwrap();
        assert_eq!((d.ports, d.coflows), (50, 200));
        assert_within("single", d.single_flow_share, 0.23, 0.04);
        for (share, published) in d.bin_shares.into_iter().zip([0.468, 0.217, 0.048, 0.268]) {
            assert_within("bin", share, published, 0.02);
        }
        assert_within("flows", d.flows as f64, 15_000.0, 7000.0);
        // Load relative to the port capacity of 1 Gbit/s during the arrivals: contended, but not overloaded.
        let load = d.send_load.mean_bytes / (125e6 * d.last_arrival);
        assert_within("load", load, 0.45, 0.2);
    }
}

#[test]
fn sizes_are_whole_megabytes_and_arrivals_whole_milliseconds() {
    let mut out = Vec::new();
    coflow_benchmark::write(&generate_workload(&Preset::Small.spec(3)), TraceUnit::MB, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(' ').collect();
        assert!(fields[1].bytes().all(|b| b.is_ascii_digit()), "{line}");
        let sizes = fields.iter().filter_map(|field| field.split_once(':'));
        assert!(sizes.into_iter().all(|(_, size)| size.ends_with(".0") && size != "0.0"), "{line}");
    }
}

/// Twenty kilobytes every 12,345 ns: neither is a whole number of the public trace's units.
#[test]
fn small_sizes_and_gaps_are_generated_as_specified() {
    for resolution in [Resolution::CoflowBenchmark, Resolution::Weir] {
        let mut spec = plain_spec();
        spec.coflows = 2000;
        spec.kinds[0].mean_megabytes = Distribution::Constant(0.02);
        spec.arrival = ArrivalProcess::Every { gap: weir_core::units::Time::new(12_345e-9).unwrap() };
        (spec.size_resolution, spec.arrival_resolution) = (resolution, resolution);
        let workload = generate_workload(&spec);
        let bytes: f64 = workload.coflows.iter().map(|c| c.total_bytes()).sum();
        assert_within("bytes", bytes, 40e6, 1e-6);
        assert_within("arrival", workload.coflows[1999].arrival.get(), 1999.0 * 12_345e-9, 1e-15);
        let mut text = Vec::new();
        let read = match resolution {
            Resolution::Weir => {
                format::write(&workload, &[], &mut text).unwrap();
                format::read(text.as_slice(), "made.weir", &TraceOptions::default())
            }
            _ => {
                coflow_benchmark::write(&workload, TraceUnit::MB, &mut text).unwrap();
                coflow_benchmark::read(text.as_slice(), "made.txt", &TraceOptions::default())
            }
        };
        assert_eq!(read.unwrap(), workload);
    }
}

/// The shipped demo trace equals the output of `examples/demo_trace.rs`.
#[test]
fn demo_trace_equals_the_example_output() {
    let mut out = Vec::new();
    coflow_benchmark::write(&generate_workload(&Preset::Small.spec(1)), TraceUnit::MB, &mut out).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/demo.txt");
    assert!(
        out == std::fs::read(path).unwrap(),
        "examples/demo.txt differs from the output of the generator"
    );
}

/// The example of Weir's own format uses every feature.
#[test]
fn the_dag_example_can_be_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/dag.weir");
    let trace = weir_trace::read(path.as_ref(), &TraceOptions::default()).unwrap();
    let d = WorkloadStatistics::new(&trace.workload, bin_threshold(TraceUnit::MB)).unwrap();
    assert_eq!((d.coflows, d.longest_chain, d.events), (6, 4, 4));
}

#[test]
fn generated_trace_depends_only_on_the_seed() {
    for preset in Preset::ALL {
        assert_eq!(generate_workload(&preset.spec(5)), generate_workload(&preset.spec(5)));
        assert_ne!(generate_workload(&preset.spec(5)), generate_workload(&preset.spec(6)));
        assert_eq!(preset.to_string().parse(), Ok(preset));
    }
    assert!("big".parse::<Preset>().unwrap_err().to_string().contains("facebook or small"));
}

fn plain_spec() -> WorkloadSpec {
    let one = Distribution::Constant(1.0);
    let kind = CoflowKind { share: 1.0, mappers: one, reducers: one, mean_megabytes: one, skew: Skew::None };
    WorkloadSpec {
        ports: 10,
        coflows: 5,
        seed: 1,
        arrival: ArrivalProcess::Burst,
        arrival_resolution: Resolution::PublicTrace,
        size_resolution: Resolution::PublicTrace,
        kinds: vec![kind],
        ..WorkloadSpec::default()
    }
}

/// The start of the error, and the change that causes it.
type Case = (&'static str, fn(&mut WorkloadSpec));

#[test]
fn impossible_specifications_are_errors() {
    let second = weir_core::units::Time::new(1e9).unwrap();
    let cases: [Case; 16] = [
        ("`ports`: `0`", |s| s.ports = 0),
        ("`ports`: `65537`", |s| s.ports = 65_537),
        ("`coflows`: `6000000`", |s| s.coflows = 6_000_000),
        ("`kinds`", |s| s.kinds.clear()),
        ("`share`: `NaN`", |s| s.kinds[0].share = f64::NAN),
        ("`share`: `0`", |s| s.kinds[0].share = 0.0),
        ("`mappers`: `constant:NaN`", |s| s.kinds[0].mappers = Distribution::Constant(f64::NAN)),
        ("`reducers`: `uniform:2,1`", |s| s.kinds[0].reducers = Distribution::Uniform { min: 2.0, max: 1.0 }),
        ("`size`: `exponential:-1`", |s| {
            s.kinds[0].mean_megabytes = Distribution::Exponential { mean: -1.0 }
        }),
        ("`size`: `pareto:0,1,2`", |s| {
            s.kinds[0].mean_megabytes = Distribution::Pareto { shape: 0.0, min: 1.0, max: 2.0 }
        }),
        ("`size`: `pareto:1,0,2`", |s| {
            s.kinds[0].mean_megabytes = Distribution::Pareto { shape: 1.0, min: 0.0, max: 2.0 }
        }),
        ("`size`: `lognormal:1,inf,1,2`", |s| {
            s.kinds[0].mean_megabytes =
                Distribution::LogNormal { median: 1.0, sigma: f64::INFINITY, min: 1.0, max: 2.0 };
        }),
        ("`skew`: `spread:2`", |s| s.kinds[0].skew = Skew::Spread(2.0)),
        ("`skew`: `zipf:NaN`", |s| s.kinds[0].skew = Skew::Zipf(f64::NAN)),
        ("`size`: `2^53 bytes by coflow 1`", |s| s.kinds[0].mean_megabytes = Distribution::Constant(1e12)),
        ("`coflows`: `5250000 flows by coflow 21`", |s| {
            (s.ports, s.coflows) = (500, 1000);
            (s.kinds[0].mappers, s.kinds[0].reducers) =
                (Distribution::Constant(500.0), Distribution::Constant(500.0));
        }),
    ];
    for (start, change) in cases {
        let mut spec = plain_spec();
        change(&mut spec);
        let error = generate(&spec, TraceUnit::MB, &Limits::default()).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
    let late = WorkloadSpec { arrival: ArrivalProcess::Every { gap: second }, ..plain_spec() };
    let error = generate(&late, TraceUnit::MB, &Limits::default()).unwrap_err().to_string();
    assert!(error.starts_with("`arrival`: `every:"), "{error}");
}

#[test]
fn distributions_are_read_and_printed() {
    for text in
        ["constant:8", "uniform:1,100", "exponential:10", "pareto:1.2,1,150", "lognormal:20,2.5,1,1000"]
    {
        assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
    }
    for text in ["poisson:7s", "every:500ms", "lognormal:3s,1.3", "burst"] {
        assert_eq!(text.parse::<ArrivalProcess>().unwrap().to_string(), text);
    }
    for text in ["none", "spread:0.5", "zipf:1.2"] {
        assert_eq!(text.parse::<Skew>().unwrap().to_string(), text);
    }
    for text in
        ["", "pareto", "pareto:", "pareto:1", "pareto:1,2,3,4", "uniform:2,1", "constant:-1", "gamma:1,2"]
    {
        assert!(text.parse::<Distribution>().unwrap_err().to_string().contains("expected"), "{text}");
    }
    for text in ["", "poisson:7", "poisson:-7s", "lognormal:3s", "lognormal:3s,9", "burst:1s", "weekly"] {
        assert!(text.parse::<ArrivalProcess>().unwrap_err().to_string().contains("expected"), "{text}");
    }
    for text in ["", "zipf", "zipf:x", "zipf:-1", "spread:1.5", "none:1"] {
        assert!(text.parse::<Skew>().unwrap_err().to_string().contains("expected"), "{text}");
    }
    let error = "pareto:1.2,1".parse::<Distribution>().unwrap_err().to_string();
    assert!(
        error.starts_with("`distribution`: `pareto:1.2,1`: expected constant:V, uniform:MIN,MAX"),
        "{error}"
    );
}

#[test]
fn skews_keep_the_average() {
    for (skew, largest) in [(Skew::None, 1.0), (Skew::Zipf(1.0), 3.41), (Skew::Spread(0.0), 1.0)] {
        let mut spec = plain_spec();
        spec.kinds[0].mean_megabytes = Distribution::Constant(10_000.0);
        spec.kinds[0].reducers = Distribution::Constant(10.0);
        spec.kinds[0].skew = skew;
        for coflow in generate_workload(&spec).coflows {
            assert_within("total", coflow.total_bytes(), 100_000e6, 20e6);
            let most = coflow.flows.iter().map(|f| f.bytes.get()).fold(0.0, f64::max);
            assert_within("largest", most / 10_000e6, largest, 0.01);
        }
    }
}

#[test]
fn workloads_without_coflows_and_loads_without_gaps_are_refused() {
    let load = Load { fraction: 0.5, port_rate: Rate::new(125e6).unwrap() };
    let incasts = Incasts { degree: 2, bytes: Bytes::new(1e3).unwrap(), load };
    let one = WorkloadSpec { coflows: 1, ..WorkloadSpec::default() };
    let burst = WorkloadSpec { arrival: ArrivalProcess::Burst, ..WorkloadSpec::default() };
    for (spec, expected) in [
        (WorkloadSpec { coflows: 0, ..one.clone() }, "`coflows`: `0`: expected 1 or more"),
        (
            WorkloadSpec { load: Some(load), ..one.clone() },
            "`coflows`: `1`: expected 2 or more, since a load needs time between arrivals",
        ),
        (
            WorkloadSpec { incasts: Some(incasts), ..one.clone() },
            "`coflows`: `1`: expected 2 or more, since a load needs time between arrivals",
        ),
        (
            WorkloadSpec { incasts: Some(incasts), ..burst.clone() },
            "`arrival`: `burst`: expected arrivals at different times, for a load",
        ),
    ] {
        let error = generate(&spec, TraceUnit::MB, &Limits::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(generate_workload(&one).coflows.len(), 1);
    assert_eq!(generate_workload(&burst).coflows.len(), 100);
}

fn any_parameter() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..1e3_f64, Just(0.0), Just(1e12), Just(1e-300)]
}

fn any_distribution() -> impl Strategy<Value = Distribution> {
    let p = any_parameter;
    prop_oneof![
        p().prop_map(Distribution::Constant),
        (p(), p()).prop_map(|(min, max)| Distribution::Uniform { min, max }),
        p().prop_map(|mean| Distribution::Exponential { mean }),
        (p(), p(), p()).prop_map(|(shape, min, max)| Distribution::Pareto { shape, min, max }),
        (p(), p(), p(), p()).prop_map(|(median, sigma, min, max)| Distribution::LogNormal {
            median,
            sigma,
            min,
            max
        }),
    ]
}

proptest! {
    #![proptest_config(config_with_cases(2000))]

    /// Any parameters give an error, or a consistent workload that can be written.
    #[test]
    fn generator_gives_a_consistent_workload_or_an_error(
        (ports, coflows, seed) in (0_u32..30, 0_usize..30, any::<u64>()),
        (mappers, reducers, mean_megabytes) in (any_distribution(), any_distribution(), any_distribution()),
        (share, skew, sigma) in (any_parameter(), any_parameter(), any_parameter()),
        unit in prop_oneof![Just(TraceUnit::MB), Just(TraceUnit::MiB)],
        resolution in prop_oneof![
            Just(Resolution::PublicTrace), Just(Resolution::CoflowBenchmark), Just(Resolution::Weir)
        ],
    ) {
        let kinds = [Skew::None, Skew::Spread(skew), Skew::Zipf(skew)]
            .map(|skew| CoflowKind { share, mappers, reducers, mean_megabytes, skew });
        let arrival = ArrivalProcess::LogNormal { median: weir_core::units::Time::new(1.0).unwrap(), sigma };
        let spec = WorkloadSpec {
            ports,
            coflows,
            seed,
            arrival,
            arrival_resolution: resolution,
            size_resolution: resolution,
            kinds: kinds.to_vec(),
            ..WorkloadSpec::default()
        };
        if let Ok(workload) = generate(&spec, unit, &Limits::default()) {
            workload.check().unwrap();
            prop_assert_eq!(workload.coflows.len(), coflows);
            if resolution == Resolution::Weir {
                format::write(&workload, &[], Vec::new()).unwrap();
            } else {
                coflow_benchmark::write(&workload, unit, Vec::new()).unwrap();
            }
        }
    }

    /// Distributions survive printing and parsing, and every parsed distribution is valid.
    #[test]
    fn distributions_survive_printing_and_parsing(law in any_distribution()) {
        if let Ok(read) = law.to_string().parse::<Distribution>() {
            prop_assert_eq!(read, law);
        }
    }
}
