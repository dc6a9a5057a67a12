//! Runs `weir ctl`: queries a coordinator, changes its policy and weights, and backs up its store.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weir_client::{Coordinator, CoordinatorError, percent_encode};
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output::{ResultDestination, print};
use weir_console::policy_spec;
use weir_console::record::{self, Record};
use weir_console::table::{Alignment, Table, format_number, format_seconds};
use weir_coordinator::registry::check_record;
use weir_coordinator::store::{self, StoreSummary};

use crate::args::{
    self, ApplicationCommand, CoflowCommand, ConnectionCommand, CtlCommand, Format, HostsCommand,
    LinksCommand, PolicyCommand,
};
use crate::render;

mod applications;
mod events;
mod links;
mod pause;
mod sensitivity;

/// Runs `weir ctl`.
pub fn ctl(args: &args::Ctl) -> Result<(), Failure> {
    let coordinator = connect(&args.coordinator, &args.credentials)?;
    match &args.command {
        CtlCommand::Hosts { command: None } => print_list(args, HOSTS, coordinator.get("/v1/hosts")?),
        CtlCommand::Hosts { command: Some(HostsCommand::Remove { name, force }) } => {
            Ok(coordinator.delete(&format!("{}?force={force}", object_path("hosts", name)))?)
        }
        CtlCommand::Switches => print_list(args, SWITCHES, coordinator.get("/v1/switches")?),
        CtlCommand::Links { command: None } => print_list(args, links::LINKS, coordinator.get(links::PATH)?),
        CtlCommand::Links { command: Some(LinksCommand::Down(names)) } => {
            links::set(&coordinator, names, "down")
        }
        CtlCommand::Links { command: Some(LinksCommand::Up(names)) } => links::set(&coordinator, names, "up"),
        CtlCommand::Queues => print_list(args, QUEUES, coordinator.get("/v1/queues")?),
        CtlCommand::Coflows => print_list(args, COFLOWS, coordinator.coflows()?),
        CtlCommand::Coflow(CoflowCommand::Show { id }) => {
            let mut coflow = coordinator.get(&object_path("coflows", id))?;
            if let Some(reason) = coflow["reason"].as_str() {
                eprintln!("coflow {id} has failed: {reason}");
            }
            number_flows(&mut coflow["flows"]);
            print_list(args, COFLOW_FLOWS, coflow["flows"].take())
        }
        CtlCommand::Coflow(CoflowCommand::Deregister { id }) => {
            Ok(coordinator.delete(&object_path("coflows", id))?)
        }
        CtlCommand::Allocation => print_list(args, FLOWS, coordinator.allocation()?),
        CtlCommand::Trace => trace(args, &coordinator),
        CtlCommand::Workload => workload(args, &coordinator),
        CtlCommand::Relays => print_list(args, RELAYS, coordinator.get("/v1/relays")?),
        CtlCommand::Routes => print_list(args, ROUTES, coordinator.routes()?),
        CtlCommand::Paths => print_list(args, PATHS, coordinator.get("/v1/paths")?),
        CtlCommand::Services => print_list(args, SERVICES, coordinator.get("/v1/services")?),
        CtlCommand::Applications => applications::list(args, &coordinator),
        CtlCommand::Application(ApplicationCommand::Register(application)) => {
            applications::register(&coordinator, application)
        }
        CtlCommand::Application(ApplicationCommand::Deregister { id }) => {
            Ok(coordinator.delete(&object_path("applications", id))?)
        }
        CtlCommand::Connections { application } => {
            print_list(args, CONNECTIONS, coordinator.connections(application.as_deref())?)
        }
        CtlCommand::Connection(ConnectionCommand::Close { ids, application }) => {
            for id in ids {
                coordinator.delete(&object_path("connections", id))?;
            }
            match application {
                Some(application) => close_connections(&coordinator, application),
                None => Ok(()),
            }
        }
        CtlCommand::Events { count } => events::follow(&coordinator, args.output.format, *count),
        CtlCommand::Observed => print_list(args, OBSERVED, coordinator.get("/v1/observed")?),
        CtlCommand::Weight(weight) => set_weight(&coordinator, weight),
        CtlCommand::Pause(pause) => pause::pause(&coordinator, pause),
        CtlCommand::Resume(targets) => pause::resume(&coordinator, targets),
        CtlCommand::Paused => print_list(args, pause::PAUSES, coordinator.get("/v1/pause")?),
        CtlCommand::Reload { check } => reload(args, &coordinator, *check),
        CtlCommand::Backup { file, replace } => backup(args, &coordinator, file, *replace),
        CtlCommand::Policy(PolicyCommand::Get) => print_policy(args, &coordinator),
        CtlCommand::Policy(PolicyCommand::Set { policy }) => {
            let body = match policy_spec::tree_file(policy) {
                None => json!({ "policy": policy }),
                Some(file) => json!({ "tree": read(Path::new(file))? }),
            };
            coordinator.put("/v1/policy", &body)?;
            Ok(())
        }
        CtlCommand::Sensitivity(command) => sensitivity::run(args, &coordinator, command),
    }
}

