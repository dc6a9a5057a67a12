//! Tests of the quotas of frameworks, with real certificates.

use std::sync::Arc;

use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::api::{TestServer, get_text, put};
use crate::certificates::Authority;
use crate::roles::SecureServer;

const QUOTA: &str = "framework = { coflows = 2, flows = 5, applications = 1, connections = 2 }";

fn flow_list(count: usize) -> Value {
    json!(vec![json!({ "from": "a", "to": "b", "bytes": 1_000_000 }); count])
}

fn coflow(service: &str, flows: usize) -> String {
    json!({ "service": service, "flows": flow_list(flows) }).to_string()
}

/// A client of a server.
struct Client<'a>(&'a SecureServer, Arc<ClientConfig>);

impl<'a> Client<'a> {
    fn new(server: &'a SecureServer, identity: &str) -> Client<'a> {
        Client(server, server.client_with_identity(identity))
    }

    fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, text) = self.0.request(&self.1, method, path, body).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// The status of a registration of a coflow.
    fn register(&self, id: &str, service: &str, flows: usize) -> u16 {
        self.send("PUT", &format!("/v1/coflows/{id}"), &coflow(service, flows)).0
    }

    /// The status of an update of a coflow.
    fn update(&self, id: &str, flows: usize) -> u16 {
        self.send("PUT", &format!("/v1/coflows/{id}/flows"), &flow_list(flows).to_string()).0
    }

    /// The use and the quota of a service, by the metrics.
    fn usage(&self, service: &str, objects: &str) -> [u64; 2] {
        let (_, text) = self.0.request(&self.1, "GET", "/metrics", "").unwrap();
        ["weir_service_objects", "weir_service_quota"].map(|metric| {
            let start = format!("{metric}{{service=\"{service}\",objects=\"{objects}\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&start));
            value.unwrap_or_else(|| panic!("{start}in\n{text}")).parse().unwrap()
        })
    }
}

#[test]
fn frameworks_are_limited_to_their_quota_and_others_are_not() {
    let server = SecureServer::with_limits(QUOTA);
    let ads = Client::new(&server, "weir://framework/ads");
    let other = Client::new(&server, "weir://framework/default");
    let operator = Client::new(&server, "weir://operator/ann");
    assert_eq!(ads.register("c1", "ads", 4), 200);
    let (status, problem) = ads.send("PUT", "/v1/coflows/c2", &coflow("ads", 2));
    assert_eq!((status, &problem["expected"]), (429, &json!("at most 5 by its frameworks")), "{problem}");
    assert_eq!(ads.register("c2", "ads", 1), 200);
    assert_eq!(ads.usage("ads", "flows"), [5, 5]);
    // Repeated registrations add nothing.
    assert_eq!(ads.register("c2", "ads", 1), 200);
    assert_eq!(ads.register("c3", "ads", 1), 429);
    assert_eq!(ads.update("c2", 2), 429);
    assert_eq!(ads.update("c1", 3), 204);
    assert_eq!(ads.update("c2", 2), 204);
    // The other framework has its own quota, and operators have only the common limits.
    assert_eq!(other.register("d1", "default", 5), 200);
    assert_eq!(other.register("d2", "default", 1), 429);
    assert_eq!(operator.register("c3", "ads", 10), 200);
    assert_eq!(ads.usage("ads", "coflows"), [3, 2]);
    // Fewer flows are within the quota, although the service is above it.
    assert_eq!(ads.update("c1", 1), 204);
    assert_eq!(ads.send("DELETE", "/v1/coflows/c3", "").0, 204);
    assert_eq!(ads.send("DELETE", "/v1/coflows/c1", "").0, 204);
    assert_eq!(ads.register("c4", "ads", 3), 200);
    assert_eq!([ads.usage("ads", "coflows"), ads.usage("ads", "flows")], [[2, 2], [5, 5]]);
}

#[test]
fn applications_and_connections_have_quotas() {
    let server = SecureServer::with_limits(QUOTA);
    let ads = Client::new(&server, "weir://framework/ads");
    let operator = Client::new(&server, "weir://operator/ann");
    let table = "version = 1\n[[application]]\nname = \"sort\"\ncoefficients = [5.0, -4.0]\n";
    assert_eq!(operator.send("PUT", "/v1/sensitivity", table).0, 204);
    let application = json!({ "service": "ads", "model": "sort" }).to_string();
    let connection = json!({ "application": "s1", "from": "a", "to": "b" }).to_string();
    let register =
        |client: &Client<'_>, id: &str| client.send("PUT", &format!("/v1/applications/{id}"), &application).0;
    let open =
        |client: &Client<'_>, id: &str| client.send("PUT", &format!("/v1/connections/{id}"), &connection).0;
    assert_eq!([register(&ads, "s1"), register(&ads, "s1"), register(&ads, "s2")], [200, 200, 429]);
    assert_eq!(register(&operator, "s2"), 200);
    assert_eq!(
        [open(&ads, "x1"), open(&ads, "x2"), open(&ads, "x2"), open(&ads, "x3")],
        [200, 200, 200, 429]
    );
    assert_eq!([ads.usage("ads", "applications"), ads.usage("ads", "connections")], [[2, 1], [2, 2]]);
    assert_eq!(ads.send("DELETE", "/v1/connections/x1", "").0, 204);
    assert_eq!(open(&ads, "x3"), 200);
    // A new table registers all objects again.
    assert_eq!(operator.send("PUT", "/v1/sensitivity", table).0, 204);
    assert_eq!(ads.usage("ads", "connections"), [2, 2]);

    // Pages of a framework are full, and name no connection of another service.
    let mine = json!({ "service": "default", "model": "sort" }).to_string();
    let between = json!({ "application": "d1", "from": "a", "to": "b" }).to_string();
    assert_eq!(operator.send("PUT", "/v1/applications/d1", &mine).0, 200);
    assert_eq!(operator.send("PUT", "/v1/connections/x2b", &between).0, 200);
    let page = |client: &Client<'_>, query: &str| {
        let (_, page) = client.send("GET", &format!("/v1/connections?limit=1{query}"), "");
        (page["connections"][0]["id"].clone(), page["next"].clone())
    };
    assert_eq!(page(&ads, ""), (json!("x2"), json!("x2")));
    assert_eq!(page(&ads, "&after=x2"), (json!("x3"), json!("x3")));
    assert_eq!(page(&ads, "&after=x3"), (Value::Null, Value::Null));
    assert_eq!(page(&operator, "&after=x2"), (json!("x2b"), json!("x2b")));
    assert_eq!(open(&ads, "x4"), 429);
}

