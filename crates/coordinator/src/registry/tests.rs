use std::fs;
use std::path::Path;

use futures_util::future::join;
use weir_proto::relay::{GroupProgress, RelayReport};

use super::change_watcher::{Remaining, handle_changes, remove_completed};
use super::stored_coflow::StoredCoflow;
use super::*;
use crate::config;
use crate::control_plane::{
    CoflowStatus, ControlPlane, FlowKey, FlowProgress, Report, SenderState, Settings,
};
use crate::control_thread;
use crate::identity::Identity;
use crate::overlay::Overlay;
use crate::service_bandwidth::{BandwidthBody, BandwidthKey};

const CONFIG: &str = r#"weir-serve = 1
store = "weir.redb"
policy = "saath"
queues = "services"

[listen]
agents = "127.0.0.1:0"
api = "127.0.0.1:0"

[host]
a = "1Gbit"
b = "1Gbit"

[service.default]

[service.ads]
"#;

/// The service of [`coflow_body`].
const SERVICE: &str = "default";

const OVERLAY: &str = r#"
[overlay]
policy = "fifo"

[overlay.relay]
eu-1 = { region = "eu", address = "10.1.0.2:7710", networks = ["10.1.0.0/16"] }
us-1 = { region = "us", address = "10.2.0.2:7710", networks = ["10.2.0.0/16"] }

[overlay.link]
eu = { us = "1Gbit" }
us = { eu = "1Gbit" }
"#;

fn configuration(folder: &Path) -> Config {
    read_configuration(folder, CONFIG)
}

fn read_configuration(folder: &Path, text: &str) -> Config {
    let file = folder.join("serve.toml");
    fs::write(&file, text).unwrap();
    config::read(&file).unwrap()
}

async fn open_registry(config: &Config, store: Store) -> Result<Registry, String> {
    let policy = config.policy.build(&config.names, &config.weights);
    let plane = ControlPlane::new(
        config.network_links(),
        policy,
        config.names.clone(),
        config.settings,
        store.epoch(),
    )
    .unwrap();
    let overlay = config
        .overlay
        .clone()
        .map(|overlay| start_overlay(Arc::new(overlay), config.settings, store.epoch()));
    let audit = Arc::new(AuditLog::start(None).unwrap());
    Registry::new(config, (store, audit), control_thread::start(plane).unwrap().0, overlay).await
}

fn start_overlay(config: Arc<config::Overlay>, settings: Settings, epoch: u64) -> OverlayHandle {
    let policy = weir_core::wide_area_policy::WideAreaPolicy::new(&config.policy).unwrap();
    OverlayHandle::start(Overlay::new(Arc::clone(&config), settings, epoch), config, policy).unwrap()
}

async fn create_registry(folder: &Path) -> Registry {
    let config = configuration(folder);
    let store = Store::open(&config.store_path).unwrap();
    open_registry(&config, store).await.unwrap()
}

fn actor() -> Actor {
    let address = "127.0.0.1:1".parse().unwrap();
    Actor::new(Arc::new(Identity::Local), address, "test".into(), "/")
}

fn weight_change(weight: f64) -> ServiceChange {
    ServiceChange { weight: Some(weight), ..ServiceChange::default() }
}

fn min_change(min: &str) -> ServiceChange {
    let bandwidth = vec![(BandwidthKey::Min, Some(min.parse().unwrap()))];
    ServiceChange { bandwidth, ..ServiceChange::default() }
}

fn flow_bodies(from: &str, to: &str, bytes: Option<u64>) -> Vec<FlowBody> {
    vec![FlowBody { from: from.to_owned(), to: to.to_owned(), bytes, numbers: None }]
}

fn coflow_body(bytes: Option<u64>) -> CoflowBody {
    let (service, application, weight, deadline) = (None, None, None, None);
    CoflowBody { service, application, weight, deadline, flows: flow_bodies("a", "b", bytes) }
}

fn body_between_regions() -> CoflowBody {
    CoflowBody { flows: flow_bodies("eu", "us", Some(1000)), ..coflow_body(None) }
}

