//! Registers, updates and deregisters coflows. A coflow belongs to the control plane of hosts, or to the overlay between regions
//! ([`overlay`](super::overlay)).

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use weir_core::model::ServiceNames;
use weir_core::units::{Bytes, Time};

use super::stored_coflow::StoredCoflow;
use super::unfit::UnfitRecords;
use super::{CoflowBody, EXPECTED_COFLOW_ID, FLOWS_POINTER, FlowBody, Registry, refusal_problem};
use crate::audit::Actor;
use crate::coflow_status::Phase;
use crate::control_plane::{
    CoflowOutline, CoflowStatus, ControlPlane, Refusal, Registration, Transfer, UnknownName,
};
use crate::control_thread::Stopped;
use crate::events::EventKind;
use crate::problem::{Location, Problem};
use crate::quota::{CoflowQuota, ServiceQuota};
use crate::store::{StoreError, Table};
use crate::values::MAX_FLOW_BYTES;

impl Registry {
    /// Registers a coflow. Repeating a registration changes nothing.
    ///
    /// # Errors
    /// [`Problem`]: a field is invalid, another coflow has the id, a limit is reached, or the store cannot be written.
    /// The coflow is not registered.
    pub async fn register(&self, actor: &Actor, id: &str, body: CoflowBody) -> Result<(), Problem> {
        let quota = self.quota_of(actor);
        let _id_lock = self.lock_id(id).await;
        let registered = match self.overlay_for(&body.flows)? {
            Some(handle) => self.register_between_regions(handle, id, &body, quota).await?,
            None => self.register_between_hosts(id, body, quota).await?,
        };
        let Some(outline) = registered else { return Ok(()) };
        if let Some(handle) = self.overlay() {
            handle.call(|overlay, _| overlay.forget_failed(id));
        }
        self.audit.note_accepted(actor, Value::Null, json!(outline));
        self.events.send(EventKind::CoflowRegistered, id, Some(outline.service));
        Ok(())
    }

    /// Registers a coflow of hosts. Returns `None` for a repeated registration.
    pub(super) async fn register_between_hosts(
        &self,
        id: &str,
        body: CoflowBody,
        quota: Option<ServiceQuota>,
    ) -> Result<Option<CoflowOutline>, Problem> {
        // A repeated registration does not use its generation.
        let generation = self.store.next_generation();
        let registration = self.to_registration(generation, &body)?;
        let outline = CoflowOutline::from(&registration);
        self.check_available(id, false).await?;
        let new_id = id.to_owned();
        let register = move |plane: &mut ControlPlane, now: f64| {
            let Registration { service, flows, .. } = &registration;
            plane.check_new_quota(&new_id, service, flows.len(), quota.as_ref())?;
            plane.register(&new_id, registration, now)
        };
        // A registered coflow is already in the store. A completed coflow is not, and storing it again would register it at
        // the next start.
        if !self.handle.call(register).await?? {
            return Ok(None);
        }
        if let Err(error) = self.store.put(Table::Coflows, id, &StoredCoflow::new(generation, body)).await {
            let id = id.to_owned();
            self.handle.call(move |plane, now| plane.withdraw(&id, now)).await??;
            return Err(error.into());
        }
        Ok(Some(outline))
    }

    /// Checks that a coflow between regions, or of hosts, can have an id: no coflow of the other kind has it, and the store can be written
    /// if no coflow has it. A coflow that cannot be stored gets no orders.
    pub(super) async fn check_available(&self, id: &str, is_between_regions: bool) -> Result<(), Problem> {
        let is_in_overlay = self.overlay_with(id).is_some();
        if !is_in_overlay && self.phase_at_hosts(id).await?.is_none() {
            return Ok(self.store.check_writable()?);
        }
        if is_in_overlay == is_between_regions { Ok(()) } else { Err(Refusal::IdTaken(id.to_owned()).into()) }
    }

    /// Replaces the flows of a coflow of a service.
    ///
    /// # Errors
    /// [`Problem`]: the service has no coflow with this id, a flow is invalid, a limit is reached, or the store cannot be written. The
    /// coflow is unchanged.
    pub async fn update(
        &self,
        actor: &Actor,
        (id, service): (&str, &str),
        flows: Vec<FlowBody>,
    ) -> Result<(), Problem> {
        let quota = self.quota_of(actor);
        let _id_lock = self.lock_id(id).await;
        check_service(id, service, &self.service_of(id).await?)?;
        let [before, after] = match self.overlay_with(id) {
            Some(handle) => self.update_between_regions(handle, id, &flows, quota).await?,
            None => self.update_between_hosts(id, flows, quota).await?,
        };
        self.audit.note_accepted(actor, json!(before), json!(after));
        self.events.send(EventKind::CoflowUpdated, id, Some(after.service));
        Ok(())
    }

