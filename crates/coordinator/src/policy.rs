//! The policy in force: a policy of the table by name, or a policy tree as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::model::Names;
use weir_core::policy::{AnyPolicy, ParamsError, build};
use weir_core::tree::Plan;
use weir_trace::TraceError;
use weir_trace::tree::{self, Tables};

/// A policy, as a configuration or a request gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", try_from = "Body")]
pub enum Asked {
    /// A policy of the table: `NAME[:KEY=VALUE...]`, as listed by `weir policies`.
    Policy(String),
    /// The text of a policy tree.
    Tree(String),
}

/// Input format of [`Asked`]. Separate fields give different errors for missing or conflicting keys and for invalid
/// JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    policy: Option<String>,
    tree: Option<String>,
}

impl TryFrom<Body> for Asked {
    type Error = &'static str;

    fn try_from(body: Body) -> Result<Asked, &'static str> {
        match body {
            Body { policy: Some(spec), tree: None } => Ok(Asked::Policy(spec)),
            Body { policy: None, tree: Some(text) } => Ok(Asked::Tree(text)),
            Body { policy: None, tree: None } => Err("nothing, expected either `policy` or `tree`"),
            Body { policy: Some(_), tree: Some(_) } => Err("both, expected either `policy` or `tree`"),
        }
    }
}

/// A validated policy, which can be built any number of times.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    asked: Asked,
    plan: Option<Plan>,
}

/// Reason for which a policy is invalid.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The policy is unknown, or one of its parameters is invalid.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// The text is not a policy tree, or the tree does not fit these services.
    #[error(transparent)]
    Tree(#[from] TraceError),
}

impl Chosen {
    /// Validates a policy for all of `names`. Errors use `file` as the name of a tree; `tables` gives its sensitivity
    /// tables.
    ///
    /// # Errors
    /// [`PolicyError`]: the policy or the tree is invalid.
    pub fn new(asked: Asked, file: &str, tables: &Tables<'_>, names: &Names) -> Result<Chosen, PolicyError> {
        let plan = match &asked {
            Asked::Policy(spec) => match build(spec)? {
                AnyPolicy::Tree(plan) => Some(plan),
                _ => None,
            },
            Asked::Tree(text) => Some(tree::read_with(text.as_bytes(), file, tables, Some(names))?),
        };
        Ok(Chosen { asked, plan })
    }

    /// The policy as it was given.
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Whether the policy uses weights of services.
    pub fn heeds_weights(&self) -> bool {
        matches!(self.plan, Some(Plan::Services(..) | Plan::Netshare(_)))
    }

    /// Builds the policy; `weights` replace the weights that it sets itself.
    pub fn build(&self, names: &Names, weights: &BTreeMap<String, f64>) -> AnyPolicy {
        match (&self.plan, &self.asked) {
            (Some(plan), _) => {
                let mut plan = plan.clone();
                weigh(&mut plan, names, weights);
                AnyPolicy::Tree(plan)
            }
            (None, Asked::Policy(spec) | Asked::Tree(spec)) => {
                build(spec).expect("`Chosen::new` built this specification, and a tree always has a plan")
            }
        }
    }
}

/// Sets the weights of services in a tree.
fn weigh(plan: &mut Plan, names: &Names, weights: &BTreeMap<String, f64>) {
    for (name, &weight) in weights {
        match plan {
            Plan::Services(services, other) => {
                let listed = services.iter_mut().find(|service| service.name == *name);
                match (listed, other) {
                    (Some(service), _) => service.weight = weight,
                    (None, Some(other)) => {
                        let mut service = (**other).clone();
                        (service.name, service.weight) = (name.clone(), weight);
                        services.push(service);
                    }
                    (None, None) => {}
                }
            }
            Plan::Netshare(listed) => {
                let Some(number) = names.service_number(name) else { continue };
                if listed.len() <= number as usize {
                    listed.resize(number as usize + 1, 1.0);
                }
                listed[number as usize] = weight;
            }
            Plan::Saba(_) => {}
        }
    }
}
