//! `docs/api-errors.md` shows the answers of a coordinator to invalid requests. `WEIR_WRITE_DOCS=1` writes it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::api::{Server, request};

/// A title, the method and path of a request, and its body.
type Case<'a> = (&'a str, &'a str, &'a str, &'a str);

const HEAD: &str = "# Errors of the API

Each error is a problem document (RFC 9457, `application/problem+json`). A refused request changes nothing.

| Field | Contents |
|---|---|
| `status`, `title` | the HTTP status and its name |
| `detail` | what is wrong, where, and what is expected |
| `pointer` | the field of a JSON body, as a JSON pointer (RFC 6901); empty for the whole body |
| `parameter` | the parameter of the path or of the query |
| `line` | the line of a TOML document |
| `value`, `expected` | the value, at most 200 characters, and what is expected |

The examples below are answers of a coordinator with the hosts `a`, `b`, `c` and the service `ads` with the application `sort`. A test
compares them with the code.
";

const CASES: &[Case<'_>] = &[
    ("400: the body is not JSON", "PUT", "/v1/coflows/c1", r#"{"flows": [}"#),
    ("422: an unknown host", "PUT", "/v1/coflows/c1", r#"{"flows": [{"from": "a", "to": "x"}]}"#),
    ("422: a missing field", "PUT", "/v1/coflows/c1", r#"{"flows": [{"from": "a"}]}"#),
    ("422: an unknown field", "PUT", "/v1/coflows/c1", r#"{"flows": [{"from": "a", "to": "b", "size": 1}]}"#),
    ("422: a field that is there twice", "PUT", "/v1/coflows/c1", r#"{"flows": [], "flows": []}"#),
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
    ("422: an id that is not UTF-8", "GET", "/v1/coflows/%ff", ""),
    ("422: an invalid parameter of the query", "GET", "/v1/coflows?limit=abc", ""),
    ("422: an unknown parameter of the query", "GET", "/v1/coflows?page=2", ""),
    ("422: an unknown policy", "PUT", "/v1/policy", r#"{"policy": "sath"}"#),
    ("422: an invalid policy tree", "PUT", "/v1/policy", r#"{"tree": "weir-tree = 1\n[servic.x]\n"}"#),
    ("404: an unknown coflow", "GET", "/v1/coflows/c9", ""),
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
fn section(server: &Server, &(title, method, path, body): &Case<'_>) -> String {
    let (status, problem) = request(server, method, path, body.as_bytes());
    assert!(title.starts_with(&status.to_string()), "{title}: {status}: {problem}");
    assert_eq!(problem["status"], status, "{title}: {problem}");
    let asked = if body.is_empty() { String::new() } else { format!("\n{body}") };
    let answer = serde_json::to_string_pretty(&problem).unwrap();
    format!("\n## {title}\n\n```text\n{method} {path}{asked}\n```\n\n```json\n{answer}\n```\n")
}

#[test]
fn api_errors_page_shows_current_answers() {
    let server = Server::start();
    let used = br#"{"flows": [{"from": "a", "to": "b"}]}"#;
    assert_eq!(request(&server, "PUT", "/v1/coflows/used", used).0, 200);
    let mut page = HEAD.to_owned();
    CASES.iter().for_each(|case| write!(page, "{}", section(&server, case)).unwrap());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api-errors.md");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap();
    assert!(written == page, "docs/api-errors.md is out of date; run `make docs`");
}
