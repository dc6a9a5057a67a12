//! Runs `weir policies`: lists policies and their parameters.

use weir_console::failure::Failure;
use weir_console::output::ResultDestination;
use weir_console::policy_spec;
use weir_console::record::Record;
use weir_console::table::{Alignment, Table};
use weir_core::policy::{self, PolicyEntry, Reaction, Timing};

use crate::args;
use crate::render;

/// Runs `weir policies`.
pub fn policies(args: &args::Policies) -> Result<(), Failure> {
    let name = args.name.as_deref();
    let is_tree = name.is_some_and(|name| policy_spec::tree_file(name).is_some());
    let mut lines: Vec<ListedPolicy> = policy::all().map(ListedPolicy::new).collect();
    lines.retain(|line| name.is_none_or(|name| line.name == name));
    if is_tree {
        lines = vec![TREE_ENTRY];
    }
    if let (Some(name), true) = (name, lines.is_empty()) {
        return Err(unknown_name(name));
    }
    let table = || {
        if is_tree {
            format!("{}  {}\n{TREE_EXAMPLE}", TREE_ENTRY.name, TREE_ENTRY.about)
        } else {
            table(&lines, name.is_some())
        }
    };
    ResultDestination::new(args.output.out.as_deref())?.write_text(render::list(
        args.output.format,
        table,
        || records(&lines),
    ))
}

/// The failure for an argument that is no policy's name, such as a specification with parameters.
fn unknown_name(name: &str) -> Failure {
    match name.split_once(':').filter(|(policy, _)| policy::all().any(|entry| entry.name == *policy)) {
        Some((policy, _)) => Failure::input(format_args!(
            "`{name}` has parameters; expected only the name of a policy; help: `weir policies {policy}`"
        )),
        None => policy_spec::unknown_policy(name),
    }
}

/// A line of the list of policies.
struct ListedPolicy {
    name: &'static str,
    about: &'static str,
    params: &'static [(&'static str, &'static str)],
    /// With the default parameters; none for trees, whose leaves differ.
    timing: Option<Timing>,
}

impl ListedPolicy {
    fn new(entry: &PolicyEntry) -> ListedPolicy {
        let timing = policy::build(entry.name).ok().map(|policy| policy.timing());
        ListedPolicy { name: entry.name, about: entry.description, params: entry.params, timing }
    }

    /// What happens at once and at multiples of the interval: names of columns, descriptions, and values.
    fn timing_rows(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let Some(Timing { start, completion, at_interval, source }) = self.timing else { return Vec::new() };
        let when = |reaction| match reaction {
            Reaction::AtOnce => "at once",
            Reaction::AtInterval => "at multiples of --interval",
        };
        let decided = if at_interval.is_empty() { "nothing" } else { at_interval };
        vec![
            ("flow_starts", "a flow starts", when(start)),
            ("capacity_reused", "capacity of a completed flow is used", when(completion)),
            ("at_interval", "decided at multiples of --interval", decided),
            ("timing_source", "source", source),
        ]
    }
}

/// The line for policy trees, which are not in the tables of policies.
const TREE_ENTRY: ListedPolicy = ListedPolicy {
    name: "tree:FILE",
    about: "services, their applications and a policy for each, from a file: docs/policy-tree.md",
    params: &[],
    timing: None,
};

/// An example of a policy tree.
const TREE_EXAMPLE: &str = "
For example:

  weir-tree = 1

  [service.ads]                     # a service of the trace
  weight = 2                        # at every port; default: 1
  applications = \"weights\"          # or \"saba\"; default: \"whole\" (not shared between applications)
  policy = \"saath:d=4\"              # for its applications without their own policy

  [service.ads.application.sort]    # an application of the service
  weight = 3
  policy = \"varys\"

  [default]                         # all other services
  policy = \"fair\"
";

/// A record for each parameter of each policy. A policy without parameters has one record with empty parameter fields.
fn records(entries: &[ListedPolicy]) -> Vec<Record> {
    let mut records = Vec::new();
    for entry in entries {
        let no_params = [("", "")];
        let params = if entry.params.is_empty() { &no_params[..] } else { entry.params };
        for (param, meaning) in params {
            let (key, default) = param.split_once('=').unwrap_or((param, ""));
            let mut r = Record::default();
            r.add("policy", entry.name);
            r.add("about", entry.about);
            r.add("parameter", key);
            r.add("default", default);
            r.add("meaning", *meaning);
            for (column, _, value) in entry.timing_rows() {
                r.add(column, value);
            }
            records.push(r);
        }
    }
    records
}

fn table(entries: &[ListedPolicy], is_single: bool) -> String {
    let mut table = Table::new(&[("policy", Alignment::Left), ("", Alignment::Left)]);
    for entry in entries {
        table.add_row(vec![entry.name.to_owned(), entry.about.to_owned()]);
        for (param, meaning) in entry.params {
            table.add_row(vec![format!("  {param}"), format!("  {meaning}")]);
        }
        if is_single && entry.params.is_empty() {
            table.add_row(vec![String::new(), "no parameters".to_owned()]);
        }
        if is_single {
            for (_, event, value) in entry.timing_rows() {
                table.add_row(vec![format!("  {event}"), format!("  {value}")]);
            }
        }
    }
    if !is_single {
        table.add_row(vec![TREE_ENTRY.name.to_owned(), TREE_ENTRY.about.to_owned()]);
    }
    table.to_string()
}
