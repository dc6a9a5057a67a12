//! The policy that decides, as operators ask for it: one of the table by name, or a tree as a text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::model::Names;
use weir_core::policy::{AnyPolicy, ParamsError, build};
use weir_core::tree::Plan;
use weir_trace::TraceError;
use weir_trace::tree::{self, Tables};

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", try_from = "Body")]
pub enum Asked {
    /// One of the table: `NAME[:KEY=VALUE...]`, as `weir policies` lists them.
    Policy(String),
    /// The text of a policy tree.
    Tree(String),
}

/// As it is read: keys that do not go together are told apart from texts that are no JSON.
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

/// A policy that can be built, any number of times.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    asked: Asked,
    plan: Option<Plan>,
}

/// Why nothing can be built from what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// No such policy, or parameter of it.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// A text that is no policy tree, or none for these services.
    #[error(transparent)]
    Tree(#[from] TraceError),
}

impl Chosen {
    /// What was asked for, with a place for all of `names`. Errors call a tree `file`; its sensitivity tables are those of `tables`.
    ///
    /// # Errors
    /// Why it is none.
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

    /// What was asked for.
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Whether weights of services change what it decides.
    pub fn heeds_weights(&self) -> bool {
        matches!(self.plan, Some(Plan::Services(..) | Plan::Netshare(_)))
    }

    /// The policy, in which the services of `weights` have those instead of what it gives them itself.
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

/// Gives services other weights.
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