    /// Replaces the flows of a coflow of hosts. Returns the coflow before and after the update.
    async fn update_between_hosts(
        &self,
        id: &str,
        flows: Vec<FlowBody>,
        quota: Option<ServiceQuota>,
    ) -> Result<[CoflowOutline; 2], Problem> {
        // The body is the list itself, so the JSON pointer of the list is empty.
        let to_problem = |refusal| refusal_problem(refusal, "");
        let transfers = self.transfers("", &flows)?;
        let CoflowStatus { registration, first_flows, summary, .. } = self.coflow(id).await?;
        let (checked_id, checked) = (id.to_owned(), transfers.clone());
        let check = move |plane: &mut ControlPlane, _| {
            plane.check_update_quota(&checked_id, checked.len(), quota.as_ref())?;
            plane.check_update(&checked_id, &checked)
        };
        self.handle.call(check).await?.map_err(to_problem)?;
        let before = CoflowOutline::from(&registration);
        let after = before.clone().with_flows(flows.iter().map(|flow| flow.bytes));
        let first_flows = self.flow_bodies(first_flows.as_ref().unwrap_or(&registration.flows));
        self.store.put(Table::FirstFlows, id, &first_flows).await?;
        let updated_id = id.to_owned();
        let update = move |plane: &mut ControlPlane, now: f64| {
            plane.check_update_quota(&updated_id, transfers.len(), quota.as_ref())?;
            plane.update(&updated_id, &transfers, now)
        };
        let apply = async {
            let applied = self.handle.call(update).await.map_err(Problem::from);
            applied.and_then(|applied| applied.map_err(to_problem))
        };
        let former = async {
            let phase_before = || Some((registration.service.clone(), summary.state));
            let phase = self.phase_at_hosts(id).await.unwrap_or_else(|_| phase_before());
            let is_active = matches!(phase, Some((_, Phase::Active)));
            is_active.then(|| stored_coflow(&registration, self.flow_bodies(&registration.flows)))
        };
        let record = stored_coflow(&registration, flows);
        self.store_and_apply((Table::Coflows, id), &record, apply, former).await?;
        Ok([before, after])
    }

    /// Stores the record of an updated coflow, and applies the update. If the update is not applied, the record before it is stored again:
    /// `former`, which is `None` if the coflow is no longer active.
    pub(super) async fn store_and_apply<T: Serialize>(
        &self,
        (table, id): (Table, &str),
        record: &T,
        apply: impl Future<Output = Result<(), Problem>>,
        former: impl Future<Output = Option<T>>,
    ) -> Result<(), Problem> {
        self.store.put(table, id, record).await?;
        let Err(problem) = apply.await else { return Ok(()) };
        match former.await {
            Some(former) => self.store.put(table, id, &former).await?,
            None => self.store.remove(table, id).await?,
        }
        Err(problem)
    }

    /// Removes a coflow of a service. Waits a short time until agents have applied the removal, so that a socket that is handed over later
    /// does not join the removed registration. A coflow between regions stays visible as failed if its owner states why it failed, or as
    /// completed if all of its bytes have arrived.
    ///
    /// # Errors
    /// 404 if no coflow of this service has this id, 422 if a coflow of hosts failed, 503 if the store cannot be written.
    pub async fn deregister(
        &self,
        actor: &Actor,
        (id, service): (&str, &str),
        failure: Option<&str>,
    ) -> Result<(), Problem> {
        let _id_lock = self.lock_id(id).await;
        check_service(id, service, &self.service_of_visible(id).await?)?;
        let after = failure.map_or(Value::Null, |reason| json!({ "failed": reason }));
        let (outline, is_removed) = match self.overlay().zip(self.overlay_coflow(id)) {
            Some((handle, status)) => {
                let outline = CoflowOutline::from(&*status.registration);
                if status.summary.state == Phase::Failed {
                    // The failure was an event already.
                    if failure.is_none() {
                        handle.call(|overlay, _| overlay.forget_failed(id));
                        self.audit.note_accepted(actor, json!(outline), after);
                    }
                    return Ok(());
                }
                (outline, self.deregister_between_regions(handle, id, failure).await?)
            }
            None => (self.deregister_between_hosts(id, failure).await?, true),
        };
        if is_removed {
            self.audit.note_accepted(actor, json!(outline), after);
            self.events.send(EventKind::CoflowDeregistered, id, Some(outline.service));
        }
        Ok(())
    }

