//! Tests policy trees, services and applications on the command line.

use crate::common::TestDir;

const GENERATE_TRACE: &str = "trace generate --services 2 --applications 2 --seed 7 --out shared.weir";

/// A folder with the example files.
fn test_dir_with_examples() -> TestDir {
    let dir = TestDir::new();
    let examples = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    for name in ["tree.toml", "tree-sensitivity.toml"] {
        dir.write(name, &std::fs::read_to_string(examples.join(name)).unwrap());
    }
    dir
}

#[test]
fn policy_tree_page_shows_the_current_table_and_csv_has_each_coflow() {
    let dir = test_dir_with_examples();
    dir.stdout_of(GENERATE_TRACE);
    std::fs::create_dir(dir.path("examples")).unwrap();
    for name in ["tree.toml", "tree-sensitivity.toml"] {
        std::fs::rename(dir.path(name), dir.path("examples").join(name)).unwrap();
    }
    let command = "compare shared.weir --policies fair,saath,netshare,saba,tree:examples/tree.toml";
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy-tree.md")).unwrap();
    assert!(page.contains(&format!("    weir {GENERATE_TRACE}\n    weir {command}\n")));
    let text = dir.stdout_of(&format!("{command} --no-timing --quiet --per-coflow ccts.csv"));
    let table =
        text.lines().skip_while(|line| !line.starts_with("policy ")).take_while(|line| !line.is_empty());
    let mut lines = 0;
    for line in table {
        assert!(
            page.lines().any(|shown| shown.trim_end() == line.trim_end()),
            "docs/policy-tree.md lacks: {line}"
        );
        lines += 1;
    }
    assert_eq!(lines, 7);
    let ccts = dir.read("ccts.csv");
    assert_eq!(ccts.lines().filter(|line| line.starts_with("tree:examples/tree.toml,")).count(), 200);
}

#[test]
fn explanations_name_the_leaf_of_a_coflow_and_of_its_holders() {
    let dir = TestDir::new();
    // Two services divide the sending port of 1 MB/s: 1 MB takes 2 s, and then 2 MB more than 1 s.
    dir.write(
        "two.weir",
        "weir-trace 1\nports 2\ncoflow 1 service=ads application=sort\nflow 0 1 1MB\n\
         coflow 2 service=web application=join\nflow 0 1 2MB\n",
    );
    dir.write(
        "two.toml",
        "weir-tree = 1\n[service.ads]\npolicy = \"saath\"\n[service.web]\npolicy = \"varys\"\n",
    );
    let line = "explain two.weir --policy tree:two.toml --coflow 1 --interval 0 --port-rate 8Mbit -q";
    let text = dir.stdout_of(line);
    assert!(text.contains("Coflow 1 under tree:two.toml"), "{text}");
    assert!(text.contains("\nLeaf ads of the tree schedules it by saath.\n"), "{text}");
    assert!(text.contains("2 (web, queue 0, 50.0 %)"), "{text}");
    let found = dir.json_of(&format!("{line} --format json"));
    assert_eq!(
        (&found["cct_s"], &found["leaf"], &found["leaf_policy"]),
        (&2.0.into(), &"ads".into(), &"saath".into())
    );
    assert_eq!(found["segments"][0]["held_up_by_leaf"], "web");
    let csv = dir.stdout_of(&format!("{line} --format csv"));
    assert!(csv.lines().nth(1).is_some_and(|line| line.ends_with(",web,,,,,,ads,saath,,")), "{csv}");
}

#[test]
fn quoted_tree_may_have_a_comma_in_its_name() {
    let dir = TestDir::new();
    dir.write("one,two.toml", "weir-tree = 1\n[service.default]\npolicy = \"saath\"\n");
    let results = dir.json_of("compare trace.txt --policies \"tree:one,two.toml\",saath --format json");
    assert_eq!(results[0]["policy"], "tree:one,two.toml");
    assert_eq!(results[0]["mean_cct_s"], results[1]["mean_cct_s"]);
}

