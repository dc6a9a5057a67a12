//! Connections of applications, from their opening to their end (Saba, section 6), and the programs that have them.
//!
//! Packets of both directions have the mark of the application, so a connection counts at the ports of both directions: the program
//! that connects may read from the other end, as the readers of a shuffle do.
//!
//! A connection ends by a request, or with its program: see [`super::programs`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};
use tracing::{info, warn};
use utoipa::ToSchema;
use weir_core::saba::controller::{AppId, ConnectionId};

use super::Registry;
use super::bodies::{ConnectionBody, EXPECTED_APPLICATION_ID, Ends, check_id, service_name, service_of};
use super::programs::{ProgramKey, Programs};
use super::sharing::{Numbered, SharingState};
use crate::audit::Actor;
use crate::control_plane::ControlPlane;
use crate::control_thread::Stopped;
use crate::problem::{Location, Problem};
use crate::quota::{self, MAX_CONNECTIONS, QuotaReached, ServiceQuota};
use crate::store::Table;
use crate::values::CONNECTION_WEIGHTS;

/// An open connection.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Connection {
    /// Its id.
    pub id: String,
    /// The id of its application.
    pub application: String,
    /// The host at one end.
    pub from: String,
    /// The host at the other end, or its IP address.
    pub to: String,
    /// The priority level of its application, from 0.
    pub level: u16,
    /// The program that has the connection, if one was given.
    pub program: Option<String>,
    /// Its weight, if one was given.
    pub weight: Option<f64>,
    /// The time until the connection ends, in seconds, unless its program opens a stream; `null` without a program, and while the
    /// program has a stream.
    pub ends_in_seconds: Option<f64>,
}

impl SharingState {
    /// The host with an address, as seen from the host `from`; none if the configuration has no such address.
    pub(super) fn host_of(&self, address: IpAddr, from: u32) -> Option<u32> {
        if address.to_canonical().is_loopback() { Some(from) } else { self.addresses.owner_of(address) }
    }

