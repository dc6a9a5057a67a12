//! Guarantees on links and excess weights (NetShare, UCSD 2010, section 3.3) in a scenario, against rates by
//! hand.
//!
//! Unless a test says otherwise, sources are unresponsive and send more than they receive. The allocator
//! knows their demands, so hosts limit them to exactly their allocations, and these rates arrive.

use std::path::Path;

use crate::common::cases;
use proptest::prelude::*;
use weir_core::model::LinkId;
use weir_core::model::scenario::{CableChange, CableEvent, Guarantee, Scenario};
use weir_core::units::{Rate, Time};
use weir_sim::service::{Mechanism, ScenarioOutcome, run_scenario};

/// Two switches. Three services send from left to right (A until 40 s) and back. The guarantees sum to 6 of
/// 10.
const SCENARIO: &str = r#"
weir-scenario = 1
end = "60s"
fabric = { kind = "links", hosts = ["a", "b", "c", "x", "y", "z"], switch = [
    { name = "L", tier = 1 }, { name = "R", tier = 1 } ], link = [
    { ends = ["a", "L"], rate = "10Gbit" }, { ends = ["b", "L"], rate = "10Gbit" },
    { ends = ["c", "L"], rate = "10Gbit" }, { ends = ["L", "R"], rate = "10Gbit" },
    { ends = ["R", "x"], rate = "10Gbit" }, { ends = ["R", "y"], rate = "10Gbit" },
    { ends = ["R", "z"], rate = "10Gbit" } ] }
service = [ { name = "A", weight = 3 }, { name = "B", weight = 1 }, { name = "C", weight = 1, excess = 2 } ]
demand = [
    { service = "A", from = "a", to = "x", sending = "unresponsive", rate = "10Gbit", active = [["0s", "40s"]] },
    { service = "B", from = "b", to = "y", sending = "unresponsive", rate = "10Gbit" },
    { service = "C", from = "c", to = "z", sending = "unresponsive", rate = "10Gbit" },
    { service = "A", from = "x", to = "a", sending = "unresponsive", rate = "10Gbit" },
    { service = "B", from = "y", to = "b", sending = "unresponsive", rate = "10Gbit" },
    { service = "C", from = "z", to = "c", sending = "unresponsive", rate = "10Gbit" },
]
guarantee = [
    { service = "A", from = "L", to = "R", rate = "4Gbit" },
    { service = "B", from = "L", to = "R", rate = "2Gbit" },
]
event = [ { at = "20s", cable = ["R", "L"], change = "rate", rate = "8Gbit" } ]
"#;

fn scenario(text: &str) -> Scenario {
    weir_trace::scenario::read_from(text.as_bytes(), "scenario", Path::new("")).unwrap()
}

/// Received rates at the end of each phase, in Gbit/s.
fn final_rates(scenario: &Scenario) -> Vec<Vec<f64>> {
    let shared = run_scenario(scenario, Mechanism::Central, |_| true).unwrap();
    shared.phases.iter().map(|phase| phase.final_rates.iter().map(|rate| rate / 125e6).collect()).collect()
}

fn assert_final_rates(scenario: &Scenario, expected: &[[f64; 6]]) {
    let found = final_rates(scenario);
    assert_eq!(found.len(), expected.len());
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b;
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.iter().zip(expected).all(near), "{found:?} instead of {expected:?}");
    }
}

#[test]
fn guarantees_precede_division_by_excess_weights() {
    // From left to right, 4 and 2 are guaranteed, of 10 and then of 8, and the rest is divided 3:1:2; without
    // A, 1:2. In the other direction, weights give 3:1:1.
    assert_final_rates(
        &scenario(SCENARIO),
        &[
            [6.0, 2.0 + 2.0 / 3.0, 4.0 / 3.0, 6.0, 2.0, 2.0],
            [5.0, 2.0 + 1.0 / 3.0, 2.0 / 3.0, 4.8, 1.6, 1.6],
            [0.0, 4.0, 4.0, 4.8, 1.6, 1.6],
        ],
    );
}