/// Applies a report that all bytes of the first coflow between regions have arrived.
fn complete_first_between_regions(registry: &Registry) {
    let (coflow, source, destination) = (0, 0, 1);
    let (acked_bytes, open_flows, detoured_bytes) = (1000, 0, 0);
    let group = GroupProgress { coflow, source, destination, acked_bytes, open_flows, detoured_bytes };
    let report = RelayReport { groups: vec![group], ..RelayReport::default() };
    registry.overlay().unwrap().call(|overlay, now| overlay.report(0, &report, now));
}

fn stored_count(registry: &Registry, table: Table) -> usize {
    registry.store.records::<Value>(table).unwrap().len()
}

/// The state that clients see, without the progress of flows.
async fn visible_state(registry: &Registry) -> impl PartialEq + std::fmt::Debug + use<> {
    let CoflowStatus { registration, first_flows, .. } = registry.coflow("c1").await.unwrap();
    (registration, first_flows, registry.policy().await, registry.services().await, registry.queues().await)
}

#[tokio::test]
async fn failed_writes_leave_state_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = create_registry(folder.path()).await;
    registry.register(&actor(), "c1", coflow_body(Some(1_000_000))).await.unwrap();
    let before = visible_state(&registry).await;
    let writable_store = registry.store.clone();
    registry.store = writable_store.unwritable();
    let weighted_tree = "weir-tree = 1\n[service.ads]\npolicy = \"saath\"\n[default]\npolicy = \"fair\"\n";
    for (request, problem) in [
        ("register", registry.register(&actor(), "c2", coflow_body(None)).await),
        ("update", registry.update(&actor(), ("c1", SERVICE), flow_bodies("b", "a", None)).await),
        ("deregister", registry.deregister(&actor(), ("c1", SERVICE), None).await),
        ("tree", registry.set_policy(&actor(), PolicySpec::Tree(weighted_tree.to_owned())).await),
        ("policy", registry.set_policy(&actor(), PolicySpec::Policy("varys".to_owned())).await),
        ("weight", registry.set_service(&actor(), "ads", &weight_change(3.0)).await),
        ("bandwidth", registry.set_service(&actor(), "ads", &min_change("100Mbit")).await),
        ("table", registry.set_sensitivity_table(&actor(), "version = 1\n".to_owned()).await),
    ] {
        assert_eq!(problem.map_err(|problem| problem.status), Err(503), "{request}");
        assert_eq!(visible_state(&registry).await, before, "{request}");
    }
    registry.store = writable_store;
    // A policy that uses sizes would refuse this registration.
    registry.register(&actor(), "c2", coflow_body(None)).await.unwrap();
    // Refused requests are not stored.
    assert_eq!(
        registry.set_policy(&actor(), PolicySpec::Policy("varys".to_owned())).await.unwrap_err().status,
        422
    );
    assert_eq!(registry.update(&actor(), ("c1", SERVICE), Vec::new()).await.unwrap_err().status, 422);
    assert!(registry.store.get::<Override<PolicySpec>>(Table::Settings, POLICY_KEY).unwrap().is_none());
    assert_eq!(
        registry.store.records::<StoredCoflow>(Table::Coflows).unwrap().remove(0).1.into_parts().1.flows,
        flow_bodies("a", "b", Some(1_000_000))
    );
    // Accepted requests are stored.
    registry.set_policy(&actor(), PolicySpec::Tree(weighted_tree.to_owned())).await.unwrap();
    registry.set_service(&actor(), "ads", &weight_change(3.0)).await.unwrap();
    registry.set_service(&actor(), "ads", &min_change("100Mbit")).await.unwrap();
    registry.update(&actor(), ("c1", SERVICE), flow_bodies("b", "a", None)).await.unwrap();
    assert_ne!(visible_state(&registry).await, before);
    assert!(registry.store.get::<Override<PolicySpec>>(Table::Settings, POLICY_KEY).unwrap().is_some());
}