    /// The numbers of the hosts of a connection. `host_number` finds the host of a field.
    pub(super) fn ends(
        &self,
        body: &ConnectionBody,
        host_number: impl Fn(&str, &'static str) -> Result<u32, Problem>,
    ) -> Result<Ends, Problem> {
        let from = host_number(&body.from, "from")?;
        // A host may have the name of an address.
        let to = match (host_number(&body.to, "to"), body.to.parse::<IpAddr>()) {
            (Ok(host), _) => Some(host),
            (Err(_), Ok(address)) => self.host_of(address, from),
            (Err(problem), Err(_)) => return Err(problem),
        };
        Ok((from, to))
    }

    /// Opens a connection. Returns whether it is new.
    pub(super) fn open(&mut self, id: &str, body: ConnectionBody, ends: Ends) -> Result<bool, Problem> {
        if let Some(known) = self.connections.get(id) {
            if known.body.0 == body {
                return Ok(false);
            }
            return Err(Problem::conflict(&format!(
                "connection `{id}` is open with another body; expected the same body, or another id"
            )));
        }
        check_id(id, || Location::parameter("id"))?;
        if let Some(program) = &body.program {
            check_id(program, || Location::field("program"))?;
        }
        if let Some(weight) = body.weight.filter(|weight| !CONNECTION_WEIGHTS.contains(weight)) {
            let (min, max) = (CONNECTION_WEIGHTS.start(), CONNECTION_WEIGHTS.end());
            let expected = format!("a number from {min} to {max}");
            return Err(Problem::invalid(Location::field("weight"), &weight.to_string(), &expected));
        }
        if self.connections.len() == MAX_CONNECTIONS {
            return Err(Problem::limit_reached(&format!(
                "too many connections; expected at most {MAX_CONNECTIONS}"
            )));
        }
        let Some(application) = self.applications.get(&*body.application) else {
            return Err(Problem::invalid(
                Location::field("application"),
                &body.application,
                EXPECTED_APPLICATION_ID,
            ));
        };
        let ports = self.port_map.both_directions(ends.0, ends.1);
        self.division.open(ConnectionId(self.next_number), AppId(application.number), &ports)?;
        *self.connection_counts.entry(service_of(&application.body)).or_default() += 1;
        self.flow_weights.add(&body, ends);
        self.connections.insert(id.to_owned(), Numbered { number: self.next_number, body: (body, ends) });
        self.next_number += 1;
        Ok(true)
    }

    /// Closes a connection. Returns its body, if it is open.
    fn close(&mut self, id: &str) -> Result<Option<ConnectionBody>, Problem> {
        let Some(known) = self.connections.remove(id) else { return Ok(None) };
        let (body, ends) = known.body;
        self.flow_weights.remove(&body, ends);
        let application = self.applications.get(&*body.application);
        let service = application.map(|application| service_of(&application.body));
        if let Some(count) = service.and_then(|service| self.connection_counts.get_mut(&service)) {
            *count -= 1;
        }
        self.division.close(ConnectionId(known.number))?;
        Ok(Some(body))
    }

    /// Number of connections of a service that are open through the API.
    pub(super) fn connection_count(&self, service: &str) -> usize {
        self.connection_counts.get(service).copied().unwrap_or(0)
    }

    /// Checks the quota of a service for a new connection. A repeated request adds none.
    fn check_connection_quota(
        &self,
        id: &str,
        application: &str,
        quota: Option<ServiceQuota>,
    ) -> Result<(), QuotaReached> {
        let Some(quota) = quota.filter(|_| !self.connections.contains_key(id)) else { return Ok(()) };
        let Some(application) = self.applications.get(application) else { return Ok(()) };
        let service = service_of(&application.body);
        quota::check(&service, "connections", self.connection_count(&service) + 1, quota.connections)
    }

    fn connection(&self, id: &str, programs: &Programs) -> Result<Connection, Problem> {
        let entry = self
            .connections
            .get(id)
            .ok_or_else(|| Problem::not_found("connection", id, "the id of an open connection"))?;
        let (body, _) = &entry.body;
        let remaining = body.program_key().and_then(|key| programs.remaining(&key, Instant::now()));
        let ConnectionBody { application, from, to, program, weight } = body.clone();
        let level = self.application(&application)?.level;
        let ends_in_seconds = remaining.map(|remaining| remaining.as_secs_f64());
        Ok(Connection { id: id.to_owned(), application, from, to, level, program, weight, ends_in_seconds })
    }
}

impl Registry {
    /// Sends changed weights of flows to the allocator.
    pub(super) async fn send_flow_weights(&self, sharing: &mut SharingState) -> Result<(), Stopped> {
        let changes = sharing.flow_weights.take_changes();
        if changes.is_empty() || !self.handle.has_allocator() {
            return Ok(());
        }
        let set = move |plane: &mut ControlPlane, _| {
            changes.into_iter().for_each(|(flow, thousandths)| plane.set_flow_weight(flow, thousandths));
        };
        self.handle.call(set).await
    }

    pub(super) fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open connection.
    ///
    /// # Errors
    /// 404 if no connection has this id.
    pub async fn connection(&self, id: &str) -> Result<Connection, Problem> {
        self.sharing.lock().await.connection(id, &self.programs())
    }

    /// Connections in order of ids: at most `count` after the id `after`, of one application, if one is given, and of services for
    /// which `may_see` is true.
    pub async fn connections(
        &self,
        after: Option<&str>,
        application: Option<&str>,
        count: usize,
        may_see: impl Fn(&str) -> bool,
    ) -> Vec<Connection> {
        let sharing = self.sharing.lock().await;
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let is_listed = |known: &ConnectionBody| {
            let registered = sharing.applications.get(known.application.as_str());
            application.is_none_or(|application| known.application == application)
                && registered.is_some_and(|application| may_see(service_name(&application.body)))
        };
        let open = sharing.connections.range::<str, _>((first, Bound::Unbounded));
        let listed = open.filter(|(_, known)| is_listed(&known.body.0));
        let programs = self.programs();
        listed.take(count).filter_map(|(id, _)| sharing.connection(id, &programs).ok()).collect()
    }

