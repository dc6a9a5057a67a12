//! Tests of the audit log, with real certificates.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{CONFIG, TIMEOUT, TestServer, get_text, put, send_json_request};
use crate::certificates::Authority;
use crate::roles::SecureServer;

/// The audit log of the tests, relative to the folder of the configuration.
const FILE: &str = "audit.jsonl";

fn with_audit_log(text: &str) -> String {
    text.replacen("policy = ", &format!("audit = \"{FILE}\"\npolicy = "), 1)
}

fn start_secure_server() -> SecureServer {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.write_server_files(folder.path());
    SecureServer::start_with_config(authority, folder, &with_audit_log(CONFIG))
}

/// The entries of a file, once it has the entry of each accepted request before this call.
fn read_entries(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn audit_file(server: &TestServer) -> PathBuf {
    server.registry().audit().flush(TIMEOUT);
    server.folder.path().join(FILE)
}

/// The fields of an entry, without its time and the address of its client.
fn without_time(mut entry: Value) -> Value {
    let fields = entry.as_object_mut().unwrap();
    let time = fields.remove("time").unwrap();
    let time = time.as_str().unwrap();
    assert!(time.starts_with("20") && time.len() == 24 && time.ends_with('Z'), "{time}");
    if let Some(peer) = fields.remove("peer") {
        assert!(peer.as_str().unwrap().starts_with("127.0.0.1:"), "{peer}");
    }
    entry
}

#[test]
fn changes_have_entries_with_identity_before_and_after() {
    let secure = start_secure_server();
    let operator = secure.client_with_identity("weir://operator/ann");
    let framework = secure.client_with_identity("weir://framework/ads");
    let table = "version = 1\n[[application]]\nname = \"sort\"\ncoefficients = [5.0, -4.0]\n";
    let coflow = r#"{"flows": [{"from": "a", "to": "b", "bytes": 5}, {"from": "b", "to": "c", "bytes": 6}]}"#;
    let flows = r#"[{"from": "a", "to": "b"}]"#;
    let connection = r#"{"application": "s1", "from": "a", "to": "b"}"#;
    for (client, method, path, body, status) in [
        (&operator, "PUT", "/v1/policy", r#"{"policy": "aalo"}"#, 204),
        (&operator, "PUT", "/v1/services/ads", r#"{"weight": 2}"#, 204),
        (&operator, "PUT", "/v1/services/ads", r#"{"weight": 3}"#, 204),
        (&operator, "PUT", "/v1/sensitivity", table, 204),
        (&operator, "GET", "/v1/backup", "", 200),
        (&framework, "PUT", "/v1/coflows/c1", coflow, 200),
        (&framework, "PUT", "/v1/coflows/c1", coflow, 200),
        (&framework, "PUT", "/v1/coflows/c1/flows", flows, 204),
        (&framework, "DELETE", "/v1/coflows/c1", "", 204),
        (&framework, "PUT", "/v1/applications/s1", r#"{"model": "sort"}"#, 200),
        (&framework, "PUT", "/v1/connections/x1", connection, 200),
        (&framework, "PUT", "/v1/connections/x1", connection, 200),
        (&framework, "DELETE", "/v1/connections/x1", "", 204),
        (&framework, "DELETE", "/v1/applications/s1", "", 204),
    ] {
        let answer = secure.request(client, method, path, body).unwrap();
        assert_eq!(answer.0, status, "{method} {path}: {}", answer.1);
    }
    let entries = read_entries(&audit_file(secure.server()));
    let mut entries: Vec<Value> = entries.into_iter().map(without_time).collect();
    let start = entries.remove(0);
    assert_eq!(start["action"], "start");
    assert_eq!(start["after"]["policy"], json!({ "policy": "saath" }));
    let sensitivity = entries.remove(3);
    assert_eq!(
        (&sensitivity["action"], &sensitivity["after"]["length"]),
        (
            &json!("set_sensitivity_table"),
            &json!(get_text_as(&secure, "weir://reader/bob", "/v1/sensitivity").len())
        )
    );
    let entry = |identity: &str, action: &str, object: &str, before: Value, after: Value| {
        json!({ "identity": identity, "action": action, "object": object, "result": "accepted",
            "before": before, "after": after })
    };
    let by_operator =
        |action, object, before, after| entry("weir://operator/ann", action, object, before, after);
    let by_framework =
        |action, object, before, after| entry("weir://framework/ads", action, object, before, after);
    let registered =
        json!({ "service": "ads", "application": "default", "weight": 1.0, "flows": 2, "bytes": 11 });
    let updated =
        json!({ "service": "ads", "application": "default", "weight": 1.0, "flows": 1, "bytes": null });
    let application = json!({ "service": "ads", "model": "sort" });
    let connection: Value = serde_json::from_str(connection).unwrap();
    let expected = [
        by_operator("set_policy", "/v1/policy", json!({ "policy": "saath" }), json!({ "policy": "aalo" })),
        by_operator("set_service", "/v1/services/ads", Value::Null, json!(2.0)),
        by_operator("set_service", "/v1/services/ads", json!(2.0), json!(3.0)),
        by_operator("back_up", "/v1/backup", Value::Null, Value::Null),
        by_framework("register_coflow", "/v1/coflows/c1", Value::Null, registered.clone()),
        by_framework("update_coflow", "/v1/coflows/c1/flows", registered, updated.clone()),
        by_framework("deregister_coflow", "/v1/coflows/c1", updated, Value::Null),
        by_framework("register_application", "/v1/applications/s1", Value::Null, application.clone()),
        by_framework("open_connection", "/v1/connections/x1", Value::Null, connection.clone()),
        by_framework("close_connection", "/v1/connections/x1", connection, Value::Null),
        by_framework("deregister_application", "/v1/applications/s1", application, Value::Null),
    ];
    assert_eq!(entries, expected);
}

fn get_text_as(secure: &SecureServer, identity: &str, path: &str) -> String {
    secure.request(&secure.client_with_identity(identity), "GET", path, "").unwrap().1
}

#[test]
fn refused_requests_have_entries_and_a_flood_of_them_is_counted() {
    let secure = start_secure_server();
    let framework = secure.client_with_identity("weir://framework/ads");
    let refuse = |method, path, body| secure.request(&framework, method, path, body).unwrap();
    let (status, problem) = refuse("PUT", "/v1/policy", r#"{"policy": "aalo"}"#);
    assert_eq!(status, 403);
    let problem: Value = serde_json::from_str(&problem).unwrap();
    assert_eq!(refuse("GET", "/v1/backup", "").0, 403);
    assert_eq!(refuse("PUT", "/v1/coflows/c1", r#"{"flows": []}"#).0, 422);
    // Reads of objects that do not exist are neither changes nor attempts at what the client may not do.
    assert_eq!(refuse("GET", "/v1/coflows/c9", "").0, 404);
    let entries = read_entries(&audit_file(secure.server()));
    let entries: Vec<Value> = entries.into_iter().skip(1).map(without_time).collect();
    let refused = json!({ "identity": "weir://framework/ads", "action": "set_policy", "object": "/v1/policy",
        "result": "refused", "status": 403, "detail": problem["detail"] });
    assert_eq!(entries[0], refused);
    let names: Vec<(&str, u64)> = entries
        .iter()
        .map(|entry| (entry["action"].as_str().unwrap(), entry["status"].as_u64().unwrap()))
        .collect();
    assert_eq!(names, [("set_policy", 403), ("back_up", 403), ("register_coflow", 422)]);
    // Refusals of one identity have an entry a second after the first twenty; all of them are counted.
    let began = Instant::now();
    let mut requests = 0;
    while began.elapsed() < Duration::from_secs(2) || requests < 40 + began.elapsed().as_secs() {
        assert_eq!(refuse("DELETE", "/v1/backup", "").0, 405);
        assert_eq!(refuse("GET", "/v1/allocation", "").0, 403);
        requests += 1;
    }
    let most = 21 + began.elapsed().as_secs();
    let entries = read_entries(&audit_file(secure.server()));
    let of_flood: Vec<&Value> = entries.iter().filter(|entry| entry["action"] == "show_allocation").collect();
    let suppressed: u64 = entries
        .iter()
        .filter(|entry| entry["status"] == 403)
        .map(|entry| entry["suppressed"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!(of_flood.len() as u64 + suppressed, requests);
    let last = entries.last().unwrap();
    assert_eq!((&last["identity"], &last["result"]), (&json!("weir://framework/ads"), &json!("suppressed")));
    assert!(of_flood.len() as u64 <= most, "{} entries, expected at most {most}", of_flood.len());
}

#[test]
fn file_that_cannot_be_written_does_not_refuse_changes() {
    let logs = tempfile::tempdir().unwrap();
    let text = with_audit_log(CONFIG).replace(FILE, &format!("{}/{FILE}", logs.path().display()));
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    let metric = |name: &str| -> u64 {
        let (_, text) = get_text(&server, "/metrics");
        let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": 2 })).0, 204);
    server.registry().audit().flush(TIMEOUT);
    // The start and the weight.
    assert_eq!((metric("weir_audit_entries_total"), metric("weir_audit_entries_lost_total")), (2, 0));
    let file = logs.path().join(FILE);
    assert_eq!(without_time(read_entries(&file).remove(1))["identity"], "plain text");
    fs::remove_dir_all(logs.path()).unwrap();
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": 3 })).0, 204);
    server.registry().audit().flush(TIMEOUT);
    assert_eq!((metric("weir_audit_entries_total"), metric("weir_audit_entries_lost_total")), (2, 1));
    fs::create_dir(logs.path()).unwrap();
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": 4 })).0, 204);
    server.registry().audit().flush(TIMEOUT);
    let entries = read_entries(&file);
    assert_eq!(entries.len(), 1);
    assert_eq!((&entries[0]["before"], &entries[0]["after"]), (&json!(3.0), &json!(4.0)));
}

/// A pipe that no program reads is like a disk that does not answer: once it is full, writing waits.
#[test]
fn file_that_does_not_answer_delays_no_request() {
    const CHANGES: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let pipe_path = folder.path().join(FILE);
    assert!(Command::new("mkfifo").arg(&pipe_path).status().unwrap().success());
    // Open for both directions, so that neither end waits for the other one to be opened.
    let pipe = OpenOptions::new().read(true).write(true).open(&pipe_path).unwrap();
    let server = TestServer::start_with(folder, with_audit_log(CONFIG));
    for change in 0..CHANGES {
        let comment = format!("# {change}\n").repeat(2000);
        let tree = format!("{comment}weir-tree = 1\n[default]\npolicy = \"fair\"\n");
        assert_eq!(put(&server, "/v1/policy", &json!({ "tree": tree })).0, 204);
    }
    let registry = server.registry();
    // An entry has two policies of more than 10 kB, and a pipe 64 KiB.
    assert!(registry.audit().written() < CHANGES as u64 / 2, "{}", registry.audit().written());
    assert_eq!(get_text(&server, "/livez").0, 200);
    let lines = BufReader::new(pipe).lines().take(1 + CHANGES);
    let entries: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(entries[1..].iter().all(|entry| entry["action"] == "set_policy"));
    registry.audit().flush(TIMEOUT);
    assert_eq!((registry.audit().written(), registry.audit().lost()), (1 + CHANGES as u64, 0));
}

#[test]
fn large_bodies_have_short_entries() {
    let text = with_audit_log(CONFIG).replace("body = \"200kB\"", "body = \"4MB\"");
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    let flows = vec![json!({ "from": "a", "to": "b", "bytes": 10 }); 20_000];
    assert_eq!(put(&server, "/v1/coflows/c1", &json!({ "flows": flows })).0, 200);
    let comment = "# long\n".repeat(20_000);
    let tree = format!("{comment}weir-tree = 1\n[default]\npolicy = \"fair\"\n");
    assert_eq!(put(&server, "/v1/policy", &json!({ "tree": tree })).0, 204);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c1", b"").0, 204);
    let unknown_field = json!({ "x".repeat(100_000): 1 });
    assert_eq!(put(&server, "/v1/coflows/c2", &unknown_field).0, 422);
    let file = audit_file(&server);
    let entries = read_entries(&file);
    assert_eq!(entries[1]["after"]["flows"], 20_000);
    assert_eq!(entries[1]["after"]["bytes"], 200_000);
    assert!(entries[2]["after"]["length"].as_u64().unwrap() > 140_000);
    assert_eq!(entries[3]["action"], "deregister_coflow");
    assert!(fs::metadata(&file).unwrap().len() < 4000);
}

#[test]
fn coflows_between_regions_have_entries() {
    let text = format!("audit = \"{FILE}\"\n{}", crate::relays::CONFIG);
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    let flows = |bytes: u64| json!([{ "from": "eu", "to": "us", "bytes": bytes }]);
    assert_eq!(put(&server, "/v1/coflows/c1", &json!({ "flows": flows(5) })).0, 200);
    assert_eq!(put(&server, "/v1/coflows/c1/flows", &flows(7)).0, 204);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c1", b"").0, 204);
    let entries = read_entries(&audit_file(&server));
    let outline =
        |bytes: u64| json!({ "service": "default", "application": "default", "flows": 1, "bytes": bytes });
    let changes: Vec<[&Value; 3]> =
        entries[1..].iter().map(|entry| ["action", "before", "after"].map(|field| &entry[field])).collect();
    assert_eq!(
        changes,
        [
            [&json!("register_coflow"), &Value::Null, &outline(5)],
            [&json!("update_coflow"), &outline(5), &outline(7)],
            [&json!("deregister_coflow"), &outline(7), &Value::Null],
        ]
    );
}

#[test]
fn entries_of_earlier_starts_stay_in_the_file() {
    let mut server = TestServer::start_with(tempfile::tempdir().unwrap(), with_audit_log(CONFIG));
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": 2 })).0, 204);
    server.stop();
    let file = server.folder.path().join(FILE);
    assert_eq!(read_entries(&file).len(), 2, "a stopped coordinator has written all entries");
    server.restart(|text| text);
    let entries = read_entries(&audit_file(&server));
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[2]["after"]["weights"], json!({ "ads": 2.0 }));
}