#[tokio::test]
async fn unknown_end_of_a_flow_is_reported_as_neither_host_nor_region() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{CONFIG}{OVERLAY}").replace("b = ", "beta = ");
    let config = read_configuration(folder.path(), &text);
    let registry = open_registry(&config, Store::open(&config.store_path).unwrap()).await.unwrap();
    let neither =
        "a host of GET /v1/hosts, a region of GET /v1/relays, or an address in a network of its relays";
    let similar = format!("{neither}; help: did you mean `beta`?");
    let mixed = "a host of GET /v1/hosts, since other ends are hosts";
    for (from, to, found) in [
        ("beat", "a", Err(("/flows/0/from", "beat", similar.as_str()))),
        ("a", "beat", Err(("/flows/0/to", "beat", &similar))),
        ("eu", "beat", Err(("/flows/0/to", "beat", &similar))),
        ("a", "10.3.0.1", Err(("/flows/0/to", "10.3.0.1", neither))),
        ("a", "eu", Err(("/flows/0/to", "eu", mixed))),
        ("eu", "a", Err(("/flows/0/from", "eu", mixed))),
        ("a", "beta", Ok(())),
        ("eu", "10.2.0.1", Ok(())),
    ] {
        let body = CoflowBody { flows: flow_bodies(from, to, Some(1)), ..coflow_body(None) };
        let registered = registry.register(&actor(), &format!("{from}-{to}"), body).await;
        let parts = registered.map_err(|problem| (problem.pointer, problem.value, problem.expected));
        let texts = |(pointer, value, expected): (&str, &str, &str)| {
            (Some(pointer.into()), Some(value.into()), Some(expected.into()))
        };
        assert_eq!(parts, found.map_err(texts), "{from} to {to}");
    }
}

