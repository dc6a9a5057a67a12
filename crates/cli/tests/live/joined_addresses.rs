//! Tests that a host joins with the addresses of its `--interface` and the networks of its pods, and changes them. The test skips without
//! the privileges.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{TestDir, wait_within};
use crate::host_pair::{HostPair, Process};

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n[host]\nb = \"40Mbit\"\n\
                      [[join]]\nnames = \"node-*\"\nnetworks = [\"10.9.0.0/24\", \"10.244.0.0/16\"]\n\
                      max-rate = \"40Mbit\"\nmax-hosts = 1\n";

/// The agent looks at its addresses every 10 s.
const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn host_joins_with_the_addresses_of_its_interface_and_its_pods() {
    let Some(hosts) = HostPair::up("joinaddr") else { return };
    let dir = TestDir::new();
    dir.write("serve.toml", CONFIG);
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let mut agent = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
    agent.args(["agent", "run", "--name", "node-1", "--rate", "40Mbit", "--interface", "e0"]);
    agent.args(["--network", "10.244.1.0/24", "--socket"]).arg(dir.path("local_socket"));
    let _agent = Process(agent.spawn().unwrap());
    let addresses = || {
        let response = hosts.request("GET", "/v1/hosts", "");
        let list: Value = serde_json::from_str(response.rsplit("\r\n\r\n").next().unwrap()).unwrap();
        list.as_array()
            .unwrap()
            .iter()
            .find(|host| host["name"] == "node-1")
            .map(|host| host["addresses"].clone())
    };
    let wait_for = |expected: Value| {
        wait_within(TIMEOUT, &format!("addresses {expected}"), || addresses().as_ref() == Some(&expected));
    };
    wait_for(json!(["10.9.0.1", "10.244.1.0/24"]));
    hosts.network.run_ip("a", "addr add 10.9.0.7/24 dev e0\n").unwrap();
    wait_for(json!(["10.9.0.1", "10.9.0.7", "10.244.1.0/24"]));
    hosts.network.run_ip("a", "addr del 10.9.0.7/24 dev e0\n").unwrap();
    wait_for(json!(["10.9.0.1", "10.244.1.0/24"]));
}
