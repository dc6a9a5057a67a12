//! Validates and builds the current policy, which is given by its name or as the text of a policy tree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};
use weir_core::model::ServiceNames;
use weir_core::policy::{AnyPolicy, ParamsError, build, django_settings};
use weir_core::tree::TreeSpec;
use weir_fields::FileError;
use weir_trace::tree::{self, TableLoader};

use crate::control_plane::LivePolicy;

mod simulation_only;

pub use simulation_only::{NotEnforceable, SIMULATION_ONLY, SimulationOnly, check_enforceable};

/// A policy in a configuration or a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "PolicySpecFields")]
pub enum PolicySpec {
    /// A policy by name, `NAME[:KEY=VALUE...]`; `weir policies` lists all of them.
    Policy(String),
    /// The text of a policy tree.
    Tree(String),
}

/// Input format of [`PolicySpec`]. With separate fields, errors about missing or conflicting keys differ from errors about
/// invalid JSON.
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
                Err("neither `policy` nor `tree` is set; expected one of them")
            }
            PolicySpecFields { policy: Some(_), tree: Some(_) } => {
                Err("both `policy` and `tree` are set; expected one of them")
            }
        }
    }
}

/// Either field is set; the other one is absent or `null`.
impl PartialSchema for PolicySpec {
    fn schema() -> RefOr<Schema> {
        let variant = |set: &str, absent: &str, description: &str| {
            let text = ObjectBuilder::new().schema_type(Type::String).description(Some(description));
            let null = ObjectBuilder::new().schema_type(Type::Null);
            ObjectBuilder::new()
                .property(set, text)
                .property(absent, null)
                .required(set)
                .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
        };
        OneOfBuilder::new()
            .description(Some("A policy in a configuration or a request."))
            .item(variant(
                "policy",
                "tree",
                "A policy by name, `NAME[:KEY=VALUE...]`; `weir policies` lists all of them.",
            ))
            .item(variant("tree", "policy", "The text of a policy tree."))
            .into()
    }
}

impl ToSchema for PolicySpec {}

/// A validated policy. It can be built repeatedly.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedPolicy {
    spec: PolicySpec,
    tree: Option<TreeSpec>,
}

/// Why a policy is invalid.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The policy is unknown, or one of its parameters is invalid.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// The text is not a policy tree, or the tree does not fit these services.
    #[error(transparent)]
    Tree(#[from] FileError),
    /// Agents cannot enforce the policy, or that of a leaf.
    #[error("{0}")]
    NotEnforceable(NotEnforceable),
}

impl ValidatedPolicy {
    /// Validates a policy for all of `names`, and for schedules at this interval in seconds. `file` is the name of a tree in errors, and
    /// `tables` loads the sensitivity tables of a tree.
    ///
    /// # Errors
    /// [`PolicyError`]: the policy or the tree is invalid, or agents cannot enforce it.
    pub fn new(
        spec: PolicySpec,
        file: &str,
        tables: &TableLoader<'_>,
        names: &ServiceNames,
        interval: f64,
    ) -> Result<ValidatedPolicy, PolicyError> {
        let tree = match &spec {
            PolicySpec::Policy(spec) => match build(spec)? {
                AnyPolicy::Tree(tree) => Some(tree),
                _ => None,
            },
            PolicySpec::Tree(text) => {
                Some(tree::read_with_tables(text.as_bytes(), file, tables, Some(names))?)
            }
        };
        for leaf in tree.iter().flat_map(TreeSpec::leaf_policies) {
            if matches!(django_settings(leaf), Ok(Some(_))) {
                return Err(PolicyError::NotEnforceable(NotEnforceable::MatchingLeaf));
            }
            check_enforceable(leaf, interval).map_err(PolicyError::NotEnforceable)?;
        }
        if let PolicySpec::Policy(spec) = &spec {
            check_enforceable(spec, interval).map_err(PolicyError::NotEnforceable)?;
        }
        Ok(ValidatedPolicy { spec, tree })
    }

    /// The policy of a coordinator without hosts, which it never applies.
    pub fn without_hosts() -> ValidatedPolicy {
        ValidatedPolicy { spec: PolicySpec::Policy("fair".to_owned()), tree: None }
    }

    /// The policy in the format of configurations and requests.
    pub fn spec(&self) -> &PolicySpec {
        &self.spec
    }

    /// Whether the policy uses weights of services.
    pub fn uses_service_weights(&self) -> bool {
        matches!(self.tree, Some(TreeSpec::Services(..) | TreeSpec::Netshare(_)))
    }

    /// Builds the policy. `weights` replace the weights in a tree.
    pub fn build(&self, names: &ServiceNames, weights: &BTreeMap<String, f64>) -> LivePolicy {
        const VALIDATED: &str = "`ValidatedPolicy::new` built the same specification";
        match (&self.tree, &self.spec) {
            (Some(tree), _) => {
                let mut tree = tree.clone();
                set_service_weights(&mut tree, names, weights);
                AnyPolicy::Tree(tree).into()
            }
            (None, PolicySpec::Policy(spec) | PolicySpec::Tree(spec)) => {
                match django_settings(spec).expect(VALIDATED) {
                    Some(settings) => LivePolicy::matching(settings),
                    None => build(spec).expect(VALIDATED).into(),
                }
            }
        }
    }
}

/// Sets the weights of services in a tree.
fn set_service_weights(tree: &mut TreeSpec, names: &ServiceNames, weights: &BTreeMap<String, f64>) {
    for (name, &weight) in weights {
        match tree {
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
            TreeSpec::Saba { .. } => {}
        }
    }
}
