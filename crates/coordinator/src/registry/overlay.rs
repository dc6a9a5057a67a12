//! Applies requests about coflows between regions to the overlay, and writes them to the store before the answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use weir_core::suggestion::did_you_mean;
use weir_proto::relay::RegionPair;

use super::change_watcher::{Remaining, note_completion, remove_record};
use super::coflows::check_flow_bytes;
use super::unfit::UnfitRecords;
use super::{
    CoflowBody, EXPECTED_COFLOW_ID, EXPECTED_HOST, FLOWS_POINTER, FlowBody, Registry, refusal_problem,
};
use crate::coflow_status::{Phase, WideAreaFields};
use crate::config;
use crate::control_plane::{CoflowOutline, Refusal};
use crate::overlay::{
    ABANDONMENT_TIMEOUT, CoflowStatus, Flow, Handle, Overlay, Registration, RegistrationDigest, Restored,
    find_common_number,
};
use crate::problem::{Location, Problem};
use crate::quota::{CoflowQuota, ServiceQuota};
use crate::store::{StoreError, Table, hex};

/// The expected value of an end of a flow between regions.
const EXPECTED_END: &str = "a region of GET /v1/relays, or an address in a network of its relays";

/// A coflow between regions in the store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredCoflow {
    /// Its number in orders to relays.
    number: u32,
    /// Time of its registration, in milliseconds since 1970.
    registered_unix_ms: u64,
    /// The time to its completion that the first decision estimated.
    predicted_seconds: Option<f64>,
    /// The last registration or update.
    body: CoflowBody,
    /// The flows of the first registration, if an update replaced them: written by earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_flows: Option<Vec<FlowBody>>,
    /// The digest of the first registration in hexadecimal digits, if an update replaced its flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_digest: Option<String>,
}

/// The digest with these hexadecimal digits; `None` if the text is none.
fn parse_hex(digits: &str) -> Option<RegistrationDigest> {
    let byte = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
    let mut digest = RegistrationDigest::default();
    for (at, value) in digest.iter_mut().enumerate() {
        *value = byte(at)?;
    }
    (digits.len() == 2 * digest.len()).then_some(digest)
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn flow_bodies(flows: &[Flow]) -> Vec<FlowBody> {
    let body = |flow: &Flow| FlowBody {
        from: flow.from.clone(),
        to: flow.to.clone(),
        bytes: Some(flow.bytes),
        numbers: flow.numbers.map(|(first, last)| [first, last]),
    };
    flows.iter().map(body).collect()
}

/// Bandwidths of a link between regions in the store, in bytes per second.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSamples {
    /// The configured ones. The measured ones do not count if the configuration has changed.
    configured: Vec<u64>,
    /// The measured ones, in order of time.
    measured: Vec<u64>,
}

/// The last address of a relay that has a name in the configuration.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAddress {
    /// The name and the port.
    name: String,
    /// The address.
    address: SocketAddr,
}

/// The configured bandwidths of a link, in bytes per second.
fn configured_samples(config: &config::Overlay, link: u32) -> Vec<u64> {
    config.area.samples(link).iter().map(|rate| rate.get().round() as u64).collect()
}

impl Registry {
    /// The running overlay, if the configuration has one.
    pub fn overlay(&self) -> Option<&Handle> {
        self.overlay.as_ref()
    }

