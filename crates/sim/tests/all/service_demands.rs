//! Central allocation of services that TCP divides otherwise: sources of several hosts and numbers of connections share a receiver's
//! link with one queue.

use std::path::Path;

use proptest::prelude::*;
use weir_core::model::scenario::Scenario;
use weir_sim::service::{Mechanism, run_scenario};

use crate::common::cases;

/// The receiver's link, in bytes per second.
const LINK: f64 = 25e6;

/// A service at its own host: weight, connections, and the rate of its programs as a fraction of the link, if limited.
type HostService = (f64, u32, Option<f64>);

/// Below the share of each connection: at most 8 connections have at least 0.5 / 40.5 of the link. Connections whose share is below the
/// lowest limit send at that limit, and others receive less (docs/scenario-format.md).
const MIN_LIMIT: &str = "100kbit";

/// Hosts that send to one receiver, all through one switch.
fn scenario(services: &[HostService]) -> Scenario {
    let (mut hosts, mut links) = (String::new(), String::new());
    let (mut demands, mut names) = (String::new(), String::new());
    for (number, &(weight, connections, rate)) in services.iter().enumerate() {
        hosts += &format!("\"h{number}\", ");
        links += &format!("{{ ends = [\"h{number}\", \"s\"], rate = \"200Mbit\" }}, ");
        names += &format!("{{ name = \"S{number}\", weight = {weight} }}, ");
        let sending = rate.map_or("sending = \"elastic\"".to_owned(), |fraction| {
            let rate = fraction * LINK * 8.0 / f64::from(connections);
            format!("sending = \"capped\", rate = \"{rate:.0}bit\"")
        });
        let ends = format!("from = \"h{number}\", to = \"r\"");
        demands +=
            &format!("{{ service = \"S{number}\", {ends}, connections = {connections}, {sending} }}, ");
    }
    let text = format!(
        "weir-scenario = 1\nend = \"20s\"\nmin-limit = \"{MIN_LIMIT}\"\nfabric = {{ kind = \"links\", hosts = [{hosts}\"r\"], \
         switch = [{{ name = \"s\", tier = 1 }}], \
         link = [{links}{{ ends = [\"s\", \"r\"], rate = \"200Mbit\" }}] }}\n\
         service = [{names}]\ndemand = [{demands}]\n"
    );
    weir_trace::scenario::read_from(text.as_bytes(), "scenario", Path::new("")).unwrap()
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn services_get_their_shares_or_their_demands_at_a_receivers_link(
        services in prop::collection::vec(
            (0.5f64..10.0, 1u32..9, prop::option::weighted(0.4, 0.05f64..1.0)), 2..6
        ),
    ) {
        let outcome = run_scenario(&scenario(&services), Mechanism::Central, |_| true).unwrap();
        let weights: f64 = services.iter().map(|(weight, ..)| weight).sum();
        for segment in outcome.segments.iter().filter(|segment| segment.start.get() >= 1.0) {
            let rates = &segment.delivered_rates;
            for (&rate, &(weight, _, demand)) in rates.iter().zip(&services) {
                let share = LINK * (weight / weights).min(demand.unwrap_or(1.0));
                prop_assert!(rate >= 0.95 * share, "{} of {} at {}: {:?}", rate, share, segment.start, rates);
            }
            let demands: f64 = services.iter().map(|(_, _, demand)| demand.unwrap_or(1.0)).sum();
            let used: f64 = rates.iter().sum();
            prop_assert!(used >= 0.95 * LINK * demands.min(1.0), "{} at {}: {:?}", used, segment.start, rates);
        }
    }
}
