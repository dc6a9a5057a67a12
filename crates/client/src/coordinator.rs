//! Sends requests to the coordinator's API over HTTP/1.1 (docs/api.md).

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// How long a coordinator may take to accept a connection, and to answer.
const NEAR: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The coordinator cannot be reached, or does not answer.
    #[error("{place}: {why}")]
    Unreached {
        /// The base URL of the coordinator.
        place: String,
        /// The cause.
        why: String,
    },
    /// The coordinator refused the request.
    #[error("{status} {title}: {detail}")]
    Refused {
        /// The HTTP status, such as 409 if the id has another body. docs/api.md lists them.
        status: u16,
        /// The reason phrase of the status.
        title: String,
        /// The detail of the answer.
        detail: String,
    },
    /// The answer has an unexpected form.
    #[error("the coordinator answered `{found}`: expected {expected}")]
    Answer {
        /// The answer.
        found: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The coordinator is on another host, and no certificate was given: plain text is for this host only.
    #[error("{0}: expected a coordinator on this host, or a certificate, its key and an authority")]
    Elsewhere(String),
    /// A file cannot be read, or is not PEM.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
}

/// A client of a coordinator. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Coordinator {
    agent: Agent,
    base: String,
}

impl Coordinator {
    /// A coordinator on this host, over plain text, at an address and port such as `127.0.0.1:7701`.
    ///
    /// # Errors
    /// If the address is that of another host.
    pub fn local(place: &str) -> Result<Coordinator, CoordinatorError> {
        if !is_own(place) {
            return Err(CoordinatorError::Elsewhere(place.to_owned()));
        }
        Ok(Coordinator::new(format!("http://{place}"), TlsConfig::default()))
    }