#[test]
fn service_with_zero_excess_weight_gets_exactly_its_guarantee() {
    let text = SCENARIO.replacen("weight = 3 }", "weight = 3, excess = 0 }", 1);
    // On all other links, including its hosts' own, A is limited to its weighted share: 6 of 10.
    assert_final_rates(
        &scenario(&text),
        &[
            [4.0, 2.0 + 4.0 / 3.0, 8.0 / 3.0, 6.0, 2.0, 2.0],
            [4.0, 2.0 + 2.0 / 3.0, 4.0 / 3.0, 4.8, 1.6, 1.6],
            [0.0, 4.0, 4.0, 4.8, 1.6, 1.6],
        ],
    );
}

#[test]
fn guarantee_follows_its_link_through_failure_and_recovery() {
    // A cable that is down carries no traffic. Once it is up again, the guarantees are restored.
    let change = |at: &str, change: &str| {
        format!("{{ at = \"{at}\", cable = [\"L\", \"R\"], change = \"{change}\" }}")
    };
    let events = format!("event = [ {}, {} ]", change("10s", "down"), change("30s", "up"));
    let text = SCENARIO.split("event =").next().unwrap().to_owned() + &events;
    assert_final_rates(
        &scenario(&text),
        &[
            [6.0, 2.0 + 2.0 / 3.0, 4.0 / 3.0, 6.0, 2.0, 2.0],
            [0.0; 6],
            [6.0, 2.0 + 2.0 / 3.0, 4.0 / 3.0, 6.0, 2.0, 2.0],
            [0.0, 2.0 + 8.0 / 3.0, 16.0 / 3.0, 6.0, 2.0, 2.0],
        ],
    );
}

#[test]
fn programmatic_guarantees_are_validated() {
    let good = scenario(SCENARIO);
    let message = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = good.clone();
        change(&mut scenario);
        run_scenario(&scenario, Mechanism::Central, |_| true).unwrap_err().to_string()
    };
    let rate = |gbit: f64| Rate::new(gbit * 125e6).unwrap();
    let link = good.guarantees[0].link;
    let unknown = message(&|s| s.guarantees[1].service = 3);
    assert_eq!(unknown, "field `guarantee 2 service`: `3`: expected a service below 3");
    let unknown = message(&|s| s.guarantees[1].link = LinkId(14));
    assert_eq!(unknown, "field `guarantee 2 to`: `14`: expected a link of the fabric");
    let second = message(&|s| s.guarantees.push(Guarantee { service: 0, link, rate: rate(1.0) }));
    assert_eq!(second, "field `guarantee 3 service`: `A`: expected one guarantee of a service on a link");
    let more = message(&|s| s.guarantees[1].rate = rate(7.0));
    assert!(
        more.starts_with("field `guarantee 2 rate`: `7Gbit`: expected at most the link's 10Gbit"),
        "{more}"
    );
}

/// Two services of equal weights. `web` has a guarantee of 300 of 1,000 and then of 400 Mbit/s. The link rate
/// falls in the middle of a measuring period.
const LOWERED_LINK_SCENARIO: &str = r#"
weir-scenario = 1
end = "4s"
fabric = { kind = "links", hosts = ["a", "b", "x", "y"], switch = [
    { name = "L", tier = 1 }, { name = "R", tier = 1 } ], link = [
    { ends = ["a", "L"], rate = "1Gbit" }, { ends = ["b", "L"], rate = "1Gbit" },
    { ends = ["L", "R"], rate = "1Gbit" },
    { ends = ["R", "x"], rate = "1Gbit" }, { ends = ["R", "y"], rate = "1Gbit" } ] }
service = [ { name = "web", weight = 1, excess = 0 }, { name = "batch", weight = 1 } ]
demand = [
    { service = "web", from = "a", to = "x", sending = "unresponsive", rate = "800Mbit" },
    { service = "batch", from = "b", to = "y", sending = "unresponsive", rate = "800Mbit" },
]
guarantee = [ { service = "web", from = "L", to = "R", rate = "300Mbit" } ]
event = [ { at = "2.02s", cable = ["L", "R"], change = "rate", rate = "400Mbit" } ]
"#;

