//! Weights of the applications of a service that share a port.

use std::collections::BTreeMap;

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
        }))
    }

    /// Writes the weights of `applications`, given by position in the service, to `out`. O(applications),
    /// except for sets for which Eq. 2 has to be solved.
    pub(crate) fn weights(&mut self, applications: &[u32], out: &mut Vec<f64>) {
        out.clear();
        match self {
            ApplicationWeights::Fixed(weights) => {
                out.extend(applications.iter().map(|&at| weights[at as usize]))
            }
            ApplicationWeights::Saba(saba) => out.extend_from_slice(saba.weights(applications)),
        }
    }
}

impl SabaWeights {
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
