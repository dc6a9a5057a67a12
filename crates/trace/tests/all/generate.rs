//! The trace generator: its statistics and its errors.

use proptest::prelude::*;
use weir_core::model::Workload;
use weir_trace::describe::{Description, threshold};
use weir_trace::generate::{Arrival, Kind, Law, Preset, Skew, Spec, generate, spread as spread_over};
use weir_trace::{Limits, TraceUnit, coflow_benchmark};

#[test]
fn services_and_applications_are_spread_evenly_over_coflows() {
    let plain = make(&Preset::Small.spec(7));
    let mut spread = plain.clone();
    spread_over(&mut spread, 3, 4, 7).unwrap();
    assert!(spread.check().is_ok());
    assert_eq!((spread.names.services(), spread.names.count()), (3, 12));
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

fn make(spec: &Spec) -> Workload {
    generate(spec, TraceUnit::MB, &Limits::default()).expect("the specification can be met")
}

fn within(what: &str, value: f64, published: f64, tolerance: f64) {
    assert!((value - published).abs() <= tolerance, "{what}: {value}, published {published} +- {tolerance}");
}

/// The statistics of the public trace: Saath, 2.3 (shares of single flows, of equal and unequal flow
/// lengths), Table 1's bins, and the counts and totals that its publishers give.
#[test]
fn facebook_model_matches_public_trace_statistics() {
    for seed in 0..12 {
        let workload = make(&Preset::Facebook.spec(seed));
        workload.check().unwrap();
        let d = Description::new(&workload, threshold(TraceUnit::MB)).unwrap();
        assert_eq!((d.ports, d.coflows, d.first_arrival, d.depth), (150, 526, 0.0, 1));
        within("single", d.single, 0.23, 0.03);
        within("equal", d.equal, 0.50, 0.03);
        within("unequal", d.unequal, 0.27, 0.03);
        for (share, published) in d.bins.into_iter().zip([0.468, 0.217, 0.048, 0.268]) {
            within("bin", share, published, 0.01);
        }
        within("median width", d.widths[2] as f64, 10.0, 4.0);
        within("90th percentile of widths", d.widths[4] as f64, 3626.0, 1800.0);
        within("largest width", d.widths[7] as f64, 21_170.0, 3000.0);
        within("flows", d.flows as f64, 706_397.0, 200_000.0);
        within("terabytes", d.bytes / 1e12, 35.5, 15.0);
        within("seconds", d.last_arrival, 3600.0, 1200.0);
        within("same port", d.same_port, 0.007, 0.002);
        // Few coflows have nearly all bytes.
        let mut sizes: Vec<f64> = workload.coflows.iter().map(|c| c.bytes()).collect();
        sizes.sort_by(|a, b| b.total_cmp(a));
        let tenth: f64 = sizes[..53].iter().sum();
        assert!(tenth > 0.97 * d.bytes, "the largest tenth has {} of the bytes", tenth / d.bytes);
    }
}

#[test]
fn small_model_keeps_shape_and_load() {
    for seed in 0..12 {
        let workload = make(&Preset::Small.spec(seed));
        let d = Description::new(&workload, threshold(TraceUnit::MB)).unwrap();
        assert_eq!((d.ports, d.coflows), (50, 200));
        within("single", d.single, 0.23, 0.04);
        for (share, published) in d.bins.into_iter().zip([0.468, 0.217, 0.048, 0.268]) {
            within("bin", share, published, 0.02);
        }
        within("flows", d.flows as f64, 15_000.0, 7000.0);
        // Load relative to the port capacity of 1 Gbit/s during the arrivals: contended, but not overloaded.
        let load = d.send.mean / (125e6 * d.last_arrival);
        within("load", load, 0.45, 0.2);
    }
}

#[test]
fn sizes_are_whole_megabytes_and_arrivals_whole_milliseconds() {
    let mut out = Vec::new();
    coflow_benchmark::write(&make(&Preset::Small.spec(3)), TraceUnit::MB, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(' ').collect();
        assert!(fields[1].bytes().all(|b| b.is_ascii_digit()), "{line}");
        let sizes = fields.iter().filter_map(|field| field.split_once(':'));
        assert!(sizes.into_iter().all(|(_, size)| size.ends_with(".0") && size != "0.0"), "{line}");
    }
}

/// The shipped demo trace equals the output of `examples/demo_trace.rs`.
#[test]
fn demo_trace_equals_the_example_output() {
    let mut out = Vec::new();
    coflow_benchmark::write(&make(&Preset::Small.spec(1)), TraceUnit::MB, &mut out).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/demo.txt");
    assert!(out == std::fs::read(path).unwrap(), "examples/demo.txt is not what the generator makes");
}

/// The example of Weir's own format uses every feature.
#[test]
fn the_dag_example_can_be_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/dag.weir");
    let trace = weir_trace::read(path.as_ref(), TraceUnit::MB, &Limits::default()).unwrap();
    let d = Description::new(&trace.workload, threshold(TraceUnit::MB)).unwrap();
    assert_eq!((d.coflows, d.depth, d.events), (6, 4, 4));
}

