//! Sends requests to the coordinator's API over HTTP/1.1 (docs/api.md).

use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};

use tls_connector::TlsConnector;

mod tls_connector;

/// How long a coordinator may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a request may take, including its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The coordinator cannot be reached, or does not answer.
    #[error("{url}: {cause}")]
    Unreachable {
        /// The base URL of the coordinator.
        url: String,
        /// The cause.
        cause: String,
    },
    /// A TLS server answered a request in plain text.
    #[error("{address}: the coordinator expects TLS; expected a certificate, its key and an authority")]
    TlsRequired {
        /// The address of the coordinator.
        address: String,
    },
    /// A program answered that is not the API.
    #[error(
        "{address}: the answer is not HTTP/1.1; expected the address `api` of the coordinator's configuration, such as 127.0.0.1:7701"
    )]
    NotTheApi {
        /// The address of the program.
        address: String,
    },
    /// The coordinator refused the request.
    #[error("{status} {title}: {detail}")]
    Refused {
        /// The HTTP status, such as 409 if the id is registered with another body. docs/api.md lists all statuses.
        status: u16,
        /// The reason phrase of the status.
        title: String,
        /// The detail of the answer.
        detail: String,
    },
    /// The answer has an unexpected form.
    #[error("coordinator: unexpected answer `{answer}`; expected {expected}")]
    UnexpectedAnswer {
        /// The answer.
        answer: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The coordinator is on another host, and no certificate was given: plain text is for this host only.
    #[error(
        "coordinator address `{0}` is not a loopback address; expected one, or a certificate with its key and an authority"
    )]
    PlaintextToRemoteHost(String),
    /// A file cannot be read, or is not PEM.
    #[error("{}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
}

/// A client of a coordinator. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Coordinator {
    agent: Agent,
    base_url: String,
}

impl Coordinator {
    /// A coordinator on this host, over plain text, at an address and port such as `127.0.0.1:7701`.
    ///
    /// # Errors
    /// If the address is that of another host.
    pub fn local(address: &str) -> Result<Coordinator, CoordinatorError> {
        if !is_loopback(address) {
            return Err(CoordinatorError::PlaintextToRemoteHost(address.to_owned()));
        }
        let connector = TcpConnector::default();
        Ok(Coordinator { agent: agent(connector), base_url: format!("http://{address}") })
    }

    /// A coordinator at a host and port, over TLS. `authority` has signed the coordinator's certificate; `certificate` and its `key`
    /// identify this client. All files are PEM.
    ///
    /// # Errors
    /// The first file that cannot be read, or is not PEM.
    pub fn secure(
        address: &str,
        certificate: &Path,
        key: &Path,
        authority: &Path,
    ) -> Result<Coordinator, CoordinatorError> {
        let certificates = read_certificates(certificate)?;
        let config = Arc::new(tls_config(certificates.clone(), key, authority)?);
        let connector =
            TcpConnector::default().chain(TlsConnector { config, certificates: certificates.into() });
        Ok(Coordinator { agent: agent(connector), base_url: format!("https://{address}") })
    }

