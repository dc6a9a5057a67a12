//! Tests `weir share`, `weir fabric` and `weir reproduce netshare`.

use crate::common::TestDir;

const SCENARIO: &str = include_str!("../../../../examples/netshare-5.3.toml");

fn test_dir_with_scenario() -> TestDir {
    let dir = TestDir::new();
    dir.write("s.toml", SCENARIO);
    dir
}

/// The service and its rate in Mbit/s at the end of each phase that starts at `from`.
fn end_rates(dir: &TestDir, mechanism: &str, from: f64) -> Vec<(String, f64)> {
    let results = dir.json_of(&format!("share s.toml --mechanism {mechanism} --format json"));
    let lines = results.as_array().unwrap().iter().filter(|line| line["from_s"] == from);
    lines
        .map(|line| {
            (line["service"].as_str().unwrap().to_owned(), line["end_bit_per_s"].as_f64().unwrap() / 1e6)
        })
        .collect()
}

#[test]
fn netshare_5_3_example_has_the_published_rates() {
    let dir = test_dir_with_scenario();
    for (mechanism, expected) in
        [("queues", [250.0, 250.0, 750.0]), ("queues+throttling", [725.0, 250.0, 750.0])]
    {
        let found = end_rates(&dir, mechanism, 95.0);
        for ((service, rate), (name, expected)) in found.iter().zip(["A1", "A2", "A3"].iter().zip(expected)) {
            assert_eq!(service, name);
            assert!((rate - expected).abs() < 1e-9 * expected, "{mechanism}: {found:?}");
        }
    }
}

#[test]
fn share_reports_connections_without_a_path() {
    let dir = test_dir_with_scenario();
    let event = |at: &str, change: &str| {
        format!("[[event]]\nat = \"{at}\"\ncable = [\"C1\", \"E3\"]\nchange = \"{change}\"\n")
    };
    dir.write("s.toml", &format!("{SCENARIO}\n{}{}", event("40s", "down"), event("50s", "up")));
    let text = dir.stdout_of("share s.toml --mechanism none,queues");
    for service in ["A2", "A3"] {
        let line = format!("\n- from 40.00 s to 50.00 s, 1 of {service}\n");
        assert_eq!(text.matches(&line).count(), 1, "{text}");
    }
    let results = dir.json_of("share s.toml --mechanism queues --format json");
    let lines: Vec<_> = results.as_array().unwrap().iter().filter(|line| line["without_path"] != 0).collect();
    assert_eq!(lines.len(), 2, "{results}");
    for line in lines {
        assert_eq!(
            (&line["from_s"], &line["to_s"], &line["end_bit_per_s"]),
            (&40.0.into(), &50.0.into(), &0.0.into())
        );
    }
}

#[test]
fn reduced_guarantees_are_reported_with_link_time_factor_and_services() {
    let dir = test_dir_with_scenario();
    let guarantee = |service: &str, rate: &str| {
        format!("[[guarantee]]\nservice = \"{service}\"\nfrom = \"E1\"\nto = \"C1\"\nrate = \"{rate}\"\n")
    };
    let event = |at: &str, rate: &str| {
        format!("[[event]]\nat = \"{at}\"\ncable = [\"C1\", \"E1\"]\nchange = \"rate\"\nrate = \"{rate}\"\n")
    };
    let tables = [guarantee("A1", "600Mbit"), guarantee("A2", "400Mbit"), event("10s", "250Mbit")];
    dir.write("s.toml", &format!("{SCENARIO}\n{}{}", tables.concat(), event("20s", "1Gbit")));
    let text = dir.stdout_of("share s.toml --mechanism central,queues+central");
    let line = "\n- link E1 to C1, from 10.00 s to 20.00 s, by the factor 0.2500: A1 150.0 Mbit instead of 600.0 Mbit, \
                A2 100.0 Mbit instead of 400.0 Mbit\n";
    assert_eq!(text.matches(line).count(), 1, "{text}");
    let results = dir.json_of("share s.toml --mechanism queues+central --format json");
    let lines = results.as_array().unwrap();
    let reduced: Vec<_> = lines.iter().filter(|line| line["guarantee_factor"] != 1.0).collect();
    assert_eq!(reduced.len(), 2, "{results}");
    for (line, rate) in reduced.into_iter().zip([150e6, 100e6]) {
        assert_eq!((&line["from_s"], &line["to_s"]), (&10.0.into(), &20.0.into()));
        assert_eq!((&line["guarantee_factor"], &line["reduced_on_link"]), (&0.25.into(), &"E1 to C1".into()));
        assert!((line["end_bit_per_s"].as_f64().unwrap() - rate).abs() < 1.0, "{line}");
    }
    assert!(lines.iter().any(|line| line["reduced_on_link"].is_null()));
    let csv = dir.stdout_of("share s.toml --mechanism central --format csv");
    assert!(csv.lines().next().unwrap().ends_with(",residual,guarantee_factor,reduced_on_link"), "{csv}");
    assert!(csv.contains(",0.25,E1 to C1\n") && csv.contains(",1.0,\n"), "{csv}");
}