/// Sets the weight, the minimum and the maximum of a service, each if it is given.
fn set_weight(coordinator: &Coordinator, given: &args::ServiceWeight) -> Result<(), Failure> {
    let mut body = given.weight.map_or(json!({}), |weight| json!({ "weight": weight }));
    for (key, rate) in [
        ("min_bandwidth", &given.min_bandwidth),
        ("max_bandwidth", &given.max_bandwidth),
        ("min_bandwidth_per_host", &given.min_bandwidth_per_host),
        ("max_bandwidth_per_host", &given.max_bandwidth_per_host),
    ] {
        match rate.as_deref() {
            None => {}
            Some("none") => body[key] = Value::Null,
            Some(rate) => body[key] = rate.into(),
        }
    }
    coordinator.put(&object_path("services", &given.service), &body)?;
    Ok(())
}

/// Lets the coordinator reload its configuration, and prints the difference.
fn reload(args: &args::Ctl, coordinator: &Coordinator, is_check: bool) -> Result<(), Failure> {
    let reloaded = coordinator.post(&format!("/v1/reload?check={is_check}"))?;
    let text = match args.output.format {
        Format::Json => record::json(&reloaded),
        _ => {
            let lines = reloaded["difference"].as_array().into_iter().flatten().filter_map(Value::as_str);
            lines.map(|line| format!("{line}\n")).collect()
        }
    };
    Ok(print(text)?)
}

fn print_policy(args: &args::Ctl, coordinator: &Coordinator) -> Result<(), Failure> {
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

/// Closes all connections of an application. Those that end meanwhile are no error.
fn close_connections(coordinator: &Coordinator, application: &str) -> Result<(), Failure> {
    let connections = coordinator.connections(Some(application))?;
    let ids: Vec<&str> = connections
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|connection| connection["id"].as_str())
        .collect();
    if ids.is_empty() {
        return Err(Failure::input(format_args!(
            "{application}: no connection of this application; expected one of `weir ctl connections`"
        )));
    }
    for id in ids {
        match coordinator.delete(&object_path("connections", id)) {
            Err(CoordinatorError::Refused { status: 404, .. }) => {}
            answer => answer?,
        }
    }
    Ok(())
}

/// The path of an object of a kind.
fn object_path(kind: &str, id: &str) -> String {
    format!("/v1/{kind}/{}", percent_encode(id))
}

/// Adds the number of each flow, by which programs name it.
fn number_flows(flows: &mut Value) {
    for (number, flow) in flows.as_array_mut().into_iter().flatten().enumerate() {
        flow["flow"] = number.into();
    }
}

/// Keys of the objects in `/v1/hosts` that are columns of `weir ctl hosts`; the next constants likewise.
const HOSTS: &[&str] = &[
    "name",
    "present",
    "seconds_since_report",
    "ordered",
    "applied",
    "send_bytes_per_second",
    "recv_bytes_per_second",
    "bandwidth_fraction",
    "applied_bandwidth_fraction",
    "max_connections",
    "pause",
    "joined",
    "position",
    "addresses",
    "conflicts",
];
const SWITCHES: &[&str] =
    &["name", "present", "seconds_since_report", "ordered", "applied", "ports", "pause", "conflicts"];