/// Earlier versions store the flows of the first registration instead of its digest.
#[tokio::test]
async fn repeated_registration_between_regions_is_compared_with_a_stored_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let config = read_configuration(folder.path(), &format!("{CONFIG}{OVERLAY}"));
    let body = |bytes: u64| CoflowBody {
        service: Some("ads".to_owned()),
        application: Some("default".to_owned()),
        ..CoflowBody { flows: flow_bodies("eu", "us", Some(bytes)), ..coflow_body(None) }
    };
    let store = Store::open(&config.store_path).unwrap();
    let former = json!({ "number": 3, "registered_unix_ms": 0, "predicted_seconds": null, "body": body(20),
        "first_flows": body(10).flows });
    store.put(Table::OverlayCoflows, "c1", &former).await.unwrap();
    let mut registry = open_registry(&config, store).await.unwrap();
    for _ in 0..2 {
        registry.register(&actor(), "c1", body(10)).await.unwrap();
        assert_eq!(registry.register(&actor(), "c1", body(20)).await.unwrap_err().status, 409);
        registry.update(&actor(), ("c1", "ads"), body(30).flows).await.unwrap();
        let stored: serde_json::Value = registry.store.get(Table::OverlayCoflows, "c1").unwrap().unwrap();
        assert_eq!((&stored["number"], &stored["body"]["flows"][0]["bytes"]), (&json!(3), &json!(30)));
        assert!(stored["first_flows"].is_null());
        assert_eq!(stored["first_digest"].as_str().map(str::len), Some(64));
        // A new registry loads the store.
        registry = open_registry(&config, registry.store.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn check_accepts_a_store_with_bandwidths_that_a_client_has_set() {
    let folder = tempfile::tempdir().unwrap();
    let registry = create_registry(folder.path()).await;
    registry.set_service(&actor(), "ads", &min_change("100Mbit")).await.unwrap();
    let contents = crate::store::verify(&configuration(folder.path()).store_path, check_record).unwrap();
    assert_eq!(contents.records["settings"], 1);
}

#[tokio::test]
async fn completed_coflow_between_regions_leaves_the_store_once_it_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let config = read_configuration(folder.path(), &format!("{CONFIG}{OVERLAY}"));
    let mut registry = open_registry(&config, Store::open(&config.store_path).unwrap()).await.unwrap();
    registry.register(&actor(), "c1", body_between_regions()).await.unwrap();
    let writable_store = registry.store.clone();
    registry.store = writable_store.unwritable();
    complete_first_between_regions(&registry);
    let mut remaining = Remaining::new();
    registry.apply_overlay_changes(&mut remaining).await;
    registry.store = writable_store;
    assert_eq!((remaining.len(), stored_count(&registry, Table::OverlayCoflows)), (1, 1));
    remove_completed(&registry, &mut remaining).await.unwrap();
    assert_eq!((remaining.len(), stored_count(&registry, Table::OverlayCoflows)), (0, 0));
}

#[tokio::test]
async fn update_leaves_no_record_of_a_coflow_that_expires_during_the_write() {
    let folder = tempfile::tempdir().unwrap();
    let config = read_configuration(folder.path(), &format!("{CONFIG}{OVERLAY}"));
    let registry = open_registry(&config, Store::open(&config.store_path).unwrap()).await.unwrap();
    registry.register(&actor(), "c1", body_between_regions()).await.unwrap();
    complete_first_between_regions(&registry);
    let end = config.settings.keep_completed + 1.0;
    let expire = async {
        registry.overlay().unwrap().call(|overlay, now| overlay.tick(now + end, |_| false));
    };
    let actor = actor();
    // The update is polled first, and waits for its write.
    let (updated, ()) =
        join(registry.update(&actor, ("c1", SERVICE), body_between_regions().flows), expire).await;
    assert_eq!(updated.unwrap_err().status, 404);
    assert_eq!(stored_count(&registry, Table::OverlayCoflows), 0);
}

#[tokio::test]
async fn coflows_that_expire_before_their_completion_is_noted_leave_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{CONFIG}{OVERLAY}").replacen("policy", "keep-completed = \"0s\"\npolicy", 1);
    let config = read_configuration(folder.path(), &text);
    let registry = open_registry(&config, Store::open(&config.store_path).unwrap()).await.unwrap();
    registry.register(&actor(), "c1", body_between_regions()).await.unwrap();
    registry.register(&actor(), "c2", coflow_body(Some(1000))).await.unwrap();
    let stored_counts =
        || [Table::OverlayCoflows, Table::Coflows].map(|table| stored_count(&registry, table));
    assert_eq!(stored_counts(), [1, 1]);
    complete_first_between_regions(&registry);
    registry.overlay().unwrap().call(|overlay, now| overlay.tick(now + 1.0, |_| false));
    let generation = registry.coflow("c2").await.unwrap().registration.generation;
    let key = FlowKey { coflow: "c2".into(), generation, flow: 0 };
    let flows = vec![FlowProgress::new(key, 1000, SenderState::Completed)];
    let complete = move |plane: &mut ControlPlane, now: f64| {
        plane.report(0, &Report { flows, ..Report::default() }, now);
        plane.tick(now + 0.001);
    };
    registry.handle().call(complete).await.unwrap();
    assert!(registry.overlay_coflow("c1").is_none() && registry.coflow("c2").await.is_err());
    let mut remaining = Remaining::new();
    handle_changes(&registry, &mut Vec::new(), &mut remaining).await.unwrap();
    registry.apply_overlay_changes(&mut remaining).await;
    assert_eq!(stored_counts(), [0, 0]);
}

#[tokio::test]
async fn stored_coflow_between_regions_with_the_id_of_a_coflow_of_hosts_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let config = read_configuration(folder.path(), &format!("{CONFIG}{OVERLAY}"));
    let registry = open_registry(&config, Store::open(&config.store_path).unwrap()).await.unwrap();
    registry.register(&actor(), "c1", coflow_body(Some(1))).await.unwrap();
    let record = json!({ "number": 3, "registered_unix_ms": 0, "predicted_seconds": null,
        "body": body_between_regions() });
    registry.store.put(Table::OverlayCoflows, "c1", &record).await.unwrap();
    let registry = open_registry(&config, registry.store.clone()).await.unwrap();
    assert!(registry.overlay_coflow("c1").is_none() && registry.coflow("c1").await.is_ok());
}

