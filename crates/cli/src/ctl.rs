//! `weir ctl`: a coordinator asked by people.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::args::{self, Format, Pem, PolicyWish, Wish};
use crate::failure::Failure;
use crate::output::{Sink, print};
use crate::record::{self, Record};
use crate::spec;
use crate::table::{Align, Table};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Runs `weir ctl`.
///
/// # Errors
/// If the coordinator is not reached, or says no.
pub fn ctl(args: &args::Ctl) -> Result<(), Failure> {
    let client = Client::new(args)?;
    match &args.what {
        Wish::Status => show(args, HOSTS, client.get("/v1/hosts")?),
        Wish::Coflows => show(args, COFLOWS, client.coflows()?),
        Wish::Allocation => show(args, FLOWS, client.allocation()?),
        Wish::Services => show(args, SERVICES, client.get("/v1/services")?),
        Wish::Weight { service, weight } => {
            client.put(&format!("/v1/services/{service}"), &json!({ "weight": weight }))
        }
        Wish::Policy(PolicyWish::Get) => {
            let policy = client.get("/v1/policy")?;
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
            client.put("/v1/policy", &body)
        }
    }
}

/// Keys of answers, as columns.
const HOSTS: &[&str] =
    &["name", "present", "silent_seconds", "told", "obeys", "send_bytes_per_second", "recv_bytes_per_second"];
const COFLOWS: &[&str] = &["id", "service", "application", "flows", "done", "sent_bytes", "class"];
const FLOWS: &[&str] = &["coflow", "flow", "from", "to", "rate"];
const SERVICES: &[&str] = &["name", "weight", "in_force", "applications"];

/// Prints a list of objects.
fn show(args: &args::Ctl, columns: &'static [&'static str], list: Value) -> Result<(), Failure> {
    let empty = Vec::new();
    let list = list.as_array().unwrap_or(&empty);
    let plain = |value: &Value| match value {
        Value::Array(items) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Value::from(items.join(" "))
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

/// A coordinator.
struct Client {
    agent: Agent,
    base: String,
}

impl Client {
    fn new(args: &args::Ctl) -> Result<Client, Failure> {
        let mut config = Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
        let Some(files) = args.credentials.read(&args.coordinator, false)? else {
            let base = format!("http://{}", args.coordinator);
            return Ok(Client { agent: config.build().into(), base });
        };
        let wrong = |file: &Pem, error: ureq::Error| {
            Failure::input(format_args!("{}: expected PEM: {error}", file.path.display()))
        };
        let of = |file: &Pem| Certificate::from_pem(&file.text).map_err(|error| wrong(file, error));
        let private = PrivateKey::from_pem(&files.key.text).map_err(|error| wrong(&files.key, error))?;
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[of(&files.authority)?]))
            .client_cert(Some(ClientCert::new_with_certs(&[of(&files.certificate)?], private)));
        config = config.tls_config(tls.build());
        Ok(Client { agent: config.build().into(), base: format!("https://{}", args.coordinator) })
    }

    fn get(&self, path: &str) -> Result<Value, Failure> {
        self.answer(self.agent.get(format!("{}{path}", self.base)).call())
    }

    fn put(&self, path: &str, body: &Value) -> Result<(), Failure> {
        self.answer(self.agent.put(format!("{}{path}", self.base)).send(body.to_string())).map(drop)
    }

    /// The body of an answer, or why there is none.
    fn answer(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, Failure> {
        let failed = |error: ureq::Error| Failure::undone(format_args!("{}: {error}", self.base));
        let mut answer = answer.map_err(failed)?;
        let text = answer.body_mut().read_to_string().map_err(failed)?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        if answer.status().is_success() {
            return Ok(body);
        }
        let detail = body["detail"].as_str().unwrap_or(&text);
        Err(Failure::undone(format_args!("{}: {detail}", answer.status())))
    }

    /// All coflows, page by page.
    fn coflows(&self) -> Result<Value, Failure> {
        let (mut all, mut path) = (Vec::new(), "/v1/coflows?limit=1000".to_owned());
        loop {
            let page = self.get(&path)?;
            all.extend(page["coflows"].as_array().cloned().unwrap_or_default());
            let Some(next) = page["next"].as_str() else { return Ok(Value::from(all)) };
            path = format!("/v1/coflows?limit=1000&after={}", escaped(next));
        }
    }

    /// What all flows were given, page by page.
    fn allocation(&self) -> Result<Value, Failure> {
        let (mut all, mut path) = (Vec::<Value>::new(), "/v1/allocation?limit=10000".to_owned());
        loop {
            let page = self.get(&path)?;
            all.extend(page["flows"].as_array().cloned().unwrap_or_default());
            let (Some(last), Some(true)) = (all.last(), page["more"].as_bool()) else {
                return Ok(Value::from(all));
            };
            let coflow = escaped(last["coflow"].as_str().unwrap_or_default());
            path = format!("/v1/allocation?limit=10000&coflow={coflow}&flow={}", last["flow"]);
        }
    }
}

/// A text as it stands in a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
