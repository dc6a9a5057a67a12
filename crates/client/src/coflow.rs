//! Coflows: frameworks register them, and their programs send their flows (Saath, section 5).

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::agent::{Agent, AgentError};
use crate::coordinator::{Coordinator, CoordinatorError, escaped};
use crate::inbox;

/// A flow of a coflow, which is called by its place there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// The host that sends, as the coordinator calls it.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// How many bytes; nothing if nobody knows, which policies that go by sizes refuse.
    pub bytes: Option<u64>,
}

/// How a coflow registers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Registration {
    /// The service that it belongs to; a framework's own, or `default`, if it does not say.
    pub service: Option<String>,
    /// An application of that service; `default` if it does not say.
    pub application: Option<String>,
    /// Its importance to weighted policies, above 0; 1 if it does not say.
    pub weight: Option<f64>,
    /// How long after its registration it should be done.
    pub deadline: Option<Duration>,
    /// Its flows, at least one.
    pub flows: Vec<Flow>,
}

/// A coflow that is registered.
#[derive(Debug)]
pub struct Coflow {
    coordinator: Coordinator,
    path: String,
}

impl Coflow {
    /// Registers a coflow as `id`: 1 to 128 printable characters without spaces. The same again changes nothing.
    ///
    /// # Errors
    /// Why it is not registered.
    pub fn register(
        coordinator: &Coordinator,
        id: &str,
        registration: &Registration,
    ) -> Result<Coflow, CoordinatorError> {
        let Registration { service, application, weight, deadline, flows } = registration;
        let deadline = deadline.map(|deadline| format!("{}s", deadline.as_secs_f64()));
        let body = json!({
            "service": service, "application": application, "weight": weight, "deadline": deadline, "flows": flows
        });
        let path = format!("/v1/coflows/{}", escaped(id));
        coordinator.put(&path, &body)?;
        Ok(Coflow { coordinator: coordinator.clone(), path })
    }

    /// Gives it other flows, for tasks that moved or were started anew. Those in the same place with the same ends go on.
    ///
    /// # Errors
    /// Why it has those that it had.
    pub fn update(&self, flows: &[Flow]) -> Result<(), CoordinatorError> {
        self.coordinator.put(&format!("{}/flows", self.path), &json!(flows)).map(drop)
    }

    /// Deregisters it, whatever is left of it.
    ///
    /// # Errors
    /// Why it is still registered.
    pub fn deregister(self) -> Result<(), CoordinatorError> {
        self.coordinator.delete(&self.path)
    }
}

/// What was sent.
#[derive(Debug)]
pub struct Put {
    /// Bytes of data.
    pub bytes: u64,
    /// Why it was not paced, if so: then it went as fast as TCP does.
    pub unpaced: Option<AgentError>,
}

/// Sends all of `data` as a flow of a coflow to the [`Inbox`](crate::Inbox) at `to`, at the pace that the agent has for it from the first
/// byte on. It ends when all is handed to the kernel; the connection goes on until it has arrived.
///
/// # Errors
/// If the other end does not take it, or `data` cannot be read; then the other end gets what was sent until then.
pub fn put(
    agent: &Agent,
    coflow: &str,
    flow: u32,
    to: impl ToSocketAddrs,
    data: &mut impl Read,
) -> io::Result<Put> {
    let head = inbox::head(coflow, flow)?;
    let mut stream = TcpStream::connect(to)?;
    let unpaced = agent.open(coflow, flow, &stream).err();
    let sent = stream.write_all(head.as_bytes()).and_then(|()| io::copy(data, &mut stream));
    // The agent has a duplicate, so that closing it would not end it.
    let ended = stream.shutdown(Shutdown::Write);
    let bytes = sent?;
    ended?;
    Ok(Put { bytes, unpaced })
}
