//! What programs and frameworks ask of Weir: classes for their connections, and paces for their coflows.
//!
//! # Saba's interface
//!
//! Section 6 of the paper has register, create connection, destroy connection and deregister. A connection has its application's class
//! from its first packet on:
//!
//! ```no_run
//! use std::io::Write;
//! use weir_client::{Application, Coordinator};
//!
//! let coordinator = Coordinator::local("127.0.0.1:7701")?;
//! let application = Application::register(&coordinator, "sort-17", None, Some("sort"))?;
//! let connection = application.connect("node-1", "node-3", "10.0.0.3:7000")?;
//! connection.stream().write_all(b"...")?;
//! connection.destroy()?;
//! application.deregister()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Coflows
//!
//! Section 5 of Saath has register, update and deregister for the framework, and sending and receiving for its programs: here [`put`] and
//! [`Inbox::get`].
//!
//! ```no_run
//! use std::time::Duration;
//! use weir_client::{Agent, Coflow, Coordinator, Flow, Inbox, Registration, put};
//!
//! // The framework.
//! let coordinator = Coordinator::local("127.0.0.1:7701")?;
//! let flow = Flow { from: "node-1".to_owned(), to: "node-3".to_owned(), bytes: Some(3) };
//! let shuffle = Registration { flows: vec![flow], ..Registration::default() };
//! let coflow = Coflow::register(&coordinator, "shuffle-7", &shuffle)?;
//!
//! // The receiver of flow 0, on node-3.
//! let mut inbox = Inbox::bind("10.0.0.3:7000")?;
//! let mut data = inbox.get("shuffle-7", 0, Duration::from_secs(60))?;
//!
//! // The sender of flow 0, on node-1.
//! let agent = Agent::connect("/run/weir/agent.sock")?;
//! put(&agent, "shuffle-7", 0, "10.0.0.3:7000", &mut &b"..."[..])?;
//!
//! // The framework, when the job is over.
//! coflow.deregister()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A socket of one's own
//!
//! A program that sends flow 3 of coflow `shuffle-7` in its own way connects a TCP socket as ever and says so:
//!
//! ```no_run
//! use std::io::Write;
//! use std::net::{Shutdown, TcpStream};
//!
//! let agent = weir_client::Agent::connect("/run/weir/agent.sock")?;
//! let mut stream = TcpStream::connect("10.0.0.2:7000")?;
//! agent.open("shuffle-7", 3, &stream)?;
//! stream.write_all(b"...")?;
//! stream.shutdown(Shutdown::Write)?;
//! agent.done("shuffle-7", 3)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The agent paces the socket from then on and reports what it sends. It has a duplicate of it, so closing is not enough to end the
//! connection: shut it down for writing, or say that it is done. A program that ends, or drops its [`Agent`], is done with all of its flows.
//!
//! Without a coordinator or an agent nothing is different but class and pace: an error here is no reason not to send.

mod coordinator;

pub use coordinator::{Coordinator, CoordinatorError, escaped, is_own};

#[cfg(target_os = "linux")]
mod agent;
#[cfg(target_os = "linux")]
mod application;
#[cfg(target_os = "linux")]
mod coflow;
#[cfg(target_os = "linux")]
mod inbox;

#[cfg(target_os = "linux")]
pub use agent::{Agent, AgentError};
#[cfg(target_os = "linux")]
pub use application::{Application, Connection};
#[cfg(target_os = "linux")]
pub use coflow::{Coflow, Flow, Put, Registration, put};
#[cfg(target_os = "linux")]
pub use inbox::Inbox;