    /// Returns the JSON at a path, such as `/v1/hosts`. Null if the answer is not JSON.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn get(&self, path: &str) -> Result<Value, CoordinatorError> {
        self.parse_json(self.agent.get(format!("{}{path}", self.base_url)).call())
    }

    /// Returns the text at a path, such as `/metrics`.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn get_text(&self, path: &str) -> Result<String, CoordinatorError> {
        self.read_text(self.agent.get(format!("{}{path}", self.base_url)).call())
    }

    /// Returns a reader of the body at a path, for long bodies. Reads fail if the body does not end within `timeout`, if there is one.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn get_stream(
        &self,
        path: &str,
        timeout: Option<Duration>,
    ) -> Result<impl Read + use<>, CoordinatorError> {
        let request = self.agent.get(format!("{}{path}", self.base_url)).config().timeout_global(timeout);
        let answer = request.build().call();
        match answer {
            Ok(answer) if answer.status().is_success() => Ok(answer.into_body().into_reader()),
            other => {
                let text = self.read_text(other)?;
                Err(CoordinatorError::UnexpectedAnswer { answer: text, expected: "a body" })
            }
        }
    }

    /// Puts a JSON body at a path. Repeating a request has no effect. Returns the answer, or null if it has no body.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn put(&self, path: &str, body: &Value) -> Result<Value, CoordinatorError> {
        self.put_text(path, &body.to_string())
    }

    /// Puts a text at a path, such as a sensitivity table in TOML.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn put_text(&self, path: &str, text: &str) -> Result<Value, CoordinatorError> {
        self.parse_json(self.agent.put(format!("{}{path}", self.base_url)).send(text))
    }

    /// Posts to a path without a body, such as `/v1/reload`. Returns the answer, or null if it has no body.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn post(&self, path: &str) -> Result<Value, CoordinatorError> {
        self.parse_json(self.agent.post(format!("{}{path}", self.base_url)).send_empty())
    }

    /// Deletes the object at a path.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn delete(&self, path: &str) -> Result<(), CoordinatorError> {
        self.parse_json(self.agent.delete(format!("{}{path}", self.base_url)).call()).map(drop)
    }

    /// Returns all coflows, a list of the objects of `GET /v1/coflows`. Sends one request for each page of 1,000 coflows.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses a request.
    pub fn coflows(&self) -> Result<Value, CoordinatorError> {
        self.pages("/v1/coflows?limit=1000", "coflows")
    }

    /// Returns the routes of all coflows between regions, a list of the objects of `GET /v1/routes`. Sends one request for each page
    /// of 1,000 coflows.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses a request.
    pub fn routes(&self) -> Result<Value, CoordinatorError> {
        self.pages("/v1/routes?limit=1000", "routes")
    }

    /// Returns the connections opened through the API, or those of one application: a list of the objects of `GET /v1/connections`. Sends
    /// one request for each page of 10,000 connections.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses a request.
    pub fn connections(&self, application: Option<&str>) -> Result<Value, CoordinatorError> {
        let mut path = "/v1/connections?limit=10000".to_owned();
        if let Some(application) = application {
            path += &format!("&application={}", percent_encode(application));
        }
        self.pages(&path, "connections")
    }

    /// Returns the lists `key` of all pages, which refer to the next page by `next`.
    fn pages(&self, first_path: &str, key: &str) -> Result<Value, CoordinatorError> {
        let (mut entries, mut path) = (Vec::new(), first_path.to_owned());
        loop {
            let page = self.get(&path)?;
            entries.extend(page[key].as_array().cloned().unwrap_or_default());
            let Some(next) = page["next"].as_str() else { return Ok(Value::from(entries)) };
            path = format!("{first_path}&after={}", percent_encode(next));
        }
    }

    /// Returns the rates of all flows, a list of the objects of `GET /v1/allocation`. Sends one request for each page of 10,000
    /// flows.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses a request.
    pub fn allocation(&self) -> Result<Value, CoordinatorError> {
        const PATH: &str = "/v1/allocation?limit=10000";
        let (mut flows, mut path) = (Vec::<Value>::new(), PATH.to_owned());
        loop {
            let page = self.get(&path)?;
            flows.extend(page["flows"].as_array().cloned().unwrap_or_default());
            let (Some(last), Some(true)) = (flows.last(), page["more"].as_bool()) else {
                return Ok(Value::from(flows));
            };
            let coflow = percent_encode(last["coflow"].as_str().unwrap_or_default());
            path = format!("{PATH}&coflow={coflow}&flow={}", last["flow"]);
        }
    }

    /// The JSON of an answer; null if it is not JSON.
    fn parse_json(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, CoordinatorError> {
        Ok(serde_json::from_str(&self.read_text(answer)?).unwrap_or(Value::Null))
    }

    /// The text of an answer; a status other than success is an error.
    fn read_text(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<String, CoordinatorError> {
        let unreachable = |error: ureq::Error| {
            let mut cause = error.to_string();
            if cause.contains("InvalidContentType") {
                cause = format!("the answer is plain text; expected TLS ({cause})");
            }
            CoordinatorError::Unreachable { url: self.base_url.clone(), cause }
        };
        let mut answer = answer.map_err(|error| match (&error, self.base_url.strip_prefix("http://")) {
            // The answer is not HTTP, or the server closed the connection because it expects another protocol.
            (ureq::Error::Protocol(_) | ureq::Error::Io(_), Some(address)) => {
                let address = address.to_owned();
                match first_answer_byte(&address) {
                    Some(TLS_ALERT) => CoordinatorError::TlsRequired { address },
                    Some(byte) if byte != b'H' => CoordinatorError::NotTheApi { address },
                    _ => unreachable(error),
                }
            }
            _ => unreachable(error),
        })?;
        let text = answer.body_mut().read_to_string().map_err(unreachable)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(text);
        }
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Err(CoordinatorError::Refused {
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            detail: body["detail"].as_str().map_or(text, str::to_owned),
        })
    }
}

