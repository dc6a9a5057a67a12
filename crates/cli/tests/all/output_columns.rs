//! Tests that docs/output.md defines every column and key that commands print.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::TestDir;
use serde_json::Value;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn page() -> String {
    fs::read_to_string(repository().join("docs/output.md")).unwrap()
}

/// Whether the page has a name in backticks. Numbers in names stand for others: `slowdown_0.05` for `slowdown_0.1`.
fn defines(page: &str, name: &str) -> bool {
    let first_of = |prefix: &str, first: &str| name.starts_with(prefix).then(|| format!("{prefix}{first}"));
    let representative = first_of("slowdown_", "0.05")
        .or_else(|| first_of("width_p", "0"))
        .or_else(|| first_of("vary_", "KEY"))
        .or_else(|| {
            let service = name.strip_prefix("service_")?.strip_suffix("_bit_per_s")?;
            (!service.is_empty()).then(|| "service_NAME_bit_per_s".to_owned())
        })
        .or_else(|| (name.len() == 4 && name.starts_with("bin")).then(|| "bin1".to_owned()))
        .or_else(|| (name.len() == 2 && name.starts_with('c')).then(|| "c0".to_owned()));
    page.contains(&format!("`{}`", representative.as_deref().unwrap_or(name)))
}

/// The string literals of a text.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// The names that a source file adds to records, or writes as the header of a CSV file.
fn names_in_source(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut add = |text: &str| names.extend(literals(text).map(str::to_owned));
    let arguments = |call: &'static str| source.split(call).skip(1);
    // `r.add("name", value)`
    arguments(".add(\"").for_each(|rest| add(&format!("\"{}\"", rest.split('"').next().unwrap())));
    // `r.add_all(["name", "name"], values)`, and the header of a CSV file
    for call in [".add_all(", "write_record(["] {
        arguments(call).for_each(|rest| add(rest.split(']').next().unwrap()));
    }
    // `const COLUMNS: [Column; 2] = [("name", Text), ("name", Number)];`
    arguments(": [Column").for_each(|rest| add(rest.split("];").next().unwrap()));
    // `json!({ "name": value })`
    for rest in arguments("json!({") {
        let object = rest.split("})").next().unwrap();
        let keys = object.split("\": ").filter_map(|before| before.rsplit_once('"').map(|(_, key)| key));
        let count = object.matches("\": ").count();
        names.extend(keys.take(count).map(str::to_owned));
    }
    // `const HOSTS: &[&str] = &["name"]`
    arguments(": &[&str] =").for_each(|rest| {
        let rest = rest.trim_start();
        if let Some(list) = rest.strip_prefix("&[") {
            names.extend(literals(list.split(']').next().unwrap()).map(str::to_owned));
        }
    });
    names
}

fn collect_sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("args") {
            collect_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn output_page_defines_every_name_in_the_source() {
    let mut sources = Vec::new();
    for folder in ["crates/cli/src", "crates/experiment/src"] {
        collect_sources(&repository().join(folder), &mut sources);
    }
    let mut names: BTreeSet<String> = sources.iter().flat_map(|source| names_in_source(source)).collect();
    // The bodies of requests.
    for name in ["policy", "tree", "weight"] {
        names.remove(name);
    }
    assert!(names.len() > 150, "{names:?}");
    let page = page();
    let missing: Vec<&String> = names.iter().filter(|name| !defines(&page, name)).collect();
    assert!(missing.is_empty(), "docs/output.md does not define {missing:?}");
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                found.insert(key.clone());
                keys(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn output_page_defines_the_keys_of_results() {
    let dir = TestDir::new();
    let examples = repository().join("examples");
    let example = |name: &str| examples.join(name).display().to_string();
    dir.write(
        "four.weir",
        "weir-trace 1\nports 4\ncoflow 1 weight=2\nflow 0 1 50MB\ncoflow 2\nflow 1 2 10MB\n",
    );
    let (spine, area) = (example("fabrics/leaf-spine-16.toml"), example("wide-area/private-cloud.toml"));
    let incast = example("incast/cost-512kB.csv");
    let mut found = BTreeSet::new();
    for line in [
        "compare own.weir --policies saath,fair".to_owned(),
        "sweep four.weir --policies saath --fixed-baseline --vary start=1MB,2MB".to_owned(),
        format!("compare four.weir --policies saath,fair --fabric {spine}"),
        format!("compare four.weir --policies siphon,fair --fabric {area}"),
        format!("compare four.weir --policies saath,fair --incast {incast} --buffer 100"),
        "explain own.weir --policy saath --coflow 2".to_owned(),
        format!("compare {} --policies fair,saath --quiet", example("jobs.toml")),
        format!("sim {} --policy fair --quiet", example("services.toml")),
        format!("fabric describe {spine}"),
        "trace describe own.weir".to_owned(),
        format!("share {} --mechanism queues", example("scenarios/guarantee.toml")),
        "saba profile --workload LR".to_owned(),
        format!("predict connections {} --loss 0.46 --threshold 20", example("incast/model.toml")),
        "policies saath".to_owned(),
    ] {
        let ran = dir.run(&format!("{line} --format json"));
        assert_eq!(ran.code, Some(0), "weir {line}: {}", ran.stderr);
        keys(&serde_json::from_str(&ran.stdout).unwrap(), &mut found);
    }
    assert!(found.len() > 120, "{found:?}");
    let page = page();
    let missing: Vec<&String> = found.iter().filter(|name| !defines(&page, name)).collect();
    assert!(missing.is_empty(), "docs/output.md does not define {missing:?}");
}
