use std::path::Path;
use std::process::Command;

use weir_testbed::network::NetworkError;
use weir_testbed::{Network, testing};

#[test]
fn dropped_network_removes_namespaces_and_ends_processes() {
    let Some(network) = testing::network("drop", &["a"]) else { return };
    let namespace = format!("/run/netns/{}", network.namespace("a"));
    // A program that `Network::command` starts is inside only some time later.
    let start = || Command::new("sleep").arg("60").spawn().unwrap();
    let mut process = network.run_inside("a", start).unwrap();
    assert!(Path::new(&namespace).exists());
    assert_eq!(process.try_wait().unwrap(), None);
    drop(network);
    assert!(!Path::new(&namespace).exists());
    assert!(!process.wait().unwrap().success());
}

#[test]
fn network_name_is_exclusive_while_its_owner_lives() {
    if testing::skips("name") {
        return;
    }
    let name = format!("name{}", std::process::id());
    let network = Network::create(&name, &[]).unwrap();
    assert!(matches!(Network::create(&name, &[]), Err(NetworkError::InUse(_))));
    drop(network);
    drop(Network::create(&name, &[]).unwrap());
}

/// A test's thread may be inside a namespace when it fails.
#[test]
fn network_is_removed_by_a_thread_that_panics_inside() {
    let Some(network) = testing::pair("panic") else { return };
    let names = ["a", "b"].map(|node| network.namespace(node));
    let thread = std::thread::spawn(move || {
        weir_testbed::namespace::enter(&network.namespace("a")).unwrap();
        panic!("the network is dropped");
    });
    assert!(thread.join().is_err());
    assert!(names.iter().all(|name| !Path::new("/run/netns").join(name).exists()));
}
