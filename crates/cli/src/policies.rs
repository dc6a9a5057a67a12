//! `weir policies`.

use weir_core::policy::{Entry, TABLE};

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::output::Sink;
use crate::record::{self, Record};
use crate::table::{Align, Table};

/// Runs `weir policies`.
///
/// # Errors
/// A name that no policy has, or an output that cannot be written.
pub fn policies(args: &args::Policies) -> Result<(), Failure> {
    let entries: Vec<&Entry> = match &args.name {
        None => TABLE.iter().collect(),
        Some(name) => vec![TABLE.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let known: Vec<&str> = TABLE.iter().map(|entry| entry.name).collect();
            Failure::input(format_args!("no policy is called `{name}`: expected one of {}", known.join(", ")))
        })?],
    };
    let text = match args.output.format {
        Format::Table => text(&entries, args.name.is_some()).into_bytes(),
        Format::Json => record::json(&records(&entries)).into_bytes(),
        Format::Csv => record::csv(&records(&entries)),
    };
    Sink::new(args.output.out.as_deref())?.fill(&text)
}

/// A line for each parameter of each policy; an empty one for a policy without.
fn records(entries: &[&Entry]) -> Vec<Record> {
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
            records.push(r);
        }
    }
    records
}

fn text(entries: &[&Entry], alone: bool) -> String {
    let mut out = String::new();
    let mut table = Table::new(&[("policy", Align::Left), ("", Align::Left)]);
    for entry in entries {
        table.line(vec![entry.name.to_owned(), entry.about.to_owned()]);
        for (param, meaning) in entry.params {
            table.line(vec![format!("  {param}"), format!("  {meaning}")]);
        }
        if alone && entry.params.is_empty() {
            table.line(vec![String::new(), "has no parameters".to_owned()]);
        }
    }
    if !alone {
        table.line(vec![
            "tree:FILE".to_owned(),
            "services, their applications and a policy for each, from a file: docs/policy-tree.md".to_owned(),
        ]);
    }
    table.print(&mut out);
    out
}