    /// A coordinator at a host and port, over TLS. `authority` has signed the coordinator's certificate; `certificate` and its `key`
    /// identify this client. All files are PEM.
    ///
    /// # Errors
    /// The first file that cannot be read, or is not PEM.
    pub fn secure(
        place: &str,
        certificate: &Path,
        key: &Path,
        authority: &Path,
    ) -> Result<Coordinator, CoordinatorError> {
        let of = |path| Certificate::from_pem(read(path)?.as_bytes()).map_err(|error| not_pem(path, &error));
        let private = PrivateKey::from_pem(read(key)?.as_bytes()).map_err(|error| not_pem(key, &error))?;
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[of(authority)?]))
            .client_cert(Some(ClientCert::new_with_certs(&[of(certificate)?], private)));
        Ok(Coordinator::new(format!("https://{place}"), tls.build()))
    }

    fn new(base: String, tls: TlsConfig) -> Coordinator {
        let config = Agent::config_builder()
            .timeout_connect(Some(NEAR))
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            // A proxy in the environment is for external addresses.
            .proxy(None)
            .tls_config(tls);
        Coordinator { agent: config.build().into(), base }
    }

    /// Returns the JSON at a path, such as `/v1/hosts`. Null if the answer is not JSON.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn get(&self, path: &str) -> Result<Value, CoordinatorError> {
        self.answer(self.agent.get(format!("{}{path}", self.base)).call())
    }

    /// The text at a path, such as `/metrics`.
    ///
    /// # Errors
    /// If the coordinator does not answer, or refuses the request.
    pub fn get_text(&self, path: &str) -> Result<String, CoordinatorError> {
        self.text(self.agent.get(format!("{}{path}", self.base)).call())
    }

    /// The body at a path as it arrives, for bodies that are long; it has to end within `limit`.
    ///
    /// # Errors
    /// If the coordinator does not answer, or refuses the request.
    pub fn get_stream(&self, path: &str, limit: Duration) -> Result<impl Read + use<>, CoordinatorError> {
        let request = self.agent.get(format!("{}{path}", self.base)).config().timeout_global(Some(limit));
        let answer = request.build().call();
        match answer {
            Ok(answer) if answer.status().is_success() => Ok(answer.into_body().into_reader()),
            other => {
                let text = self.text(other)?;
                Err(CoordinatorError::Answer { found: text, expected: "a body" })
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
        self.answer(self.agent.put(format!("{}{path}", self.base)).send(text))
    }

    /// Deletes the object at a path.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request.
    pub fn delete(&self, path: &str) -> Result<(), CoordinatorError> {
        self.answer(self.agent.delete(format!("{}{path}", self.base)).call()).map(drop)
    }

    /// All coflows, page by page: a list of the objects of `GET /v1/coflows`.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses a request.
    pub fn coflows(&self) -> Result<Value, CoordinatorError> {
        const PATH: &str = "/v1/coflows?limit=1000";
        let (mut coflows, mut path) = (Vec::new(), PATH.to_owned());
        loop {
            let page = self.get(&path)?;
            coflows.extend(page["coflows"].as_array().cloned().unwrap_or_default());
            let Some(next) = page["next"].as_str() else { return Ok(Value::from(coflows)) };
            path = format!("{PATH}&after={}", escaped(next));
        }
    }

    /// The allocation of all flows, page by page: a list of the objects of `GET /v1/allocation`.
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
            let coflow = escaped(last["coflow"].as_str().unwrap_or_default());
            path = format!("{PATH}&coflow={coflow}&flow={}", last["flow"]);
        }
    }

    /// The JSON of an answer; null if it is not JSON.
    fn answer(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, CoordinatorError> {
        Ok(serde_json::from_str(&self.text(answer)?).unwrap_or(Value::Null))
    }

    /// The text of an answer; a status other than success is an error.
    fn text(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<String, CoordinatorError> {
        let failed = |error: ureq::Error| CoordinatorError::Unreached {
            place: self.base.clone(),
            why: error.to_string(),
        };
        let mut answer = answer.map_err(failed)?;
        let text = answer.body_mut().read_to_string().map_err(failed)?;
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

fn read(path: &Path) -> Result<String, CoordinatorError> {
    let file = |why| CoordinatorError::File { path: path.to_owned(), why };
    fs::read_to_string(path).map_err(|error| file(format!("cannot be read: {error}")))
}

fn not_pem(path: &Path, error: &ureq::Error) -> CoordinatorError {
    CoordinatorError::File { path: path.to_owned(), why: format!("expected PEM: {error}") }
}

/// Whether an address with a port is certainly this host's: a loopback address, or `localhost`.
pub fn is_own(place: &str) -> bool {
    place.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
        || place.rsplit_once(':').is_some_and(|(host, _)| host == "localhost")
}

/// Percent-encodes a text for a path or a query.
pub fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_on_this_host() {
        for place in ["127.0.0.1:7701", "127.9.0.1:1", "[::1]:7701", "localhost:7701"] {
            assert!(Coordinator::local(place).is_ok(), "{place}");
        }
        for place in ["192.0.2.1:7701", "weir.example:7701", "localhost.example:1", "127.0.0.1", ""] {
            let error = Coordinator::local(place).unwrap_err();
            assert!(matches!(&error, CoordinatorError::Elsewhere(found) if found == place), "{error}");
        }
    }

    #[test]
    fn missing_files_and_unreachable_coordinators_are_errors() {
        let here = Path::new(file!()).with_file_name("absent.pem");
        let error = Coordinator::secure("localhost:1", &here, &here, &here).unwrap_err();
        assert!(error.to_string().contains("absent.pem: cannot be read"), "{error}");
        // No process listens at a port that was closed.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Coordinator::local(&free.to_string()).unwrap().get("/livez").unwrap_err();
        assert!(matches!(error, CoordinatorError::Unreached { .. }), "{error}");
    }

    #[test]
    fn ids_are_escaped() {
        assert_eq!(escaped("job-7.a_b~c"), "job-7.a_b~c");
        assert_eq!(escaped("a/b?c=d&e%f#ü"), "a%2Fb%3Fc%3Dd%26e%25f%23%C3%BC");
    }
}