#[test]
fn generated_trace_depends_only_on_the_seed() {
    for preset in Preset::ALL {
        assert_eq!(make(&preset.spec(5)), make(&preset.spec(5)));
        assert_ne!(make(&preset.spec(5)), make(&preset.spec(6)));
        assert_eq!(preset.to_string().parse(), Ok(preset));
    }
    assert!("big".parse::<Preset>().unwrap_err().to_string().contains("facebook or small"));
}

fn plain() -> Spec {
    let one = Law::Constant(1.0);
    let kind = Kind { share: 1.0, mappers: one, reducers: one, size: one, skew: Skew::None };
    Spec { ports: 10, coflows: 5, seed: 1, arrival: Arrival::Burst, kinds: vec![kind] }
}

/// The start of the error, and the change that causes it.
type Case = (&'static str, fn(&mut Spec));

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
        ("`mappers`: `constant:NaN`", |s| s.kinds[0].mappers = Law::Constant(f64::NAN)),
        ("`reducers`: `uniform:2,1`", |s| s.kinds[0].reducers = Law::Uniform { min: 2.0, max: 1.0 }),
        ("`size`: `exponential:-1`", |s| s.kinds[0].size = Law::Exponential { mean: -1.0 }),
        ("`size`: `pareto:0,1,2`", |s| s.kinds[0].size = Law::Pareto { shape: 0.0, min: 1.0, max: 2.0 }),
        ("`size`: `pareto:1,0,2`", |s| s.kinds[0].size = Law::Pareto { shape: 1.0, min: 0.0, max: 2.0 }),
        ("`size`: `lognormal:1,inf,1,2`", |s| {
            s.kinds[0].size = Law::LogNormal { median: 1.0, sigma: f64::INFINITY, min: 1.0, max: 2.0 };
        }),
        ("`skew`: `spread:2`", |s| s.kinds[0].skew = Skew::Spread(2.0)),
        ("`skew`: `zipf:NaN`", |s| s.kinds[0].skew = Skew::Zipf(f64::NAN)),
        ("`size`: `2^53 bytes by coflow 1`", |s| s.kinds[0].size = Law::Constant(1e12)),
        ("`coflows`: `5250000 flows by coflow 21`", |s| {
            (s.ports, s.coflows) = (500, 1000);
            (s.kinds[0].mappers, s.kinds[0].reducers) = (Law::Constant(500.0), Law::Constant(500.0));
        }),
    ];
    for (start, change) in cases {
        let mut spec = plain();
        change(&mut spec);
        let error = generate(&spec, TraceUnit::MB, &Limits::default()).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
    let late = Spec { arrival: Arrival::Every { gap: second }, ..plain() };
    let error = generate(&late, TraceUnit::MB, &Limits::default()).unwrap_err().to_string();
    assert!(error.starts_with("`arrival`: `every:"), "{error}");
}