const QUEUES: &[&str] = &["host", "direction", "weights", "queue_of"];
const COFLOWS: &[&str] = &[
    "id",
    "service",
    "application",
    "state",
    "flows",
    "done",
    "sent_bytes",
    "class",
    "pause",
    "predicted_seconds",
    "measured_seconds",
    "detoured_bytes",
    "reason",
];
const COFLOW_FLOWS: &[&str] =
    &["flow", "from", "to", "bytes", "sent_bytes", "done", "rate", "pause", "shadow_rate"];
const FLOWS: &[&str] = &["coflow", "flow", "from", "to", "rate", "shadow_rate"];
const RELAYS: &[&str] = &[
    "name",
    "region",
    "present",
    "seconds_since_report",
    "ordered",
    "applied",
    "coflows",
    "rules",
    "refused_orders",
    "unruled_flows",
    "address",
    "networks",
];
const ROUTES: &[&str] =
    &["coflow", "from", "to", "priority", "via", "bytes", "acked_bytes", "detoured_bytes", "open_flows"];
const PATHS: &[&str] = &[
    "from",
    "to",
    "from_region",
    "to_region",
    "connected",
    "bytes_per_second",
    "min_rtt_seconds",
    "rtt_seconds",
    "retransmitted",
    "sent_bytes",
    "detoured_bytes",
];
const SERVICES: &[&str] = &[
    "name",
    "weight",
    "excess",
    "min_bandwidth",
    "max_bandwidth",
    "min_bandwidth_per_host",
    "max_bandwidth_per_host",
    "weights_used",
    "pause",
    "applications",
];
const CONNECTIONS: &[&str] =
    &["id", "application", "from", "to", "level", "weight", "program", "ends_in_seconds"];
const OBSERVED: &[&str] = &[
    "host",
    "application",
    "registered",
    "peer",
    "connections",
    "sent_bytes",
    "limit_bytes_per_second",
    "shadow_limit_bytes_per_second",
];

/// Columns of `weir ctl backup`: the contents of the written store.
const BACKUP: &[&str] = &[
    "file",
    "bytes",
    "epoch",
    "coflows",
    "first_flows",
    "overlay_coflows",
    "applications",
    "connections",
    "weights",
    "settings",
];

/// The timeout of a backup: the coordinator ends a backup after 600 s, and its last chunks get a minute to arrive.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(660);

/// A reader that fails after a signal, so that the incomplete file of a backup is removed.
struct Interruptible<R>(R);

impl<R: Read> Read for Interruptible<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if interrupt::is_requested() {
            Err(io::Error::other("interrupted by a signal"))
        } else {
            self.0.read(bytes)
        }
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
    interrupt::record_signals();
    let stream = Interruptible(coordinator.get_stream("/v1/backup", Some(BACKUP_TIMEOUT))?);
    let StoreSummary { epoch, bytes, records, .. } =
        match store::write_backup(stream, file, replace, check_record) {
            Ok(contents) => contents,
            Err(error) if interrupt::is_requested() => return Err(Failure::interrupted(error)),
            Err(error) => return Err(Failure::runtime(error)),
        };
    let mut line = json!({ "file": file.display().to_string(), "epoch": epoch, "bytes": bytes });
    for (name, count) in records {
        line[name.replace(' ', "_")] = count.into();
    }
    print_list(args, BACKUP, json!([line]))
}

/// The timeout of a trace.
const TRACE_TIMEOUT: Duration = Duration::from_secs(60);

/// Writes the trace events of a coordinator.
fn trace(args: &args::Ctl, coordinator: &Coordinator) -> Result<(), Failure> {
    let destination = ResultDestination::new(args.output.out.as_deref())?;
    destination.write_text(read_body(coordinator, "/v1/trace", TRACE_TIMEOUT)?)
}

/// The body at a path. Fails after a signal.
fn read_body(coordinator: &Coordinator, path: &str, timeout: Duration) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    interrupt::record_signals();
    let mut stream = Interruptible(coordinator.get_stream(path, Some(timeout))?);
    match stream.read_to_end(&mut body) {
        Ok(_) => Ok(body),
        Err(error) if interrupt::is_requested() => Err(Failure::interrupted(error)),
        Err(error) => Err(Failure::runtime(format_args!("{path}: {error}"))),
    }
}

/// The timeout of a workload: the coordinator ends it after 600 s, and the last chunks get a minute to arrive.
const WORKLOAD_TIMEOUT: Duration = Duration::from_secs(660);

