use std::path::Path;
use std::process::Command;
use std::time::Duration;

use weir_lab::{LabError, Network};

use crate::test_network;

#[test]
fn dropped_network_removes_namespaces_and_ends_processes() {
    let Some(network) = test_network("drop", &["a"]) else { return };
    let namespace = format!("/run/netns/{}", network.namespace("a"));
    let mut command = Command::new("sleep");
    command.arg("60");
    let mut process = network.spawn("a", command).unwrap();
    assert!(Path::new(&namespace).exists());
    assert_eq!(process.wait(Duration::ZERO).unwrap(), None);
    drop(network);
    assert!(!Path::new(&namespace).exists());
    assert_eq!(process.wait(Duration::from_secs(5)).unwrap(), Some(false));
}

#[test]
fn network_name_is_exclusive_while_its_owner_lives() {
    let Some(network) = test_network("name", &[]) else { return };
    let name = format!("name{}", std::process::id());
    assert!(matches!(Network::create(&name, &[]), Err(LabError::InUse(_))));
    drop(network);
    drop(Network::create(&name, &[]).unwrap());
}

#[test]
fn cpu_time_includes_descendants() {
    let Some(network) = test_network("cpu", &["a"]) else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "(while :; do :; done) & wait"]);
    let process = network.spawn("a", command).unwrap();
    let started = std::time::Instant::now();
    while process.cpu_time() < Duration::from_millis(50) {
        assert!(started.elapsed() < Duration::from_secs(20), "the loop in the child process counts");
        std::thread::sleep(Duration::from_millis(10));
    }
}
