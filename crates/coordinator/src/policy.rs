//! The policy in force: a policy of the table by name, or a policy tree as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::model::ServiceNames;
use weir_core::policy::{AnyPolicy, ParamsError, build};
use weir_core::tree::TreeSpec;
use weir_trace::TraceError;
use weir_trace::tree::{self, TableLoader};

/// A policy, as a configuration or a request gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", try_from = "PolicySpecFields")]
pub enum PolicySpec {
    /// A policy of the table: `NAME[:KEY=VALUE...]`, as listed by `weir policies`.
    Policy(String),
    /// The text of a policy tree.
    Tree(String),
}

/// Input format of [`PolicySpec`]. Separate fields give different errors for missing or conflicting keys and for invalid
/// JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicySpecFields {
    policy: Option<String>,
    tree: Option<String>,
}

impl TryFrom<PolicySpecFields> for PolicySpec {
    type Error = &'static str;

    fn try_from(body: PolicySpecFields) -> Result<PolicySpec, &'static str> {
        match body {
            PolicySpecFields { policy: Some(spec), tree: None } => Ok(PolicySpec::Policy(spec)),
            PolicySpecFields { policy: None, tree: Some(text) } => Ok(PolicySpec::Tree(text)),
            PolicySpecFields { policy: None, tree: None } => {
                Err("nothing, expected either `policy` or `tree`")
            }
            PolicySpecFields { policy: Some(_), tree: Some(_) } => {
                Err("both, expected either `policy` or `tree`")
            }
        }
    }
}

/// A validated policy, which can be built any number of times.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedPolicy {
    spec: PolicySpec,
    tree: Option<TreeSpec>,
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

impl ValidatedPolicy {
    /// Validates a policy for all of `names`. Errors use `file` as the name of a tree; `tables` gives its sensitivity
    /// tables.
    ///
    /// # Errors
    /// [`PolicyError`]: the policy or the tree is invalid.
    pub fn new(
        spec: PolicySpec,
        file: &str,
        tables: &TableLoader<'_>,
        names: &ServiceNames,
    ) -> Result<ValidatedPolicy, PolicyError> {
        let plan = match &spec {
            PolicySpec::Policy(spec) => match build(spec)? {
                AnyPolicy::Tree(plan) => Some(plan),
                _ => None,
            },
            PolicySpec::Tree(text) => {
                Some(tree::read_with_tables(text.as_bytes(), file, tables, Some(names))?)
            }
        };
        Ok(ValidatedPolicy { spec, tree: plan })
    }

    /// The policy as it was given.
    pub fn spec(&self) -> &PolicySpec {
        &self.spec
    }

    /// Whether the policy uses weights of services.
    pub fn uses_service_weights(&self) -> bool {
        matches!(self.tree, Some(TreeSpec::Services(..) | TreeSpec::Netshare(_)))
    }

    /// Builds the policy; `weights` replace the weights that it sets itself.
    pub fn build(&self, names: &ServiceNames, weights: &BTreeMap<String, f64>) -> AnyPolicy {
        match (&self.tree, &self.spec) {
            (Some(plan), _) => {
                let mut plan = plan.clone();
                set_service_weights(&mut plan, names, weights);
                AnyPolicy::Tree(plan)
            }
            (None, PolicySpec::Policy(spec) | PolicySpec::Tree(spec)) => {
                build(spec).expect("`Chosen::new` built this specification, and a tree always has a plan")
            }
        }
    }
}

/// Sets the weights of services in a tree.
fn set_service_weights(plan: &mut TreeSpec, names: &ServiceNames, weights: &BTreeMap<String, f64>) {
    for (name, &weight) in weights {
        match plan {
            TreeSpec::Services(services, default) => {
                let listed = services.iter_mut().find(|service| service.name == *name);
                match (listed, default) {
                    (Some(service), _) => service.weight = weight,
                    (None, Some(other)) => {
                        let mut service = (**other).clone();
                        (service.name, service.weight) = (name.clone(), weight);
                        services.push(service);
                    }
                    (None, None) => {}
                }
            }
            TreeSpec::Netshare(listed_weights) => {
                let Some(number) = names.service_number(name) else { continue };
                if listed_weights.len() <= number as usize {
                    listed_weights.resize(number as usize + 1, 1.0);
                }
                listed_weights[number as usize] = weight;
            }
            TreeSpec::Saba(_) => {}
        }
    }
}
