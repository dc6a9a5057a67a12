//! `weir reproduce live`: the papers' evaluations with real traffic.

use std::time::Duration;

use crate::campaign::campaign;
use crate::testbed::{left, name, place, signalled};

#[test]
fn live_netshare_page_has_all_measured_rates() {
    let place = place();
    let Some(name) = name(&place, "netshare") else { return };
    let text = place.print(&format!("reproduce live --only netshare --name {name} --phase 1s --quiet"));
    for part in
        ["# Real traffic", "--phase 1s", "| queues+throttling | Fig. 12 | 4 |", "**Phases are shorter"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    let header = "| published | simulated | measured | points apart |";
    let rates = text.lines().skip_while(|line| !line.ends_with(header)).skip(2);
    assert_eq!(rates.take_while(|line| line.starts_with("| ")).count(), 10, "{text}");
    assert_eq!(left(&name), Vec::<String>::new());
    let refused = place.run("reproduce live --phase 1000s");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("expected 1s to 120s"), "{}", refused.err);
}

/// The mean CCTs of a policy, measured and simulated.
fn means(text: &str, policy: &str) -> [f64; 2] {
    ["measured", "simulated"].map(|what| {
        let begin = format!("| {policy} | {what} | ");
        let line = text.lines().find_map(|line| line.strip_prefix(&begin));
        line.unwrap_or_else(|| panic!("{begin} in {text}")).split(' ').next().unwrap().parse().unwrap()
    })
}

#[test]
fn live_slice_ccts_are_near_simulated_ccts() {
    let place = place();
    let Some(name) = name(&place, "slice") else { return };
    let coflows = campaign(2, 3);
    let line = format!("reproduce live --only slice --coflows {coflows} --name {name} --quiet");
    let text = place.print(&line);
    eprintln!("{text}");
    let (asked, sent) = (format!("--coflows {coflows} --only slice"), format!("\n{coflows} coflow"));
    for part in ["# Real traffic", asked.as_str(), sent.as_str(), "| median error |"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    for policy in ["fair", "aalo", "saath"] {
        let [measured, simulated] = means(&text, policy);
        // A link limits the measured time from below; a busy machine adds to it.
        assert!((0.95 * simulated..1.5 * simulated).contains(&measured), "{policy}: {measured}, {simulated}");
    }
    assert_eq!(left(&name), Vec::<String>::new());
    assert_eq!(signalled(&place, &line, Duration::from_secs(3), "-INT"), Some(130));
    assert_eq!(left(&name), Vec::<String>::new());
}