#[test]
fn share_prints_all_mechanisms_in_all_formats() {
    let dir = test_dir_with_scenario();
    let text = dir.stdout_of("share s.toml");
    for name in ["none", "queues", "throttling", "queues+throttling", "central", "queues+central"] {
        assert_eq!(
            text.lines().filter(|line| line.split("  ").next() == Some(name)).count(),
            9,
            "{name}: {text}"
        );
    }
    assert!(text.contains("725.0 Mbit"), "{text}");
    let csv = dir.stdout_of("share s.toml --mechanism none,none,queues --format csv --over-time t.csv");
    assert!(csv.starts_with("mechanism,from_s,to_s,service,weight,mean_bit_per_s,end_bit_per_s,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 2 * 9);
    // Each service has four phases, with one rate each.
    let over_time = dir.read("t.csv");
    assert!(over_time.contains("\nnone,5.0,35.0,A2,1000000000.0,1000000000.0\n"), "{over_time}");
    assert_eq!(over_time.lines().count(), 1 + 2 * 4 * 3);
    assert_eq!(
        dir.stdout_of("share s.toml --format csv"),
        dir.stdout_of("share s.toml --format csv --quiet")
    );
}

#[test]
fn bad_scenarios_are_exit_2_and_write_nothing() {
    let dir = test_dir_with_scenario();
    dir.write("bad.toml", &SCENARIO.replace("weight = 9", "weight = -9"));
    let files = dir.files();
    for (line, message) in [
        ("share bad.toml --out o.txt", "bad.toml:17: field `service 3 weight`: `-9`: expected a number from"),
        ("share none.toml", "none.toml: cannot be read"),
        ("share s.toml --mechanism drr", "unknown mechanism `drr`; expected one of none, queues"),
        ("share s.toml --out s.toml", "expected another file than that of the input"),
        ("share s.toml --out o.csv --over-time o.csv", "expected another file than that of --out"),
        ("fabric check none.toml", "none.toml: cannot be read"),
        ("fabric check s.toml", "s.toml: this is a scenario of services; expected a fabric or regions"),
        ("fabric generate leaf", "unrecognized subcommand 'leaf'"),
        ("fabric generate fat-tree --ports 4", "--rate <RATE>"),
        (
            "fabric generate fat-tree --ports 3 --rate 1Gbit",
            "fat-tree: `ports` is 3; expected an even number",
        ),
        ("fabric generate netshare-fig1 --hosts 4", "unexpected argument '--hosts'"),
        ("fabric generate netshare-fig6 --oversubscription 2", "unexpected argument '--oversubscription'"),
        (
            "fabric generate saba-tiers --oversubscription 0",
            "`oversubscription` is 0; expected a finite number",
        ),
        ("fabric generate saba-tiers --rate 1Gbit", "unexpected argument '--rate'"),
        ("fabric generate big-switch --hosts 9 --rate 1Gbit --ports 2", "unexpected argument '--ports'"),
        ("reproduce netshare --seeds 0", "expected a whole number from 1 to 1000"),
    ] {
        let output = dir.run(line);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "weir {line}");
        assert!(output.stderr.contains(message), "weir {line}: {}", output.stderr);
        assert_eq!(dir.files(), files, "weir {line}");
    }
}

#[test]
fn generated_fabrics_pass_check_and_equal_their_cable_lists() {
    let dir = test_dir_with_scenario();
    for (plan, counts) in [
        ("big-switch --hosts 5 --rate 1Gbit", "5 hosts, 1 switch, 5 cables"),
        (
            "leaf-spine --spines 2 --leaves 3 --hosts 4 --rate 10Gbit --oversubscription 2",
            "12 hosts, 5 switches, 18 cables",
        ),
        ("fat-tree --ports 4 --rate 10Gbit", "16 hosts, 20 switches, 48 cables"),
        ("fat-tree --ports 4 --rate 10Gbit --oversubscription 2.5", "16 hosts, 20 switches, 48 cables"),
        ("netshare-fig1", "12 hosts, 5 switches, 16 cables"),
        ("netshare-fig3", "8 hosts, 5 switches, 12 cables"),
        ("netshare-fig6", "12 hosts, 4 switches, 15 cables"),
        ("netshare-fig7", "12 hosts, 5 switches, 18 cables"),
        ("netshare-fig16 --services 2", "16 hosts, 18 switches, 48 cables"),
        ("saba-tiers --oversubscription 4", "1944 hosts, 264 switches, 5616 cables"),
    ] {
        dir.stdout_of(&format!("fabric generate {plan} --out f.toml"));
        let found = dir.stdout_of("fabric check f.toml");
        assert_eq!(found, format!("ok: f.toml: {counts}\n"));
        dir.stdout_of(&format!("fabric generate {plan} --cables --out g.toml"));
        assert_eq!(dir.stdout_of("fabric check g.toml"), found.replace("f.toml", "g.toml"));
        let (by_plan, by_cable) = (
            dir.json_of("fabric describe f.toml --format json"),
            dir.json_of("fabric describe g.toml --format json"),
        );
        assert_eq!((&by_plan["pairs"], &by_plan["by_tier"]), (&by_cable["pairs"], &by_cable["by_tier"]));
    }
}

#[test]
fn fabric_describe_prints_oversubscription_and_path_counts() {
    let dir = test_dir_with_scenario();
    dir.stdout_of("fabric generate netshare-fig7 --out f.toml");
    let text = dir.stdout_of("fabric describe f.toml");
    assert!(text.starts_with("f.toml: 12 hosts, 5 switches, 18 cables\n"), "{text}");
    // Two cores: "oversubscription factor of 2:1" (NetShare 5.2), and two paths between pods.
    assert!(text.lines().any(|line| line.split_whitespace().eq(["tier", "1", "3", "2.000"])), "{text}");
    assert!(text.lines().any(|line| line.split_whitespace().eq(["4", "2", "96"])), "{text}");
    let results = dir.json_of("fabric describe f.toml --format json");
    assert_eq!((&results["max_oversubscription"], &results["max_paths"]), (&2.0.into(), &2.into()));
    assert_eq!(dir.stdout_of("fabric describe f.toml --format csv").lines().count(), 2);
}

#[test]
fn netshare_page_matches_the_published_rates() {
    let dir = test_dir_with_scenario();
    let text = dir.stdout_of("reproduce netshare --seeds 1");
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    // Measured rates match the published rates, which the paper truncates to one or two digits.
    let section = |title: &str| text.split("\n## ").find(|section| section.starts_with(title)).unwrap();
    let examples = section("Fig. 1 to 5");
    let rows: Vec<&str> = examples.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert_eq!(rows.len(), 9, "{examples}");
    for row in rows {
        let row = cells(row);
        for (published, measured) in row[3].split(", ").zip(row[4].split(", ")) {
            let Ok(published) = published.parse::<f64>() else { continue };
            let difference = measured.parse::<f64>().unwrap() - published;
            assert!((-0.001..0.1).contains(&difference), "{row:?}");
        }
    }
    // Section 5.3: all rates match except during A1's dips for acknowledgements.
    let throttling = section("Section 5.3");
    let table = throttling.lines().skip_while(|line| !line.contains("where in the paper")).skip(2);
    let ratios =
        table.take_while(|line| line.starts_with('|')).filter_map(|line| cells(line)[5].parse::<f64>().ok());
    assert_eq!(ratios.filter(|ratio| !(0.9..=1.1).contains(ratio)).count(), 1, "{throttling}");
    assert!(throttling.contains("| queues+throttling | Fig. 12 | 95-125 s | 725"), "{throttling}");
    let shuffles = section("Sections 5.1 and 5.2");
    for (row, measured) in
        [("one core: rates of A1 / A2", "2.00"), ("one core, queues: rates of A1 / A2", "1.00")]
    {
        let line = shuffles.lines().find(|line| line.starts_with(&format!("| {row} |"))).expect(row);
        assert_eq!(cells(line)[4], measured, "{line}");
    }
    assert!(text.contains("## Section 5.4: Table 3"));
    assert_eq!(dir.stdout_of("reproduce netshare --seeds 1 --jobs 2 --quiet"), text);
}