/// Another coflow may have taken the id since the permission was checked.
#[tokio::test]
async fn requests_for_a_coflow_of_another_service_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let registry = create_registry(folder.path()).await;
    registry.register(&actor(), "c1", coflow_body(Some(1))).await.unwrap();
    let before = visible_state(&registry).await;
    for refused in [
        registry.update(&actor(), ("c1", "ads"), flow_bodies("b", "a", Some(1))).await,
        registry.deregister(&actor(), ("c1", "ads"), None).await,
    ] {
        assert_eq!(refused.unwrap_err().status, 404);
        assert_eq!(visible_state(&registry).await, before);
    }
    registry.deregister(&actor(), ("c1", SERVICE), None).await.unwrap();
}

#[tokio::test]
async fn failed_coflow_does_not_hide_a_coflow_of_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let config = read_configuration(folder.path(), &format!("{CONFIG}{OVERLAY}"));
    let registry = open_registry(&config, Store::open(&config.store_path).unwrap()).await.unwrap();
    registry.register(&actor(), "c1", body_between_regions()).await.unwrap();
    registry.deregister(&actor(), ("c1", SERVICE), Some("reason")).await.unwrap();
    assert_eq!(registry.service_of("c1").await.unwrap_err().status, 404);
    assert_eq!(registry.service_of_visible("c1").await.unwrap(), "default");
    // The registry forgets the failed coflow at the end of a registration.
    registry.register_between_hosts("c1", coflow_body(Some(1)), None).await.unwrap();
    assert!(registry.overlay_coflow("c1").is_some());
    assert_eq!(registry.service_of("c1").await.unwrap(), "default");
}

/// Earlier versions store the measurements of a link without the configured bandwidth.
#[tokio::test]
async fn measurements_of_another_format_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let config = read_configuration(folder.path(), &format!("{CONFIG}{OVERLAY}"));
    let store = Store::open(&config.store_path).unwrap();
    let samples = json!({ "configured": [125_000_000], "measured": [10_000_000, 20_000_000] });
    for (table, key, value) in [
        (Table::LinkSamples, "eu/us", json!([10_000_000, 20_000_000])),
        (Table::LinkSamples, "us/eu", samples),
        (Table::LinkSamples, "a region", json!("text")),
        (Table::RelayAddresses, "eu-1", json!("10.1.0.2:7710")),
    ] {
        store.put(table, key, &value).await.unwrap();
    }
    crate::store::verify(&config.store_path, check_record).unwrap();
    let registry = open_registry(&config, store).await.unwrap();
    let counts = registry.overlay().unwrap().call(|overlay, _| {
        let history = overlay.history();
        [(0, 1), (1, 0)]
            .map(|(from, to)| history.seconds_per_byte(history.link_between(from, to).unwrap()).len())
    });
    assert_eq!(counts, [1, 3]);
}

#[tokio::test]
async fn stored_weights_out_of_range_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path());
    let store = Store::open(&config.store_path).unwrap();
    for weight in [0.0, -1.0, 1e300] {
        let set = Override { set: Some(weight), configured: None };
        store.put(Table::Weights, "ads", &set).await.unwrap();
        let error = open_registry(&config, store.clone()).await.err().unwrap();
        let location = format!("{}: damaged at table `weights`, record `ads` ", config.store_path.display());
        let reason = format!("(weight {weight}; expected a number from 1e-9 to 1e9); ");
        assert!(error.starts_with(&(location + &reason)), "{error}");
    }
    store.put(Table::Weights, "ads", &Override { set: Some(3.0), configured: None }).await.unwrap();
    assert_eq!(open_registry(&config, store).await.unwrap().services().await[1].weight, Some(3.0));
}

/// An earlier version accepted it.
#[tokio::test]
async fn stored_maximum_below_the_lowest_one_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path());
    let store = Store::open(&config.store_path).unwrap();
    for (max, expected) in [("104kbit", None), ("105kbit", Some("105kbit"))] {
        let set = BandwidthBody { max_bandwidth: Some(max.to_owned()), ..BandwidthBody::default() };
        let set = Override { set, configured: BandwidthBody::default() };
        let record = BTreeMap::from([("ads".to_owned(), set)]);
        store.put(Table::Settings, "bandwidths", &record).await.unwrap();
        let registry = open_registry(&config, store.clone()).await.unwrap();
        let found = registry.services().await.remove(1).bandwidth.max_bandwidth;
        assert_eq!(found.as_deref(), expected);
    }
}