    /// The overlay, if a coflow with these flows is between regions; `None` if it is between hosts. Hosts have precedence over regions of
    /// the same names.
    ///
    /// # Errors
    /// An end is neither a host nor in a region, or some ends are hosts and others are regions.
    pub(super) fn overlay_for(&self, flows: &[FlowBody]) -> Result<Option<&Handle>, Problem> {
        let hosts = self.hosts();
        let is_host = |end: &str| hosts.number(end).is_some();
        let is_region =
            |end: &str| self.overlay().is_some_and(|overlay| overlay.config().region_of_end(end).is_some());
        let ends = || {
            let numbered = flows.iter().enumerate();
            numbered.flat_map(|(at, flow)| [(at, "from", &*flow.from), (at, "to", &*flow.to)])
        };
        let mut other_ends = ends().filter(|(.., end)| !is_host(end)).peekable();
        let Some(&first) = other_ends.peek() else { return Ok(None) };
        let unknown = other_ends.find(|(.., end)| !is_region(end));
        if unknown.is_none() && ends().all(|(.., end)| is_region(end)) {
            return Ok(self.overlay());
        }
        let (at, field, end) = unknown.unwrap_or(first);
        let regions = self.overlay().map(|overlay| overlay.config().area.regions()).unwrap_or_default();
        let names = hosts.iter().map(|(_, host)| &host.name).chain(regions).map(String::as_str);
        let expected = match unknown {
            None => "a host of GET /v1/hosts, since other ends are hosts".to_owned(),
            Some(_) if regions.is_empty() => format!("{EXPECTED_HOST}{}", did_you_mean(end, names)),
            Some(_) => format!("{EXPECTED_HOST}, {EXPECTED_END}{}", did_you_mean(end, names)),
        };
        Err(Problem::invalid(Location::Body(format!("{FLOWS_POINTER}/{at}/{field}")), end, &expected))
    }

    /// The overlay, if a coflow with this id is registered there.
    pub(super) fn overlay_with(&self, id: &str) -> Option<&Handle> {
        let is_registered = self.phase_between_regions(id).is_some_and(|(_, phase)| phase != Phase::Failed);
        self.overlay().filter(|_| is_registered)
    }

    /// The service and the phase of a coflow between regions, registered or failed; `None` if the overlay has no coflow with this id.
    pub(super) fn phase_between_regions(&self, id: &str) -> Option<(String, Phase)> {
        self.overlay()?.call(|overlay, _| overlay.service_and_phase(id))
    }

    /// State of a coflow between regions, registered or failed; `None` if the overlay has no coflow with this id.
    pub fn overlay_coflow(&self, id: &str) -> Option<CoflowStatus> {
        self.overlay()?.call(|overlay, _| overlay.coflow_status(id))
    }

    /// Registers a coflow between regions. The caller has locked the id. Returns `None` for a repeated registration.
    pub(super) async fn register_between_regions(
        &self,
        handle: &Handle,
        id: &str,
        body: &CoflowBody,
        quota: Option<ServiceQuota>,
    ) -> Result<Option<CoflowOutline>, Problem> {
        let registration = self.overlay_registration(handle, body)?;
        let outline = CoflowOutline::from(&registration);
        self.check_available(id, true).await?;
        let is_new = handle.call(|overlay, now| {
            let Registration { service, flows, .. } = &registration;
            overlay.check_new_quota(id, service, flows.len(), quota.as_ref())?;
            overlay.register(id, registration, now)
        });
        if !is_new? {
            return Ok(None);
        }
        if let Err(error) = self.store_overlay_coflow(handle, id).await {
            let _ = handle.call(|overlay, _| overlay.deregister(id));
            return Err(error.into());
        }
        Ok(Some(outline))
    }

    /// Replaces the flows of a coflow between regions. The caller has locked the id. Returns the coflow before and after the update.
    pub(super) async fn update_between_regions(
        &self,
        handle: &Handle,
        id: &str,
        flows: &[FlowBody],
        quota: Option<ServiceQuota>,
    ) -> Result<[CoflowOutline; 2], Problem> {
        let to_problem = |refusal| refusal_problem(refusal, "");
        let flows = overlay_flows(handle, "", flows)?;
        let check = |overlay: &Overlay| {
            overlay.check_update_quota(id, flows.len(), quota.as_ref())?;
            overlay.check_update(id, flows.len())
        };
        handle.call(|overlay, _| check(overlay)).map_err(to_problem)?;
        let Some((former, mut stored)) = self.stored_coflow(handle, id) else {
            return Err(Problem::not_found("coflow", id, EXPECTED_COFLOW_ID));
        };
        stored.first_digest.get_or_insert_with(|| hex(&former.registration.digest()));
        stored.body.flows = flow_bodies(&flows);
        let before = CoflowOutline::from(&*former.registration);
        let after = before.clone().with_flows(flows.iter().map(|flow| Some(flow.bytes)));
        let apply = async {
            let update = |overlay: &mut Overlay, _| {
                check(overlay)?;
                overlay.update(id, flows.clone())
            };
            handle.call(update).map_err(to_problem)
        };
        let former = async {
            let is_active = |status: &CoflowStatus| status.summary.state == Phase::Active;
            let former = self.stored_coflow(handle, id).filter(|(status, _)| is_active(status));
            former.map(|(_, stored)| stored)
        };
        self.store_and_apply((Table::OverlayCoflows, id), &stored, apply, former).await?;
        Ok([before, after])
    }