/// Intervals of constant rates: start, end, and received rate of each demand, in Mbit/s.
fn segment_rates(shared: &ScenarioOutcome) -> Vec<(f64, f64, Vec<f64>)> {
    let mbit = |delivered: &[f64]| delivered.iter().map(|rate| rate / 125e3).collect();
    let segments = shared.segments.iter();
    segments.map(|segment| (segment.start.get(), segment.end.get(), mbit(&segment.delivered_rates))).collect()
}

/// The first end of a measuring period of 50 ms after a time.
fn period_end(at: f64) -> f64 {
    ((at / 0.05 + 1e-6).floor() + 1.0) * 0.05
}

#[test]
fn guarantee_holds_on_a_lowered_link_with_unresponsive_sources() {
    let scenario = scenario(LOWERED_LINK_SCENARIO);
    for mechanism in [Mechanism::Central, Mechanism::QueuesCentral] {
        let shared = run_scenario(&scenario, mechanism, |_| true).unwrap();
        let mut checked = 0.0;
        for (from, to, rates) in segment_rates(&shared) {
            // The allocator knows the sources from the end of the first period on, and a lowered link rate
            // from the end of the period in which the rate falls.
            let adjusting = from < 0.05 - 1e-9 || (2.02 - 1e-9..2.05 - 1e-9).contains(&from);
            if !adjusting {
                let batch = if from < 2.0 { 700.0 } else { 100.0 };
                assert!((rates[0] - 300.0).abs() < 1e-6, "{mechanism} from {from} s: {rates:?}");
                assert!((rates[1] - batch).abs() < 1e-6, "{mechanism} from {from} s: {rates:?}");
                checked += to - from;
            } else if mechanism == Mechanism::QueuesCentral {
                // The queue weights include the guarantee, so it holds in these periods too.
                assert!(rates[0] > 300.0 - 1e-6, "{mechanism} from {from} s: {rates:?}");
            }
        }
        assert!((checked - 3.92).abs() < 1e-9, "{mechanism}: {checked} s");
        assert_eq!(shared.reductions, []);
    }
}