/// Writes the coflows of a coordinator as a trace.
fn workload(args: &args::Ctl, coordinator: &Coordinator) -> Result<(), Failure> {
    let destination = ResultDestination::new(args.output.out.as_deref())?;
    let trace = read_body(coordinator, "/v1/workload", WORKLOAD_TIMEOUT)?;
    // After the header, the trace has a comment with its period, and one with the number of missing coflows if there are any.
    for comment in trace.split(|byte| *byte == b'\n').skip(2).map_while(|line| line.strip_prefix(b"# ")) {
        eprintln!("weir: workload: {}", String::from_utf8_lossy(comment));
    }
    destination.write_text(trace)
}

/// Prints a JSON array of objects, with the keys `columns` as columns.
fn print_list(args: &args::Ctl, columns: &'static [&'static str], list: Value) -> Result<(), Failure> {
    let empty = Vec::new();
    let list = list.as_array().unwrap_or(&empty);
    let to_cell_value = |value: &Value| match value {
        Value::Array(items) if args.output.format != Format::Json => {
            let to_text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
            let texts: Vec<String> = items.iter().map(to_text).collect();
            // Items that contain spaces are separated by semicolons.
            let separator = if texts.iter().any(|text| text.contains(' ')) { "; " } else { " " };
            Value::from(texts.join(separator))
        }
        // Rates are the only objects; their only value is the number of bytes per second.
        Value::Object(rate) => rate.values().next().cloned().unwrap_or_default(),
        other => other.clone(),
    };
    let records: Vec<Record> = list
        .iter()
        .map(|item| {
            let mut record = Record::default();
            for column in columns {
                record.add(column, to_cell_value(&item[*column]));
            }
            record
        })
        .collect();
    let table = || {
        let head: Vec<(&str, Alignment)> =
            columns.iter().map(|column| (heading(column), Alignment::Left)).collect();
        let mut table = Table::new(&head);
        for record in &records {
            table.add_row(columns.iter().map(|column| cell(column, record.get(column))).collect());
        }
        table.to_string()
    };
    ResultDestination::new(args.output.out.as_deref())?.write_text(render::list(
        args.output.format,
        table,
        || records.clone(),
    ))
}

/// Round-trip times, which tables show with a unit in each cell.
const ROUND_TRIP_TIMES: [&str; 2] = ["min_rtt_seconds", "rtt_seconds"];

/// The heading of a column in a table.
fn heading(column: &str) -> &str {
    if ROUND_TRIP_TIMES.contains(&column) { column.trim_end_matches("_seconds") } else { column }
}

fn cell(column: &str, value: Option<&Value>) -> String {
    match value {
        Some(Value::Number(time)) if ROUND_TRIP_TIMES.contains(&column) => {
            time.as_f64().map_or_else(String::new, format_seconds)
        }
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number_value)) if number_value.is_f64() => {
            number_value.as_f64().map_or_else(String::new, format_number)
        }
        Some(other) => other.to_string(),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::input(format_args!("{}: cannot be read: {error}", path.display())))
}

/// Connects to a coordinator: over plain text on this host, over TLS with the given certificate.
pub fn connect(address: &str, credentials: &args::Credentials) -> Result<Coordinator, Failure> {
    Ok(match credentials.tls_files(address, false)? {
        None => Coordinator::local(address)?,
        Some([certificate, key, authority]) => {
            #[cfg(target_os = "linux")]
            check_validity(certificate, key, authority)?;
            Coordinator::secure(address, certificate, key, authority)?
        }
    })
}

/// Checks that the own certificate is valid now. A coordinator refuses others, but does not state the reason in all cases.
#[cfg(target_os = "linux")]
fn check_validity(certificate: &Path, key: &Path, authority: &Path) -> Result<(), Failure> {
    use weir_tls::{TlsError, TlsFiles};
    let [certificate, key, clients] = [certificate, key, authority].map(Path::to_owned);
    match weir_tls::check_validity(&TlsFiles { certificate, key, clients }) {
        Err(error @ TlsError::NotValidNow { .. }) => Err(Failure::input(error)),
        // The client reports unusable files.
        _ => Ok(()),
    }
}
