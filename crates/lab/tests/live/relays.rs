use std::path::PathBuf;
use std::time::Duration;

use weir_lab::chain::{Chain, Link};
use weir_lab::experiment::{Load, Times, Variant, measure};
use weir_lab::relays::{Programs, Relay};
use weir_testbed::testing;

#[test]
fn flows_and_requests_pass_through_installed_relays() {
    if testing::skips("chain") {
        return;
    }
    let chain = Chain::create(&format!("chain{}", std::process::id()), &Link::Unlimited, 2).unwrap();
    let programs = Programs { weir: PathBuf::from("weir"), weir_args: Vec::new() };
    let load = Load { slow_flows: 1, probe: true, ..Load::bulk(3) };
    let times = Times { warm_up: Duration::from_millis(50), duration: Duration::from_secs(1) };
    for relay in [Relay::Direct, Relay::Haproxy, Relay::HaproxySplice, Relay::Nginx, Relay::Socat] {
        if let Some(reason) = relay.missing(&programs) {
            eprintln!("{relay} skips: {reason}");
            continue;
        }
        let variant = Variant { relay, congestion: Some("cubic") };
        let measured = measure(&chain, variant, load, times, &programs).unwrap();
        assert!(measured.bytes > 1_000_000, "{relay}: {} bytes", measured.bytes);
        assert!(!measured.latencies.is_empty(), "{relay} answers requests");
        assert_eq!(measured.bytes_per_cpu_second().is_some(), relay != Relay::Direct);
    }
}