    /// Removes a coflow between regions, and keeps it as failed if it has failed. The caller has locked the id. Returns whether it was
    /// removed.
    pub(super) async fn deregister_between_regions(
        &self,
        handle: &Handle,
        id: &str,
        failure: Option<&str>,
    ) -> Result<bool, Problem> {
        self.store.remove(Table::OverlayCoflows, id).await?;
        // A completed coflow can expire during the write.
        let Some(reason) = failure else {
            let _ = handle.call(|overlay, _| overlay.deregister(id));
            return Ok(true);
        };
        let failed = handle.call(|overlay, now| overlay.fail(id, reason, now));
        match failed {
            Ok(true) => info!(coflow = id, reason, "coflow between regions failed"),
            Ok(false) => info!(
                coflow = id,
                reason, "coflow stays completed: its owner reports a failure, but all bytes have arrived"
            ),
            Err(_) => {
                info!(coflow = id, reason, "coflow has expired: its owner reports a failure after its end");
            }
        }
        Ok(failed.unwrap_or(false))
    }

    /// Registers the coflows between regions of the store.
    pub(super) async fn restore_overlay(&self, unfit: &mut UnfitRecords) -> Result<(), Problem> {
        let records: Vec<(String, StoredCoflow)> = self.store.records(Table::OverlayCoflows)?;
        for (id, record) in records {
            if self.phase_at_hosts(&id).await?.is_some() {
                unfit.note("coflow", &id, Refusal::IdTaken(id.clone()));
                continue;
            }
            let Some(handle) = self.overlay() else {
                unfit.note("coflow", &id, "the configuration has no overlay");
                continue;
            };
            let first_digest = self.first_digest(handle, &record);
            let StoredCoflow { number, registered_unix_ms, predicted_seconds, body, .. } = record;
            let registration = match self.overlay_registration(handle, &body) {
                Ok(registration) => registration,
                Err(problem) => {
                    unfit.note("coflow", &id, problem);
                    continue;
                }
            };
            let age = unix_time().saturating_sub(Duration::from_millis(registered_unix_ms)).as_secs_f64();
            let restored = handle.call(|overlay, now| {
                let registered_at = now - age;
                let restored =
                    Restored { number, registration, first_digest, registered_at, predicted_seconds };
                overlay.restore(&id, restored)
            });
            if let Err(error) = restored {
                unfit.note("coflow", &id, error);
            }
        }
        Ok(())
    }

    /// Restores measured bandwidths of links between regions, and the last addresses of relays with names. Earlier versions store
    /// bandwidths without the configured ones; those are measured again.
    pub(super) fn restore_measurements(&self) -> Result<(), StoreError> {
        let Some(handle) = self.overlay() else { return Ok(()) };
        let config = handle.config();
        let region = |name: &str| config.area.regions().iter().position(|region| region == name);
        let records: Vec<(String, StoredSamples)> = self.store.decodable_records(Table::LinkSamples)?;
        for (key, StoredSamples { configured, measured }) in records {
            let ends = key.split_once('/').and_then(|(from, to)| Some((region(from)?, region(to)?)));
            // The measurements of a removed region stay in the store, for a later configuration.
            let link = ends.and_then(|(from, to)| config.area.link_between(from, to));
            let Some(link) = link else { continue };
            if configured == configured_samples(config, link) {
                handle.call(|overlay, _| overlay.restore_samples(link, &measured));
            } else {
                info!(link = key, "stored measurements ignored: the configured bandwidth has changed");
            }
        }
        let records: Vec<(String, StoredAddress)> = self.store.decodable_records(Table::RelayAddresses)?;
        for (relay, stored) in records {
            let number = config.numbers.get(&relay).copied();
            let is_same =
                |&number: &u16| config.relays[usize::from(number)].address.to_string() == stored.name;
            if let Some(number) = number.filter(is_same) {
                handle.call(|overlay, _| overlay.restore_address(number, stored.address));
            }
        }
        Ok(())
    }