    async fn deregister_between_hosts(
        &self,
        id: &str,
        failure: Option<&str>,
    ) -> Result<CoflowOutline, Problem> {
        let known_id = id.to_owned();
        let outline = self.handle.call(move |plane, _| plane.coflow_outline(&known_id)).await?;
        let outline = outline.ok_or_else(|| Problem::not_found("coflow", id, EXPECTED_COFLOW_ID))?;
        if let Some(reason) = failure {
            let expected = "no value, since the coflow is not between regions";
            return Err(Problem::invalid(Location::parameter("failed"), reason, expected));
        }
        self.store.remove(Table::Coflows, id).await?;
        let known_id = id.to_owned();
        let removal_orders = self.handle.call(move |plane, now| plane.deregister(&known_id, now)).await?;
        // A completed coflow can expire during the write.
        self.handle.wait_until_applied(removal_orders.unwrap_or_default()).await?;
        Ok(outline)
    }

    /// Registers the coflows of hosts of the store.
    pub(super) async fn restore(&self, unfit: &mut UnfitRecords) -> Result<(), String> {
        let coflows: Vec<(String, StoredCoflow)> =
            self.store.records(Table::Coflows).map_err(|error| error.to_string())?;
        let mut first_flows = self.first_flows().map_err(|error| error.to_string())?;
        for (id, stored) in coflows {
            let (generation, body) = stored.into_parts();
            // The first flows are only compared with repeated registrations, and the registry refuses registrations with
            // unknown hosts.
            let first_flows =
                first_flows.remove(&id).and_then(|flows| self.transfers(FLOWS_POINTER, &flows).ok());
            match self.to_registration(generation, &body) {
                Ok(registration) => {
                    let restored_id = id.clone();
                    let restored = self
                        .handle
                        .call(move |plane, now| plane.restore(&restored_id, registration, first_flows, now));
                    if let Err(error) = restored.await.map_err(|stopped| stopped.to_string())? {
                        unfit.note("coflow", &id, error);
                    }
                }
                Err(problem) => unfit.note("coflow", &id, problem),
            }
        }
        Ok(())
    }

    fn first_flows(&self) -> Result<BTreeMap<String, Vec<FlowBody>>, StoreError> {
        let records: Vec<(String, Vec<FlowBody>)> = self.store.records(Table::FirstFlows)?;
        Ok(records.into_iter().collect())
    }

    /// Removes the first flows of coflows that have been removed, since other coflows may use their ids later.
    pub(super) async fn remove_unused_first_flows(&self) -> Result<(), StoreError> {
        let remove_unused = async |id: String| {
            let _turn = self.lock_id(&id).await;
            let coflow: Option<IgnoredAny> = self.store.get(Table::Coflows, &id)?;
            if coflow.is_none() { self.store.remove(Table::FirstFlows, &id).await } else { Ok(()) }
        };
        // Changes that arrive together share a write.
        try_join_all(self.first_flows()?.into_keys().map(remove_unused)).await.map(drop)
    }

    /// State of a coflow of hosts.
    ///
    /// # Errors
    /// 404 if no coflow has this id, 503 if the coordinator has stopped.
    pub async fn coflow(&self, id: &str) -> Result<CoflowStatus, Problem> {
        let known_id = id.to_owned();
        let status = self.handle.call(move |plane, _| plane.coflow_status(&known_id)).await?;
        status.ok_or_else(|| Problem::not_found("coflow", id, EXPECTED_COFLOW_ID))
    }

    /// The service and the phase of a coflow of hosts; `None` if it is not registered.
    pub(super) async fn phase_at_hosts(&self, id: &str) -> Result<Option<(String, Phase)>, Stopped> {
        let id = id.to_owned();
        self.handle.call(move |plane, _| plane.service_and_phase(&id)).await
    }

    /// The service of a registered coflow.
    ///
    /// # Errors
    /// 404 if no coflow has this id, 503 if the coordinator has stopped.
    pub async fn service_of(&self, id: &str) -> Result<String, Problem> {
        self.service_if(id, |phase| phase != Phase::Failed).await
    }

    /// The service of a coflow, or of one that has failed.
    ///
    /// # Errors
    /// 404 if no coflow has this id, 503 if the coordinator has stopped.
    pub async fn service_of_visible(&self, id: &str) -> Result<String, Problem> {
        self.service_if(id, |_| true).await
    }

