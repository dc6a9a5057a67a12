//! Tests replays over links between regions, on the command line.

use crate::common::TestDir;

const AREA: &str = "\
weir-wide-area = 1
regions = [\"east\", \"west\"]
change-interval = \"1s\"

[[link]]
from = \"east\"
to = \"west\"
samples = [\"10Mbit\", \"40Mbit\", \"80Mbit\"]

[[link]]
from = \"west\"
to = \"east\"
rate = \"80Mbit\"
";

fn test_dir_with_area() -> TestDir {
    let dir = TestDir::new();
    dir.write("area.toml", AREA);
    dir
}

#[test]
fn wide_area_policies_are_compared() {
    let dir = test_dir_with_area();
    let line = "compare trace.txt --fabric area.toml --policies mrtf,siphon,fair:detours=on --no-timing";
    let results = dir.json_of(&format!("{line} --format json"));
    assert_eq!(results.as_array().unwrap().len(), 3);
    assert_eq!((&results[1]["policy"], &results[1]["baseline"]), (&"siphon".into(), &"mrtf".into()));
    assert_eq!((&results[0]["fabric"], &results[0]["bandwidth_seed"]), (&"area.toml".into(), &1.into()));
    assert!(results[0].get("port_rate").is_none());
    let seconds = |key: &str| results[0][key].as_f64().unwrap();
    assert!(seconds("lower_bound_mean_cct_s") > 0.0 && seconds("over_bound") >= 1.0, "{}", results[0]);
    // The same input prints the same bytes; another seed changes the results.
    assert_eq!(dir.stdout_of(line), dir.stdout_of(line));
    let other = dir.json_of(&format!("{line} --bandwidth-seed 2 --format json"));
    assert_ne!(other[0]["mean_cct_s"], results[0]["mean_cct_s"]);
    let text = dir.stdout_of(line);
    assert!(
        text.contains("area.toml: links between east, west; another bandwidth every 1s, seed 1; a schedule whenever something happens."),
        "{text}"
    );
    // Without a list, all policies are compared, with those of Siphon's evaluation.
    let all = dir.json_of("compare trace.txt --fabric area.toml --format json");
    let names: Vec<&str> =
        all.as_array().unwrap().iter().map(|one| one["policy"].as_str().unwrap()).collect();
    for name in ["fair", "saath", "varys", "aalo", "pfp", "django", "siphon", "mrtf"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let one_switch = dir.json_of("compare trace.txt --format json");
    assert!(one_switch.as_array().unwrap().iter().all(|one| one["policy"] != "siphon"));
}

#[test]
fn wide_area_sim_writes_flow_completion_times() {
    let dir = test_dir_with_area();
    dir.stdout_of(
        "sim trace.txt --fabric area.toml --policy siphon --per-flow flows.csv --out all.txt --quiet",
    );
    let flows = dir.read("flows.csv");
    assert_eq!(flows.lines().count(), 1 + 7);
    // Ports 0 and 1 are both in the east, so the first flow takes no time. The second flow crosses the link.
    let time_and_path = |from: &str| -> (f64, String) {
        let line = flows.lines().find(|line| line.starts_with(from)).unwrap();
        let (rest, path) = line.rsplit_once(',').unwrap();
        (rest.split(',').nth(6).unwrap().parse().unwrap(), path.to_owned())
    };
    assert_eq!(time_and_path("siphon,1,0,0,1,"), (0.0, String::new()));
    let (fct, path) = time_and_path("siphon,1,1,0,2,");
    assert!(fct > 0.5 && path == "east -> west", "{fct} {path}");
}

#[test]
fn options_that_do_not_fit_regions_are_refused() {
    let dir = test_dir_with_area();
    for (line, expected) in [
        ("compare trace.txt --policies fair:detours=on", "`detours=on` is for links between regions"),
        ("compare trace.txt --fabric area.toml --port-rate 1Gbit", "cannot be used with"),
        ("compare trace.txt --bandwidth-seed 2", "--fabric"),
        (
            "compare trace.txt --fabric area.toml --policies siphon:depth=9",
            "expected a whole number from 1 to 4",
        ),
        ("compare trace.txt --fabric area.toml --decide-over ports", "the ports of regions limit no flow"),
        (
            "compare trace.txt --fabric area.toml --path-seed 3",
            "one link leads from each region to each other",
        ),
        ("compare trace.txt --wide-area area.toml", "expected `--fabric FILE`, which accepts regions too"),
    ] {
        let error = dir.stderr_of(line, 2);
        assert!(error.contains(expected), "{line}: {error}");
    }
    dir.stdout_of("fabric generate big-switch --hosts 8 --rate 1Gbit --out switch.toml");
    let error = dir.stderr_of("sim trace.txt --policy fair --fabric switch.toml --bandwidth-seed 2", 2);
    assert!(error.contains("the links of switch.toml have constant rates"), "{error}");
    dir.write("area.toml", &AREA.replace("\"10Mbit\"", "\"-10Mbit\""));
    let error = dir.stderr_of("compare trace.txt --fabric area.toml", 2);
    assert!(error.contains("area.toml:8: field `link 1 samples`: `\"-10Mbit\"`"), "{error}");
}

/// Events, late data and jobs of a trace work between regions too.
#[test]
fn traces_with_events_are_replayed_between_regions() {
    let dir = test_dir_with_area();
    let results = dir.json_of("compare own.weir --fabric area.toml --policies siphon,saath --format json");
    assert!(results.as_array().unwrap().iter().all(|one| one["mean_cct_s"].as_f64().unwrap() > 0.0));
}

#[test]
fn wide_area_sweep_varies_parameters_and_seeds() {
    let dir = test_dir_with_area();
    let line = "sweep trace.txt --fabric area.toml --policies siphon,mrtf --baseline mrtf --no-timing";
    let results = dir.json_of(&format!("{line} --vary depth=1,3 --vary bandwidth-seed=1,2 --format json"));
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 8);
    for (index, one) in results.iter().enumerate() {
        assert_eq!(one["vary_depth"], ["1", "3"][index / 4]);
        let seed = [1, 2][index / 2 % 2];
        assert_eq!(
            (&one["vary_bandwidth-seed"], &one["bandwidth_seed"]),
            (&seed.to_string().into(), &seed.into())
        );
        assert_eq!(one["baseline"], "mrtf");
        // The result equals a replay of the policy alone.
        let policy = one["policy"].as_str().unwrap();
        let alone = dir.json_of(&format!(
            "sim trace.txt --fabric area.toml --policy {policy} --bandwidth-seed {seed} --no-timing --format json"
        ));
        assert_eq!(alone["mean_cct_s"], one["mean_cct_s"], "{policy} {seed}");
    }
    assert!(dir.stdout_of(&format!("{line} --vary arrival=1,2")).contains("links between east, west"));
    for (vary, parts) in [
        (
            "port-rate=1Gbit",
            ["`port-rate` does not exist on this network", "expected interval, arrival, bandwidth-seed"],
        ),
        ("bandwidth-seed=x", ["bandwidth-seed=x", "`x`: expected a whole number"]),
        ("colour=1", ["has a parameter `colour`", "expected interval, arrival, bandwidth-seed"]),
    ] {
        let error = dir.stderr_of(&format!("{line} --vary {vary}"), 2);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let error = dir.stderr_of("sweep trace.txt --policies fair --vary bandwidth-seed=1,2", 2);
    assert!(error.contains("expected interval, arrival, port-rate"), "{error}");
}

#[test]
fn siphon_page_has_every_section_and_does_not_depend_on_jobs() {
    let dir = test_dir_with_area();
    dir.stdout_of("trace generate --preset small --seed 3 --out small.txt");
    let line = "reproduce siphon --trace small.txt --seeds 2 --quiet";
    let first = dir.stdout_of(line);
    assert_eq!(first, dir.stdout_of(&format!("{line} --jobs 2")));
    for heading in [
        "# Siphon, published and measured",
        "## Orders of coflows (section 5.3)",
        "### Fig. 15",
        "### Assumptions",
        "## One shuffle (section 5.2)",
        "### Fig. 10 to 12",
        "### Fig. 13",
        "±",
    ] {
        assert!(first.contains(heading), "the page lacks {heading}");
    }
    assert!(!first.contains("NaN") && !first.contains("inf"), "{first}");
}

#[test]
fn wide_area_tree_shares_links_by_service_weights() {
    let dir = test_dir_with_area();
    // One coflow for each of two services, with equal flows.
    let mut trace = "weir-trace 1\nports 4\n".to_owned();
    for (id, service) in [(1, "ads"), (2, "batch")] {
        trace += &format!("coflow {id} service={service}\nflow 0 2 10MB\n");
    }
    dir.write("two.weir", &trace);
    dir.write(
        "tree.toml",
        "weir-tree = 1\n[service.ads]\nweight = 3\npolicy = \"siphon\"\n[default]\npolicy = \"mrtf\"\n",
    );
    let constant = "weir-wide-area = 1\nregions = [\"a\", \"b\"]\n\
                    [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"80Mbit\"\n\
                    [[link]]\nfrom = \"b\"\nto = \"a\"\nrate = \"80Mbit\"\n";
    dir.write("constant.toml", constant);
    dir.stdout_of("sim two.weir --fabric constant.toml --policy tree:tree.toml --per-coflow ccts.csv --out all.txt --quiet");
    // `ads` sends 10 MB at 7.5 MB/s, which takes 4/3 s. Then `batch` gets the whole link, and
    // completes at 2 s.
    let ccts = dir.read("ccts.csv");
    let cct = |id: &str| -> f64 {
        let line = ccts.lines().find(|line| line.split(',').nth(1) == Some(id)).unwrap();
        line.split(',').nth(9).unwrap().parse().unwrap()
    };
    assert!((cct("1") - 4.0 / 3.0).abs() < 1e-9 && (cct("2") - 2.0).abs() < 1e-9, "{ccts}");
    // The same tree shares the ports of one switch.
    dir.stdout_of("sim two.weir --policy tree:tree.toml --out all.txt --quiet");
}