    /// Stores measured bandwidths of links and addresses of relays, if there are new ones. What cannot be stored stays for the next call.
    pub async fn store_measurements(&self) {
        let Some(handle) = self.overlay() else { return };
        self.store_link_samples(handle).await;
        self.store_relay_addresses(handle).await;
    }

    async fn store_link_samples(&self, handle: &Handle) {
        let config = handle.config();
        let put = |(link, measured): (u32, Vec<u64>)| async move {
            let (from, to) = config.area.link_ends(link);
            let key = format!("{}/{}", config.area.regions()[from], config.area.regions()[to]);
            let stored = StoredSamples { configured: configured_samples(config, link), measured };
            let written = self.store.put(Table::LinkSamples, &key, &stored).await;
            written.inspect_err(|_| handle.call(|overlay, _| overlay.keep_unstored(link)))
        };
        // The store writes concurrent changes in one transaction.
        let changes = handle.call(|overlay, _| overlay.take_unstored_samples());
        let written = join_all(changes.into_iter().map(put)).await;
        if let Some(Err(error)) = written.into_iter().find(Result::is_err) {
            warn!(%error, "measured bandwidths cannot be stored");
        }
    }

    async fn store_relay_addresses(&self, handle: &Handle) {
        for (number, address) in handle.call(|overlay, _| overlay.take_changed_addresses()) {
            let relay = &handle.config().relays[usize::from(number)];
            let stored = StoredAddress { name: relay.address.to_string(), address };
            if let Err(error) = self.store.put(Table::RelayAddresses, &relay.name, &stored).await {
                warn!(relay = relay.name, %error, "the address of a relay cannot be stored");
                handle.call(|overlay, _| overlay.keep_changed_address(number));
            }
        }
    }

    /// Stores coflows with their first estimate, and removes completed coflows from the store.
    pub(super) async fn apply_overlay_changes(&self, remaining: &mut Remaining) {
        let Some(handle) = self.overlay() else { return };
        for id in handle.call(|overlay, _| overlay.take_changed()) {
            let _id_lock = self.lock_id(&id).await;
            let record = (Table::OverlayCoflows, Arc::clone(&id));
            let summary = self.overlay_coflow(&id).map(|status| status.summary);
            let Some(summary) = summary.filter(|summary| summary.state != Phase::Failed) else {
                // It has expired, or its owner has deregistered it.
                remove_record(self, record, remaining).await;
                continue;
            };
            if summary.state == Phase::Active {
                if let Err(error) = self.store_overlay_coflow(handle, &id).await {
                    warn!(coflow = &*id, %error, "a change of the coflow cannot be stored");
                }
                continue;
            }
            let WideAreaFields { measured_seconds: measured, predicted_seconds: predicted, .. } =
                summary.wide_area;
            match measured {
                Some(_) => info!(coflow = &*id, measured, predicted, "coflow between regions completed"),
                None => warn!(
                    coflow = &*id,
                    idle_seconds = ABANDONMENT_TIMEOUT,
                    "coflow between regions ended without all bytes: it lost a relay, and no flow was open since then; \
                     help: deregister a coflow when its flows have completed"
                ),
            }
            note_completion(self, record, summary.service, remaining).await;
        }
    }

    async fn store_overlay_coflow(&self, handle: &Handle, id: &str) -> Result<(), StoreError> {
        match self.stored_coflow(handle, id) {
            Some((_, stored)) => self.store.put(Table::OverlayCoflows, id, &stored).await,
            None => Ok(()),
        }
    }

