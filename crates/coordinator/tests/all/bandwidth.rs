//! Tests of limits of hosts' bandwidth over the API.

use crate::api::{TestServer, get, put, send_json_request};
use crate::roles::SecureServer;
use serde_json::{Value, json};

fn limit(fraction: Value, lease: &str, owner: &str) -> Value {
    json!({ "fraction": fraction, "lease": lease, "owner": owner })
}

const PATH: &str = "/v1/hosts/a/bandwidth";

#[test]
fn limits_of_hosts_have_one_owner_until_they_end() {
    let server = TestServer::start();
    let fraction = || get(&server, "/v1/hosts").1[0].get("bandwidth_fraction").cloned();
    assert_eq!(fraction(), None);
    assert_eq!(put(&server, PATH, &limit(json!(0.25), "60s", "p1")), (200, json!({ "renewed": false })));
    assert_eq!(put(&server, PATH, &limit(json!(1), "60s", "p1")), (200, json!({ "renewed": true })));
    assert_eq!(fraction(), Some(json!(1.0)));
    let (status, problem) = put(&server, PATH, &limit(json!(0.5), "60s", "p2"));
    assert_eq!(status, 409, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("is limited by `p1`"), "{problem}");
    let delete = |path: &str| send_json_request(&server, "DELETE", path, b"").0;
    assert_eq!(delete(&format!("{PATH}?owner=p2")), 409);
    assert_eq!(delete(&format!("{PATH}?owner=p1")), 204);
    assert_eq!(delete(&format!("{PATH}?owner=p1")), 204);
    assert_eq!(fraction(), None);
    assert_eq!(put(&server, PATH, &limit(json!(0.5), "60s", "p2")).0, 200);
    assert_eq!(delete("/v1/hosts/z/bandwidth?owner=p2"), 404);
    for (body, pointer) in [
        (limit(json!(0), "10s", "p"), "/fraction"),
        (limit(json!(1.5), "10s", "p"), "/fraction"),
        (limit(json!(0.5), "0.5s", "p"), "/lease"),
        (limit(json!(0.5), "2min", "p"), "/lease"),
        (limit(json!(0.5), "10", "p"), "/lease"),
        (limit(json!(0.5), "10s", "a b"), "/owner"),
    ] {
        let (status, problem) = put(&server, "/v1/hosts/b/bandwidth", &body);
        assert_eq!((status, problem["pointer"].as_str()), (422, Some(pointer)), "{body}: {problem}");
    }
    assert_eq!(put(&server, "/v1/hosts/z/bandwidth", &limit(json!(0.5), "10s", "p")).0, 404);
}

#[test]
fn only_operators_limit_bandwidth() {
    let server = SecureServer::new();
    let body = limit(json!(0.5), "10s", "p").to_string();
    for (name, status) in [
        ("weir://framework/ads", 403),
        ("weir://reader/bob", 403),
        ("weir://agent/a", 403),
        ("weir://operator/ann", 200),
    ] {
        let client = server.client_with_identity(name);
        assert_eq!(server.request(&client, "PUT", PATH, &body).unwrap().0, status, "{name}");
    }
}
