//! Policies that another crate registers: their decisions are checked, alone and in a policy tree.

use weir_core::allocation::{Allocation, CommonRate};
use weir_core::engine::{Engine, Links};
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, ServiceNames, SizesUnknown, View};
use weir_core::policy::{
    self, AnyPolicy, InvalidDecision, Policy, PolicyEntry, PolicyError, TrunkSupport, build,
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

/// The first schedule for a coflow of each service, of flows from port 0, and the rates of the coflows.
fn schedule(policy: AnyPolicy) -> (Result<(), PolicyError>, Vec<f64>) {
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
    let decided = engine.schedule(0.0);
    assert_eq!(engine.next_wakeup(0.0).map(|_| ()), decided, "the error stays");
    (decided, (0..2).map(|slot| engine.network().rate(slot, 0)).collect())
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
