//! Tests replays over a network with links between switches.

use crate::common::TestDir;

const NETWORK: &str = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 2\nleaves = 2\nhosts = 2\nrate = \"8Mbit\"\noversubscription = 4.0\n";

/// Two coflows on four ports: one stays below the first leaf, the other crosses the spines.
const TRACE: &str = "4 2\n1 0 1 0 1 1:2\n2 0 1 0 1 3:2\n";

fn test_dir_with_network() -> TestDir {
    let dir = TestDir::new();
    dir.write("network.toml", NETWORK);
    dir.write("trace.txt", TRACE);
    dir
}

#[test]
fn links_between_switches_limit_coflows() {
    let dir = test_dir_with_network();
    // Ports carry 1 MB/s, and each coflow has 2 MB. A link between switches carries a quarter of a port, so the crossing
    // coflow, the first, takes 8 s. Over ports, `fifo` reserves the whole port of its sender for these 8 s.
    dir.write("crossing.txt", "4 2\n1 0 1 0 1 2:2.0\n2 0 1 0 1 1:2.0\n");
    for (decide_over, makespans) in [("links", [8.0, 8.0]), ("ports", [8.0, 10.0])] {
        let results = dir.json_of(&format!(
            "compare crossing.txt --fabric network.toml --decide-over {decide_over} --policies fair,fifo --interval 0 \
             --quiet --no-timing --format json",
        ));
        for (policy, makespan) in results.as_array().unwrap().iter().zip(makespans) {
            assert_eq!((&policy["fabric"], &policy["path_seed"]), (&"network.toml".into(), &0.into()));
            assert_eq!(
                (&policy["port_rate"], &policy["decide_over"]),
                (&"8Mbit".into(), &decide_over.into())
            );
            assert!((policy["makespan_s"].as_f64().unwrap() - makespan).abs() < 1e-9, "{policy}");
        }
    }
    let text = dir.stdout_of("sim trace.txt --policy saath --fabric network.toml --path-seed 3 --quiet");
    assert!(text.contains("Ports of 8Mbit"), "{text}");
    assert!(text.contains("network.toml: 4 hosts with 8 links between switches, of 16.00 Mbit in all; each flow takes one of the shortest paths, by a hash with seed 3; policies decide over all links."), "{text}");
    let all = dir.stdout_of("compare trace.txt --fabric network.toml --quiet --no-timing --format csv");
    assert!(all.contains("saath") && all.contains("aalo"), "all policies support fabrics: {all}");
    let swept = dir.json_of(
        "sweep trace.txt --fabric network.toml --policies fair --vary interval=0,8ms --quiet --format json",
    );
    assert_eq!((swept.as_array().unwrap().len(), &swept[1]["fabric"]), (2, &"network.toml".into()));
}

