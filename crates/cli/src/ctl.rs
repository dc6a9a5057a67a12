//! `weir ctl`: queries and changes of a coordinator.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weir_client::{Coordinator, escaped};
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output::{Sink, print};
use weir_console::record::{self, Record};
use weir_console::spec;
use weir_console::table::{Align, Table, number};
use weir_coordinator::store::{self, Contents};

use crate::args::{self, CtlCommand, Format, PolicyCommand};
use crate::render;

/// Runs `weir ctl`.
pub fn ctl(args: &args::Ctl) -> Result<(), Failure> {
    let coordinator = connect(args)?;
    match &args.command {
        CtlCommand::Hosts => show(args, HOSTS, coordinator.get("/v1/hosts")?),
        CtlCommand::Switches => show(args, SWITCHES, coordinator.get("/v1/switches")?),
        CtlCommand::Queues => show(args, QUEUES, coordinator.get("/v1/queues")?),
        CtlCommand::Coflows => show(args, COFLOWS, coordinator.coflows()?),
        CtlCommand::Allocation => show(args, FLOWS, coordinator.allocation()?),
        CtlCommand::Services => show(args, SERVICES, coordinator.get("/v1/services")?),
        CtlCommand::Applications => show(args, APPLICATIONS, coordinator.get("/v1/applications")?),
        CtlCommand::Observed => show(args, OBSERVED, coordinator.get("/v1/observed")?),
        CtlCommand::Weight { service, weight } => {
            let body = json!({ "weight": weight });
            coordinator.put(&format!("/v1/services/{}", escaped(service)), &body)?;
            Ok(())
        }
        CtlCommand::Backup { file, replace } => backup(args, &coordinator, file, *replace),
        CtlCommand::Policy(PolicyCommand::Get) => {
            let policy = coordinator.get("/v1/policy")?;
            let text = match args.output.format {
                Format::Json => record::json(&policy),
                _ => {
                    let text = policy["policy"].as_str().or(policy["tree"].as_str()).unwrap_or_default();
                    format!("{}\n", text.trim_end())
                }
            };
            Ok(print(text)?)
        }
        CtlCommand::Policy(PolicyCommand::Set { policy }) => {
            let body = match spec::tree(policy) {
                None => json!({ "policy": policy }),
                Some(file) => json!({ "tree": read(Path::new(file))? }),
            };
            coordinator.put("/v1/policy", &body)?;
            Ok(())
        }
    }
}

/// Keys of responses, as columns.
const HOSTS: &[&str] = &[
    "name",
    "present",
    "seconds_since_report",
    "ordered",
    "applied",
    "send_bytes_per_second",
    "recv_bytes_per_second",
    "conflicts",
];
const SWITCHES: &[&str] =
    &["name", "present", "seconds_since_report", "ordered", "applied", "ports", "conflicts"];
const QUEUES: &[&str] = &["host", "way", "weights", "queue_of"];
const COFLOWS: &[&str] = &["id", "service", "application", "flows", "done", "sent_bytes", "class"];
const FLOWS: &[&str] = &["coflow", "flow", "from", "to", "rate"];
const SERVICES: &[&str] = &["name", "weight", "excess", "weights_used", "applications"];
const APPLICATIONS: &[&str] = &["id", "service", "model", "level"];
const OBSERVED: &[&str] =
    &["host", "application", "registered", "peer", "connections", "sent_bytes", "limit_bytes_per_second"];

const BACKUP: &[&str] = &[
    "file",
    "bytes",
    "epoch",
    "coflows",
    "first_flows",
    "applications",
    "connections",
    "weights",
    "settings",
];

/// How long a backup may take.
const BACKUP_LIMIT: Duration = Duration::from_secs(660);

/// A backup as it arrives, which a signal ends, so that the incomplete file is removed.
struct Interruptible<R>(R);

impl<R: Read> Read for Interruptible<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if interrupt::asked() { Err(io::Error::other("interrupted by a signal")) } else { self.0.read(bytes) }
    }
}

/// Writes a backup of a running coordinator's store, and prints its contents.
fn backup(args: &args::Ctl, coordinator: &Coordinator, file: &Path, replace: bool) -> Result<(), Failure> {
    if file.exists() && !replace {
        let file = file.display();
        return Err(Failure::input(format_args!(
            "{file}: the file exists; expected a new file; help: choose another name, or add --replace"
        )));
    }
    interrupt::watch();
    let lines = Interruptible(coordinator.get_stream("/v1/backup", BACKUP_LIMIT)?);
    let Contents { epoch, bytes, records, .. } = match store::write_backup(lines, file, replace) {
        Ok(contents) => contents,
        Err(error) if interrupt::asked() => return Err(Failure::interrupted(error)),
        Err(error) => return Err(Failure::undone(error)),
    };
    let mut line = json!({ "file": file.display().to_string(), "epoch": epoch, "bytes": bytes });
    for (name, count) in records {
        line[name.replace(' ', "_")] = count.into();
    }
    show(args, BACKUP, json!([line]))
}

/// Prints a list of objects.
fn show(args: &args::Ctl, columns: &'static [&'static str], list: Value) -> Result<(), Failure> {
    let empty = Vec::new();
    let list = list.as_array().unwrap_or(&empty);
    let plain = |value: &Value| match value {
        Value::Array(items) if args.output.format != Format::Json => {
            let word = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
            let words: Vec<String> = items.iter().map(word).collect();
            // Sentences need another separator than words.
            let separator = if words.iter().any(|word| word.contains(' ')) { "; " } else { " " };
            Value::from(words.join(separator))
        }
        // Only rates are objects, with bytes per second as their only value.
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
    let table = || {
        let head: Vec<(&str, Align)> = columns.iter().map(|column| (*column, Align::Left)).collect();
        let mut table = Table::new(&head);
        for record in &records {
            table.line(columns.iter().map(|column| cell(record.get(column))).collect());
        }
        table.to_string()
    };
    Sink::new(args.output.out.as_deref())?.fill(render::list(args.output.format, table, || records.clone()))
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(found)) if found.is_f64() => found.as_f64().map_or_else(String::new, number),
        Some(other) => other.to_string(),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::input(format_args!("{}: cannot be read: {error}", path.display())))
}

/// A coordinator on this host, or one that authenticates with a certificate.
fn connect(args: &args::Ctl) -> Result<Coordinator, Failure> {
    let place = &args.coordinator;
    Ok(match args.credentials.files(place, false)? {
        None => Coordinator::local(place)?,
        Some([certificate, key, authority]) => Coordinator::secure(place, certificate, key, authority)?,
    })
}