    /// Opens a connection of an application. Repeating a request changes nothing.
    ///
    /// # Errors
    /// [`Problem`]: a field is invalid, another connection has the id, a limit is reached, or the store cannot be
    /// written. The connection is not open.
    pub async fn open(&self, actor: &Actor, id: &str, body: ConnectionBody) -> Result<Connection, Problem> {
        let mut sharing = self.sharing.lock().await;
        let host_number = |name: &str, field| self.host_number(name, || Location::field(field));
        let ends = sharing.ends(&body, host_number)?;
        sharing.check_connection_quota(id, &body.application, self.quota_of(actor))?;
        if sharing.open(id, body.clone(), ends)? {
            if let Err(error) = self.store.put(Table::Connections, id, &body).await {
                sharing.close(id)?;
                return Err(error.into());
            }
            self.audit.note_accepted(actor, Value::Null, json!(body));
            if let Some(key) = body.program_key() {
                self.programs().begin_lease(key, Instant::now());
            }
        }
        self.send_flow_weights(&mut sharing).await?;
        let changed_ports = sharing.division.update();
        self.send_queues(&sharing, changed_ports).await?;
        sharing.connection(id, &self.programs())
    }

    /// Closes a connection.
    ///
    /// # Errors
    /// 404 if no connection has this id, 503 if the store cannot be written.
    pub async fn close(&self, actor: &Actor, id: &str) -> Result<(), Problem> {
        let mut sharing = self.sharing.lock().await;
        sharing.connection(id, &self.programs())?;
        self.store.remove(Table::Connections, id).await?;
        if let Some(body) = sharing.close(id)? {
            self.audit.note_accepted(actor, json!(body), Value::Null);
            self.send_flow_weights(&mut sharing).await?;
            let changed_ports = sharing.division.update();
            self.send_queues(&sharing, changed_ports).await?;
        }
        Ok(())
    }

    /// Begins the leases of the programs of stored connections.
    pub(super) async fn begin_leases(&self) {
        let (sharing, now) = (self.sharing.lock().await, Instant::now());
        let mut programs = self.programs();
        for key in sharing.connections.values().filter_map(|known| known.body.0.program_key()) {
            programs.begin_lease(key, now);
        }
    }

    /// Closes the connections of programs whose lease has ended. O(programs), and O(connections) if a lease has ended.
    pub(super) async fn close_abandoned_connections(&self) -> Result<(), Stopped> {
        let mut sharing = self.sharing.lock().await;
        let ended: BTreeSet<ProgramKey> = self.programs().take_ended(Instant::now()).into_iter().collect();
        if ended.is_empty() {
            return Ok(());
        }
        let is_abandoned = |body: &ConnectionBody| body.program_key().is_some_and(|key| ended.contains(&key));
        let abandoned = sharing.connections.iter().filter(|(_, known)| is_abandoned(&known.body.0));
        let ids: Vec<String> = abandoned.map(|(id, _)| id.clone()).collect();
        for id in &ids {
            if let Err(problem) = sharing.close(id) {
                warn!(connection = id, %problem, "connection of an ended program cannot be removed from the queues");
            }
        }
        let removals = ids.iter().map(|id| self.store.remove(Table::Connections, id));
        for error in futures_util::future::join_all(removals).await.into_iter().filter_map(Result::err) {
            // After a restart, its lease begins and ends again.
            warn!(%error, "connection of an ended program cannot be removed from the store yet");
        }
        if !ids.is_empty() {
            info!(
                programs = ended.len(),
                connections = ids.len(),
                "connections closed: their programs have ended"
            );
        }
        self.send_flow_weights(&mut sharing).await?;
        let changed_ports = sharing.division.update();
        self.send_queues(&sharing, changed_ports).await
    }
}

/// An open stream of a program. Its lease begins when this is dropped.
pub struct ProgramStream {
    registry: Arc<Registry>,
    key: ProgramKey,
}

impl ProgramStream {
    /// Notes that the stream is open.
    ///
    /// # Errors
    /// 422 if the program's id is invalid.
    pub fn open(
        registry: &Arc<Registry>,
        application: &str,
        program: String,
    ) -> Result<ProgramStream, Problem> {
        check_id(&program, || Location::parameter("program"))?;
        let key = (application.to_owned(), program);
        registry.programs().connect(key.clone());
        Ok(ProgramStream { registry: Arc::clone(registry), key })
    }
}

impl Drop for ProgramStream {
    fn drop(&mut self) {
        self.registry.programs().disconnect(&self.key, Instant::now());
    }
}
