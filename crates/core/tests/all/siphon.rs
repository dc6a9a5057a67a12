//! Consecutive decisions of Siphon: the search state that survives arrivals and completions of coflows (ATC
//! '18, section 3.1.3, "online incremental simulation").

use proptest::prelude::*;
use weir_core::model::BandwidthHistory;
use weir_core::solve::montecarlo::{Objective, SearchParams};
use weir_core::wide_area::{ServiceOrder, Siphon, WaitingCoflow};
use weir_core::wide_area_policy::WideAreaPolicy;

const PARAMS: SearchParams = SearchParams {
    depth: 3,
    breadth: 8,
    objective: Objective::MostWins,
    max_rounds: 256,
    confidence: 0.95,
    seed: 1,
    threads: 1,
};

/// Random arrivals and completions: the waiting coflows at each decision. Between two decisions the first
/// ones make progress.
fn random_history(seed: u64, steps: usize) -> Vec<Vec<WaitingCoflow>> {
    let mut chance = crate::cases::Rng(seed);
    let mut arriving = crate::cases::random_coflows(seed, steps, 6).into_iter().zip(0..);
    let mut waiting: Vec<WaitingCoflow> = Vec::new();
    let mut all = Vec::new();
    for _ in 0..steps {
        if waiting.len() > 2 && chance.next_unit() < 0.4 {
            waiting.remove((chance.next_unit() * waiting.len() as f64) as usize);
        } else if let Some((left, seq)) = arriving.next() {
            waiting.push(WaitingCoflow { seq, remaining_bytes: left });
        }
        if chance.next_unit() < 0.7 {
            waiting
                .iter_mut()
                .take(2)
                .for_each(|coflow| coflow.remaining_bytes.iter_mut().for_each(|(_, bytes)| *bytes *= 0.9));
        }
        all.push(waiting.clone());
    }
    all
}

/// Seven coflows of six flows each.
fn seven_waiting_coflows() -> Vec<WaitingCoflow> {
    let coflows = crate::cases::random_coflows(3, 7, 6).into_iter().zip(0..);
    coflows.map(|(left, seq)| WaitingCoflow { seq, remaining_bytes: left }).collect()
}

fn history_of_bandwidth() -> BandwidthHistory {
    crate::cases::history_of_three_regions(20)
}

#[test]
fn closed_branches_of_unchanged_coflows_are_not_simulated_again() {
    let past = history_of_bandwidth();
    let waiting = seven_waiting_coflows();
    let mut siphon = Siphon::new(PARAMS, true);
    let first = siphon.search_order(&waiting, &past);
    assert_eq!(first.branches, 7 * 6 * 5);
    // No change: closed branches stay closed.
    let again = siphon.search_order(&waiting, &past);
    assert_eq!(again.branches, first.branches - first.closed_branches.len());
    assert_eq!(again.order, first.order);
    // An arrival opens its own branches and leaves the others unchanged.
    let mut more = waiting.clone();
    more.push(WaitingCoflow { seq: 7, remaining_bytes: vec![(0, 5e6)] });
    let with = siphon.search_order(&more, &past);
    assert_eq!(with.branches, again.branches - again.closed_branches.len() + (8 * 7 * 6 - 7 * 6 * 5));
    // Progress of a coflow opens all of its branches.
    let mut siphon = Siphon::new(PARAMS, true);
    siphon.search_order(&waiting, &past);
    let mut moved = waiting.clone();
    moved[0].remaining_bytes.iter_mut().for_each(|(_, bytes)| *bytes *= 0.5);
    let without_it = first.closed_branches.iter().filter(|branch| !branch.contains(&0)).count();
    assert_eq!(siphon.search_order(&moved, &past).branches, first.branches - without_it);
}

#[test]
fn branches_closed_behind_a_completed_coflow_stay_closed() {
    let past = history_of_bandwidth();
    let waiting = seven_waiting_coflows();
    let mut siphon = Siphon::new(PARAMS, true);
    let first = siphon.search_order(&waiting, &past);
    let completed = first.order[0];
    let left: Vec<WaitingCoflow> =
        waiting.iter().filter(|coflow| coflow.seq != completed as u64).cloned().collect();
    // Closed pairs behind it each become the prefix of four branches.
    let pairs = first.closed_branches.iter().filter(|branch| branch[0] == completed).count();
    assert!(pairs > 0, "a branch behind the first coflow was closed");
    assert_eq!(siphon.search_order(&left, &past).branches, 6 * 5 * 4 - pairs * 4);
    // If another coflow completes, all state is discarded.
    let mut siphon = Siphon::new(PARAMS, true);
    siphon.search_order(&waiting, &past);
    let last = *first.order.last().unwrap() as u64;
    let left: Vec<WaitingCoflow> = waiting.iter().filter(|coflow| coflow.seq != last).cloned().collect();
    assert_eq!(siphon.search_order(&left, &past).branches, 6 * 5 * 4);
}

