//! Weights of the applications of a service that share a port.

use std::collections::BTreeMap;

use crate::saba::controller::AppId;
use crate::saba::share::{FLOOR, Shares};
use crate::saba::{Fraction, Sensitivity};
use crate::solve::{Polynomial, Solver};

/// How the applications of a service share the service's part.
pub(crate) enum Inside {
    /// By one weight each.
    Given(Vec<f64>),
    /// By Saba's weights for the applications that share a port.
    Saba(Box<Sensitive>),
}

/// Saba's weights, cached by set of applications.
pub(crate) struct Sensitive {
    models: Vec<Polynomial>,
    solver: Solver,
    known: BTreeMap<Vec<u32>, Vec<f64>>,
}

/// Maximum number of cached sets. The cache is cleared when it is full, which costs time but does not change results.
const SETS: usize = 4096;

impl Inside {
    pub(super) fn saba(models: &[Sensitivity]) -> Inside {
        let models = models.iter().map(|sensitivity| *sensitivity.model()).collect();
        Inside::Saba(Box::new(Sensitive { models, solver: Solver::default(), known: BTreeMap::new() }))
    }

    /// Writes the weights of the applications `here`, given by position in the service, to `out`. O(applications),
    /// except for sets for which Eq. 2 has to be solved.
    pub(crate) fn weights(&mut self, here: &[u32], out: &mut Vec<f64>) {
        out.clear();
        match self {
            Inside::Given(weights) => out.extend(here.iter().map(|&at| weights[at as usize])),
            Inside::Saba(saba) => out.extend_from_slice(saba.weights(here)),
        }
    }
}

impl Sensitive {
    fn weights(&mut self, here: &[u32]) -> &[f64] {
        if !self.known.contains_key(here) {
            if self.known.len() == SETS {
                self.known.clear();
            }
            let apps: Vec<AppId> = here.iter().map(|&at| AppId(u64::from(at))).collect();
            let models: Vec<Polynomial> = here.iter().map(|&at| self.models[at as usize]).collect();
            let shares = Shares::of(&mut self.solver, &apps, &models, Fraction::ALL, FLOOR);
            self.known.insert(here.to_vec(), shares.apps.iter().map(|&(_, weight)| weight).collect());
        }
        &self.known[here]
    }
}
