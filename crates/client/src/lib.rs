//! Client library for programs and frameworks: requests classes for their connections and rates for their coflows.
//!
//! # Saba's interface
//!
//! Section 6 of the paper defines four calls: register, create connection, destroy connection and deregister. A connection has
//! its application's class from its first packet on:
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
//! Section 5 of Saath defines register, update and deregister for the framework. For the framework's programs it defines send and
//! receive: [`send_flow`] and [`FlowReceiver::receive`]. A flow goes over the relay in the environment variable `WEIR_RELAY`, or directly
//! without the variable. Several relays of the region are separated by commas, and each flow uses one. All data arrives once and in order,
//! also if a relay fails; [`FlowSender`] sends data piece by piece. [`FlowTls`] encrypts flows.
//!
//! ```no_run
//! use std::time::Duration;
//! use weir_client::{Agent, Coflow, Coordinator, Flow, FlowReceiver, Registration, Route, send_flow};
//!
//! // The framework.
//! let coordinator = Coordinator::local("127.0.0.1:7701")?;
//! let flow = Flow { from: "node-1".to_owned(), to: "node-3".to_owned(), bytes: Some(3) };
//! let shuffle = Registration { flows: vec![flow], ..Registration::default() };
//! let coflow = Coflow::register(&coordinator, "shuffle-7", &shuffle)?;
//!
//! // The receiver of flow 0, on node-3.
//! let receiver = FlowReceiver::bind("10.0.0.3:7000")?;
//! let mut data = receiver.receive("shuffle-7", 0, Duration::from_secs(60))?;
//!
//! // The sender of flow 0, on node-1.
//! let agent = Agent::connect("/run/weir/agent.sock")?;
//! let route = Route::from_environment("10.0.0.3:7000")?;
//! send_flow(&agent, "shuffle-7", 0, route, &mut &b"..."[..])?;
//!
//! // The framework, when the job has completed.
//! coflow.deregister()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A program's own socket
//!
//! A program can send flow 3 of coflow `shuffle-7` over its own TCP socket. It connects the socket and hands it over:
//!
//! ```no_run
//! use std::io::Write;
//! use std::net::{Shutdown, TcpStream};
//!
//! let agent = weir_client::Agent::connect("/run/weir/agent.sock")?;
//! let mut stream = TcpStream::connect("10.0.0.2:7000")?;
//! agent.hand_over("shuffle-7", 3, &stream)?;
//! stream.write_all(b"...")?;
//! stream.shutdown(Shutdown::Write)?;
//! agent.mark_done("shuffle-7", 3)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The agent then paces the socket and reports the bytes sent. The agent holds a duplicate of the socket, so closing the socket
//! does not close the connection: shut the socket down for writing, or call [`Agent::mark_done`]. When a program exits or drops
//! its [`Agent`] without that, its flows are lost: the next connection continues them.
//!
//! A program can send without a coordinator or an agent: only the class and the rate are missing. After an error of this library,
//! continue to send.

mod coordinator;

pub use coordinator::{Coordinator, CoordinatorError, is_loopback, percent_encode};

#[cfg(target_os = "linux")]
mod agent;
#[cfg(target_os = "linux")]
mod agent_connection;
#[cfg(target_os = "linux")]
mod agent_error;
#[cfg(target_os = "linux")]
mod agent_messages;
#[cfg(target_os = "linux")]
mod application;
#[cfg(target_os = "linux")]
mod coflow;
#[cfg(target_os = "linux")]
mod flow_connection;
#[cfg(target_os = "linux")]
mod flow_listener;
#[cfg(target_os = "linux")]
mod flow_receiver;
#[cfg(target_os = "linux")]
mod flow_sender;
#[cfg(target_os = "linux")]
mod flow_table;
#[cfg(target_os = "linux")]
mod flow_tls;
#[cfg(target_os = "linux")]
mod gate;
#[cfg(target_os = "linux")]
mod wake;

#[cfg(target_os = "linux")]
pub use agent::Agent;
#[cfg(target_os = "linux")]
pub use agent_error::{AgentError, UnscheduledReason};
#[cfg(target_os = "linux")]
pub use application::{Application, Connection};
#[cfg(target_os = "linux")]
pub use coflow::{Coflow, CoflowState, Flow, FlowState, Registration, send_flow};
#[cfg(target_os = "linux")]
pub use flow_receiver::{FlowReceiver, IncomingFlow};
#[cfg(target_os = "linux")]
pub use flow_sender::{FlowSender, Route, SendCanceller, SentFlow};
#[cfg(target_os = "linux")]
pub use flow_tls::FlowTls;
