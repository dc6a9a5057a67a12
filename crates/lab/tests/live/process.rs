use std::process::Command;
use std::time::Duration;

use weir_lab::Process;
use weir_testbed::testing;

#[test]
fn cpu_time_includes_descendants() {
    let Some(network) = testing::network("cpu", &["a"]) else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "(while :; do :; done) & wait"]);
    let process = Process::spawn_inside(&network, "a", command).unwrap();
    let started = std::time::Instant::now();
    while process.cpu_time() < Duration::from_millis(50) {
        assert!(started.elapsed() < Duration::from_secs(20), "the loop in the child process counts");
        std::thread::sleep(Duration::from_millis(10));
    }
}