#[test]
fn guarantee_holds_for_any_sources_with_queues_and_after_adjustment_without() {
    for web in ["elastic", "unresponsive"] {
        for batch in ["elastic", "unresponsive"] {
            let sending = |service: &str, sending: &str, text: &str| {
                let ends = if service == "web" { ["a", "x"] } else { ["b", "y"] };
                let demand = format!(
                    "{{ service = \"{service}\", from = \"{}\", to = \"{}\", sending = \"",
                    ends[0], ends[1]
                );
                let rate = if sending == "elastic" { "" } else { ", rate = \"800Mbit\"" };
                let old = format!("{demand}unresponsive\", rate = \"800Mbit\"");
                text.replacen(&old, &format!("{demand}{sending}\"{rate}"), 1)
            };
            let text = sending("batch", batch, &sending("web", web, LOWERED_LINK_SCENARIO));
            for mechanism in [Mechanism::Central, Mechanism::QueuesCentral] {
                let shared = run_scenario(&scenario(&text), mechanism, |_| true).unwrap();
                for (from, _, rates) in segment_rates(&shared) {
                    // Backlog becomes demand after five periods, and a lowered link rate counts after one.
                    let adjusting = from < 0.3 - 1e-9 || (2.02 - 1e-9..2.05 - 1e-9).contains(&from);
                    assert!(
                        mechanism == Mechanism::Central && adjusting || rates[0] > 300.0 - 1e-6,
                        "{mechanism}, {web} next to {batch}, from {from} s: {rates:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn guarantees_do_not_change_configured_port_queues() {
    let port = r#"
[[port]]
from = "L"
to = "R"
queues = [ { weight = 1, services = ["web"] }, { weight = 1, services = ["batch"] } ]
"#;
    let shared =
        run_scenario(&scenario(&format!("{LOWERED_LINK_SCENARIO}{port}")), Mechanism::QueuesCentral, |_| {
            true
        })
        .unwrap();
    let rates: Vec<Vec<f64>> = segment_rates(&shared).into_iter().map(|(_, _, rates)| rates).collect();
    // Halves until the allocator knows the sources, and again until it knows the new rate of the link.
    let expected = [[500.0, 500.0], [300.0, 700.0], [200.0, 200.0], [300.0, 100.0]];
    for (rates, expected) in rates.iter().zip(&expected) {
        assert!(rates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{rates:?}, not {expected:?}");
    }
    assert_eq!(rates.len(), expected.len());
}

#[test]
fn guarantees_scale_by_one_factor_while_the_link_rate_is_too_low() {
    let mut scenario = scenario(LOWERED_LINK_SCENARIO);
    let link = scenario.guarantees[0].link;
    let mbit = |rate: f64| Rate::new(rate * 125e3).unwrap();
    scenario.guarantees.push(Guarantee { service: 1, link, rate: mbit(500.0) });
    let event = |at: f64, rate: f64| CableEvent {
        time: Time::new(at).unwrap(),
        cable: link.reverse(),
        change: CableChange::Rate(mbit(rate)),
    };
    scenario.events = vec![event(1.0, 400.0), event(2.0, 160.0), event(2.5, 160.0), event(3.0, 800.0)];
    for mechanism in [Mechanism::Central, Mechanism::QueuesCentral] {
        let shared = run_scenario(&scenario, mechanism, |_| true).unwrap();
        let found: Vec<(LinkId, f64, f64, f64)> =
            shared.reductions.iter().map(|r| (r.link, r.start.get(), r.end.get(), r.factor)).collect();
        assert_eq!(found, [(link, 1.0, 2.0, 0.5), (link, 2.0, 3.0, 0.2)]);
        let ends =
            shared.phases.iter().map(|phase| [phase.final_rates[0] / 125e3, phase.final_rates[1] / 125e3]);
        let expected = [[300.0, 700.0], [150.0, 250.0], [60.0, 100.0], [60.0, 100.0], [300.0, 500.0]];
        for (found, expected) in ends.zip(&expected) {
            assert!(
                (found[0] - expected[0]).abs() < 1e-6 && (found[1] - expected[1]).abs() < 1e-6,
                "{found:?}"
            );
        }
        let factors: Vec<Option<f64>> = (shared.phases.iter())
            .flat_map(|phase| shared.service_phases(&scenario, phase))
            .map(|service| service.reduction.map(|reduction| reduction.factor))
            .collect();
        let [full, half, fifth] = [None, Some(0.5), Some(0.2)];
        assert_eq!(factors, [full, full, half, half, fifth, fifth, fifth, fifth, full, full]);
    }
}

/// A service of a random scenario.
#[derive(Debug, Clone)]
struct Tenant {
    weight: f64,
    /// The excess weight, if set.
    excess: Option<f64>,
    /// First and last switch of its path, out of L, M and R.
    path: (usize, usize),
    /// Its guarantees from L to M and from M to R, as fractions of the total there.
    guarantees: [Option<f64>; 2],
}

fn tenant() -> impl Strategy<Value = Tenant> {
    let excess = prop_oneof![Just(None), Just(Some(0.0)), (0.1f64..10.0).prop_map(Some)];
    let path = prop_oneof![Just((0, 1)), Just((1, 2)), Just((0, 2))];
    let guarantee = || prop::option::weighted(0.7, 0.1f64..1.0);
    (0.1f64..10.0, excess, path, guarantee(), guarantee()).prop_map(
        |(weight, excess, path, first, second)| Tenant { weight, excess, path, guarantees: [first, second] },
    )
}

/// Switches L, M and R in a row, with cables of 1 Gbit/s. Each service has a host at either end of its path,
/// and sends at 1 Gbit/s. Guarantees take these fractions of the two links. Events are the time in
/// milliseconds, the cable and its rate in Mbit/s.
fn chain_scenario(
    tenants: &[Tenant],
    guaranteed_fractions: [f64; 2],
    events: &[(u32, usize, f64)],
) -> Scenario {
    use std::fmt::Write;
    let (mut hosts, mut cables, mut services) = (String::new(), String::new(), String::new());
    let (mut demands, mut guarantees) = (String::new(), String::new());
    let switches = ["L", "M", "R"];
    for (n, tenant) in tenants.iter().enumerate() {
        let excess = tenant.excess.map_or(String::new(), |excess| format!(", excess = {excess}"));
        write!(services, "{{ name = \"S{n}\", weight = {}{excess} }},", tenant.weight).unwrap();
        write!(hosts, "\"a{n}\", \"b{n}\",").unwrap();
        let (from, to) = (switches[tenant.path.0], switches[tenant.path.1]);
        write!(cables, "{{ ends = [\"a{n}\", \"{from}\"], rate = \"1Gbit\" }},").unwrap();
        write!(cables, "{{ ends = [\"{to}\", \"b{n}\"], rate = \"1Gbit\" }},").unwrap();
        let ends = format!("from = \"a{n}\", to = \"b{n}\"");
        write!(demands, "{{ service = \"S{n}\", {ends}, sending = \"unresponsive\", rate = \"1Gbit\" }},")
            .unwrap();
    }
    for link in 0..2 {
        let all: f64 = tenants.iter().filter_map(|tenant| tenant.guarantees[link]).sum();
        for (n, tenant) in tenants.iter().enumerate() {
            let Some(part) = tenant.guarantees[link] else { continue };
            let rate = (part / all * guaranteed_fractions[link] * 1e9).floor();
            let ends = format!("from = \"{}\", to = \"{}\"", switches[link], switches[link + 1]);
            write!(guarantees, "{{ service = \"S{n}\", {ends}, rate = \"{rate}bit\" }},").unwrap();
        }
    }
    let cable = |link: usize| format!("[\"{}\", \"{}\"]", switches[link], switches[link + 1]);
    let event = |&(at, link, rate): &(u32, usize, f64)| {
        format!("{{ at = \"{at}ms\", cable = {}, change = \"rate\", rate = \"{rate}Mbit\" }},", cable(link))
    };
    let events: String = events.iter().map(event).collect();
    scenario(&format!(
        "weir-scenario = 1\nend = \"2s\"\nmin-limit = \"0bit\"\nfabric = {{ kind = \"links\", hosts = [{hosts}], switch = [
        {{ name = \"L\", tier = 1 }}, {{ name = \"M\", tier = 2 }}, {{ name = \"R\", tier = 1 }} ], link = [{cables}
        {{ ends = [\"L\", \"M\"], rate = \"1Gbit\" }}, {{ ends = [\"M\", \"R\"], rate = \"1Gbit\" }} ] }}
        service = [{services}]\ndemand = [{demands}]\nguarantee = [{guarantees}]\nevent = [{events}]\n"
    ))
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn active_services_get_their_guarantees_under_link_changes(
        tenants in prop::collection::vec(tenant(), 1..6),
        booked in [0.1f64..=1.0, 0.1f64..=1.0],
        events in prop::collection::vec((1u32..1900, 0usize..2, 20.0f64..1000.0), 0..5),
    ) {
        // Without any guarantee, host limits are 10 % higher for all, as in the paper.
        prop_assume!(tenants.iter().any(|tenant| tenant.guarantees.iter().any(Option::is_some)));
        let mut events = events;
        events.sort_by_key(|event| event.0);
        let scenario = chain_scenario(&tenants, booked, &events);
        let links = ["L", "M", "R"].map(|name| scenario.topology.find_node(name).unwrap());
        let links = [0, 1].map(|at| scenario.topology.link_between(links[at], links[at + 1]).unwrap());
        let guarantees_on = |link: usize| scenario.guarantees.iter().filter(move |g| g.link == links[link]);
        let link_rate = |link: usize, at: f64| {
            let set = events.iter().rev().find(|event| event.1 == link && f64::from(event.0) / 1e3 <= at + 1e-9);
            set.map_or(1000.0, |event| event.2)
        };
        // Scaling factor of the guarantees on a link at a time.
        let factor = |link: usize, at: f64| {
            let sum = guarantees_on(link).fold(0.0, |sum, guarantee| sum + guarantee.rate.get() / 125e3);
            (link_rate(link, at) / sum).min(1.0)
        };
        for mechanism in [Mechanism::Central, Mechanism::QueuesCentral] {
            let shared = run_scenario(&scenario, mechanism, |_| true).unwrap();
            for (from, _, rates) in segment_rates(&shared) {
                for (link, &id) in links.iter().enumerate() {
                    let reduced = shared.reductions.iter().find(|r| {
                        r.link == id && r.start.get() <= from + 1e-9 && from + 1e-9 < r.end.get()
                    });
                    let said = reduced.map_or(1.0, |reduction| reduction.factor);
                    prop_assert!((said - factor(link, from)).abs() < 1e-9, "link {} at {}: {}", link, from, said);
                }
                let last = events.iter().map(|event| f64::from(event.0) / 1e3).rfind(|&at| at <= from + 1e-9);
                if from < period_end(last.unwrap_or(0.01)).max(0.05) - 1e-9 {
                    continue;
                }
                for (service, tenant) in tenants.iter().enumerate() {
                    // On a link without guarantees, a service gets its weighted share.
                    let part = tenant.weight / tenants.iter().map(|tenant| tenant.weight).sum::<f64>();
                    let min_rate_on = |link: usize| {
                        let own = guarantees_on(link).find(|guarantee| guarantee.service == service);
                        match own {
                            Some(guarantee) => guarantee.rate.get() / 125e3 * factor(link, from),
                            None if guarantees_on(link).count() > 0 => 0.0,
                            None => part * link_rate(link, from),
                        }
                    };
                    let least = (tenant.path.0..tenant.path.1).map(min_rate_on).fold(part * 1000.0, f64::min);
                    let rate = rates[service];
                    prop_assert!(
                        rate >= least * (1.0 - 1e-9),
                        "{} from {} s, service {}: {} Mbit/s of {} guaranteed", mechanism, from, service, rate, least
                    );
                    // On a single link and without excess weight, this is also the maximum.
                    let one = tenant.path.1 - tenant.path.0 == 1 && guarantees_on(tenant.path.0).count() > 0;
                    if one && tenant.excess == Some(0.0) {
                        prop_assert!(rate <= least * (1.0 + 1e-9) + 1e-5, "{}: {} of {}", mechanism, rate, least);
                    }
                }
            }
        }
    }
}

#[test]
fn rounded_guarantees_that_sum_to_the_link_rate_are_accepted() {
    // A thousand services with a thousandth each; the rates are rounded.
    let mut full = scenario(SCENARIO);
    full.events.clear();
    let link = full.guarantees[0].link;
    full.services = (0..1000)
        .map(|n| weir_core::model::scenario::Service { name: format!("S{n}"), ..full.services[0].clone() })
        .collect();
    let part =
        |service| Guarantee { service, link, rate: Rate::new(1.25e9 / 1000.0 * (1.0 + 4e-13)).unwrap() };
    full.guarantees = (0..1000).map(part).collect();
    assert!(run_scenario(&full, Mechanism::Central, |_| true).is_ok());
    full.guarantees.reverse();
    assert!(run_scenario(&full, Mechanism::Central, |_| true).is_ok());
    full.guarantees[999].rate = Rate::new(1.25e6 + 1.0).unwrap();
    let error = run_scenario(&full, Mechanism::Central, |_| true).unwrap_err().to_string();
    assert!(error.starts_with("field `guarantee 1000 rate`: "), "{error}");
}
