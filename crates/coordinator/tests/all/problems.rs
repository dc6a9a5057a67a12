//! Test of `docs/api-errors.md`, the page of answers to invalid requests. `WEIR_WRITE_DOCS=1` writes the page.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;

use crate::api::{CONFIG, TestServer, send_bytes, send_json_request};
use crate::roles::SecureServer;

/// A title, the method and path of a request, and its body.
type Case<'a> = (&'a str, &'a str, &'a str, &'a str);

const PAGE_HEAD: &str = "# Errors of the API

Each error is a problem document (RFC 9457, `application/problem+json`). A refused request changes nothing.

| Field | Contents |
|---|---|
| `status`, `title` | the HTTP status and its name |
| `detail` | what is wrong, where, and what is expected |
| `pointer` | the field of a JSON body, as a JSON pointer (RFC 6901); empty for the whole body |
| `parameter` | the parameter of the path or of the query |
| `line` | the line of a TOML document |
| `value`, `expected` | the value, at most 200 characters, and what is expected |

The examples below are answers of a coordinator with the hosts `a`, `b`, `c`, whose links have 1 Gbit/s, the service `default`, and the
service `ads` with the application `sort`; `limits.body` is 200 kB, and `limits.request` is 2 s. Bandwidths need `queues = \"services\"`. A
test compares the examples with the code.
";

