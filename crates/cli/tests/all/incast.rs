//! Replays with an incast cost, on the command line.

use crate::common::Place;

/// Two mappers and one reducer with 8 MB: 64 ms at 1 Gbit/s.
const TWO_TO_ONE: &str = "3 1\n1 0 2 0 1 1 2:8.0\n";

/// With a buffer of 50 packets, two connections stall for as long as their bytes take at 1 Gbit/s.
const COST: &str = "\
buffer_packets,connections,bytes,congestion,marks_packets,run,loss,goodput_bit_per_s,mean_s,last_s
50,1,1000000,reno,20,1,0,1000000000,0.008,0.008
50,2,1000000,reno,20,1,0.1,500000000,0.03,0.032
100,1,1000000,reno,20,1,0,1000000000,0.008,0.008
100,2,1000000,reno,20,1,0,1000000000,0.016,0.016
";

fn place() -> Place {
    let place = Place::new();
    place.write("incast.txt", TWO_TO_ONE);
    place.write("cost.csv", COST);
    place
}

#[test]
fn incast_replay_reduces_receivers_to_measured_goodput() {
    let place = place();
    let line = "compare incast.txt --policies fair,aalo+,varys --interval 0 --no-timing";
    let cct = |more: &str, policy: usize| {
        let found = place.json(&format!("{line} {more} --format json"));
        found[policy]["mean_cct_s"].as_f64().unwrap()
    };
    for policy in 0..3 {
        for (more, expected) in [
            ("", 0.064),
            ("--incast cost.csv --buffer 50", 0.128),
            ("--incast cost.csv --buffer 75", 0.064 / 0.75),
            ("--incast cost.csv --buffer 100", 0.064),
            // At a tenth of the rate, bytes take ten times as long and the stall is the same: 10/11 of the
            // rate.
            ("--incast cost.csv --buffer 50 --port-rate 100Mbit", 0.704),
        ] {
            let found = cct(more, policy);
            assert!((found / expected - 1.0).abs() < 1e-9, "{more}: {found} is not {expected}");
        }
    }
    // If the connections cost nothing, the results equal those without --incast, and the output adds two
    // fields.
    let free = place.json(&format!("{line} --incast cost.csv --buffer 100 --format json"));
    assert_eq!((&free[0]["incast"], &free[0]["buffer_packets"]), (&"cost.csv".into(), &100.into()));
    let plain = place.json(&format!("{line} --format json"));
    assert!(plain[0].get("incast").is_none());
    let text = place.print(&format!("{line} --incast cost.csv --buffer 50"));
    let says = "cost.csv: incast of 1.000 MB a connection, measured on a link of 1.000 Gbit, \
                reno, with marks from 20 packets on; ports buffer 50 packets: \
                up to 1 connection costs nothing, 2 leave 50.0 % of a port.";
    assert!(text.contains(says), "{text}");
}

#[test]
fn sweep_and_sim_accept_an_incast_cost() {
    let place = place();
    let sweep = place.json(
        "sweep incast.txt --policies fair --vary port-rate=100Mbit,1Gbit --interval 0 --incast cost.csv --buffer 50 \
         --format json",
    );
    let ccts: Vec<f64> =
        sweep.as_array().unwrap().iter().map(|r| r["mean_cct_s"].as_f64().unwrap()).collect();
    assert!((ccts[0] - 0.704).abs() < 1e-9 && (ccts[1] - 0.128).abs() < 1e-9, "{ccts:?}");
    let sim =
        place.json("sim incast.txt --policy fair --interval 0 --incast cost.csv --buffer 50 --format json");
    assert!((sim["mean_cct_s"].as_f64().unwrap() - 0.128).abs() < 1e-9, "{sim}");
}

#[test]
fn invalid_incast_options_are_exit_2() {
    let place = place();
    let error = place.error("sim incast.txt --policy fair --incast cost.csv", 2);
    assert!(error.contains("--buffer"), "{error}");
    let error = place.error("sim incast.txt --policy fair --buffer 50", 2);
    assert!(error.contains("--incast"), "{error}");
    for buffer in [49, 101] {
        let error =
            place.error(&format!("sim incast.txt --policy fair --incast cost.csv --buffer {buffer}"), 2);
        assert!(error.contains("expected 50 to 100 packets, as in cost.csv"), "{error}");
    }
    place.write("bad.csv", &COST.replace("0.1,5", "1.1,5"));
    let error = place.error("sim incast.txt --policy fair --incast bad.csv --buffer 50", 2);
    assert!(error.contains("bad.csv:3: field `loss`: `1.1`: expected a number from 0"), "{error}");
    let lines = COST.lines().filter(|line| !line.contains(",2,1000000"));
    place.write("one.csv", &lines.map(|line| format!("{line}\n")).collect::<String>());
    let error = place.error("sim incast.txt --policy fair --incast one.csv --buffer 50", 2);
    assert!(error.contains("one.csv: field `connections`: `1 in all lines`: expected several"), "{error}");
    let error = place.error("sim incast.txt --policy fair --incast none.csv --buffer 50", 2);
    assert!(error.contains("none.csv: cannot be read"), "{error}");
    let error = place.error("sim incast.txt --policy fair --incast cost.csv --buffer 50 --out cost.csv", 2);
    assert!(error.contains("expected another file"), "{error}");
    let error =
        place.error("sim incast.txt --policy fair --incast cost.csv --buffer 50 --wide-area x.toml", 2);
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
fn django_page_differs_between_runs_in_timings_only() {
    let place = place();
    place.print("trace generate --preset small --coflows 20 --seed 3 --out small.txt");
    let line = "reproduce django --trace small.txt --seeds 1 --no-timing --quiet";
    let once = place.print(line);
    assert_eq!(once, place.print(&format!("{line} --jobs 2")));
    for part in [
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
        assert!(once.contains(part), "it lacks {part}");
    }
    assert!(!once.contains("NaN") && !once.contains("inf ") && !once.contains("## Timings"), "{once}");
    let timed = place.print(&line.replace(" --no-timing", ""));
    let (figures, _) = timed.split_once("## Timings\n").expect("timings are a section");
    assert_eq!(figures.trim_end(), once.trim_end(), "timings are in other sections, too");
    place.write("still.txt", "2 1\n1 0 1 0 1 1:8.0\n");
    let error = place.error("reproduce django --trace still.txt", 2);
    assert!(error.contains("all coflows arrive at 0 s; expected later arrivals"), "{error}");
}
