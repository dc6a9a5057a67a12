//! The specification of a policy tree, and its leaves for the services and applications of a workload.

use std::ops::Range;

use super::weights::ApplicationWeights;
use crate::model::{CoflowKey, ServiceNames};
use crate::policy::params::ParamsError;
use crate::policy::timing::Timing;
use crate::saba::{SabaLimits, Sensitivity};

/// How the applications of a service share the service's part.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplicationSharing {
    /// The applications do not share: the service is one leaf, under this policy.
    SingleLeaf(String),
    /// By one weight for each application.
    Weighted,
    /// By Saba, with the sensitivities in this table (names of applications and their models), and these limits.
    Saba(Vec<(String, Sensitivity)>, SabaLimits),
}

/// An application of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    /// Name in the workload; not used in the default for unlisted applications.
    pub name: String,
    /// Weight for [`ApplicationSharing::Weighted`]: finite and above 0.
    pub weight: f64,
    /// For [`ApplicationSharing::Saba`]: name in the sensitivity table, if it differs from `name`.
    pub model: Option<String>,
    /// Policy of the application's coflows, as `name:key=value`.
    pub policy: String,
}

/// A service.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Name in the workload; not used in the default for unlisted services.
    pub name: String,
    /// Weight at every port; finite and above 0.
    pub weight: f64,
    /// How the applications share the service's part.
    pub application_sharing: ApplicationSharing,
    /// The listed applications.
    pub applications: Vec<Application>,
    /// The default for unlisted applications.
    pub default_application: Application,
}

/// The sharing between services and applications, by name.
#[derive(Debug, Clone, PartialEq)]
pub enum TreeSpec {
    /// The listed services, and an optional default for unlisted services.
    Services(Vec<Service>, Option<Box<Service>>),
    /// Services by the weights of a list, in the order of the workload's names, with max-min fairness between flows
    /// inside. Services past the end of the list have the weights of the workload's names.
    Netshare(Vec<f64>),
    /// All applications by sensitivity, independent of their services, with max-min fairness between the flows of a
    /// queue.
    Saba {
        /// By application, in the order of the workload's names. Applications past the end of the list have the last
        /// model; with an empty list, all have [`Sensitivity::default`].
        models: Vec<Sensitivity>,
        /// C_saba, priority levels and queues.
        limits: SabaLimits,
    },
}

impl TreeSpec {
    /// What happens at once. Leaves of a list react as their policies do.
    pub(crate) fn timing(&self) -> Timing {
        let switches = Timing::local("NetShare 2: switches serve services by configured weights");
        let computed = Timing {
            at_interval: "weights of applications",
            source: "Saba 5 and 6: switches serve queues; the controller sets weights at each connection",
            ..switches
        };
        match self {
            TreeSpec::Netshare(_) => switches,
            TreeSpec::Saba { .. } => computed,
            TreeSpec::Services(..) => {
                Timing { at_interval: "by leaf, and weights of applications", ..computed }
            }
        }
    }

    /// The specifications of all policies that a leaf can have.
    pub fn leaf_policies(&self) -> impl Iterator<Item = &str> {
        let services: Vec<&Service> = match self {
            TreeSpec::Services(listed, default) => listed.iter().chain(default.as_deref()).collect(),
            TreeSpec::Netshare(_) | TreeSpec::Saba { .. } => Vec::new(),
        };
        services.into_iter().flat_map(|service| {
            let applications = service.applications.iter().chain([&service.default_application]);
            let whole = match &service.application_sharing {
                ApplicationSharing::SingleLeaf(policy) => Some(policy.as_str()),
                ApplicationSharing::Weighted | ApplicationSharing::Saba(..) => None,
            };
            whole.into_iter().chain(applications.map(|application| application.policy.as_str()))
        })
    }
}

impl TreeSpec {
    /// Whether the tree divides ports by this key. [`TreeSpec::Saba`] distinguishes applications of equal names by service.
    pub(crate) fn divides_by(&self, key: CoflowKey) -> bool {
        match (self, key) {
            (_, CoflowKey::Service) | (TreeSpec::Saba { .. }, CoflowKey::Application) => true,
            (TreeSpec::Services(listed, default), CoflowKey::Application) => {
                let mut services = listed.iter().chain(default.as_deref());
                services.any(|s| !matches!(s.application_sharing, ApplicationSharing::SingleLeaf(_)))
            }
            (_, CoflowKey::Application | CoflowKey::Weight | CoflowKey::Deadline) => false,
        }
    }
}

/// A leaf of a tree, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeLeaf {
    /// `service/application`, or the service if its applications share a leaf.
    pub name: String,
    /// Specification of its policy, as `name:key=value`.
    pub policy: String,
}

/// Why a tree does not fit a workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The tree contains neither a service of the workload nor a default.
    #[error("policy tree: service `{0}` is missing; expected every service of the trace, or a default")]
    UnknownService(String),
    /// The sensitivity table does not contain an application.
    #[error("sensitivity table of service `{service}`: application `{application}` is missing")]
    UnknownSensitivity {
        /// Name of the service.
        service: String,
        /// The name that is missing in the table.
        application: String,
    },
    /// A weight is not finite or not above 0.
    #[error("{0}: weight {1} is invalid; expected a finite number above 0")]
    InvalidWeight(String, String),
    /// A policy cannot be built, or cannot be a leaf.
    #[error(transparent)]
    Policy(#[from] ParamsError),
}

/// A service of the workload: its weight, and its leaves.
pub(crate) struct ServiceLeaves {
    pub(crate) weight: f64,
    pub(crate) application_weights: ApplicationWeights,
    pub(crate) leaves: Range<u32>,
}

