//! Reload of the configuration while sockets send at ordered rates.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use weir_client::Agent;
use weir_coordinator::{config, server};

use crate::kernel::pacing_rate;
use crate::live::{LINK_RATE, MeasuredConnection, RunningAgent, lock_tests};
use crate::wait::wait_for;

/// Two hosts, whose links have a rate in MB/s.
fn configuration(rate: f64) -> String {
    format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath\"\nlease = \"300ms\"\n\
         [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n\
         [host]\nh0 = \"{rate}MB/s\"\nh1 = \"{rate}MB/s\"\n"
    )
}

/// Agents connect again before their leases end, so no socket is without its rate, and the order of the coflows stays.
#[test]
fn sockets_keep_their_rates_while_the_configuration_is_reloaded() {
    let _turn = lock_tests();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serve.toml");
    fs::write(&file, configuration(LINK_RATE / 1e6)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let coordinator = runtime.block_on(server::Coordinator::new(config::read(&file).unwrap())).unwrap();
    let (agents, api) = coordinator.addresses().unwrap();
    let (stop, stopped) = watch::channel(false);
    let serving = runtime.spawn(coordinator.run(stopped));
    let api = weir_client::Coordinator::local(&api.to_string()).unwrap();
    let body = json!({ "flows": [{ "from": "h0", "to": "h1", "bytes": 1_000_000_000_000_u64 }] });
    for id in ["first", "second"] {
        api.put(&format!("/v1/coflows/{id}"), &body).unwrap();
    }
    let running = RunningAgent::start_with_link(agents, 0, LINK_RATE);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let connections = ["first", "second"].map(|id| {
        let connection = MeasuredConnection::new();
        agent.hand_over(id, 0, &connection.stream).unwrap();
        connection.send_continuously();
        connection
    });
    let rates = || connections.each_ref().map(|connection| pacing_rate(&connection.stream));
    let is_served_first = |full_rate: f64| {
        let [first, second] = rates().map(|rate| rate.map_or(0.0, |rate| rate as f64));
        first > 0.9 * full_rate && first < 1.1 * full_rate && second > 0.0 && second < 0.1 * full_rate
    };
    wait_for("the rates of the orders", || is_served_first(LINK_RATE));

    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut samples = 0;
            while !is_done.load(Ordering::Relaxed) {
                let rates = rates();
                assert!(rates.iter().all(Option::is_some), "{rates:?} after {samples} samples");
                samples += 1;
                thread::sleep(Duration::from_millis(1));
            }
            samples
        });
        for factor in [0.5, 1.0, 0.5] {
            fs::write(&file, configuration(factor * LINK_RATE / 1e6)).unwrap();
            let reloaded = api.post("/v1/reload").unwrap();
            assert_eq!(reloaded["applied"], true, "{reloaded}");
            wait_for("the rates of the next configuration", || is_served_first(factor * LINK_RATE));
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap() > 0);
    });
    // What the flows have sent before counts.
    let sent = || {
        let coflow = api.get("/v1/coflows/first").unwrap();
        coflow["flows"][0]["sent_bytes"].as_f64().unwrap()
    };
    wait_for("the bytes of a report", || sent() > 0.5 * connections[0].received_bytes() as f64);
    drop(connections);
    drop(running);
    stop.send(true).unwrap();
    runtime.block_on(serving).unwrap().unwrap();
}
