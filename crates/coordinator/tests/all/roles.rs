//! Tests of the permissions of each role, with real certificates.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{CONFIG, TestServer};
use crate::certificates::{Authority, client_config};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::json;
use tempfile::TempDir;

/// A server with certificates, and the authority of its clients.
pub struct SecureServer {
    server: TestServer,
    authority: Authority,
}

impl SecureServer {
    pub fn new() -> SecureServer {
        SecureServer::with_limits("")
    }

    /// A server with further limits.
    pub fn with_limits(limits: &str) -> SecureServer {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        authority.write_server_files(folder.path());
        SecureServer::start_with(authority, folder, limits)
    }

    /// A server with the files of [`Authority::write_server_files`] in this folder, and further limits.
    pub fn start_with(authority: Authority, folder: TempDir, limits: &str) -> SecureServer {
        SecureServer::start_with_config(authority, folder, &format!("{CONFIG}{limits}\n"))
    }

    /// A server with the files of [`Authority::write_server_files`] in this folder, and this configuration without `[tls]`.
    pub fn start_with_config(authority: Authority, folder: TempDir, text: &str) -> SecureServer {
        let tls = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n";
        SecureServer { server: TestServer::start_with(folder, format!("{text}{tls}")), authority }
    }

    pub fn server(&self) -> &TestServer {
        &self.server
    }

    /// Stops the coordinator, and starts it again with a changed configuration.
    pub fn restart(&mut self, change: impl Fn(String) -> String) {
        self.server.restart(change);
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A connection to the API, with a TLS session that has not begun.
    pub fn connect(&self, client: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        let socket = TcpStream::connect(self.server.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::clone(client), name).unwrap(), socket)
    }

    pub fn client_with_identity(&self, name: &str) -> Arc<ClientConfig> {
        Arc::new(client_config(&self.authority, Some(self.authority.client_certificate(&[name]))))
    }

    /// Status of a response; `None` if the server does not answer.
    fn request_status(
        &self,
        client: &Arc<ClientConfig>,
        method: &str,
        path: &str,
        body: &str,
    ) -> Option<u16> {
        self.request(client, method, path, body).map(|(status, _)| status)
    }

    /// Status and body of a response; `None` if the server does not answer.
    pub fn request(
        &self,
        client: &Arc<ClientConfig>,
        method: &str,
        path: &str,
        body: &str,
    ) -> Option<(u16, String)> {
        let mut stream = self.connect(client);
        stream.write_all(&crate::api::request_bytes(method, path, body.as_bytes())).ok()?;
        let mut all = Vec::new();
        // The response counts even if the server closes without a TLS closure alert.
        let _ = stream.read_to_end(&mut all);
        (!all.is_empty()).then(|| crate::api::parse_response(&all))
    }
}

#[test]
fn roles_are_limited_to_their_permissions() {
    let server = SecureServer::new();
    let (ads, other) = (
        server.client_with_identity("weir://framework/ads"),
        server.client_with_identity("weir://framework/default"),
    );
    let (operator, reader) = (
        server.client_with_identity("weir://operator/ann"),
        server.client_with_identity("weir://reader/prometheus"),
    );
    let agent = server.client_with_identity("weir://agent/a");
    let flows = json!([{ "from": "a", "to": "b" }]).to_string();
    let coflow = json!({ "flows": [{ "from": "a", "to": "b" }] }).to_string();
    let foreign_coflow = json!({ "service": "default", "flows": [{ "from": "a", "to": "b" }] }).to_string();
    let table = "version = 1\n[[application]]\nname = \"sort\"\ncoefficients = [5.0, -4.0]\n";
    let sort = json!({ "model": "sort" }).to_string();
    let connection = json!({ "application": "s1", "from": "a", "to": "b" }).to_string();
    let (weight, policy) = (json!({ "weight": 2 }).to_string(), json!({ "policy": "aalo" }).to_string());
    // Client, request, and expected status.
    let cases = [
        (&ads, "PUT", "/v1/coflows/c1", &coflow[..], 200),
        (&ads, "PUT", "/v1/coflows/c2", &foreign_coflow, 403),
        (&ads, "GET", "/v1/coflows/c1", "", 200),
        (&reader, "GET", "/v1/coflows/c1", "", 200),
        (&other, "GET", "/v1/coflows/c1", "", 403),
        (&other, "PUT", "/v1/coflows/c1/flows", &flows, 403),
        (&other, "DELETE", "/v1/coflows/c1", "", 403),
        (&other, "PUT", "/v1/coflows/c1", &coflow, 409),
        (&reader, "PUT", "/v1/coflows/c3", &coflow, 403),
        (&reader, "DELETE", "/v1/coflows/c1", "", 403),
        (&agent, "GET", "/v1/coflows/c1", "", 403),
        (&agent, "PUT", "/v1/coflows/c3", &coflow, 403),
        (&agent, "GET", "/v1/hosts", "", 403),
        (&agent, "GET", "/metrics", "", 403),
        (&agent, "GET", "/v1/events", "", 403),
        (&agent, "GET", "/livez", "", 200),
        (&reader, "GET", "/metrics", "", 200),
        (&ads, "GET", "/v1/allocation", "", 403),
        (&reader, "GET", "/v1/allocation", "", 200),
        (&ads, "GET", "/v1/trace", "", 403),
        (&reader, "GET", "/v1/trace", "", 200),
        (&ads, "GET", "/v1/workload", "", 403),
        (&agent, "GET", "/v1/workload", "", 403),
        (&reader, "GET", "/v1/workload", "", 200),
        (&ads, "GET", "/v1/backup", "", 403),
        (&reader, "GET", "/v1/backup", "", 403),
        (&agent, "GET", "/v1/backup", "", 403),
        (&operator, "GET", "/v1/backup", "", 200),
        (&ads, "PUT", "/v1/policy", &policy, 403),
        (&reader, "PUT", "/v1/policy", &policy, 403),
        (&ads, "PUT", "/v1/services/ads", &weight, 403),
        (&ads, "PUT", "/v1/sensitivity", table, 403),
        (&operator, "PUT", "/v1/policy", &policy, 204),
        (&operator, "PUT", "/v1/services/ads", &weight, 204),
        (&operator, "PUT", "/v1/sensitivity", table, 204),
        (&ads, "PUT", "/v1/applications/s1", &sort, 200),
        (&other, "DELETE", "/v1/applications/s1", "", 403),
        (&other, "GET", "/v1/applications/s1", "", 403),
        (&other, "PUT", "/v1/connections/x1", &connection, 403),
        (&ads, "PUT", "/v1/connections/x1", &connection, 200),
        (&other, "GET", "/v1/connections/x1", "", 403),
        (&other, "DELETE", "/v1/connections/x1", "", 403),
        (&reader, "DELETE", "/v1/connections/x1", "", 403),
        (&ads, "DELETE", "/v1/connections/x1", "", 204),
        (&ads, "PUT", "/v1/coflows/c1/flows", &flows, 204),
        (&operator, "DELETE", "/v1/coflows/c1", "", 204),
    ];
    for (client, method, path, body, status) in cases {
        assert_eq!(server.request_status(client, method, path, body), Some(status), "{method} {path} {body}");
    }
}

#[test]
fn clients_without_a_certificate_get_no_answer() {
    let server = SecureServer::new();
    let anonymous = Arc::new(client_config(&server.authority, None));
    assert_eq!(server.request_status(&anonymous, "GET", "/livez", ""), None);
    let plain = crate::api::send_raw(&server.server, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(!plain.starts_with("HTTP/"), "{plain}");
}