#[test]
fn quotas_count_stored_objects_after_a_restart() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.write_server_files(folder.path());
    let mut server = SecureServer::start_with(authority, folder, QUOTA);
    let ads = Client::new(&server, "weir://framework/ads");
    assert_eq!([ads.register("c1", "ads", 4), ads.register("c2", "ads", 1)], [200, 200]);
    server.restart(|text| text);
    let ads = Client::new(&server, "weir://framework/ads");
    assert_eq!(ads.usage("ads", "flows"), [5, 5]);
    assert_eq!(ads.update("c2", 2), 429);
    // Objects beyond a lowered quota stay.
    server.restart(|text| text.replace("flows = 5", "flows = 3"));
    let ads = Client::new(&server, "weir://framework/ads");
    assert_eq!([ads.usage("ads", "coflows"), ads.usage("ads", "flows")], [[2, 2], [5, 3]]);
    assert_eq!(ads.update("c1", 5), 429);
    assert_eq!(ads.update("c1", 2), 204);
}

#[test]
fn default_quota_is_half_of_the_limits_and_clients_on_this_host_have_none() {
    let text = crate::api::CONFIG.replace("[limits]\n", "[limits]\ncoflows = 3\nflows = 10\n");
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    for id in ["c1", "c2", "c3"] {
        let body = json!({ "service": "ads", "flows": flow_list(3) });
        assert_eq!(put(&server, &format!("/v1/coflows/{id}"), &body).0, 200);
    }
    let (_, text) = get_text(&server, "/metrics");
    for line in [
        "weir_service_quota{service=\"ads\",objects=\"coflows\"} 2",
        "weir_service_quota{service=\"ads\",objects=\"flows\"} 5",
        "weir_service_quota{service=\"ads\",objects=\"connections\"} 50000",
        "weir_service_objects{service=\"ads\",objects=\"flows\"} 9",
        "weir_service_objects{service=\"default\",objects=\"flows\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}
