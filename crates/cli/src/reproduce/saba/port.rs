//! What Eq. 2 makes of one port, and whether it is right.

use weir_core::saba::Fraction;
use weir_core::saba::controller::AppId;
use weir_core::saba::share::{FLOOR, Shares};
use weir_core::solve::polynomial::{Degree, Polynomial};
use weir_core::solve::separable::Solver;
use weir_sim::stage::workload::Workload;

use super::lab::Lab;
use crate::reproduce::doc::{n, table};

/// The sum of slowdowns that models predict, and the sum that the workloads would have.
struct Sums {
    predicted: f64,
    true_: f64,
}

fn sums(workloads: &[Workload], models: &[Polynomial], weights: &[f64]) -> Sums {
    Sums {
        predicted: models.iter().zip(weights).map(|(model, &w)| model.at(w)).sum(),
        true_: workloads.iter().zip(weights).map(|(workload, &w)| workload.shape.slowdown(w)).sum(),
    }
}

/// One port with all ten workloads, each held to its weight.
pub fn section(lab: &Lab<'_>) -> String {
    let mut lines = Vec::new();
    let mut worse = 0;
    for (name, limited) in [("as it is", false), ("all have a limit as LR has", true)] {
        let workloads: Vec<Workload> =
            lab.workloads().iter().map(|w| if limited { w.limited() } else { w.clone() }).collect();
        for degree in Degree::ALL {
            let models: Vec<Polynomial> = workloads.iter().map(|w| w.model(degree)).collect();
            let apps: Vec<AppId> = (0..models.len() as u64).map(AppId).collect();
            let shares = Shares::of(&mut Solver::default(), &apps, &models, Fraction::ALL, FLOOR);
            let weights: Vec<f64> = shares.apps.iter().map(|(_, weight)| *weight).collect();
            let even = sums(&workloads, &models, &vec![1.0 / models.len() as f64; models.len()]);
            let found = sums(&workloads, &models, &weights);
            let least = weights.iter().copied().fold(1.0, f64::min);
            worse += usize::from(found.true_ > even.true_);
            lines.push(vec![
                name.to_owned(),
                (degree as usize).to_string(),
                n(even.predicted),
                n(found.predicted),
                n(even.true_),
                n(found.true_),
                format!("{} of {}", weights.iter().filter(|w| **w < least * 1.01).count(), weights.len()),
            ]);
        }
    }
    let head = [
        "workloads",
        "k",
        "even: predicted",
        "Eq. 2: predicted",
        "even: true",
        "Eq. 2: true",
        "at the least weight",
    ];
    format!(
        "### Eq. 2 at one port\n\nAll ten workloads at a port, each held to its weight: the sum of slowdowns that the models predict, and that the workloads would have by the formula \
         they are simulated with, under even weights and under those of Eq. 2.\n{}\
         Eq. 2 does what it should by its models in every line; by the workloads it is worse than even weights in {worse} of {}. Weights of a busy port lie near and below the 5 % where profiles end, and there a \
         cubic through a slowdown that is a line over 1 / b is far too low. With limits, profiles are flat there, and cubics less wrong.\n\n",
        table(&head, 1, &lines),
        lines.len(),
    )
}
