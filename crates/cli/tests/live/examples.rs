//! The examples that need a network.

use std::path::Path;
use std::process::Command;

use crate::turn;

/// Skips without the privileges, the BPF programs or the tools that the script needs.
#[test]
fn example_script_gives_web_more_bandwidth_than_batch() {
    let _turn = turn::take();
    let weir = env!("CARGO_BIN_EXE_weir");
    let space = format!("weirexample{}", std::process::id());
    let ip = |words: &[&str]| Command::new("ip").args(words).output().is_ok_and(|done| done.status.success());
    if !ip(&["netns", "add", &space]) {
        eprintln!("bed/live.sh skips, since this machine makes no namespaces");
        return;
    }
    ip(&["netns", "del", &space]);
    let traffic = ["agent", "traffic", "--interface", "nowhere", "--application", "x=nowhere"];
    let said = Command::new(weir).args(traffic).output().unwrap().stderr;
    let able = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if String::from_utf8_lossy(&said).contains("built without")
        || !["openssl", "curl", "python3"].iter().all(|p| able(p))
    {
        eprintln!("bed/live.sh skips, since the programs that it needs are not there");
        return;
    }
    let mut script = Command::new("timeout");
    let done = script
        .args(["-k", "5", "120"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bed/live.sh"))
        .arg(weir)
        .output()
        .unwrap();
    let [said, why] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(done.status.success(), "{said}{why}");
    let line = |first: &str| {
        let found = said.lines().find(|line| line.starts_with(first));
        found.unwrap_or_else(|| panic!("{first}: {said}{why}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("h0    true")[1], "true");
    // Queues alone would give each service half.
    let [web, batch] =
        [5, 8].map(|word| line("Of 100 Mbit/s, web has")[word].trim_end_matches('.').parse::<f64>().unwrap());
    assert!(web > 1.15 * batch && web + batch > 85.0, "{said}");
    for application in ["batch", "web"] {
        let found = line(&format!("h0    {application} "));
        let limit: u64 = found.last().unwrap().parse().expect("it has a limit");
        assert!((1_000_000..12_500_000).contains(&limit), "{said}");
    }
}
