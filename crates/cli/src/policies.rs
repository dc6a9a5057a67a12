//! `weir policies`.

use weir_core::policy::{Entry, TABLE};
use weir_core::wide_area;

use crate::args::{self, Format};
use weir_console::failure::Failure;
use weir_console::output::Sink;
use weir_console::record::{self, Record};
use weir_console::spec;
use weir_console::table::{Align, Table};

/// Runs `weir policies`.
///
/// # Errors
/// A name that no policy has, or an output that cannot be written.
pub fn policies(args: &args::Policies) -> Result<(), Failure> {
    let name = args.name.as_deref();
    if name.is_some_and(|name| spec::tree(name).is_some()) {
        return tree(&args.output);
    }
    let asked = |line: &Line| name.is_none_or(|name| line.name == name);
    let switch = TABLE.iter().map(|entry| Line::new(entry, SWITCH));
    let wide = wide_area::TABLE.iter().map(|entry| Line::new(entry, WIDE));
    let entries: Vec<Line> = switch.chain(wide).filter(asked).collect();
    if let (Some(name), true) = (name, entries.is_empty()) {
        return Err(spec::unknown(name));
    }
    let text = match args.output.format {
        Format::Table => text(&entries, args.name.is_some()).into_bytes(),
        Format::Json => record::json(&records(&entries)).into_bytes(),
        Format::Csv => record::csv(&records(&entries)),
    };
    Sink::new(args.output.out.as_deref())?.fill(&text)
}

/// The kinds of network.
const SWITCH: &str = "switch";
const WIDE: &str = "wide area";

/// What is said about a policy.
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

/// What is said about trees, which are no line of the table.
const TREE: (&str, &str) =
    ("tree:FILE", "services, their applications and a policy for each, from a file: docs/policy-tree.md");

/// A tree that is read, for somebody who has no documents at hand.
const EXAMPLE: &str = "
Such as:

  weir-tree = 1

  [service.ads]                     # a service of the trace
  weight = 2                        # at every port; 1 if absent
  applications = \"weights\"          # or \"saba\", or \"whole\" (not at all), which is the default
  policy = \"saath:d=4\"              # of its applications that do not say

  [service.ads.application.sort]    # an application of it
  weight = 3
  policy = \"varys\"

  [default]                         # all other services
  policy = \"fair\"
";

/// Describes trees.
fn tree(output: &args::Output) -> Result<(), Failure> {
    let (name, about) = TREE;
    let mut r = Record::default();
    for (key, value) in [
        ("policy", name),
        ("about", about),
        ("parameter", ""),
        ("default", ""),
        ("meaning", ""),
        ("network", SWITCH),
    ] {
        r.add(key, value);
    }
    let text = match output.format {
        Format::Table => format!("{name}  {about}\n{EXAMPLE}").into_bytes(),
        Format::Json => record::json(&[r]).into_bytes(),
        Format::Csv => record::csv(&[r]),
    };
    Sink::new(output.out.as_deref())?.fill(&text)
}

/// A line for each parameter of each policy; an empty one for a policy without.
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

fn text(entries: &[Line], alone: bool) -> String {
    let mut out = String::new();
    let mut table = Table::new(&[("policy", Align::Left), ("", Align::Left)]);
    for (at, entry) in entries.iter().enumerate() {
        if entry.network == WIDE && (at == 0 || entries[at - 1].network == SWITCH) {
            if !alone {
                table.line(vec![TREE.0.to_owned(), TREE.1.to_owned()]);
            }
            table.line(vec!["with --wide-area:".to_owned(), String::new()]);
        }
        table.line(vec![entry.name.to_owned(), entry.about.to_owned()]);
        for (param, meaning) in entry.params {
            table.line(vec![format!("  {param}"), format!("  {meaning}")]);
        }
        if alone && entry.params.is_empty() {
            table.line(vec![String::new(), "has no parameters".to_owned()]);
        }
    }
    table.print(&mut out);
    out
}
