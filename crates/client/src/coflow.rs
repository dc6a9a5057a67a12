//! Registers, updates and deregisters coflows for frameworks, and sends their flows for programs (Saath, section 5).

use std::io::{self, Read};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent::Agent;
use crate::coordinator::{Coordinator, CoordinatorError, percent_encode};
use crate::flow_sender::{FlowSender, Route, SentFlow};

/// A flow of a coflow. Its number is its position in the registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// The name of the sending host, as the coordinator knows it.
    pub from: String,
    /// The name of the receiving host.
    pub to: String,
    /// The number of bytes; none if unknown. Policies that order coflows by size refuse flows without it.
    pub bytes: Option<u64>,
}

/// The registration of a coflow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Registration {
    /// The service of the coflow. Default: the service of the framework, or `default`.
    pub service: Option<String>,
    /// The application of the service. Default: `default`.
    pub application: Option<String>,
    /// The weight for weighted policies, above 0. Default: 1.
    pub weight: Option<f64>,
    /// The time from the registration by which the coflow should complete.
    pub deadline: Option<Duration>,
    /// The flows, at least one.
    pub flows: Vec<Flow>,
}

/// What the coordinator knows of a coflow.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CoflowState {
    /// Whether all flows have completed.
    #[serde(rename = "completed")]
    pub is_completed: bool,
    /// The flows, in the order of the registration.
    pub flows: Vec<FlowState>,
}

/// What the coordinator knows of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct FlowState {
    /// The bytes that the flow has sent, partly estimated.
    pub sent_bytes: f64,
    /// Whether the flow has completed.
    #[serde(rename = "done")]
    pub is_done: bool,
}

/// The wait between two queries of [`Coflow::wait`], which doubles up to a maximum.
const MIN_QUERY_WAIT: Duration = Duration::from_millis(10);
const MAX_QUERY_WAIT: Duration = Duration::from_millis(500);

/// A registered coflow.
#[derive(Debug)]
pub struct Coflow {
    coordinator: Coordinator,
    path: String,
}

impl Coflow {
    /// Registers a coflow with the id `id`: 1 to 128 printable characters without spaces. Repeating a registration has no effect.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the registration.
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
        let path = format!("/v1/coflows/{}", percent_encode(id));
        coordinator.put(&path, &body)?;
        Ok(Coflow { coordinator: coordinator.clone(), path })
    }

    /// Replaces the flows, for tasks that moved or were restarted. A flow with the same position and hosts continues.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the flows. The earlier flows stay.
    pub fn update(&self, flows: &[Flow]) -> Result<(), CoordinatorError> {
        self.coordinator.put(&format!("{}/flows", self.path), &json!(flows)).map(drop)
    }

    /// Queries what the coordinator knows of the coflow.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or does not know the coflow: it was deregistered, or completed a while ago.
    pub fn state(&self) -> Result<CoflowState, CoordinatorError> {
        let answer = self.coordinator.get(&self.path)?;
        let expected = "a coflow";
        serde_json::from_value(answer.clone())
            .map_err(|_| CoordinatorError::UnexpectedAnswer { answer: answer.to_string(), expected })
    }

    /// Waits until the coflow has completed, or for `timeout`. Returns the last state.
    ///
    /// # Errors
    /// As for [`Coflow::state`].
    pub fn wait(&self, timeout: Duration) -> Result<CoflowState, CoordinatorError> {
        let (start, mut wait) = (Instant::now(), MIN_QUERY_WAIT);
        loop {
            let state = self.state()?;
            let remaining = timeout.saturating_sub(start.elapsed());
            if state.is_completed || remaining.is_zero() {
                return Ok(state);
            }
            std::thread::sleep(wait.min(remaining));
            wait = (wait * 2).min(MAX_QUERY_WAIT);
        }
    }

    /// Deregisters the coflow, complete or not.
    ///
    /// # Errors
    /// If the coordinator cannot be reached, or refuses the request. The coflow stays registered.
    pub fn deregister(self) -> Result<(), CoordinatorError> {
        self.coordinator.delete(&self.path)
    }
}

/// Sends all of `data` as a flow of a coflow to a [`FlowReceiver`](crate::FlowReceiver). Returns when the receiver has read all data.
///
/// Relays pace the flow if the route has a relay. The agent, if there is one, paces direct connections, from the first byte on.
///
/// # Errors
/// If the receiver cannot be reached or refuses the flow, or `data` cannot be read. The receiver then gets an error.
pub fn send_flow<'a>(
    agent: impl Into<Option<&'a Agent>>,
    coflow: &str,
    flow: u32,
    route: Route,
    data: &mut impl Read,
) -> io::Result<SentFlow> {
    let mut sender = FlowSender::new(coflow, flow, route)?;
    if let Some(agent) = agent.into() {
        sender = sender.with_agent(agent);
    }
    io::copy(data, &mut sender)?;
    sender.finish()
}