proptest! {
    #![proptest_config(crate::common::config_with_cases(50))]

    #[test]
    fn siphon_reuse_without_closing_equals_a_fresh_search(seed in 0..1000u64) {
        let past = history_of_bandwidth();
        let how = SearchParams { confidence: 1.0, max_rounds: 64, ..PARAMS };
        let mut kept = Siphon::new(how, true);
        for waiting in random_history(seed, 20) {
            let fresh = Siphon::new(how, false).search_order(&waiting, &past);
            prop_assert_eq!(kept.search_order(&waiting, &past), fresh);
        }
    }

    #[test]
    fn siphon_history_result_is_independent_of_threads(seed in 0..1000u64, threads in 2..5usize) {
        let past = history_of_bandwidth();
        let mut one = Siphon::new(PARAMS, true);
        let mut several = Siphon::new(SearchParams { threads, ..PARAMS }, true);
        for waiting in random_history(seed, 20) {
            prop_assert_eq!(one.search_order(&waiting, &past), several.search_order(&waiting, &past));
        }
    }

    #[test]
    fn wide_area_policies_order_every_coflow_once(seed in 0..1000u64) {
        for spec in ["siphon:samples=50", "mrtf", "fifo", "siphon:samples=50:reuse=off:breadth=3"] {
            let mut policy = WideAreaPolicy::new(spec).unwrap();
            for waiting in random_history(seed, 20) {
                let ServiceOrder::InOrder(mut order) = policy.decide_order(&waiting, &history_of_bandwidth()) else {
                    panic!("{spec}: expected an order")
                };
                order.sort_unstable();
                prop_assert_eq!(order, (0..waiting.len()).collect::<Vec<_>>(), "{}", spec);
            }
        }
    }
}

#[test]
fn siphon_reuse_agrees_with_a_full_search_as_often() {
    // Compared with a full search of all branches: how often the same coflow goes first, with and without
    // kept state.
    let past = history_of_bandwidth();
    let (mut with, mut without, mut all, mut branches, mut all_branches) = (0, 0, 0, 0, 0);
    for seed in 0..30 {
        let mut kept = Siphon::new(PARAMS, true);
        for waiting in random_history(seed, 20) {
            let found = kept.search_order(&waiting, &past);
            let fresh = Siphon::new(PARAMS, false).search_order(&waiting, &past);
            let full_search =
                Siphon::new(SearchParams { confidence: 1.0, ..PARAMS }, false).search_order(&waiting, &past);
            with += usize::from(found.order.first() == full_search.order.first());
            without += usize::from(fresh.order.first() == full_search.order.first());
            all += 1;
            branches += found.branches;
            all_branches += fresh.branches;
        }
    }
    println!(
        "{with} of {all} decisions equal those of all rounds, {without} without reuse; {branches} open branches, {all_branches} without reuse"
    );
    assert!(branches < all_branches, "{branches} branches, {all_branches} without reuse");
    assert!(
        with * 100 >= without * 97,
        "{with} of {all} decisions equal those of all rounds, {without} without reuse"
    );
}

#[test]
fn unknown_overlay_policies_and_parameters_are_rejected() {
    let error = |spec: &str| WideAreaPolicy::new(spec).err().expect("refused").to_string();
    assert!(error("siphon:depth=5").contains("expected a whole number from 1 to 4"));
    assert!(error("siphon:samples=0").contains("expected a whole number from 1 to 100000"));
    assert!(error("siphon:confidence=NaN").contains("expected a number from 0.5 to 1"));
    assert!(error("siphon:choose=median").contains("expected `wins` or `mean`"));
    assert!(error("siphon:detours=maybe").contains("expected `on` or `off`"));
    assert!(error("mrtf:depth=2").contains("has no parameter `depth`"));
    assert!(error("nothing").contains("unknown policy `nothing`; expected one of fair, fifo, siphon, mrtf"));
    for name in ["saath", "aalo", "saba"] {
        let expected =
            "since its decisions change while bytes move; expected one of fair, fifo, siphon, mrtf";
        let expected = format!("policy `{name}` cannot order coflows for relays, {expected}");
        // Other tests register policies.
        assert!(error(name).starts_with(&expected), "{}", error(name));
    }
    assert!(error("fair:groups=on").contains("has no parameter `groups`; expected one of detours"));
}
