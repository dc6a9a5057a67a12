//! The weights of a service's applications where some of them meet.

use std::collections::BTreeMap;

use crate::saba::controller::AppId;
use crate::saba::share::{FLOOR, Shares};
use crate::saba::{Fraction, Sensitivity};
use crate::solve::{Polynomial, Solver};

/// How the applications of a service share what it has.
pub(crate) enum Inside {
    /// By a weight each.
    Given(Vec<f64>),
    /// By their sensitivity, for each set of them that meets.
    Saba(Box<Sensitive>),
}

/// Saba's weights, kept for each set of applications that was seen.
pub(crate) struct Sensitive {
    models: Vec<Polynomial>,
    solver: Solver,
    known: BTreeMap<Vec<u32>, Vec<f64>>,
}

/// How many sets are kept; then all are forgotten, which costs time and changes nothing.
const SETS: usize = 4096;

impl Inside {
    pub(super) fn saba(models: &[Sensitivity]) -> Inside {
        let models = models.iter().map(|sensitivity| *sensitivity.model()).collect();
        Inside::Saba(Box::new(Sensitive { models, solver: Solver::default(), known: BTreeMap::new() }))
    }

    /// Puts the weights of these applications, by their position in the service, into `out`. O(applications), but for a set
    /// that Saba has to solve Eq. 2 for.
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
