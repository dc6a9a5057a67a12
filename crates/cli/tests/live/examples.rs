//! Tests the example that needs a network.

use std::path::Path;
use std::process::Command;

use crate::test_lock;

/// The test skips without the privileges, the BPF programs or the tools that the script needs.
#[test]
fn example_script_gives_web_more_bandwidth_than_batch() {
    let _lock = test_lock::lock_shared();
    let weir = env!("CARGO_BIN_EXE_weir");
    let namespace = format!("weirexample{}", std::process::id());
    let ip =
        |words: &[&str]| Command::new("ip").args(words).output().is_ok_and(|output| output.status.success());
    if !ip(&["netns", "add", &namespace]) {
        eprintln!("bed/live.sh skips, since this machine cannot create namespaces");
        return;
    }
    ip(&["netns", "del", &namespace]);
    let traffic = ["agent", "traffic", "--interface", "nowhere", "--application", "x=nowhere"];
    let stderr = Command::new(weir).args(traffic).output().unwrap().stderr;
    let is_available = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if String::from_utf8_lossy(&stderr).contains("built without")
        || !["openssl", "curl", "python3"].iter().all(|p| is_available(p))
    {
        eprintln!("bed/live.sh skips, since programs that it needs are missing");
        return;
    }
    let mut script = Command::new("timeout");
    let output = script
        .args(["-k", "5", "120"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bed/live.sh"))
        .arg(weir)
        .output()
        .unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stdout}{stderr}");
    let line = |first: &str| {
        let found = stdout.lines().find(|line| line.starts_with(first));
        found.unwrap_or_else(|| panic!("{first}: {stdout}{stderr}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("h0    true")[1], "true");
    // Queues alone would give each service half.
    let [web, batch] = [5, 8]
        .map(|word| line("Of 100 Mbit/s, web gets")[word].trim_end_matches('.').parse::<f64>().unwrap());
    assert!(web > 1.15 * batch && web + batch > 85.0, "{stdout}");
    for application in ["batch", "web"] {
        let found = line(&format!("h0    {application} "));
        let limit: u64 = found.last().unwrap().parse().expect("the allocator limits the application");
        assert!((1_000_000..12_500_000).contains(&limit), "{stdout}");
    }
}
