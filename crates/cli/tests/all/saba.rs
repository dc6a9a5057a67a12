//! Tests `weir saba`: profiles, weights and runs.

use crate::common::TestDir;

#[test]
fn saba_profile_table_gives_weights_with_the_given_sum() {
    let dir = TestDir::new();
    let text = dir.stdout_of("saba profile --out table.toml");
    // Section 4.2: a slowdown of 3.4 at 25 %, and an R^2 of 0.84 at k = 1, within the residuals of the
    // calibration.
    let lr = text.lines().find(|line| line.starts_with("LR ")).unwrap();
    assert!(lr.contains(" 3.3") && lr.contains(" 0.84"), "{lr}");
    let weights = dir.stdout_of("saba weights table.toml --apps LR,PR,PR --c-saba 0.8 --format csv");
    let column = |name: &str| {
        let index = weights.lines().next().unwrap().split(',').position(|head| head == name).unwrap();
        let cells =
            weights.lines().skip(1).map(move |line| line.split(',').nth(index).unwrap().parse::<f64>());
        cells.collect::<Result<Vec<f64>, _>>()
    };
    let (found, sum, bound) = (column("weight").unwrap(), column("sum").unwrap(), column("bound").unwrap());
    assert!((found.iter().sum::<f64>() - 0.8).abs() < 1e-9, "{weights}");
    assert!(found[0] > found[1] && found[0] > found[2], "LR is more sensitive than PR: {weights}");
    assert!(bound[0] <= sum[0]);
    let total: f64 = column("slowdown").unwrap().iter().sum();
    assert!((total - sum[0]).abs() < 1e-9, "{weights}");
    let table = dir.stdout_of("saba weights table.toml --apps LR,PR");
    assert!(
        table.contains("C_saba is 1.000")
            && table.contains("No weights of at least 0.1000 of an even share each have"),
        "{table}"
    );
}

#[test]
fn saba_profile_accepts_workloads_and_degree() {
    let dir = TestDir::new();
    let csv = dir.stdout_of("saba profile --workload SQL,LR,SQL --degree 1 --format csv");
    let names: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["LR", "SQL"]);
    let json: serde_json::Value =
        serde_json::from_str(&dir.stdout_of("saba profile --workload SQL --degree 1 --format json")).unwrap();
    assert_eq!((json[0]["c2"].as_f64(), json[0]["is_decreasing"].as_bool()), (Some(0.0), Some(true)));
}

#[test]
fn a_predicted_slowdown_below_1_is_explained() {
    let dir = TestDir::new();
    // A model of 2 - 1.1 b: slowdown 1.45 with half of the bandwidth, 0.9 with all of it.
    dir.write("t.toml", "version = 1\n[[application]]\nname = \"A\"\ncoefficients = [2, -1.1]\n");
    let note = "A slowdown below 1 is the model's error";
    let alone = dir.stdout_of("saba weights t.toml --apps A");
    assert!(alone.contains("0.9000") && alone.contains(note), "{alone}");
    let shared = dir.stdout_of("saba weights t.toml --apps A,A");
    assert!(shared.contains("1.450") && !shared.contains(note), "{shared}");
}

#[test]
fn rising_and_nonconvex_models_are_reported() {
    let dir = TestDir::new();
    let app =
        |name: &str, model: &str| format!("[[application]]\nname = \"{name}\"\ncoefficients = [{model}]\n");
    let table = ["version = 1\n".to_owned(), app("A", "3, -2"), app("B", "2, -2, 1.5"), app("C", "2, 0, -1")];
    dir.write("t.toml", &table.concat());
    // The note lists each application of the port once.
    let text = dir.stdout_of("saba weights t.toml --apps A,B,C,B");
    let note = |name: &str, problem: &str| {
        format!("application `{name}`: the model {problem} between no bandwidth and full bandwidth\n")
    };
    let (b, c) = (note("B", "rises with the bandwidth somewhere"), note("C", "is not convex"));
    assert!(text.contains(&(b.clone() + &c)) && text.matches("application `").count() == 2, "{text}");
    let alone = dir.stdout_of("saba weights t.toml --apps A");
    assert!(!alone.contains("application `"), "{alone}");
}

