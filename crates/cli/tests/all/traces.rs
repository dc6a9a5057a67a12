//! Traces of other programs, generated loads and merged traces, from the file to the result of a replay.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::TestDir;

/// A file of the tests of `weir-trace`.
fn import(dir: &TestDir, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/import").join(name);
    fs::copy(path, dir.path(name)).unwrap();
}

/// The durations of the flows of a replay, in the order of coflows, in seconds.
fn durations(dir: &TestDir, trace: &str, options: &str) -> Vec<f64> {
    let csv =
        dir.stdout_of(&format!("sim {trace} --policy fair --quiet --per-coflow - --out result {options}"));
    let mut lines = csv.lines();
    let column = lines.next().unwrap().split(',').position(|name| name == "cct_s").unwrap();
    lines.map(|line| line.split(',').nth(column).unwrap().parse().unwrap()).collect()
}

#[test]
fn connections_start_when_their_trigger_fires() {
    let dir = TestDir::new();
    import(&dir, "htsim.cm");
    // Two flows of 2 MB share the port of the receiver, of 100 Gbit/s; the third sends 1 MB alone, after the second.
    let found = durations(&dir, "htsim.cm", "--port-rate 100Gbit --interval 0");
    let expected = [0.32e-3, 0.32e-3, 0.08e-3];
    assert!(found.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{found:?}");
    let converted = dir.stdout_of("trace convert htsim.cm - --to weir");
    assert!(converted.contains("coflow 3 arrival=0s parents=2"), "{converted}");
}

#[test]
fn names_of_compressed_outputs_are_refused() {
    let dir = TestDir::new();
    for (command, name, plain) in [
        ("trace generate --out small.weir.gz", "small.weir.gz", "small.weir"),
        ("trace generate --out small.txt.zst", "small.txt.zst", "small.txt"),
    ] {
        let output = dir.run(command);
        let expected = format!("{name}: no output is compressed; expected a name such as {plain}; help: ");
        assert!(output.code == Some(2) && output.stderr.contains(&expected), "{command}: {}", output.stderr);
        assert!(!Path::new(&dir.path(name)).exists());
    }
}

#[test]
fn tables_keep_names_and_drop_local_flows() {
    let dir = TestDir::new();
    import(&dir, "flows.csv");
    let columns = "--columns start=start_ms:ms,src=from,dst=to,bytes=size_kB:kB,coflow=shuffle";
    let output = dir.run(&format!("trace convert flows.csv flows.weir {columns}"));
    let warning = "weir: flows.csv: 1 flow from a port to itself, of 6kB, do not use the network";
    assert!(output.stderr.starts_with(warning), "{}", output.stderr);
    let text = dir.read("flows.weir");
    assert!(text.contains("port 1 rack2/host-b\n") && text.contains("flow 2 2 0B"), "{text}");
    let kept = dir.stdout_of(&format!("trace convert flows.csv - --to weir --local-flows keep {columns}"));
    assert!(kept.contains("flow 2 2 6kB"), "{kept}");
    for (command, expected) in [
        (format!("trace convert flows.csv flows.txt {columns}"), "its ports have names; expected --to weir"),
        (
            "trace convert --from flows flows.csv flows.weir".to_owned(),
            "--from flows: expected --columns, such as",
        ),
        (format!("trace convert --from hpcc flows.csv x.weir {columns}"), "--columns: expected --from flows"),
        ("trace convert --from hpcc flows.csv x.weir".to_owned(), "flows.csv:1: field `flows`"),
    ] {
        let error = dir.run(&command).stderr;
        assert!(error.contains(expected), "{command}: {error}");
    }
}

#[test]
fn generated_flows_have_the_load_of_the_option() {
    let dir = TestDir::new();
    dir.write("sizes.txt", "# bytes, percent\n1000 0\n1000 50\n21000 100\n");
    dir.stdout_of(
        "trace generate --cdf sizes.txt --load 0.5 --ports 8 --coflows 4000 --port-rate 100Gbit --incast-degree 5 \
         --incast-load 0.1 --incast-size 10kB --out flows.weir",
    );
    let d = dir.json_of("trace describe flows.weir --format json");
    let number = |name: &str| d[name].as_f64().unwrap();
    assert_eq!((number("ports"), number("same_port")), (8.0, 0.0));
    let capacity = 8.0 * 12.5e9 * number("last_arrival_s");
    let incasts = (number("flows") - 4000.0) / 5.0;
    assert_eq!(number("coflows"), 4000.0 + incasts);
    let incast_bytes = incasts * 5.0 * 10e3;
    let load = (number("bytes") - incast_bytes) / capacity;
    // Until the last arrival, all flows but the last have come: their mean is the load exactly.
    assert!((load / 0.5 - 1.0).abs() < 1e-3, "{load}");
    assert!((incast_bytes / capacity - 0.1).abs() < 0.02, "{incasts} incasts");
    // Half of the sizes are 1 kB, the others are uniform from 1 to 21 kB: the mean is 6 kB.
    let mean = (number("bytes") - incast_bytes) / 4000.0;
    assert!((mean / 6000.0 - 1.0).abs() < 0.05, "{mean}");
    for (command, expected) in [
        ("trace generate --cdf none.txt", "--cdf: none.txt: "),
        ("trace generate --cdf sizes.txt --load 0", "`load`: `0`: expected a load above 0"),
        ("trace generate --cdf sizes.txt --ports 1", "`ports`: `1`: expected 2 or more"),
        ("trace generate --incast-degree 50 --incast-load 0.1", "`incast degree`: `50`: expected 1 to 49"),
        (
            "trace generate --load 0.5 --arrival burst",
            "`arrival`: `burst`: expected arrivals at different times",
        ),
    ] {
        let error = dir.run(command).stderr;
        assert!(error.contains(expected), "{command}: {error}");
    }
    dir.write("sizes.txt", "1000 50\n900 100\n");
    let error = dir.run("trace generate --cdf sizes.txt").stderr;
    assert!(
        error.contains("sizes.txt:2: field `size`: `900`: expected a size in bytes of 1000 or more"),
        "{error}"
    );
}

#[test]
fn merged_traces_keep_times_and_get_distinct_ids() {
    let dir = TestDir::new();
    let trace = "weir-trace 1\nports 3\ncoflow 1 arrival=1s job=4 service=ads\nflow 0 1 1MB\ncoflow 2 parents=1 job=4\nflow 1 2 1MB\n\
                 event 2s restart coflow=2 flow=0\n";
    dir.write("a.weir", trace);
    dir.write("b.txt", "5 2\n7 500 1 0 1 4:1\n2 0 1 3 1 0:1\n");
    let merged = dir.stdout_of("trace merge a.weir b.txt a.weir --to weir");
    let expected = "weir-trace 1\nports 5\ncoflow 1 arrival=1s service=ads job=4\nflow 0 1 1MB\ncoflow 2 arrival=0s job=4 parents=1\nflow 1 2 1MB\n\
                    coflow 10 arrival=500ms\nflow 0 4 1MB\ncoflow 5 arrival=0s\nflow 3 0 1MB\n\
                    coflow 12 arrival=1s service=ads job=9\nflow 0 1 1MB\ncoflow 13 arrival=0s job=9 parents=12\nflow 1 2 1MB\n\
                    event 2s restart coflow=2 flow=0\nevent 2s restart coflow=13 flow=0\n";
    assert_eq!(merged, expected);
    // Hosts with the same name are one port, whatever its number.
    dir.write("c.csv", "at,from,to,size\n1700000000,a,b,1\n");
    dir.write("d.csv", "at,from,to,size\n1700000003,b,c,2\n");
    for name in ["c", "d"] {
        let output = dir.run(&format!(
            "trace convert {name}.csv {name}.weir --columns start=at,src=from,dst=to,bytes=size"
        ));
        assert!(output.stderr.contains(&format!("weir: {name}.csv: times are 1700000")), "{}", output.stderr);
    }
    let merged = dir.stdout_of("trace merge c.weir d.weir --to weir");
    let expected = "weir-trace 1\nports 3\nport 0 a\nport 1 b\nport 2 c\ncoflow 1 arrival=0s\nflow 0 1 1B\ncoflow 3 arrival=0s\nflow 1 2 2B\n";
    assert_eq!(merged, expected);
    let error = dir.run("trace merge a.weir d.weir --to weir").stderr;
    assert!(error.contains("some traces have names of ports, and others have only numbers"), "{error}");
    // Late times keep their differences.
    let late = |id: u32, second: u32| {
        format!("weir-trace 1\nports 2\ncoflow {id} arrival={}s\nflow 0 1 1B\n", 1_700_000_000 + second)
    };
    dir.write("e.weir", &late(1, 0));
    dir.write("f.weir", &late(2, 3));
    let merged = dir.stdout_of("trace merge e.weir f.weir --to weir");
    assert!(merged.contains("coflow 1 arrival=0s\n") && merged.contains("coflow 2 arrival=3s\n"), "{merged}");
}

#[test]
fn slowdowns_compare_with_the_time_alone() {
    let dir = TestDir::new();
    // On ports of 8 Mbit/s, 1 MB takes 1 s alone. Coflow 1 has a flow whose data exists after 1 s, and coflow 2 shares its sender.
    let trace = "weir-trace 1\nports 4\ncoflow 1 weight=2 deadline=3s service=ads\nflow 0 1 1MB\nflow 3 0 10kB release=1s\n\
                 coflow 2\nflow 0 2 1MB\n";
    dir.write("two.weir", trace);
    let line = "sim two.weir --policy fair --interval 0 --port-rate 8Mbit --quiet --out r";
    let rows = |option: &str| -> Vec<Vec<String>> {
        let text = dir.stdout_of(&format!("{line} {option} -"));
        text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let numbers = |row: &[String]| row.iter().map(|text| text.parse().unwrap()).collect::<Vec<f64>>();
    let coflows = rows("--per-coflow");
    assert_eq!(numbers(&coflows[0][9..13]), [2.0, 2.0, 1.01, 2.0 / 1.01]);
    assert_eq!(coflows[0][13..], ["ads", "default", "2.0", "3.0", "met"]);
    assert_eq!(numbers(&coflows[1][9..13]), [2.0, 2.0, 1.0, 2.0]);
    assert_eq!(coflows[1][13..], ["default", "default", "1.0", "", ""]);
    let flows = rows("--per-flow");
    assert_eq!(numbers(&flows[0][7..11]), [0.0, 2.0, 1.0, 2.0]);
    assert_eq!(numbers(&flows[1][7..10]), [1.0, 1.01, 0.01]);
    let bins = rows("--per-bin");
    let of_flows: Vec<&Vec<String>> = bins.iter().filter(|row| row[1] == "flow-bytes").collect();
    assert_eq!(of_flows.len(), 2);
    assert_eq!(of_flows[0][2..5], ["10000.0", "100000.0", "1"]);
    assert_eq!(of_flows[1][2..5], ["1000000.0", "10000000.0", "2"]);
    assert_eq!(numbers(&of_flows[1][6..]), [2.0; 8]);
    let widths: Vec<&str> =
        bins.iter().filter(|row| row[1] == "coflow-width").map(|row| &row[4][..]).collect();
    assert_eq!(widths, ["2"]);
}

#[test]
fn files_of_details_in_json_have_the_values_of_csv() {
    let dir = TestDir::new();
    let line = "compare own.weir --policies fair,saath --baseline fair --quiet --out r";
    for table in ["per-bin", "per-coflow", "per-flow", "per-job", "per-link"] {
        dir.stdout_of(&format!("{line} --{table} rows.csv"));
        dir.stdout_of(&format!("{line} --{table} rows.json"));
        let (csv, text) = (dir.read("rows.csv"), dir.read("rows.json"));
        let rows: Vec<serde_json::Map<String, Value>> = serde_json::from_str(&text).unwrap();
        assert!(rows.len() > 1 && text.lines().count() == rows.len() + 2, "{table}: {text}");
        let mut lines = csv.lines();
        let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert!(text.starts_with(&format!("[\n{{\"policy\":\"fair\",\"{}\":", columns[1])), "{text}");
        for (line, row) in lines.zip(&rows) {
            let cell = |value: &Value| match value {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            assert_eq!(row.len(), columns.len(), "{table}: {line}");
            let values: Vec<String> = columns.iter().map(|column| cell(&row[*column])).collect();
            assert_eq!(values.join(","), line, "{table}");
        }
    }
    dir.stdout_of("compare trace.txt --policies fair --quiet --out r --per-job none.json");
    assert_eq!(dir.read("none.json"), "[]\n", "the trace has no jobs");
    let sweep = "sweep trace.txt --policies fair,fifo --vary arrival=1,2 --quiet --out r --per-coflow c.json";
    dir.stdout_of(sweep);
    let rows: Vec<Value> = serde_json::from_str(&dir.read("c.json")).unwrap();
    assert_eq!(
        (rows.len(), &rows[0]["vary_arrival"], &rows[11]["policy"]),
        (12, &"1".into(), &"fifo".into())
    );
}

#[test]
fn sweeps_write_a_line_for_each_replay_and_coflow() {
    let dir = TestDir::new();
    dir.write("two.weir", "weir-trace 1\nports 3\ncoflow 1\nflow 0 1 1MB\ncoflow 2\nflow 0 2 1MB\n");
    dir.stdout_of(
        "sweep two.weir --policies fair,fifo --vary arrival=1,2 --interval 0 --quiet --per-coflow c.csv",
    );
    let text = dir.read("c.csv");
    assert!(text.starts_with("vary_arrival,policy,coflow,job,"), "{text}");
    let starts: Vec<&str> = text.lines().skip(1).map(|line| line.split(",,").next().unwrap()).collect();
    assert_eq!(
        starts,
        ["1,fair,1", "1,fair,2", "1,fifo,1", "1,fifo,2", "2,fair,1", "2,fair,2", "2,fifo,1", "2,fifo,2"]
    );
}

#[test]
fn ports_with_names_of_hosts_are_matched_by_name() {
    let dir = TestDir::new();
    let plan = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 1\nleaves = 2\nhosts = 2\nrate = \"1Gbit\"\noversubscription = 1\n";
    dir.write("fabric.toml", plan);
    let trace = |names: [&str; 3]| {
        let ports = (0..).zip(names).map(|(port, name)| format!("port {port} {name}\n")).collect::<String>();
        format!("weir-trace 1\nports 3\n{ports}coflow 1\nflow 0 1 1MB\nevent 1s port=0 side=both rate=0\n")
    };
    let line = "sim named.weir --policy fair --fabric fabric.toml --quiet --per-flow flows.csv --out r";
    let ports = |names| {
        dir.write("named.weir", &trace(names));
        dir.stdout_of(line);
        let text = dir.read("flows.csv");
        text.lines().nth(1).unwrap().split(',').skip(3).take(2).collect::<Vec<_>>().join(" ")
    };
    for names in [["h0", "h1", "h2"], ["h0", "web", "h2"], ["a", "b", "c"]] {
        assert_eq!(ports(names), "0 1");
    }
    assert_eq!(ports(["h3", "h0", "h1"]), "3 0");
    for (names, reason) in [
        (
            ["h0", "h2", "web"],
            "port 1 has the name `h2`, which is host 2 of fabric.toml, but port 2 has the name `web`, which no host has",
        ),
        (
            ["h2", "h1", "h2"],
            "but port 2 has the name `h2` of a port before it; expected a different host's name for each port",
        ),
    ] {
        dir.write("named.weir", &trace(names));
        let error = dir.stderr_of(line, 2);
        assert!(error.contains(reason), "{error}");
    }
}
