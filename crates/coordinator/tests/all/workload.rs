//! Tests of the trace of a coordinator's coflows.

use crate::api::{CONFIG, TestServer, get, put, send_json_request};
use crate::small_cluster::{control_plane, flow_key, registration};
use serde_json::json;
use weir_client::Coordinator;
use weir_coordinator::control_plane::{ControlPlane, Registration};
use weir_core::units::{Bytes, Time};
use weir_proto::{FlowKey, FlowProgress, Report, SenderState};
use weir_trace::{Trace, TraceOptions};

/// The text of `/v1/workload`, and the trace that it contains.
fn recorded(server: &TestServer) -> (String, Trace) {
    let coordinator = Coordinator::local(&server.address.to_string()).unwrap();
    let text = coordinator.get_text("/v1/workload").unwrap();
    let trace = weir_trace::read_from(text.as_bytes(), "workload", &TraceOptions::default()).unwrap();
    (text, trace)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

#[test]
fn workload_contains_active_and_removed_coflows_as_registered() {
    let mut server = TestServer::start();
    assert_eq!(get(&server, "/v1/workload").0, 409, "no coflow is registered");
    let body = json!({
        "service": "ads", "application": "sort", "weight": 2, "deadline": "5s",
        "flows": [{ "from": "a", "to": "c", "bytes": 1_000_000 }, { "from": "b", "to": "c" }]
    });
    assert_eq!(put(&server, "/v1/coflows/shuffle-1", &body).0, 200);
    let registry = server.registry();
    let generation = block_on(registry.coflow("shuffle-1")).unwrap().registration.generation;
    let key = FlowKey { coflow: "shuffle-1".into(), generation, flow: 1 };
    let sent = FlowProgress::new(key, 300_000, SenderState::Completed);
    block_on(registry.handle().report(1, Report { flows: vec![sent], ..Report::default() })).unwrap();
    drop(registry);
    assert_eq!(
        put(&server, "/v1/coflows/next", &json!({ "flows": [{ "from": "b", "to": "a", "bytes": 7 }] })).0,
        200
    );
    let (text, before) = recorded(&server);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/shuffle-1", b"").0, 204);
    let (_, trace) = recorded(&server);
    assert_eq!(before, trace, "the coflow stays after its removal");

    assert_eq!(trace.port_names, ["a", "b", "c"]);
    let workload = &trace.workload;
    let [first, second] = &workload.coflows[..] else { panic!("{text}") };
    let flows = |coflow: &weir_core::model::CoflowSpec| -> Vec<(u32, u32, f64)> {
        coflow.flows.iter().map(|flow| (flow.src, flow.dst, flow.bytes.get())).collect()
    };
    assert_eq!((first.id, flows(first)), (1, vec![(0, 2, 1e6), (1, 2, 3e5)]));
    assert_eq!((second.id, flows(second)), (2, vec![(1, 0, 7.0)]));
    assert_eq!((first.weight, first.deadline), (2.0, Time::new(5.0)));
    assert!(second.arrival > first.arrival && second.arrival.get() < 60.0, "{text}");
    let name = |service| workload.names.service(service);
    assert_eq!((name(first.service), name(second.service)), ("ads", "default"));
    assert_eq!(workload.names.applications(first.service), ["sort"]);
    assert!(text.contains("\n# shuffle-1\ncoflow 1 ") && text.contains("\n# next\ncoflow 2 "), "{text}");

    // The active coflow is restored at the next start; removed ones are forgotten.
    server.restart(|text| text);
    let (text, trace) = recorded(&server);
    let arrivals: Vec<Time> = trace.workload.coflows.iter().map(|coflow| coflow.arrival).collect();
    assert_eq!(arrivals, [Time::ZERO], "{text}");
}

#[test]
fn removed_coflows_beyond_the_bound_are_dropped_and_counted() {
    let text = CONFIG.replace("[limits]", "[limits]\nworkload = \"0B\"");
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    let body = json!({ "flows": [{ "from": "a", "to": "b", "bytes": 1000 }] });
    for id in ["c1", "c2", "c3"] {
        assert_eq!(put(&server, &format!("/v1/coflows/{id}"), &body).0, 200);
    }
    for id in ["c1", "c3"] {
        assert_eq!(send_json_request(&server, "DELETE", &format!("/v1/coflows/{id}"), b"").0, 204);
    }
    let (text, trace) = recorded(&server);
    assert!(text.contains("\n# 2 coflows that were removed first are missing"), "{text}");
    assert_eq!(trace.workload.coflows.len(), 1);
    assert!(text.contains("\n# c2\ncoflow 1 "), "{text}");
}

/// All ids of the coflows that are registered, page by page, and the number of pages.
fn paged_ids(plane: &ControlPlane, page_flows: usize) -> (Vec<String>, usize) {
    let (mut ids, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = plane.recorded_page(after.as_deref(), page_flows);
        ids.extend(page.coflows.iter().map(|coflow| coflow.id.to_string()));
        pages += 1;
        after = page.last;
        if after.is_none() {
            return (ids, pages);
        }
    }
}

#[test]
fn pages_contain_each_registered_coflow_once() {
    let mut plane = control_plane("saath", 1);
    for (id, flows) in [("a", 3), ("b", 1), ("c", 1), ("d", 2)] {
        plane.register(id, registration(&vec![(0, 1, 5e5); flows]), 0.0).unwrap();
    }
    let all = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    assert_eq!(paged_ids(&plane, 100), (all.clone(), 1));
    // The pages have 3, 2 and 2 flows, and the last one does not know that no other follows.
    assert_eq!(paged_ids(&plane, 2), (all.clone(), 4));
    assert_eq!(paged_ids(&plane, 1), (all, 5));
}

#[test]
fn completed_coflow_is_recorded_when_it_expires_and_a_withdrawn_one_never() {
    let mut plane = control_plane("saath", 1);
    let mut unsized_flow = registration(&[(0, 1, 1.0)]);
    unsized_flow.flows[0].bytes = None;
    plane.register("a", unsized_flow, 0.0).unwrap();
    plane.register("b", Registration { generation: 2, ..registration(&[(1, 2, 9.0)]) }, 0.0).unwrap();
    plane.withdraw("b", 0.1).unwrap();
    let progress = FlowProgress::new(flow_key("a", 0), 5000, SenderState::Completed);
    plane.report(0, &Report { flows: vec![progress], ..Report::default() }, 0.2);
    assert!(plane.ended_coflows().0.is_empty() && plane.recorded_page(None, 1).coflows.len() == 1);
    plane.tick(1.0 + plane.settings().keep_completed);
    let (ended, dropped) = plane.ended_coflows();
    let sizes: Vec<_> = ended[0].flows.iter().map(|flow| Bytes::new(flow.bytes)).collect();
    assert_eq!((ended.len(), &*ended[0].id, sizes, dropped), (1, "a", vec![Bytes::new(5000.0)], 0));
}
