//! Tests `weir reproduce live`: the papers' evaluations with real traffic.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::campaign::test_scale;
use crate::common::TestDir;
use crate::testbed::{signal_after, test_dir_with_testbed, testbed_files, testbed_name};

#[test]
fn live_netshare_page_has_all_measured_rates() {
    let dir = test_dir_with_testbed();
    let Some(name) = testbed_name(&dir, "netshare") else { return };
    let text = dir.stdout_of(&format!("reproduce live --only netshare --name {name} --phase 1s --quiet"));
    for part in
        ["# Real traffic", "--phase 1s", "| queues+throttling | Fig. 12 | 4 |", "**Phases are shorter"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let header = "| published | simulated | measured | points apart |";
    let rates = text.lines().skip_while(|line| !line.ends_with(header)).skip(2);
    assert_eq!(rates.take_while(|line| line.starts_with("| ")).count(), 10, "{text}");
    assert_eq!(testbed_files(&name), Vec::<String>::new());
    for (option, expected) in [
        ("--phase 1000s", "expected 1s to 120s"),
        ("--volume 0", "expected 0.1 to 1"),
        ("--volume nan", "0.1 to 1"),
    ] {
        let refused = dir.run(&format!("reproduce live {option}"));
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
}

/// Held by the tests that compare CCTs with the simulator. Each uses about one processor for 17 agents; two at a time delay the reports
/// and orders of both.
static CCT_COMPARISON: Mutex<()> = Mutex::new(());

/// The mean CCTs of a policy, measured and simulated.
fn mean_ccts(text: &str, policy: &str) -> [f64; 2] {
    ["measured", "simulated"].map(|kind| {
        let prefix = format!("| {policy} | {kind} | ");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("{prefix} is missing in {text}"))
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    })
}

/// How many times as long as simulated the mean CCT of a policy is.
fn slowdown(table: &str, policy: &str) -> f64 {
    let [measured, simulated] = mean_ccts(table, policy);
    measured / simulated
}

/// Asserts that the mean CCT of each policy is `shortest` to `longest` times that simulated. Other programs on the machine
/// also delay `fair`, which is TCP without a scheduler: `control` is its slowdown in the same run.
fn assert_near(table: &str, policies: &[&str], control: f64, [shortest, longest]: [f64; 2]) {
    for policy in policies {
        let slowdown = slowdown(table, policy);
        assert!(
            slowdown >= shortest && slowdown <= longest * control.max(1.0),
            "{policy}: {slowdown} times the simulated mean CCT, fair {control} times: {table}"
        );
    }
}

/// Runs an experiment, and returns its page. `None` if this machine cannot run testbeds.
fn run_experiment(dir: &TestDir, test: &str, arguments: &str) -> Option<String> {
    let name = testbed_name(dir, test)?;
    let text = dir.stdout_of(&format!("{arguments} --name {name} --quiet"));
    eprintln!("{text}");
    assert_eq!(testbed_files(&name), Vec::<String>::new());
    Some(text)
}

#[test]
fn live_slice_ccts_are_near_simulated_ccts() {
    let _alone = CCT_COMPARISON.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = test_dir_with_testbed();
    let (coflows, volume) = test_scale((2, " --volume 0.3"), (3, ""));
    let line = format!("reproduce live --only slice --coflows {coflows}{volume}");
    let Some(text) = run_experiment(&dir, "slice", &line) else { return };
    // The rate of a link is a lower bound on the measured time.
    let control = slowdown(&text, "fair");
    assert!(control >= 0.95, "{text}");
    // Handed-over sockets start late on links of 100 Mbit/s, so their mean has no bound here.
    assert_near(&text, &["aalo, library", "saath, library", "weir, library"], control, [0.95, 1.5]);
    assert!(slowdown(&text, "saath, sockets") >= 0.95, "{text}");
    let (expected_options, expected_count) =
        (format!("--coflows {coflows}{volume} --only slice"), format!("\n{coflows} coflow"));
    for part in ["# Real traffic", expected_options.as_str(), expected_count.as_str(), "| median error |"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let Some(name) = testbed_name(&dir, "slice") else { return };
    let line = format!("{line} --name {name} --quiet");
    assert_eq!(signal_after(&dir, &line, Duration::from_secs(3), "-INT"), Some(130));
    assert_eq!(testbed_files(&name), Vec::<String>::new());
}

#[test]
fn coflows_over_an_oversubscribed_fabric_complete_and_are_compared_with_simulated_ones() {
    let _alone = CCT_COMPARISON.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = test_dir_with_testbed();
    let (coflows, volume) = test_scale((3, " --volume 0.3"), (5, ""));
    let line = format!("reproduce live --only fabric --coflows {coflows}{volume}");
    let Some(text) = run_experiment(&dir, "fabric", &line) else { return };
    // 40 agents of a test build, next to other tests, use all processors of a small machine, so there is no bound on the time.
    for setup in ["fair", "saath, links of hosts only", "saath", "weir"] {
        assert!(slowdown(&text, setup) >= 0.9, "{setup}: {text}");
    }
}
