//! Weights of the applications of a service that share a port.

use std::collections::BTreeMap;

use crate::policy::DecidedBy;
use crate::saba::app_weights::{AppWeights, DEFAULT_MIN_SHARE};
use crate::saba::controller::AppId;
use crate::saba::{Fraction, Sensitivity};
use crate::solve::{Polynomial, SeparableSolver};

/// How the applications of a service share the service's part.
pub(crate) enum ApplicationWeights {
    /// By one weight each.
    Fixed(Vec<f64>),
    /// By Saba's weights for the applications that share a port.
    Saba(Box<SabaWeights>),
}

/// Saba's weights, cached by set of applications.
pub(crate) struct SabaWeights {
    models: Vec<Polynomial>,
    solver: SeparableSolver,
    cached_weights: BTreeMap<Vec<u32>, Vec<f64>>,
    /// By side: the weights of the last schedule.
    at_sides: Vec<SideWeights>,
}

/// The weights of the applications at a side since the last schedule.
#[derive(Default)]
struct SideWeights {
    applications: Vec<u32>,
    weights: Vec<f64>,
}

impl SideWeights {
    fn set(&mut self, applications: &[u32], weights: &[f64]) {
        if self.applications != applications {
            self.applications.clear();
            self.applications.extend_from_slice(applications);
            self.weights.clear();
            self.weights.extend_from_slice(weights);
        }
    }

    /// An application that is new at the side has the mean of the weights there.
    fn weights(&self, applications: &[u32], out: &mut Vec<f64>) {
        let mean = match self.weights.len() {
            0 => 1.0,
            count => self.weights.iter().sum::<f64>() / count as f64,
        };
        let weight_of = |at: &u32| {
            self.applications.iter().position(|known| known == at).map_or(mean, |i| self.weights[i])
        };
        out.extend(applications.iter().map(weight_of));
    }
}

/// Maximum number of cached sets. The cache is cleared when it is full, which costs time but does not change results.
const MAX_CACHED_SETS: usize = 4096;

impl ApplicationWeights {
    pub(super) fn from_sensitivities(models: &[Sensitivity]) -> ApplicationWeights {
        let models = models.iter().map(|sensitivity| *sensitivity.model()).collect();
        ApplicationWeights::Saba(Box::new(SabaWeights {
            models,
            solver: SeparableSolver::default(),
            cached_weights: BTreeMap::new(),
            at_sides: Vec::new(),
        }))
    }

    /// Whether a coordinator computes the weights.
    pub(super) fn is_computed(&self) -> bool {
        matches!(self, ApplicationWeights::Saba(_))
    }

    /// Writes the weights of `applications`, given by position in the service, at a side to `out`. O(applications),
    /// except for sets for which Eq. 2 has to be solved.
    ///
    /// The coordinator computes Saba's weights. Until its next schedule, hosts use those of the last one.
    pub(crate) fn weights(&mut self, applications: &[u32], side: usize, by: DecidedBy, out: &mut Vec<f64>) {
        out.clear();
        match (self, by) {
            (ApplicationWeights::Fixed(weights), _) => {
                out.extend(applications.iter().map(|&at| weights[at as usize]))
            }
            (ApplicationWeights::Saba(saba), DecidedBy::Coordinator) => {
                out.extend_from_slice(saba.weights(applications));
                saba.at_side(side).set(applications, out);
            }
            (ApplicationWeights::Saba(saba), DecidedBy::Hosts) => {
                saba.at_side(side).weights(applications, out)
            }
        }
    }
}

impl SabaWeights {
    fn at_side(&mut self, side: usize) -> &mut SideWeights {
        if side >= self.at_sides.len() {
            self.at_sides.resize_with(side + 1, SideWeights::default);
        }
        &mut self.at_sides[side]
    }

    fn weights(&mut self, applications: &[u32]) -> &[f64] {
        if !self.cached_weights.contains_key(applications) {
            if self.cached_weights.len() == MAX_CACHED_SETS {
                self.cached_weights.clear();
            }
            let apps: Vec<AppId> = applications.iter().map(|&at| AppId(u64::from(at))).collect();
            let models: Vec<Polynomial> = applications.iter().map(|&at| self.models[at as usize]).collect();
            let shares =
                AppWeights::solve(&mut self.solver, &apps, &models, Fraction::ALL, DEFAULT_MIN_SHARE);
            self.cached_weights
                .insert(applications.to_vec(), shares.weights.iter().map(|&(_, weight)| weight).collect());
        }
        &self.cached_weights[applications]
    }
}
