//! Policies that another crate registers: their decisions are checked, alone and in a policy tree.

use weir_core::allocation::{Allocation, CommonRate};
use weir_core::engine::{Engine, Links};
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, ServiceNames, SizesUnknown, View};
use weir_core::policy::{
    self, AnyPolicy, Event, InvalidDecision, Policy, PolicyEntry, PolicyError, PolicyFailure, TrunkSupport,
    build,
};
use weir_core::tree::{Application, ApplicationSharing, Service, TreeSpec, check_leaf_policy};
use weir_core::units::{Bytes, Rate, Time};

/// Gives every flow the rate of a port.
struct FullRates {
    trunk_support: TrunkSupport,
}

impl Policy for FullRates {
    type Knowledge = SizesUnknown;

    fn trunk_support(&self) -> TrunkSupport {
        self.trunk_support
    }

    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        for &slot in view.active_coflows() {
            out.set_common(slot, CommonRate::Equal(view.fabric().nominal_rate()));
        }
    }
}

fn entry(
    name: &'static str,
    build: fn(&mut policy::Params) -> Result<AnyPolicy, policy::ParamsError>,
) -> PolicyEntry {
    PolicyEntry { name, description: "", params: &[], build }
}

fn full_rates(trunk_support: TrunkSupport) -> AnyPolicy {
    AnyPolicy::from(FullRates { trunk_support })
}

/// A tree with one service under this policy, and one under `fair`.
fn tree_of(policy: &str) -> AnyPolicy {
    let service = |name: &str, policy: &str| Service {
        name: name.to_owned(),
        weight: 1.0,
        application_sharing: ApplicationSharing::SingleLeaf(policy.to_owned()),
        applications: Vec::new(),
        default_application: Application {
            name: name.to_owned(),
            weight: 1.0,
            model: None,
            policy: policy.to_owned(),
        },
    };
    AnyPolicy::Tree(TreeSpec::Services(vec![service("a", policy), service("b", "fair")], None))
}

/// An engine with a coflow of each service, of flows from port 0.
fn engine_with_two_coflows(policy: AnyPolicy) -> Engine {
    let mut names = ServiceNames::empty();
    names.intern("a", "x").unwrap();
    names.intern("b", "x").unwrap();
    let fabric = Fabric::big_switch(3, Rate::new(1.0).unwrap());
    let mut engine = Engine::new(Links::one_switch(fabric), policy, &names).unwrap();
    for service in 0..2 {
        let flow = FlowSpec::new(0, 1 + service, Bytes::new(1.0).unwrap());
        let spec = CoflowSpec { service, ..CoflowSpec::new(service.into(), Time::ZERO, vec![flow]) };
        engine.release_coflow(&spec, 0, 0.0, &mut Vec::new());
    }
    engine
}

/// The rates of both coflows.
fn rates(engine: &Engine) -> Vec<f64> {
    (0..2).map(|slot| engine.network().rate(slot, 0)).collect()
}

/// The first schedule for two coflows, and their rates.
fn schedule(policy: AnyPolicy) -> (Result<(), PolicyError>, Vec<f64>) {
    let mut engine = engine_with_two_coflows(policy);
    let decided = engine.schedule(0.0);
    assert_eq!(engine.next_wakeup(0.0).map(|_| ()), decided, "the error stays");
    (decided, rates(&engine))
}

#[test]
fn decisions_of_registered_policies_are_checked() {
    policy::register(vec![
        entry("full", |_| Ok(full_rates(TrunkSupport::Decides))),
        entry("even", |_| build("fair")),
        entry("queued", |_| Ok(full_rates(TrunkSupport::Transport))),
    ])
    .unwrap();
    let (decided, rates) = schedule(build("full").unwrap());
    let expected = PolicyError {
        policy: "full".to_owned(),
        time: 0.0,
        slot: Some(0),
        links: vec![0],
        reason: InvalidDecision::AboveCapacity { rate: 2.0, capacity: 1.0 },
    };
    assert_eq!(decided, Err(expected.clone()));
    assert_eq!(
        expected.to_string(),
        "policy `full` at 0s: slot 0, link 0: the rates on the link sum to 16bit; expected at most its capacity of 8bit"
    );
    assert_eq!(rates, [0.0, 0.0], "an invalid allocation does not apply");
    // Without the check, the allocation applies.
    assert_eq!(schedule(full_rates(TrunkSupport::Decides)), (Ok(()), vec![1.0, 1.0]));

    // The leaf has half of the port, and the other leaf keeps its rate.
    let (decided, rates) = schedule(tree_of("full"));
    let capacity = 0.5;
    assert_eq!(
        decided,
        Err(PolicyError { reason: InvalidDecision::AboveCapacity { rate: 1.0, capacity }, ..expected })
    );
    assert_eq!(rates[0], 0.0);
    assert!(rates[1] >= 0.5);

    // A policy without rates cannot be a leaf, unless all flows share max-min.
    assert!(check_leaf_policy("full").is_ok() && check_leaf_policy("even").is_ok());
    let refused = check_leaf_policy("queued").unwrap_err().to_string();
    assert_eq!(
        refused,
        "policy `queued` cannot be a leaf of a policy tree; expected `fair` or a policy that sets rates"
    );
}

/// Gives every flow half of a port, and fails at one of the calls.
struct Failing {
    call: &'static str,
    has_failed: bool,
}

impl Failing {
    fn note(&mut self, call: &str) {
        assert!(!self.has_failed, "a policy that has failed is not called");
        self.has_failed = call == self.call;
    }
}

impl Policy for Failing {
    type Knowledge = SizesUnknown;

    fn on_event(&mut self, _: Event, _: &mut View<'_, SizesUnknown>) {
        self.note("event");
    }

    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        self.note("schedule");
        // A network that is moved out and back is the same.
        let mut lent = view.lend();
        assert_eq!(view.active_coflows(), []);
        let moved = lent.view();
        for &slot in moved.active_coflows() {
            out.set_common(slot, CommonRate::Equal(0.5 * moved.fabric().nominal_rate()));
        }
        view.restore(lent);
    }

    fn next_wakeup(&mut self, view: &mut View<'_, SizesUnknown>, _: &Allocation) -> f64 {
        self.note("wakeup");
        if self.has_failed { f64::NAN } else { view.now() + 1.0 }
    }

    fn failure(&self) -> Option<PolicyFailure> {
        self.has_failed.then(|| PolicyFailure { slot: Some(1), reason: format!("{} failed", self.call) })
    }
}

#[test]
fn failure_of_a_checked_policy_ends_its_decisions() {
    let failing = |call| AnyPolicy::from(Failing { call, has_failed: false }).checked("failing:x=1");
    for call in ["event", "schedule", "wakeup"] {
        let mut engine = engine_with_two_coflows(failing(call));
        let decided = engine.schedule(0.0).and_then(|()| engine.next_wakeup(0.0));
        let text = decided.unwrap_err().to_string();
        assert_eq!(text, format!("policy `failing:x=1` at 0s: slot 1: {call} failed"));
        let error = engine.schedule(1.0).unwrap_err();
        assert_eq!((error.slot, error.time), (Some(1), 0.0), "the error stays");
        assert_eq!(rates(&engine), [0.0, 0.0]);
    }
    assert_eq!(schedule(failing("never")), (Ok(()), vec![0.5, 0.5]));
}
