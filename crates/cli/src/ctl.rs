//! `weir ctl`: a coordinator asked by people.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use weir_client::{Coordinator, CoordinatorError, escaped};

use crate::args::{self, Format, PolicyWish, Wish};
use weir_console::failure::Failure;
use weir_console::output::{Sink, print};
use weir_console::record::{self, Record};
use weir_console::spec;
use weir_console::table::{Align, Table, number};

/// Runs `weir ctl`.
///
/// # Errors
/// If the coordinator is not reached, or says no.
pub fn ctl(args: &args::Ctl) -> Result<(), Failure> {
    let coordinator = reach(args)?;
    match &args.what {
        Wish::Status => show(args, HOSTS, coordinator.get("/v1/hosts")?),
        Wish::Switches => show(args, SWITCHES, coordinator.get("/v1/switches")?),
        Wish::Queues => show(args, QUEUES, coordinator.get("/v1/queues")?),
        Wish::Coflows => show(args, COFLOWS, coflows(&coordinator)?),
        Wish::Allocation => show(args, FLOWS, allocation(&coordinator)?),
        Wish::Services => show(args, SERVICES, coordinator.get("/v1/services")?),
        Wish::Applications => show(args, APPLICATIONS, coordinator.get("/v1/applications")?),
        Wish::Found => show(args, FOUND, coordinator.get("/v1/found")?),
        Wish::Weight { service, weight } => {
            let body = json!({ "weight": weight });
            coordinator.put(&format!("/v1/services/{}", escaped(service)), &body)?;
            Ok(())
        }
        Wish::Policy(PolicyWish::Get) => {
            let policy = coordinator.get("/v1/policy")?;
            let text = match args.output.format {
                Format::Json => record::json(&policy),
                _ => {
                    let text = policy["policy"].as_str().or(policy["tree"].as_str()).unwrap_or_default();
                    format!("{}\n", text.trim_end())
                }
            };
            Ok(print(text.as_bytes())?)
        }
        Wish::Policy(PolicyWish::Set { policy }) => {
            let body = match spec::tree(policy) {
                None => json!({ "policy": policy }),
                Some(file) => json!({ "tree": read(Path::new(file))? }),
            };
            coordinator.put("/v1/policy", &body)?;
            Ok(())
        }
    }
}

/// Keys of answers, as columns.
const HOSTS: &[&str] =
    &["name", "present", "silent_seconds", "told", "obeys", "send_bytes_per_second", "recv_bytes_per_second"];
const SWITCHES: &[&str] = &["name", "present", "silent_seconds", "told", "obeys", "ports"];
const QUEUES: &[&str] = &["host", "way", "weights", "queue_of"];
const COFLOWS: &[&str] = &["id", "service", "application", "flows", "done", "sent_bytes", "class"];
const FLOWS: &[&str] = &["coflow", "flow", "from", "to", "rate"];
const SERVICES: &[&str] = &["name", "weight", "excess", "in_force", "applications"];
const APPLICATIONS: &[&str] = &["id", "service", "model", "level"];
const FOUND: &[&str] =
    &["host", "application", "registered", "peer", "connections", "sent_bytes", "limit_bytes_per_second"];

/// Prints a list of objects.
fn show(args: &args::Ctl, columns: &'static [&'static str], list: Value) -> Result<(), Failure> {
    let empty = Vec::new();
    let list = list.as_array().unwrap_or(&empty);
    let plain = |value: &Value| match value {
        Value::Array(items) if args.output.format != Format::Json => {
            let word = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
            Value::from(items.iter().map(word).collect::<Vec<_>>().join(" "))
        }
        // Only rates are objects: so many bytes per second.
        Value::Object(rate) => rate.values().next().cloned().unwrap_or_default(),
        other => other.clone(),
    };
    let records: Vec<Record> = list
        .iter()
        .map(|item| {
            let mut record = Record::default();
            for column in columns {
                record.add(column, plain(&item[*column]));
            }
            record
        })
        .collect();
    let text = match args.output.format {
        Format::Json => record::json(&records).into_bytes(),
        Format::Csv => record::csv(&records),
        Format::Table => {
            let head: Vec<(&str, Align)> = columns.iter().map(|column| (*column, Align::Left)).collect();
            let mut table = Table::new(&head);
            let cell = |value: Option<&Value>| match value {
                None | Some(Value::Null) => "-".to_owned(),
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(found)) if found.is_f64() => {
                    found.as_f64().map_or_else(String::new, number)
                }
                Some(other) => other.to_string(),
            };
            for record in &records {
                table.line(columns.iter().map(|column| cell(record.get(column))).collect());
            }
            let mut text = String::new();
            table.print(&mut text);
            text.into_bytes()
        }
    };
    Sink::new(args.output.out.as_deref())?.fill(&text)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::input(format_args!("{}: cannot be read: {error}", path.display())))
}

/// The coordinator, which is on this host or proves who it is.
fn reach(args: &args::Ctl) -> Result<Coordinator, Failure> {
    let place = &args.coordinator;
    Ok(match args.credentials.files(place, false)? {
        None => Coordinator::local(place)?,
        Some(files) => Coordinator::secure(place, files.certificate, files.key, files.authority)?,
    })
}

/// All coflows, page by page.
fn coflows(coordinator: &Coordinator) -> Result<Value, CoordinatorError> {
    let (mut all, mut path) = (Vec::new(), "/v1/coflows?limit=1000".to_owned());
    loop {
        let page = coordinator.get(&path)?;
        all.extend(page["coflows"].as_array().cloned().unwrap_or_default());
        let Some(next) = page["next"].as_str() else { return Ok(Value::from(all)) };
        path = format!("/v1/coflows?limit=1000&after={}", escaped(next));
    }
}

/// What all flows were given, page by page.
fn allocation(coordinator: &Coordinator) -> Result<Value, CoordinatorError> {
    let (mut all, mut path) = (Vec::<Value>::new(), "/v1/allocation?limit=10000".to_owned());
    loop {
        let page = coordinator.get(&path)?;
        all.extend(page["flows"].as_array().cloned().unwrap_or_default());
        let (Some(last), Some(true)) = (all.last(), page["more"].as_bool()) else {
            return Ok(Value::from(all));
        };
        let coflow = escaped(last["coflow"].as_str().unwrap_or_default());
        path = format!("/v1/allocation?limit=10000&coflow={coflow}&flow={}", last["flow"]);
    }
}