#[test]
fn invalid_saba_options_are_exit_2() {
    let dir = TestDir::new();
    dir.stdout_of("saba profile --workload LR --out table.toml");
    let cases = [
        (
            "saba weights table.toml --apps LR --out table.toml",
            "expected another file than that of the input",
        ),
        ("saba profile --workload XX --out other.toml", "`XX` is unknown; expected all or some of LR"),
        ("saba profile --degree 4", "4"),
        ("saba weights none.toml --apps LR", "none.toml"),
        ("saba weights table.toml --apps PR", "`PR` is not in the table; expected names in table.toml: LR"),
        (
            "saba weights table.toml --apps LR --c-saba 0",
            "`0` is out of range; expected a number above 0 and up to 1",
        ),
        (
            "saba weights table.toml --apps LR --floor nan",
            "`nan` is out of range; expected a number above 0 and up to 1",
        ),
        ("reproduce saba --setups 0", "0"),
    ];
    for (command, message) in cases {
        let ran = dir.run(command);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{command}");
        assert!(ran.stderr.contains(message), "{command}: {}", ran.stderr);
    }
    assert!(!dir.files().contains(&"other.toml".to_owned()));
}

#[test]
fn saba_page_has_every_section_and_published_figure() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/saba.md")).unwrap();
    let sections = [
        "# Saba, published and measured",
        "## Summary",
        "## Workloads (Fig. 1a, 2, 5 and 6)",
        "## LR and PR together (Fig. 1b)",
        "## The testbed (Fig. 8)",
        "## Data, nodes and degree (Fig. 9)",
        "## 1,944 servers (Fig. 10 and 11)",
        "## Assumptions",
    ];
    let mut from = 0;
    for section in sections {
        let index =
            text[from..].find(section).unwrap_or_else(|| panic!("{section} is missing after byte {from}"));
        from += index + 1;
    }
    let mut columns = 0;
    for line in text.lines() {
        let line_columns = if line.starts_with('|') { line.matches('|').count() } else { 0 };
        assert!(line_columns == 0 || columns == 0 || line_columns == columns, "{line}");
        columns = line_columns;
    }
    for wrong in ["NaN", "| inf", "\n\n\n"] {
        assert!(!text.contains(wrong), "{wrong:?}");
    }
    for claim in ["1.88", "3.90", "3.60", "2.26", "1.54", "0.51", "1.27", "1.19", "0.92"] {
        assert!(text.contains(claim), "{claim}");
    }
}

#[test]
fn output_to_an_input_file_is_refused() {
    let dir = TestDir::new();
    let fabric = "weir-fabric = 1\nkind = \"big-switch\"\nhosts = 2\nrate = \"1Gbit\"\n";
    dir.write("fabric.toml", fabric);
    dir.write("table.toml", "version = 1\n[[application]]\nname = \"LR\"\ncoefficients = [3, -2]\n");
    dir.write(
        "jobs.toml",
        "weir-jobs = 1\nfabric = \"fabric.toml\"\nsensitivity = \"table.toml\"\n[[job]]\nworkload = \"LR\"\nservers = \"*\"\n",
    );
    dir.write(
        "scenario.toml",
        "weir-scenario = 1\nend = \"1s\"\nfabric = \"./fabric.toml\"\n[[service]]\nname = \"a\"\nweight = 1\n\
         [[demand]]\nservice = \"a\"\nfrom = \"h0\"\nto = \"h1\"\nsending = \"elastic\"\n",
    );
    dir.write(
        "tree.toml",
        "weir-tree = 1\n[default]\napplications = \"saba\"\nsensitivity = \"table.toml\"\n",
    );
    dir.write("t.weir", "weir-trace 1\nports 2\ncoflow 1 application=LR\nflow 0 1 1MB\n");
    let before = dir.files();
    for line in [
        "compare jobs.toml --policies fair --quiet --out table.toml",
        "compare jobs.toml --policies fair --quiet --per-job fabric.toml",
        "share scenario.toml --quiet --out fabric.toml",
        "share scenario.toml --quiet --over-time fabric.toml",
        "sim t.weir --policy tree:tree.toml --quiet --out tree.toml",
        "compare t.weir --policies fair,tree:tree.toml --quiet --per-coflow tree.toml",
        "compare t.weir --policies fair --baseline tree:tree.toml --quiet --out table.toml",
        "sweep t.weir --policies fair,tree:tree.toml --vary interval=0,8ms --quiet --out table.toml",
    ] {
        let ran = dir.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains("expected another file than that of"), "{line}: {}", ran.stderr);
    }
    assert_eq!(dir.files(), before);
    assert_eq!(dir.read("fabric.toml"), fabric);
    // With another output file, the same commands succeed.
    for line in [
        "compare jobs.toml --policies fair --quiet --out out.txt",
        "share scenario.toml --quiet --out out.txt",
        "sim t.weir --policy tree:tree.toml --quiet --out out.txt",
    ] {
        assert_eq!(dir.stdout_of(line), "", "{line}");
    }
}
