//! Tests replays with an incast cost, on the command line.

use crate::common::TestDir;

/// Two mappers and one reducer with 8 MB: 64 ms at 1 Gbit/s.
const TWO_TO_ONE_TRACE: &str = "3 1\n1 0 2 0 1 1 2:8.0\n";

/// With a buffer of 50 packets, two connections stall for as long as their bytes take at 1 Gbit/s.
const INCAST_COST_CSV: &str = "\
buffer_packets,connections,bytes,congestion,marks_packets,run,loss,goodput_bit_per_s,mean_s,last_s
50,1,1000000,reno,20,1,0,1000000000,0.008,0.008
50,2,1000000,reno,20,1,0.1,500000000,0.03,0.032
100,1,1000000,reno,20,1,0,1000000000,0.008,0.008
100,2,1000000,reno,20,1,0,1000000000,0.016,0.016
";

fn test_dir_with_incast() -> TestDir {
    let dir = TestDir::new();
    dir.write("incast.txt", TWO_TO_ONE_TRACE);
    dir.write("cost.csv", INCAST_COST_CSV);
    dir
}

#[test]
fn incast_replay_reduces_receivers_to_measured_goodput() {
    let dir = test_dir_with_incast();
    let line = "compare incast.txt --policies fair,aalo+,varys --interval 0 --no-timing";
    let cct = |options: &str, policy: usize| {
        let results = dir.json_of(&format!("{line} {options} --format json"));
        results[policy]["mean_cct_s"].as_f64().unwrap()
    };
    for policy in 0..3 {
        for (options, expected) in [
            ("", 0.064),
            ("--incast cost.csv --buffer 50", 0.128),
            ("--incast cost.csv --buffer 75", 0.064 / 0.75),
            ("--incast cost.csv --buffer 100", 0.064),
            // At a tenth of the rate, bytes take ten times as long and the stall is the same: 10/11 of the
            // rate.
            ("--incast cost.csv --buffer 50 --port-rate 100Mbit", 0.704),
        ] {
            let found = cct(options, policy);
            assert!((found / expected - 1.0).abs() < 1e-9, "{options}: {found} is not {expected}");
        }
    }
    // If the connections cost nothing, the results equal those without --incast, and the output adds two
    // fields.
    let without_cost = dir.json_of(&format!("{line} --incast cost.csv --buffer 100 --format json"));
    assert_eq!(
        (&without_cost[0]["incast"], &without_cost[0]["buffer_packets"]),
        (&"cost.csv".into(), &100.into())
    );
    let plain = dir.json_of(&format!("{line} --format json"));
    assert!(plain[0].get("incast").is_none());
    let text = dir.stdout_of(&format!("{line} --incast cost.csv --buffer 50"));
    let expected = "cost.csv: incast of 1.000 MB a connection, measured on a link of 1.000 Gbit, \
                reno, with marks from 20 packets on; ports buffer 50 packets: \
                up to 1 connection costs nothing, 2 leave 50.0 % of a port.";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn sweep_and_sim_accept_an_incast_cost() {
    let dir = test_dir_with_incast();
    let sweep = dir.json_of(
        "sweep incast.txt --policies fair --vary port-rate=100Mbit,1Gbit --interval 0 --incast cost.csv --buffer 50 \
         --format json",
    );
    let ccts: Vec<f64> =
        sweep.as_array().unwrap().iter().map(|r| r["mean_cct_s"].as_f64().unwrap()).collect();
    assert!((ccts[0] - 0.704).abs() < 1e-9 && (ccts[1] - 0.128).abs() < 1e-9, "{ccts:?}");
    let sim =
        dir.json_of("sim incast.txt --policy fair --interval 0 --incast cost.csv --buffer 50 --format json");
    assert!((sim["mean_cct_s"].as_f64().unwrap() - 0.128).abs() < 1e-9, "{sim}");
}

#[test]
fn varied_buffer_needs_no_buffer() {
    let dir = test_dir_with_incast();
    let line = "sweep incast.txt --policies fair --vary buffer=50,100 --interval 0 --incast cost.csv";
    let with_buffer = dir.json_of(&format!("{line} --buffer 75 --format json"));
    let results = dir.json_of(&format!("{line} --format json"));
    let mean = |results: &serde_json::Value, at: usize| results[at]["mean_cct_s"].as_f64().unwrap();
    for (at, cct) in [(0, 0.128), (1, 0.064)] {
        assert!((mean(&results, at) - cct).abs() < 1e-9, "{results}");
        assert_eq!(mean(&results, at), mean(&with_buffer, at));
    }
    assert!(dir.stdout_of(line).contains("ports buffer `buffer` packets"));
    let error = dir.stderr_of(&line.replace("buffer=50", "buffer=5"), 2);
    assert!(error.contains("--vary buffer: `5` is outside the measurements"), "{error}");
    let error = dir.stderr_of(&format!("{line} --fixed-baseline"), 2);
    assert!(error.contains("--fixed-baseline: the baseline has the unvaried buffer"), "{error}");
}

#[test]
fn invalid_incast_options_are_exit_2() {
    let dir = test_dir_with_incast();
    let error = dir.stderr_of("sim incast.txt --policy fair --incast cost.csv", 2);
    assert!(error.contains("--buffer"), "{error}");
    let error = dir.stderr_of("sim incast.txt --policy fair --buffer 50", 2);
    assert!(error.contains("--incast"), "{error}");
    for buffer in [49, 101] {
        let error =
            dir.stderr_of(&format!("sim incast.txt --policy fair --incast cost.csv --buffer {buffer}"), 2);
        assert!(error.contains("expected 50 to 100 packets, as in cost.csv"), "{error}");
    }
    dir.write("bad.csv", &INCAST_COST_CSV.replace("0.1,5", "1.1,5"));
    let error = dir.stderr_of("sim incast.txt --policy fair --incast bad.csv --buffer 50", 2);
    assert!(error.contains("bad.csv:3: field `loss`: `1.1`: expected a number from 0"), "{error}");
    let lines = INCAST_COST_CSV.lines().filter(|line| !line.contains(",2,1000000"));
    dir.write("one.csv", &lines.map(|line| format!("{line}\n")).collect::<String>());
    let error = dir.stderr_of("sim incast.txt --policy fair --incast one.csv --buffer 50", 2);
    assert!(error.contains("one.csv: field `connections`: `1 in all lines`; expected several"), "{error}");
    let error = dir.stderr_of("sim incast.txt --policy fair --incast none.csv --buffer 50", 2);
    assert!(error.contains("none.csv: cannot be read"), "{error}");
    let error = dir.stderr_of("sim incast.txt --policy fair --incast cost.csv --buffer 50 --out cost.csv", 2);
    assert!(error.contains("expected another file"), "{error}");
    let regions = "weir-wide-area = 1\nregions = [\"a\", \"b\"]\n\
                   [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"80Mbit\"\n\
                   [[link]]\nfrom = \"b\"\nto = \"a\"\nrate = \"80Mbit\"\n";
    dir.write("regions.toml", regions);
    let error =
        dir.stderr_of("sim incast.txt --policy fair --incast cost.csv --buffer 50 --fabric regions.toml", 2);
    assert!(error.contains("the ports of regions limit no flow"), "{error}");
}

#[test]
fn django_page_differs_between_runs_in_timings_only() {
    let dir = test_dir_with_incast();
    dir.stdout_of("trace generate --preset small --coflows 20 --seed 3 --out small.txt");
    let line = "reproduce django --trace small.txt --seeds 1 --no-timing --quiet";
    let untimed = dir.stdout_of(line);
    assert_eq!(untimed, dir.stdout_of(&format!("{line} --jobs 2")));
    for heading in [
        "# Django, published and measured",
        "## Published and measured",
        "## Fig. 2",
        "## Fig. 4",
        "87.7 %",
        "### Theorem 4.1",
        "## Fig. 5",
        "## Fig. 6 to 9",
        "## Fig. 11",
        "## Table 2",
        "## Assumptions",
    ] {
        assert!(untimed.contains(heading), "the page lacks {heading}");
    }
    assert!(
        !untimed.contains("NaN") && !untimed.contains("inf ") && !untimed.contains("## Timings"),
        "{untimed}"
    );
    let timed = dir.stdout_of(&line.replace(" --no-timing", ""));
    let (figures, _) = timed.split_once("## Timings\n").expect("the page has a section of timings");
    assert_eq!(figures.trim_end(), untimed.trim_end(), "other sections contain timings");
    dir.write("still.txt", "2 1\n1 0 1 0 1 1:8.0\n");
    for page in ["django", "django-live"] {
        let error = dir.stderr_of(&format!("reproduce {page} --trace still.txt"), 2);
        assert!(error.contains("all coflows arrive at 0 s; expected later arrivals"), "{page}: {error}");
    }
}
