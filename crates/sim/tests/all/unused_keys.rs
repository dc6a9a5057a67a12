//! Keys of coflows that a policy does not use.

use crate::common::{coflow, options, time, workload};
use weir_core::model::{CoflowKey, ServiceNames, Workload};
use weir_core::policy::{self, POLICIES};
use weir_sim::{NoObserver, replay};

/// Coflows that contend at a port, so that every order gives other completion times. Some complete before others arrive, so that
/// policies can learn from them.
fn contending() -> Workload {
    let sizes = [3.0, 5.0, 2.0, 4.0, 6.0, 1.0].into_iter().cycle().take(24);
    let of_size = |(id, size): (u64, f64)| coflow(id, 4.2 * id as f64, &[(0, 2, size), (1, 2, size / 2.0)]);
    workload(3, (1..).zip(sizes).map(of_size).collect())
}

/// The same coflows, which differ in `key`.
fn with_key(key: CoflowKey) -> Workload {
    let mut workload = contending();
    let mut names = ServiceNames::empty();
    for (position, coflow) in workload.coflows.iter_mut().enumerate() {
        let kind = ["a", "b", "b"][position % 3];
        let (service, application) = match key {
            CoflowKey::Service => (kind, ServiceNames::DEFAULT),
            CoflowKey::Application => (ServiceNames::DEFAULT, kind),
            CoflowKey::Weight | CoflowKey::Deadline => (ServiceNames::DEFAULT, ServiceNames::DEFAULT),
        };
        (coflow.service, coflow.application) = names.intern(service, application).unwrap();
        match key {
            CoflowKey::Weight => coflow.weight = [1.0, 20.0, 400.0][position % 3],
            CoflowKey::Deadline => coflow.deadline = Some(time([9.0, 2.5, 30.0][position % 3])),
            CoflowKey::Service | CoflowKey::Application => {}
        }
    }
    workload.names = names;
    workload
}

#[test]
fn policies_use_a_key_exactly_if_it_changes_their_completion_times() {
    // A turn of `weir` has 2.5 MB, which these workloads do not send.
    let variants = ["varys:deadlines=on", "weir:prior=on:turns=0"].map(str::to_owned);
    for spec in POLICIES.iter().map(|entry| entry.name.to_owned()).chain(variants) {
        let ccts = |workload: &Workload| {
            let built = policy::build(&spec).unwrap();
            let outcome = replay(workload, built, &options(1.0, 0.0), &mut NoObserver);
            outcome.unwrap_or_else(|error| panic!("{spec}: {error}")).ccts()
        };
        let without = ccts(&contending());
        for key in CoflowKey::ALL {
            let keyed = with_key(key);
            assert!(keyed.differs_in(key) && !contending().differs_in(key), "{key:?}");
            let uses = policy::build(&spec).unwrap().uses(key);
            assert_eq!(ccts(&keyed) != without, uses, "{spec}: {key:?}");
        }
    }
}