#[test]
fn laws_are_read_and_printed() {
    for text in
        ["constant:8", "uniform:1,100", "exponential:10", "pareto:1.2,1,150", "lognormal:20,2.5,1,1000"]
    {
        assert_eq!(text.parse::<Law>().unwrap().to_string(), text);
    }
    for text in ["poisson:7s", "every:500ms", "lognormal:3s,1.3", "burst"] {
        assert_eq!(text.parse::<Arrival>().unwrap().to_string(), text);
    }
    for text in ["none", "spread:0.5", "zipf:1.2"] {
        assert_eq!(text.parse::<Skew>().unwrap().to_string(), text);
    }
    for text in
        ["", "pareto", "pareto:", "pareto:1", "pareto:1,2,3,4", "uniform:2,1", "constant:-1", "gamma:1,2"]
    {
        assert!(text.parse::<Law>().unwrap_err().to_string().contains("expected"), "{text}");
    }
    for text in ["", "poisson:7", "poisson:-7s", "lognormal:3s", "lognormal:3s,9", "burst:1s", "weekly"] {
        assert!(text.parse::<Arrival>().unwrap_err().to_string().contains("expected"), "{text}");
    }
    for text in ["", "zipf", "zipf:x", "zipf:-1", "spread:1.5", "none:1"] {
        assert!(text.parse::<Skew>().unwrap_err().to_string().contains("expected"), "{text}");
    }
    let error = "pareto:1.2,1".parse::<Law>().unwrap_err().to_string();
    assert!(error.starts_with("`law`: `pareto:1.2,1`: expected constant:V, uniform:MIN,MAX"), "{error}");
}

#[test]
fn skews_keep_the_average() {
    for (skew, largest) in [(Skew::None, 1.0), (Skew::Zipf(1.0), 3.41), (Skew::Spread(0.0), 1.0)] {
        let mut spec = plain();
        spec.kinds[0].size = Law::Constant(10_000.0);
        spec.kinds[0].reducers = Law::Constant(10.0);
        spec.kinds[0].skew = skew;
        for coflow in make(&spec).coflows {
            within("total", coflow.bytes(), 100_000e6, 20e6);
            let most = coflow.flows.iter().map(|f| f.bytes.get()).fold(0.0, f64::max);
            within("largest", most / 10_000e6, largest, 0.01);
        }
    }
}

fn parameter() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..1e3_f64, Just(0.0), Just(1e12), Just(1e-300)]
}

fn law() -> impl Strategy<Value = Law> {
    let p = parameter;
    prop_oneof![
        p().prop_map(Law::Constant),
        (p(), p()).prop_map(|(min, max)| Law::Uniform { min, max }),
        p().prop_map(|mean| Law::Exponential { mean }),
        (p(), p(), p()).prop_map(|(shape, min, max)| Law::Pareto { shape, min, max }),
        (p(), p(), p(), p()).prop_map(|(median, sigma, min, max)| Law::LogNormal { median, sigma, min, max }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any parameters give an error, or a consistent workload that can be written.
    #[test]
    fn generator_gives_a_consistent_workload_or_an_error(
        (ports, coflows, seed) in (0_u32..30, 0_usize..30, any::<u64>()),
        (mappers, reducers, size) in (law(), law(), law()),
        (share, skew, sigma) in (parameter(), parameter(), parameter()),
    ) {
        let kinds = [Skew::None, Skew::Spread(skew), Skew::Zipf(skew)]
            .map(|skew| Kind { share, mappers, reducers, size, skew });
        let arrival = Arrival::LogNormal { median: weir_core::units::Time::new(1.0).unwrap(), sigma };
        let spec = Spec { ports, coflows, seed, arrival, kinds: kinds.to_vec() };
        if let Ok(workload) = generate(&spec, TraceUnit::MiB, &Limits::default()) {
            workload.check().unwrap();
            prop_assert_eq!(workload.coflows.len(), coflows);
            coflow_benchmark::write(&workload, TraceUnit::MiB, Vec::new()).unwrap();
        }
    }

    /// Laws survive printing and parsing, and every parsed law is valid.
    #[test]
    fn laws_survive_printing_and_parsing(law in law()) {
        if let Ok(read) = law.to_string().parse::<Law>() {
            prop_assert_eq!(read, law);
        }
    }
}