    fn stored_coflow(&self, handle: &Handle, id: &str) -> Option<(CoflowStatus, StoredCoflow)> {
        let (status, now) = handle.call(|overlay, now| (overlay.coflow_status(id), now));
        let status = status.filter(|status| status.summary.state != Phase::Failed)?;
        let age = Duration::try_from_secs_f64(now - status.registered_at).unwrap_or_default();
        let Registration { service, application, flows } = &*status.registration;
        let body = CoflowBody {
            service: Some(service.clone()),
            application: Some(application.clone()),
            weight: None,
            deadline: None,
            flows: flow_bodies(flows),
        };
        let stored = StoredCoflow {
            number: status.number,
            registered_unix_ms: unix_time().saturating_sub(age).as_millis() as u64,
            predicted_seconds: status.summary.wide_area.predicted_seconds,
            body,
            first_flows: None,
            first_digest: status.first_digest.map(|digest| hex(&digest)),
        };
        Some((status, stored))
    }

    /// The digest of a stored coflow's first registration, if an update replaced its flows.
    fn first_digest(&self, handle: &Handle, record: &StoredCoflow) -> Option<RegistrationDigest> {
        if let Some(digits) = &record.first_digest {
            return parse_hex(digits);
        }
        let flows = record.first_flows.clone()?;
        let first = CoflowBody { flows, ..record.body.clone() };
        self.overlay_registration(handle, &first).ok().map(|registration| registration.digest())
    }

    fn overlay_registration(&self, handle: &Handle, body: &CoflowBody) -> Result<Registration, Problem> {
        let expected = "no value, which policies for a wide area do not use";
        if let Some(weight) = body.weight {
            return Err(Problem::invalid(Location::field("weight"), &weight.to_string(), expected));
        }
        if let Some(deadline) = &body.deadline {
            return Err(Problem::invalid(Location::field("deadline"), deadline, expected));
        }
        let (service, application) = self.service_and_application(body)?;
        let flows = overlay_flows(handle, FLOWS_POINTER, &body.flows)?;
        Ok(Registration { service, application, flows })
    }
}

/// The flows of a list with their regions; `pointer` is the JSON pointer of the list.
fn overlay_flows(handle: &Handle, pointer: &str, flows: &[FlowBody]) -> Result<Vec<Flow>, Problem> {
    let config = handle.config();
    let known: Vec<Flow> = flows
        .iter()
        .enumerate()
        .map(|(at, flow)| overlay_flow(config, pointer, at, flow))
        .collect::<Result<_, _>>()?;
    if !known.iter().any(|flow| config.link_of(flow.pair).is_some()) {
        let expected = "at least one flow from one region to another one";
        let found = format!("{} flows", known.len());
        return Err(Problem::invalid(Location::Body(pointer.to_owned()), &found, expected));
    }
    if let Some((former, at)) = find_common_number(&known) {
        let numbers = |at: usize| known[at].numbers.unwrap_or((at as u32, at as u32));
        let ((first, last), (from, to)) = (numbers(at), numbers(former));
        let expected = format!(
            "numbers that no other flow group between these regions has; flow {former} has [{from}, {to}]"
        );
        let location = Location::Body(format!("{pointer}/{at}/numbers"));
        return Err(Problem::invalid(location, &format!("[{first}, {last}]"), &expected));
    }
    Ok(known)
}

/// The flow at a position of a list with its regions.
fn overlay_flow(
    config: &config::Overlay,
    pointer: &str,
    at: usize,
    flow: &FlowBody,
) -> Result<Flow, Problem> {
    let location = |field: &str| Location::Body(format!("{pointer}/{at}/{field}"));
    let region = |end: &str, field: &str| {
        config.region_of_end(end).ok_or_else(|| Problem::invalid(location(field), end, EXPECTED_END))
    };
    let pair = RegionPair { source: region(&flow.from, "from")?, destination: region(&flow.to, "to")? };
    let bytes = check_flow_bytes(flow.bytes, pointer, at)?
        .ok_or_else(|| refusal_problem(Refusal::UnknownSize(at), pointer))?;
    let numbers = flow.numbers.map(|[first, last]| (first, last));
    if let Some((first, last)) = numbers.filter(|(first, last)| first > last) {
        let expected = "a first number, and a last number that is not below it";
        return Err(Problem::invalid(location("numbers"), &format!("[{first}, {last}]"), expected));
    }
    Ok(Flow { from: flow.from.clone(), to: flow.to.clone(), pair, bytes, numbers })
}