const CASES: &[Case<'_>] = &[
    ("400: the body is not JSON", "PUT", "/v1/coflows/c1", r#"{"flows": [}"#),
    ("422: an unknown host", "PUT", "/v1/coflows/c1", r#"{"flows": [{"from": "a", "to": "x"}]}"#),
    ("422: a missing field", "PUT", "/v1/coflows/c1", r#"{"flows": [{"from": "a"}]}"#),
    ("422: an unknown field", "PUT", "/v1/coflows/c1", r#"{"flows": [{"from": "a", "to": "b", "size": 1}]}"#),
    ("422: a duplicate field", "PUT", "/v1/coflows/c1", r#"{"flows": [], "flows": []}"#),
    ("422: a wrong type", "PUT", "/v1/coflows/c1", r#"{"flows": [{"from": "a", "to": "b", "bytes": "5"}]}"#),
    ("422: an array instead of an object", "PUT", "/v1/coflows/c1", r#"[["a"]]"#),
    ("422: no flows", "PUT", "/v1/coflows/c1", r#"{"flows": []}"#),
    (
        "422: a weight out of range",
        "PUT",
        "/v1/coflows/c1",
        r#"{"flows": [{"from": "a", "to": "b"}], "weight": 0}"#,
    ),
    (
        "422: a deadline without a unit",
        "PUT",
        "/v1/coflows/c1",
        r#"{"flows": [{"from": "a", "to": "b"}], "deadline": "5"}"#,
    ),
    (
        "422: an unknown service",
        "PUT",
        "/v1/coflows/c1",
        r#"{"flows": [{"from": "a", "to": "b"}], "service": "web"}"#,
    ),
    (
        "422: an unknown application",
        "PUT",
        "/v1/coflows/c1",
        r#"{"flows": [{"from": "a", "to": "b"}], "service": "ads", "application": "join"}"#,
    ),
    (
        "422: an application of an unknown service",
        "PUT",
        "/v1/applications/a1",
        r#"{"service": "web", "model": "sort"}"#,
    ),
    ("422: an id that is not UTF-8", "GET", "/v1/coflows/%ff", ""),
    ("422: a name that is not UTF-8", "PUT", "/v1/services/%ff", r#"{"weight": 2}"#),
    ("422: an invalid parameter of the query", "GET", "/v1/coflows?limit=abc", ""),
    ("422: an unknown parameter of the query", "GET", "/v1/coflows?page=2", ""),
    ("422: an unknown policy", "PUT", "/v1/policy", r#"{"policy": "sath"}"#),
    ("422: an invalid policy tree", "PUT", "/v1/policy", r#"{"tree": "weir-tree = 1\n[servic.x]\n"}"#),
    ("404: an unknown coflow", "GET", "/v1/coflows/c9", ""),
    ("404: an unknown service", "PUT", "/v1/services/web", r#"{"weight": 2}"#),
    ("404: an unknown path", "GET", "/v1/jobs", ""),
    ("405: a method that the path does not have", "DELETE", "/v1/policy", ""),
    (
        "409: the id belongs to another coflow",
        "PUT",
        "/v1/coflows/used",
        r#"{"flows": [{"from": "b", "to": "a"}]}"#,
    ),
];

/// The answer to a case, as a section.
fn section_of_case(server: &TestServer, case: &Case<'_>) -> String {
    let &(_, method, path, body) = case;
    format_section(case, send_json_request(server, method, path, body.as_bytes()))
}

/// A case and its answer, as a section.
fn format_section(&(title, method, path, body): &Case<'_>, (status, problem): (u16, Value)) -> String {
    assert!(title.starts_with(&status.to_string()), "{title}: {status}: {problem}");
    assert_eq!(problem["status"], status, "{title}: {problem}");
    let request_body = if body.is_empty() { String::new() } else { format!("\n{body}") };
    let answer = serde_json::to_string_pretty(&problem).unwrap();
    format!("\n## {title}\n\n```text\n{method} {path}{request_body}\n```\n\n```json\n{answer}\n```\n")
}

/// Sections of bandwidths that queues or links cannot hold, and of hosts that another client limits.
fn bandwidth_sections(server: &TestServer) -> String {
    const ADS: &str = "/v1/services/ads";
    let min = r#"{"min_bandwidth": "2Gbit"}"#;
    let case = ("409: a bandwidth without queues of services", "PUT", ADS, min);
    let mut page = section_of_case(server, &case);
    let start = |text: String| TestServer::start_with(tempfile::tempdir().unwrap(), text);
    let with_queues = CONFIG.replace("policy =", "queues = \"services\"\npolicy =");
    let case = ("409: minimum bandwidths that a link does not carry", "PUT", ADS, min);
    page += &section_of_case(&start(with_queues.clone()), &case);
    let more_services: String = (0..80).map(|at| format!("[service.ns{at}]\n")).collect();
    let max = r#"{"max_bandwidth": "200Mbit"}"#;
    let case = ("409: a bandwidth of a service that shares its queue", "PUT", "/v1/services/ns79", max);
    page += &section_of_case(&start(with_queues + &more_services), &case);
    let limit = |owner: &str| format!(r#"{{"fraction": 0.5, "lease": "10s", "owner": "{owner}"}}"#);
    const HOST: &str = "/v1/hosts/a/bandwidth";
    assert_eq!(send_json_request(server, "PUT", HOST, limit("profile-1").as_bytes()).0, 200);
    let case = ("409: a host that another client limits", "PUT", HOST, &*limit("profile-2"));
    page + &section_of_case(server, &case)
}

/// Sections of answers that depend on certificates, limits and time.
fn limit_sections(server: &TestServer) -> String {
    const COFLOW: &str = r#"{"flows": [{"from": "a", "to": "b"}]}"#;
    let parse_body = |(status, text): (u16, String)| (status, serde_json::from_str(&text).unwrap());
    let with_limits = |limits: &str| {
        let text = CONFIG.replace("[limits]\n", &format!("[limits]\n{limits}\n"));
        TestServer::start_with(tempfile::tempdir().unwrap(), text)
    };
    let mut page = String::new();
    let secure_server = SecureServer::new();
    let theirs = r#"{"service": "default", "flows": [{"from": "a", "to": "b"}]}"#;
    let case = ("403: a framework of `ads` and another service", "PUT", "/v1/coflows/c1", theirs);
    let answer = secure_server
        .request(&secure_server.client_with_identity("weir://framework/ads"), "PUT", "/v1/coflows/c1", theirs)
        .unwrap();
    page += &format_section(&case, parse_body(answer));
    let case = ("403: a reader and a backup", "GET", "/v1/backup", "");
    let answer = secure_server
        .request(&secure_server.client_with_identity("weir://reader/bob"), "GET", "/v1/backup", "")
        .unwrap();
    page += &format_section(&case, parse_body(answer));
    // A request head without a body, with this stated length.
    let request_head = |server: &TestServer, length: &str| {
        let head = "PUT /v1/coflows/c1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: ";
        parse_body(send_bytes(server, format!("{head}{length}\r\n\r\n").as_bytes()))
    };
    let path = "/v1/coflows/c1";
    page += &format_section(
        &("408: a body that does not arrive", "PUT", path, ""),
        request_head(&TestServer::start_impatient(), "10"),
    );
    page += &format_section(
        &("413: a body that is too long", "PUT", path, ""),
        request_head(server, "99999999999"),
    );
    let full_server = with_limits("coflows = 1");
    assert_eq!(send_json_request(&full_server, "PUT", "/v1/coflows/c0", COFLOW.as_bytes()).0, 200);
    page += &section_of_case(&full_server, &("429: more coflows than `limits.coflows`", "PUT", path, COFLOW));
    let quota_server = SecureServer::with_limits("framework = { flows = 1 }");
    let framework = quota_server.client_with_identity("weir://framework/ads");
    assert_eq!(quota_server.request(&framework, "PUT", "/v1/coflows/c0", COFLOW).unwrap().0, 200);
    let case = ("429: more flows of a service than `limits.framework.flows`", "PUT", path, COFLOW);
    page +=
        &format_section(&case, parse_body(quota_server.request(&framework, "PUT", path, COFLOW).unwrap()));
    let busy_server = with_limits("connections-per-address = 1");
    let _held = TcpStream::connect(busy_server.address).unwrap();
    let case = ("503: more connections than `limits.connections-per-address`", "GET", "/v1/coflows", "");
    page + &section_of_case(&busy_server, &case)
}

#[test]
fn api_errors_page_shows_current_answers() {
    let server = TestServer::start();
    let used = br#"{"flows": [{"from": "a", "to": "b"}]}"#;
    assert_eq!(send_json_request(&server, "PUT", "/v1/coflows/used", used).0, 200);
    let mut page = PAGE_HEAD.to_owned();
    CASES.iter().for_each(|case| write!(page, "{}", section_of_case(&server, case)).unwrap());
    page += &bandwidth_sections(&server);
    page += &limit_sections(&server);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api-errors.md");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap();
    assert!(written == page, "docs/api-errors.md is out of date; run `make docs`");
}