#[test]
fn compare_adds_netshare_and_saba_only_for_traces_with_services() {
    let dir = TestDir::new();
    let text = dir.stdout_of("compare trace.txt --quiet");
    assert!(text.contains("saath") && !text.contains("netshare"));
    dir.stdout_of(&GENERATE_TRACE.replace("--services", "--coflows 20 --services"));
    let text = dir.stdout_of("compare shared.weir --quiet --no-timing");
    assert!(text.contains("\nnetshare ") && text.contains("\nsaba "));
}

#[test]
fn invalid_tree_policies_name_the_file_and_field() {
    let dir = test_dir_with_examples();
    dir.stdout_of(GENERATE_TRACE);
    dir.write("bad.toml", "weir-tree = 1\n[service.a]\npolicy = \"aalo\"\n");
    dir.write("some.toml", "weir-tree = 1\n[service.service-1]\n");
    for (policy, part) in [
        ("tree", "expected `tree:FILE`"),
        ("tree:-", "expected `tree:FILE`"),
        ("tree:nowhere.toml", "nowhere.toml: cannot be read"),
        ("tree:bad.toml", "bad.toml:3: field `service a policy`: `\"aalo\"`"),
        (
            "tree:some.toml",
            "weir: some.toml:2: field `service`: `service-2`: expected all services of the trace: `[service.service-2]`",
        ),
        ("netshare:weights=0", "numbers from 1e-9 to 1e9"),
        ("netshare:weights=1/nan", "numbers from 1e-9 to 1e9"),
        ("saba:slowdown=0.5", "numbers from 1 to 1e6"),
    ] {
        let error = dir.stderr_of(&format!("sim shared.weir --policy {policy} --quiet"), 2);
        assert!(error.contains(part), "{policy}: {error}");
    }
}

#[test]
fn trace_describe_counts_generated_services() {
    let dir = TestDir::new();
    dir.stdout_of(GENERATE_TRACE);
    assert!(dir.stdout_of("trace describe shared.weir").contains("2, of 4 applications in all"));
    assert!(dir.stderr_of("trace generate --services 0", 2).contains("`services`: `0`"));
    for (line, coflow) in [("trace generate --services 2", 1), ("trace convert shared.weir made.txt", 1)] {
        let error = dir.stderr_of(line, 2);
        let words =
            format!("coflow {coflow} cannot be written in this format: it has a service or an application");
        assert!(error.contains(&words) && error.contains("expected --to weir"), "{error}");
    }
}

#[test]
fn tree_without_the_traces_services_is_refused_before_replay() {
    let dir = test_dir_with_examples();
    dir.write("some.toml", "weir-tree = 1\n[service.a]\n");
    // The replay of `saath` would come first, and fail with code 1.
    dir.write(
        "dead.weir",
        "weir-trace 1\nports 2\ncoflow 6\nflow 0 1 1MB\nevent 0s port=0 side=send rate=0\n",
    );
    assert!(dir.stderr_of("compare dead.weir --policies saath -q", 1).contains("no flow can send"));
    let error = dir.stderr_of("compare dead.weir --policies saath,tree:some.toml -q", 2);
    assert!(error.contains("some.toml:2: field `service`: `default`: expected"), "{error}");
    let explained = dir.stderr_of("explain dead.weir --policy tree:some.toml --coflow 6 -q", 2);
    assert_eq!(explained, error);
}

#[test]
fn policies_tree_prints_an_example_that_sim_accepts() {
    let dir = test_dir_with_examples();
    assert!(dir.stdout_of("policies").contains("tree:FILE"));
    let text = dir.stdout_of("policies tree");
    assert!(text.starts_with("tree:FILE  services, their applications and a policy for each"), "{text}");
    assert_eq!(dir.stdout_of("policies tree:tree.toml"), text);
    let example: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    dir.write("shown.toml", &example.join("\n"));
    dir.stdout_of("sim trace.txt --policy tree:shown.toml");
    assert_eq!(dir.json_of("policies tree --format json")[0]["policy"], "tree:FILE");
    assert!(
        dir.stdout_of("policies tree --format csv")
            .starts_with("policy,about,parameter,default,meaning\ntree:FILE,")
    );
}