/// The first byte of an alert, with which a TLS server answers plain text.
const TLS_ALERT: u8 = 0x15;

/// The first byte of the answer to an HTTP request in plain text; none without an answer.
fn first_answer_byte(address: &str) -> Option<u8> {
    let address = address.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(CONNECT_TIMEOUT)).ok()?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    Some(byte[0])
}

/// A client that connects by `connector`.
fn agent(connector: impl Connector) -> Agent {
    let config = Agent::config_builder()
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(REQUEST_TIMEOUT))
        .http_status_as_error(false)
        // A proxy in the environment is for external addresses.
        .proxy(None);
    Agent::with_parts(config.build(), connector, DefaultResolver::default())
}

/// TLS with a client's certificate and its key, for servers whose certificate `authority` has signed.
fn tls_config(
    certificates: Vec<CertificateDer<'static>>,
    key: &Path,
    authority: &Path,
) -> Result<ClientConfig, CoordinatorError> {
    let mut roots = RootCertStore::empty();
    for root in read_certificates(authority)? {
        roots.add(root).map_err(|error| pem_error(authority, &error))?;
    }
    let private = PrivateKeyDer::from_pem_slice(&read_file(key)?).map_err(|error| pem_error(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let config = config.expect("the provider supports TLS 1.3").with_root_certificates(roots);
    let mut config =
        config.with_client_auth_cert(certificates, private).map_err(|error| pem_error(key, &error))?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CoordinatorError> {
    let text = read_file(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| pem_error(path, &error))?;
    if certificates.is_empty() {
        return Err(pem_error(path, &"no certificate"));
    }
    Ok(certificates)
}

fn read_file(path: &Path) -> Result<Vec<u8>, CoordinatorError> {
    let file_error = |cause| CoordinatorError::File { path: path.to_owned(), cause };
    fs::read(path).map_err(|error| file_error(format!("cannot be read: {error}")))
}

fn pem_error(path: &Path, error: &dyn Display) -> CoordinatorError {
    CoordinatorError::File { path: path.to_owned(), cause: format!("not valid PEM: {error}") }
}

/// Whether an address with a port is a loopback address, or `localhost` with a port.
pub fn is_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
        || address.rsplit_once(':').is_some_and(|(host, _)| host == "localhost")
}

/// Percent-encodes a text for a path or a query.
pub fn percent_encode(text: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_on_this_host() {
        for address in ["127.0.0.1:7701", "127.9.0.1:1", "[::1]:7701", "localhost:7701"] {
            assert!(Coordinator::local(address).is_ok(), "{address}");
        }
        for address in ["192.0.2.1:7701", "weir.example:7701", "localhost.example:1", "127.0.0.1", ""] {
            let error = Coordinator::local(address).unwrap_err();
            assert!(
                matches!(&error, CoordinatorError::PlaintextToRemoteHost(found) if found == address),
                "{error}"
            );
        }
    }

    #[test]
    fn missing_files_and_unreachable_coordinators_are_errors() {
        let missing_file = Path::new(file!()).with_file_name("absent.pem");
        let error =
            Coordinator::secure("localhost:1", &missing_file, &missing_file, &missing_file).unwrap_err();
        assert!(error.to_string().contains("absent.pem: cannot be read"), "{error}");
        // No process listens at a port that was closed.
        let closed_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Coordinator::local(&closed_address.to_string()).unwrap().get("/livez").unwrap_err();
        assert!(matches!(error, CoordinatorError::Unreachable { .. }), "{error}");
    }

    #[test]
    fn servers_that_are_not_the_api_are_named() {
        for (answer, expected) in [
            (
                &[TLS_ALERT, 3, 3, 0, 2, 2, 50][..],
                "the coordinator expects TLS; expected a certificate, its key",
            ),
            // The first frame of HTTP/2.
            (&[0, 0, 0, 4, 0, 0, 0, 0, 0], "the answer is not HTTP/1.1; expected the address `api`"),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let _ = stream.read(&mut [0; 1000]).unwrap();
                    stream.write_all(answer).unwrap();
                }
            });
            let error = Coordinator::local(&address).unwrap().get("/v1/hosts").unwrap_err().to_string();
            assert!(error.starts_with(&format!("{address}: {expected}")), "{error}");
        }
    }

    #[test]
    fn ids_are_escaped() {
        assert_eq!(percent_encode("job-7.a_b~c"), "job-7.a_b~c");
        assert_eq!(percent_encode("a/b?c=d&e%f#ü"), "a%2Fb%3Fc%3Dd%26e%25f%23%C3%BC");
    }
}