/// The services and leaves of a tree for the names of one workload.
pub(crate) struct TreeLayout {
    pub(crate) services: Vec<ServiceLeaves>,
    /// By leaf: specification of its policy.
    pub(crate) policies: Vec<String>,
    /// By service and application: the leaf.
    pub(crate) leaf_by_application: Vec<Vec<u32>>,
}

impl TreeLayout {
    /// Adds a service with leaves of these policies.
    fn add_service(
        &mut self,
        weight: f64,
        application_weights: ApplicationWeights,
        policies: impl IntoIterator<Item = String>,
    ) -> Range<u32> {
        let first = self.policies.len() as u32;
        self.policies.extend(policies);
        let leaves = first..self.policies.len() as u32;
        self.services.push(ServiceLeaves { weight, application_weights, leaves: leaves.clone() });
        leaves
    }
}

fn check_weight(what: &str, weight: f64) -> Result<f64, TreeError> {
    if weight.is_finite() && weight > 0.0 {
        return Ok(weight);
    }
    Err(TreeError::InvalidWeight(what.to_owned(), weight.to_string()))
}

impl TreeSpec {
    /// The leaf of each coflow, by service and application of these names.
    ///
    /// # Errors
    /// [`TreeError`] if the tree does not fit the names.
    pub fn leaves_by_application(&self, names: &ServiceNames) -> Result<Vec<Vec<TreeLeaf>>, TreeError> {
        let layout = self.layout(names)?;
        let of_service = |(service, leaves): (u32, &Vec<u32>)| {
            let is_shared = leaves.iter().all(|leaf| *leaf == leaves[0]);
            let of_application = |(&leaf, application): (&u32, &String)| TreeLeaf {
                name: match is_shared {
                    true => names.service(service).to_owned(),
                    false => format!("{}/{application}", names.service(service)),
                },
                policy: layout.policies[leaf as usize].clone(),
            };
            leaves.iter().zip(names.applications(service)).map(of_application).collect()
        };
        Ok((0..).zip(&layout.leaf_by_application).map(of_service).collect())
    }

    /// Computes the leaves for these names.
    pub(crate) fn layout(&self, names: &ServiceNames) -> Result<TreeLayout, TreeError> {
        let mut layout =
            TreeLayout { services: Vec::new(), policies: Vec::new(), leaf_by_application: Vec::new() };
        let services = 0..names.services() as u32;
        match self {
            TreeSpec::Services(listed, other) => {
                for number in services {
                    let name = names.service(number);
                    let found = listed.iter().find(|service| service.name == name).or(other.as_deref());
                    let service = found.ok_or_else(|| TreeError::UnknownService(name.to_owned()))?;
                    service.add_to_layout(name, names.applications(number), &mut layout)?;
                }
            }
            TreeSpec::Netshare(weights) => {
                for number in services {
                    let weight = weights.get(number as usize).copied();
                    let weight = weight.unwrap_or_else(|| names.weight(number));
                    let weight = check_weight(names.service(number), weight)?;
                    let leaf = layout
                        .add_service(weight, ApplicationWeights::Fixed(vec![1.0]), [FAIR_POLICY.to_owned()])
                        .start;
                    layout.leaf_by_application.push(vec![leaf; names.applications(number).len()]);
                }
            }
            TreeSpec::Saba { models, limits } => {
                let last = models.last().copied().unwrap_or_default();
                let model = |at: usize| models.get(at).copied().unwrap_or(last);
                let models: Vec<Sensitivity> = (0..names.application_count()).map(model).collect();
                layout.add_service(
                    1.0,
                    ApplicationWeights::from_sensitivities(&models, limits),
                    models.iter().map(|_| FAIR_POLICY.to_owned()),
                );
                let mut next = 0..;
                for number in services {
                    let count = names.applications(number).len();
                    layout.leaf_by_application.push(next.by_ref().take(count).collect());
                }
            }
        }
        Ok(layout)
    }
}

const FAIR_POLICY: &str = "fair";

impl Service {
    fn add_to_layout(
        &self,
        name: &str,
        applications: &[String],
        layout: &mut TreeLayout,
    ) -> Result<(), TreeError> {
        let weight = check_weight(name, self.weight)?;
        let found: Vec<&Application> = applications
            .iter()
            .map(|name| {
                self.applications.iter().find(|a| a.name == *name).unwrap_or(&self.default_application)
            })
            .collect();
        let policies = found.iter().map(|application| application.policy.clone());
        let inside = match &self.application_sharing {
            ApplicationSharing::SingleLeaf(policy) => {
                let leaf =
                    layout.add_service(weight, ApplicationWeights::Fixed(vec![1.0]), [policy.clone()]).start;
                layout.leaf_by_application.push(vec![leaf; applications.len()]);
                return Ok(());
            }
            ApplicationSharing::Weighted => {
                let weights = found.iter().zip(applications).map(|(a, name)| check_weight(name, a.weight));
                ApplicationWeights::Fixed(weights.collect::<Result<_, _>>()?)
            }
            ApplicationSharing::Saba(table, limits) => {
                let model = |(application, workload_name): (&&Application, &String)| {
                    let wanted = application.model.as_ref().unwrap_or(workload_name);
                    let row = table.iter().find(|(name, _)| name == wanted);
                    row.map(|(_, sensitivity)| *sensitivity).ok_or_else(|| TreeError::UnknownSensitivity {
                        service: name.to_owned(),
                        application: wanted.clone(),
                    })
                };
                let models: Vec<Sensitivity> =
                    found.iter().zip(applications).map(model).collect::<Result<_, _>>()?;
                ApplicationWeights::from_sensitivities(&models, limits)
            }
        };
        let leaves = layout.add_service(weight, inside, policies).collect();
        layout.leaf_by_application.push(leaves);
        Ok(())
    }
}
