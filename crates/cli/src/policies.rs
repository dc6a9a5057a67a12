//! `weir policies`.

use weir_console::failure::Failure;
use weir_console::output::Sink;
use weir_console::record::Record;
use weir_console::spec;
use weir_console::table::{Align, Table};
use weir_core::policy::{Entry, TABLE};
use weir_core::wide_area;

use crate::args;
use crate::render;

/// Runs `weir policies`.
pub fn policies(args: &args::Policies) -> Result<(), Failure> {
    let name = args.name.as_deref();
    let is_tree = name.is_some_and(|name| spec::tree(name).is_some());
    let switch = TABLE.iter().map(|entry| Line::new(entry, SWITCH));
    let wide = wide_area::TABLE.iter().map(|entry| Line::new(entry, WIDE));
    let mut lines: Vec<Line> = switch.chain(wide).collect();
    lines.retain(|line| name.is_none_or(|name| line.name == name));
    if is_tree {
        lines = vec![TREE];
    }
    if let (Some(name), true) = (name, lines.is_empty()) {
        return Err(spec::unknown(name));
    }
    let table = || {
        if is_tree {
            format!("{}  {}\n{EXAMPLE}", TREE.name, TREE.about)
        } else {
            table(&lines, name.is_some())
        }
    };
    Sink::new(args.output.out.as_deref())?.fill(render::list(args.output.format, table, || records(&lines)))
}

/// The kinds of network.
const SWITCH: &str = "switch";
const WIDE: &str = "wide area";

/// A policy.
struct Line {
    name: &'static str,
    about: &'static str,
    params: &'static [(&'static str, &'static str)],
    network: &'static str,
}

impl Line {
    fn new<T>(entry: &Entry<T>, network: &'static str) -> Line {
        Line { name: entry.name, about: entry.about, params: entry.params, network }
    }
}

/// Policy trees, which are no entry of the table.
const TREE: Line = Line {
    name: "tree:FILE",
    about: "services, their applications and a policy for each, from a file: docs/policy-tree.md",
    params: &[],
    network: SWITCH,
};

/// A policy tree, for users without the documentation.
const EXAMPLE: &str = "
For example:

  weir-tree = 1

  [service.ads]                     # a service of the trace
  weight = 2                        # at every port; 1 if absent
  applications = \"weights\"          # or \"saba\", or \"whole\" (not at all), the default
  policy = \"saath:d=4\"              # of its applications without a policy

  [service.ads.application.sort]    # an application of it
  weight = 3
  policy = \"varys\"

  [default]                         # all other services
  policy = \"fair\"
";

/// A record for each parameter of each policy; one with empty cells for a policy without parameters.
fn records(entries: &[Line]) -> Vec<Record> {
    let mut records = Vec::new();
    for entry in entries {
        let none = [("", "")];
        let params = if entry.params.is_empty() { &none[..] } else { entry.params };
        for (param, meaning) in params {
            let (key, default) = param.split_once('=').unwrap_or((param, ""));
            let mut r = Record::default();
            r.add("policy", entry.name);
            r.add("about", entry.about);
            r.add("parameter", key);
            r.add("default", default);
            r.add("meaning", *meaning);
            r.add("network", entry.network);
            records.push(r);
        }
    }
    records
}

fn table(entries: &[Line], alone: bool) -> String {
    let mut table = Table::new(&[("policy", Align::Left), ("", Align::Left)]);
    for (at, entry) in entries.iter().enumerate() {
        if entry.network == WIDE && (at == 0 || entries[at - 1].network == SWITCH) {
            if !alone {
                table.line(vec![TREE.name.to_owned(), TREE.about.to_owned()]);
            }
            table.line(vec!["with --wide-area:".to_owned(), String::new()]);
        }
        table.line(vec![entry.name.to_owned(), entry.about.to_owned()]);
        for (param, meaning) in entry.params {
            table.line(vec![format!("  {param}"), format!("  {meaning}")]);
        }
        if alone && entry.params.is_empty() {
            table.line(vec![String::new(), "no parameters".to_owned()]);
        }
    }
    table.to_string()
}