#[test]
fn failing_cables_move_flows_to_other_paths() {
    let dir = test_dir_with_network();
    // 2 MB at 0.25 MB/s over one spine. From 2 s to 4 s, neither spine is connected to the first leaf.
    dir.write("crossing.txt", "4 1\n1 0 1 0 1 2:2.0\n");
    let mut text = NETWORK.to_owned();
    for (at, spine, change) in [("1s", 0, "down"), ("2s", 1, "down"), ("4s", 0, "up")] {
        text += &format!(
            "[[event]]\nat = \"{at}\"\ncable = [\"leaf0\", \"spine{spine}\"]\nchange = \"{change}\"\n"
        );
    }
    dir.write("failing.toml", &text);
    let line = "compare crossing.txt --fabric failing.toml --policies fair,saath,pfp --interval 0 --quiet --no-timing";
    for policy in dir.json_of(&format!("{line} --format json")).as_array().unwrap() {
        assert!((policy["makespan_s"].as_f64().unwrap() - 10.0).abs() < 1e-9, "{policy}");
        // Of the ports: flows change their links.
        assert_eq!(policy["lower_bound_mean_cct_s"], 2.0, "{policy}");
    }
    assert!(dir.stdout_of(line).contains("policies decide over all links; 3 events of cables."));
    dir.stdout_of(&format!("{line} --per-flow flows.csv"));
    for line in dir.read("flows.csv").lines().skip(1) {
        assert!(line.ends_with(",leaf0 -> spine0; spine0 -> leaf1"), "its last path: {line}");
    }
    assert!(dir.stdout_of("fabric check failing.toml").contains("8 cables, 3 events"));
    for (change, expected) in [
        (
            ("\"up\"", "\"down\""),
            "failing.toml:19: field `event 3 change`: `down`: expected a cable that is up",
        ),
        (("\"4s\"", "\"1s\""), "field `event 3 at`: `1s`: expected events in order, from 2s on"),
        (("\"spine1\"", "\"spine7\""), "expected the two ends of a cable of the fabric"),
    ] {
        dir.write("failing.toml", &text.replace(change.0, change.1));
        let error = dir.stderr_of(line, 2);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn utilization_is_written_by_link() {
    let dir = test_dir_with_network();
    // 2 MB from the first leaf to the second, at 0.25 MB/s over one spine, within 8 s.
    dir.write("crossing.txt", "4 1\n1 0 1 0 1 2:2.0\n");
    dir.stdout_of(
        "sim crossing.txt --fabric network.toml --policy saath --interval 0 --quiet --per-link links.csv \
         --per-link-time times.csv",
    );
    let links = dir.read("links.csv");
    let lines: Vec<Vec<&str>> = links.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        (lines.len(), links.lines().next()),
        (1 + 4 + 4 + 8, Some("policy,kind,link,utilization,peak_utilization"))
    );
    let used: Vec<&Vec<&str>> = lines[1..].iter().filter(|line| line[3] != "0.0").collect();
    let [send, receive, up, down] = used[..] else { panic!("{links}") };
    assert_eq!(
        (send[1..4].join(","), receive[1..4].join(",")),
        ("send,0,0.25".into(), "receive,2,0.25".into())
    );
    for used in [&send, &receive, &up, &down] {
        let [mean, peak] = [3, 4].map(|column| used[column].parse::<f64>().unwrap());
        assert!((peak - mean).abs() < 1e-9, "the flow has a constant rate: {used:?}");
    }
    let times = dir.read("times.csv");
    assert_eq!(times.lines().next(), Some("policy,kind,link,from_s,to_s,utilization"));
    let of_sender: Vec<Vec<&str>> = times
        .lines()
        .filter_map(|line| line.strip_prefix("saath,send,0,"))
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!((of_sender[0][0], of_sender.last().unwrap()[1]), ("0.0", "8.0"), "{of_sender:?}");
    assert!(of_sender.len() >= 64 && of_sender.windows(2).all(|pair| pair[0][1] == pair[1][0]));
    assert_eq!(times.lines().count(), 1 + 16 * of_sender.len());
    let spine = up[2].strip_prefix("leaf0 -> ").unwrap();
    assert_eq!((up[1], up[3], down[1], down[3]), ("trunk", "1.0", "trunk", "1.0"));
    assert_eq!(down[2], format!("{spine} -> leaf1"));
}

#[test]
fn explanations_name_links_between_switches_and_regions() {
    let dir = test_dir_with_network();
    dir.write("one-spine.toml", &NETWORK.replace("spines = 2", "spines = 1"));
    // The first coflow has the uplink of 0.5 MB/s for 4 s; the second one, between other ports, waits.
    dir.write("two.txt", "4 2\n1 0 1 0 1 2:2.0\n2 1000 1 1 1 3:2.0\n");
    let line = "explain two.txt --policy fifo --coflow 2 --interval 0 --fabric one-spine.toml";
    let found = dir.json_of(&format!("{line} --format json"));
    assert_eq!((&found["cct_s"], &found["alone_s"]), (&7.0.into(), &4.0.into()));
    let cause = &found["by_cause"][0];
    assert_eq!(
        (&cause["cause"], &cause["trunk"], &cause["lost_s"]),
        (&"trunk".into(), &"leaf0 -> spine0".into(), &3.0.into())
    );
    assert!(cause["port"].is_null() && cause["side"].is_null());
    assert_eq!(
        (&found["segments"][0]["held_up_by"], &found["segments"][0]["held_up_by_share"]),
        (&1.into(), &1.0.into())
    );
    let text = dir.stdout_of(line);
    assert!(text.contains("leaf0 -> spine0") && text.contains("one-spine.toml: 4 hosts"), "{text}");
    let regions = "weir-wide-area = 1\nregions = [\"a\", \"b\"]\nlink = [{ from = \"a\", to = \"b\", rate = \"4Mbit\" }, \
                   { from = \"b\", to = \"a\", rate = \"4Mbit\" }]\n";
    dir.write("regions.toml", regions);
    let line = "explain two.txt --policy mrtf --coflow 2 --fabric regions.toml --format json";
    let found = dir.json_of(line);
    assert_eq!((&found["cct_s"], &found["width"]), (&7.0.into(), &1.into()));
    assert_eq!(found["by_cause"][0]["trunk"], "a -> b");
}

/// Eight flows of 1 GB over four paths of 25 Gbit/s, from one host to another.
fn test_dir_with_eight_flows() -> TestDir {
    let dir = TestDir::new();
    let flows = "flow 0 2 1GB\n".repeat(8);
    dir.write("eight-flows.weir", &format!("weir-trace 1\nports 4\ncoflow 1\n{flows}"));
    let fabric = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 4\nleaves = 2\nhosts = 2\nrate = \"100Gbit\"\n\
                  oversubscription = 2.0\n";
    dir.write("fabric.toml", fabric);
    dir
}

#[test]
fn explanations_compare_colliding_flows_with_the_same_flows_spread_evenly() {
    let dir = test_dir_with_eight_flows();
    let line = "explain eight-flows.weir --fabric fabric.toml --policy fair --coflow 1 --interval 0";
    let found = dir.json_of(&format!("{line} --format json"));
    assert_eq!((&found["cct_s"], &found["alone_s"]), (&1.28.into(), &1.28.into()));
    let expected = serde_json::json!({
        "trunk": "leaf0 -> spine0",
        "flows": 4,
        "candidate_flows": 8,
        "unused_trunks": ["leaf0 -> spine2"],
        "time_s": 1.28,
        "even_time_s": 0.64,
    });
    assert_eq!(found["collision"], expected);
    let text = dir.stdout_of(line);
    let sentence = "Its flows collide: 4 of 8 cross leaf0 -> spine0, and none crosses leaf0 -> spine2. \
                    Spread evenly over the paths, they take 640.0 ms instead of 1.280 s.\n";
    assert!(text.contains(sentence), "{text}");
    // With this seed, each path has two flows.
    let even = dir.json_of(&format!("{line} --path-seed 104 --format json"));
    assert_eq!((&even["cct_s"], &even["collision"]), (&0.64.into(), &serde_json::Value::Null));
}

#[test]
fn per_flow_output_has_the_paths_of_flows() {
    let dir = test_dir_with_eight_flows();
    for decide_over in ["links", "ports"] {
        let line = "sim eight-flows.weir --fabric fabric.toml --policy saath --interval 0 --quiet";
        dir.stdout_of(&format!("{line} --decide-over {decide_over} --per-flow flows.csv"));
        let flows = dir.read("flows.csv");
        let count =
            |spine: usize| flows.matches(&format!("leaf0 -> spine{spine}; spine{spine} -> leaf1\n")).count();
        let counts = [0, 1, 2, 3].map(count);
        assert_eq!((counts[0], counts[2], counts.iter().sum()), (4, 0, 8), "{flows}");
    }
}

#[test]
fn explanations_state_why_a_coflow_was_rejected() {
    let dir = TestDir::new();
    // 3 MB at 1 MB/s in 2.5 s.
    dir.write("late.weir", "weir-trace 1\nports 2\ncoflow 4 deadline=2500ms\nflow 0 1 3MB\n");
    let line = "explain late.weir --policy varys:deadlines=on --coflow 4 --interval 0 --port-rate 8Mbit";
    let text = dir.stdout_of(line);
    assert!(
        text.contains("Rejected at admission: needs 3.000 s on the residual capacity, deadline in 2.500 s."),
        "{text}"
    );
    let found = dir.json_of(&format!("{line} --format json"));
    assert_eq!((&found["rejected_needed_s"], &found["rejected_left_s"]), (&3.0.into(), &2.5.into()));
    assert!(dir.stdout_of(&format!("{line} --format csv")).ends_with(",3.0,2.5\n"));
}

#[test]
fn links_without_capacity_are_named() {
    let dir = test_dir_with_network();
    dir.write(
        "down.weir",
        "weir-trace 1\nports 4\ncoflow 7\nflow 0 2 2MB\nevent 1s port=2 side=receive rate=0\n",
    );
    let error = dir.stderr_of("sim down.weir --policy fair --fabric network.toml", 1);
    assert!(error.contains("\n  coflow 7: 1.75MB left; without capacity: port 2 (receiving)\n"), "{error}");
    let event = "[[event]]\nat = \"1s\"\ncable = [\"leaf0\", \"spine0\"]\nchange = \"down\"\n";
    let other = event.replace("spine0", "spine1");
    dir.write("failing.toml", &format!("{NETWORK}{event}{other}"));
    dir.write("crossing.txt", "4 1\n1 0 1 0 1 2:2.0\n");
    let error = dir.stderr_of("sim crossing.txt --policy fair --fabric failing.toml", 1);
    let failed = "leaf0 -> spine0, spine0 -> leaf0, leaf0 -> spine1, spine1 -> leaf0";
    assert!(error.contains(&format!("left; without capacity: {failed}\n")), "{error}");
}

#[test]
fn explanations_count_the_time_without_a_path() {
    let dir = test_dir_with_network();
    let change = |at: u32, ends: [&str; 2], change: &str| {
        let [one, other] = ends;
        format!("[[event]]\nat = \"{at}s\"\ncable = [\"{one}\", \"{other}\"]\nchange = \"{change}\"\n")
    };
    let outage = |cables: &[[&str; 2]]| {
        let events =
            |at: u32, state: &str| cables.iter().map(|&ends| change(at, ends, state)).collect::<String>();
        format!("{NETWORK}{}{}", events(1, "down"), events(4, "up"))
    };
    dir.write("trunks.toml", &outage(&[["leaf0", "spine0"], ["leaf0", "spine1"]]));
    dir.write("host.toml", &outage(&[["h0", "leaf0"]]));
    // Of the second coflow, one flow needs the cables.
    dir.write("one.weir", "weir-trace 1\nports 4\ncoflow 1\nflow 0 2 4MB\n");
    dir.write("two.weir", "weir-trace 1\nports 4\ncoflow 1\nflow 0 2 4MB\nflow 3 2 4MB\n");
    for (network, cause) in [("trunks", "slow-trunk"), ("host", "slow-port")] {
        for trace in ["one", "two"] {
            let line = format!(
                "explain {trace}.weir --fabric {network}.toml --policy fair --coflow 1 --interval 0 --quiet --format json"
            );
            let found = dir.json_of(&line);
            let seconds = |key: &str| found[key].as_f64().unwrap();
            let causes = found["by_cause"].as_array().unwrap();
            let lost: f64 = causes.iter().map(|cause| cause["lost_s"].as_f64().unwrap()).sum();
            assert!((lost - (seconds("cct_s") - seconds("alone_s"))).abs() < 1e-9, "{line}: {found}");
            assert!(causes.iter().any(|found| found["cause"] == cause), "{line}: {found}");
        }
    }
    // A coflow that is released without a path has no former links.
    dir.write("late.weir", "weir-trace 1\nports 4\ncoflow 1 arrival=2s\nflow 0 2 4MB\n");
    let text = dir.stdout_of("explain late.weir --fabric trunks.toml --policy fair --coflow 1 --quiet");
    assert!(text.contains("no path leads to the receiver while cables are down"), "{text}");
}

#[test]
fn invalid_fabric_options_are_exit_2() {
    let dir = test_dir_with_network();
    dir.write("wide.txt", "5 1\n1 0 1 0 1 4:2\n");
    let cases = [
        ("compare trace.txt --fabric network.toml --port-rate 1Gbit", "cannot be used with"),
        ("compare trace.txt --path-seed 2", "--fabric"),
        ("sim trace.txt --policy aalo --decide-over ports", "--fabric"),
        (
            "sim wide.txt --policy saath --fabric network.toml",
            "5 ports; expected at most 4, one for each host of",
        ),
        ("sim trace.txt --policy saath --fabric none.toml", "none.toml"),
        (
            "sweep trace.txt --policies fair --fabric network.toml --vary port-rate=1Gbit,2Gbit",
            "`port-rate` does not exist on this network",
        ),
        ("sim trace.txt --policy saath --fabric network.toml --out network.toml", "network.toml"),
    ];
    for (line, expected) in cases {
        let output = dir.run(line);
        assert_eq!(output.code, Some(2), "{line}: {output:?}");
        assert!(output.stderr.contains(expected) && output.stdout.is_empty(), "{line}: {}", output.stderr);
    }
}

#[test]
fn unequal_hosts_have_the_rates_of_their_cables() {
    let dir = test_dir_with_network();
    dir.write(
        "rates.toml",
        "weir-fabric = 1\nkind = \"links\"\nhosts = [\"a\", \"b\"]\nswitch = [{ name = \"s\", tier = 1 }]\n\
         link = [{ ends = [\"a\", \"s\"], rate = \"8Mbit\" }, { ends = [\"b\", \"s\"], rate = \"16Mbit\" }]\n",
    );
    dir.write("two.txt", "2 1\n1 0 1 0 1 1:2.0\n");
    let results = dir.json_of(
        "compare two.txt --fabric rates.toml --policies fair,saath --interval 0 --no-timing --format json",
    );
    for policy in results.as_array().unwrap() {
        assert_eq!((&policy["mean_cct_s"], &policy["over_bound"]), (&2.0.into(), &1.0.into()), "{policy}");
        assert_eq!((&policy["port_rate"], &policy["min_port_rate"]), (&"16Mbit".into(), &"8Mbit".into()));
    }
}