    async fn service_if(&self, id: &str, is_wanted: impl Fn(Phase) -> bool) -> Result<String, Problem> {
        // A failed coflow between regions does not hide a coflow of hosts with the same id.
        let found = match self.phase_between_regions(id).filter(|(_, phase)| is_wanted(*phase)) {
            Some(found) => Some(found),
            None => self.phase_at_hosts(id).await?,
        };
        let (service, _) = found.ok_or_else(|| Problem::not_found("coflow", id, EXPECTED_COFLOW_ID))?;
        Ok(service)
    }

    /// Flows in the format of requests.
    fn flow_bodies(&self, transfers: &[Transfer]) -> Vec<FlowBody> {
        let hosts = self.hosts();
        let name = |host: u32| hosts.name(host).to_owned();
        let flow = |transfer: &Transfer| FlowBody {
            from: name(transfer.src),
            to: name(transfer.dst),
            bytes: transfer.bytes.map(|bytes| bytes.get() as u64),
            numbers: None,
        };
        transfers.iter().map(flow).collect()
    }

    /// The transfers of a list of flows; `list_pointer` is the JSON pointer of the list.
    fn transfers(&self, list_pointer: &str, flows: &[FlowBody]) -> Result<Vec<Transfer>, Problem> {
        let to_transfer = |(at, flow): (usize, &FlowBody)| {
            let bytes = check_flow_bytes(flow.bytes, list_pointer, at)?;
            if let Some([first, last]) = flow.numbers {
                let location = Location::Body(format!("{list_pointer}/{at}/numbers"));
                let expected = "no value, since the flow is between hosts";
                return Err(Problem::invalid(location, &format!("[{first}, {last}]"), expected));
            }
            Ok(Transfer {
                src: self.host_number(&flow.from, || Location::Body(format!("{list_pointer}/{at}/from")))?,
                dst: self.host_number(&flow.to, || Location::Body(format!("{list_pointer}/{at}/to")))?,
                bytes: bytes.and_then(|bytes| Bytes::new(bytes as f64)),
            })
        };
        flows.iter().enumerate().map(to_transfer).collect()
    }

    /// The names of the service and the application of a coflow.
    pub(super) fn service_and_application(&self, body: &CoflowBody) -> Result<(String, String), UnknownName> {
        let name_or_default =
            |name: &Option<String>| name.clone().unwrap_or_else(|| ServiceNames::DEFAULT.to_owned());
        let (service, application) = (name_or_default(&body.service), name_or_default(&body.application));
        UnknownName::check(&self.names, &service, &application)?;
        Ok((service, application))
    }

    fn to_registration(&self, generation: u64, body: &CoflowBody) -> Result<Registration, Problem> {
        let deadline = body.deadline.as_deref().map(|text| {
            let time = text.parse::<Time>();
            time.map_err(|error| Problem::invalid(Location::field("deadline"), text, error.expected))
        });
        let (service, application) = self.service_and_application(body)?;
        Ok(Registration {
            generation,
            service,
            application,
            weight: body.weight.unwrap_or(1.0),
            deadline: deadline.transpose()?,
            flows: self.transfers(FLOWS_POINTER, &body.flows)?,
        })
    }
}

/// Refuses a coflow of another service than the permitted one: it has taken the id since the caller checked the permission.
fn check_service(id: &str, permitted: &str, found: &str) -> Result<(), Problem> {
    if found == permitted { Ok(()) } else { Err(Problem::not_found("coflow", id, EXPECTED_COFLOW_ID)) }
}

/// The size of the flow at this index of a list, if the size is valid.
pub(super) fn check_flow_bytes(
    bytes: Option<u64>,
    list_pointer: &str,
    at: usize,
) -> Result<Option<u64>, Problem> {
    match bytes {
        Some(bytes) if bytes > MAX_FLOW_BYTES => {
            let location = Location::Body(format!("{list_pointer}/{at}/bytes"));
            Err(Problem::invalid(location, &bytes.to_string(), "less than 2^53 bytes"))
        }
        valid => Ok(valid),
    }
}

/// The record of a registration with these flows.
fn stored_coflow(registration: &Registration, flows: Vec<FlowBody>) -> StoredCoflow {
    let Registration { generation, service, application, weight, deadline, .. } = registration;
    let body = CoflowBody {
        service: Some(service.clone()),
        application: Some(application.clone()),
        weight: Some(*weight),
        // All digits, whereas `Time` prints fifteen: the time has to be equal after it is stored and read.
        deadline: deadline.map(|deadline| format!("{}s", deadline.get())),
        flows,
    };
    StoredCoflow::new(*generation, body)
}
