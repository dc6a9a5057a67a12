//! What Eq. 2 makes of one port, and whether it is right.

use weir_core::saba::Fraction;
use weir_core::saba::controller::AppId;
use weir_core::saba::share::{FLOOR, Shares};
use weir_core::solve::polynomial::{Degree, Polynomial};
use weir_core::solve::separable::Solver;
use weir_sim::stage::workload::Workload;

use super::lab::Lab;
use crate::doc::{n, share, table};

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

/// What Eq. 2 with models of this degree makes of all ten at one port: the sum of slowdowns under even weights and under its own.
pub fn outcome(workloads: &[Workload], degree: Degree) -> (f64, f64) {
    let (even, found, _) = port(workloads, degree, FLOOR);
    (even.true_, found.true_)
}

/// The sums under even weights and under those of Eq. 2, and the latter weights.
fn port(workloads: &[Workload], degree: Degree, floor: Fraction) -> (Sums, Sums, Vec<f64>) {
    let models: Vec<Polynomial> = workloads.iter().map(|w| w.model(degree)).collect();
    let apps: Vec<AppId> = (0..models.len() as u64).map(AppId).collect();
    let shares = Shares::of(&mut Solver::default(), &apps, &models, Fraction::ALL, floor);
    let weights: Vec<f64> = shares.apps.iter().map(|(_, weight)| *weight).collect();
    let even = sums(workloads, &models, &vec![1.0 / models.len() as f64; models.len()]);
    (even, sums(workloads, &models, &weights), weights)
}

/// One port with all ten workloads, each held to its weight.
pub fn section(lab: &Lab<'_>) -> String {
    let mut lines = Vec::new();
    let (mut worse, mut kept) = (0, 0);
    // Half of an even share of ten is the least bandwidth that is profiled.
    let half = Fraction::new(0.5).unwrap_or(FLOOR);
    for (name, limited, floor) in [
        ("as it is", false, FLOOR),
        ("as it is", false, half),
        ("all have a limit as LR has", true, FLOOR),
        ("all have a limit as LR has", true, half),
    ] {
        let workloads: Vec<Workload> =
            lab.workloads().iter().map(|w| if limited { w.limited() } else { w.clone() }).collect();
        for degree in Degree::ALL {
            let (even, found, weights) = port(&workloads, degree, floor);
            let least = weights.iter().copied().fold(1.0, f64::min);
            worse += usize::from(found.true_ > even.true_);
            kept += usize::from(found.predicted <= even.predicted);
            lines.push(vec![
                name.to_owned(),
                share(floor.get() / workloads.len() as f64),
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
        "least weight",
        "k",
        "even: predicted",
        "Eq. 2: predicted",
        "even: true",
        "Eq. 2: true",
        "at the least weight",
    ];
    let total = lines.len();
    format!(
        "### Eq. 2 at one port\n\nAll ten workloads at a port, each held to its weight: the sum of slowdowns that the models predict, and that the workloads would have by the formula \
         they are simulated with, under even weights and under those of Eq. 2.\n{}\
         By the models Eq. 2 is at least as good as even weights in {kept} of {total} lines; by the workloads themselves it is worse than even weights in {worse}. Profiles end at 5 %: \
         where weights are smaller, the cubic is all that is known, and through a slowdown that is a line over 1 / b it is far too low. Lines with a least weight of 5 % say how much of the harm \
         is done there; with limits, slowdowns are flat there anyway.\n\n",
        table(&head, 1, &lines),
    )
}
