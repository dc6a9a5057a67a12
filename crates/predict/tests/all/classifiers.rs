//! Support vector machines against solutions of the dual problem, by hand or by exhaustive search.

use weir_predict::{BinaryClassifier, Loss, Predictor, Record, TrainError, TrainingSettings};

fn record(buffer: u32, loss: f64) -> Record {
    Record { buffer, loss: Loss::new(loss).unwrap(), connections: 200 }
}

fn records(all: &[(u32, f64)]) -> Vec<Record> {
    all.iter().map(|&(buffer, loss)| record(buffer, loss)).collect()
}

fn only_classifier(predictor: &Predictor) -> &BinaryClassifier {
    let machines: Vec<&BinaryClassifier> = predictor.classifiers().map(|(.., machine)| machine).collect();
    let [machine] = machines[..] else { panic!("two classes have one machine") };
    machine
}

fn predicted_buffer(predictor: &Predictor, loss: f64) -> u32 {
    predictor.predict(Loss::new(loss).unwrap(), 200).buffer
}

#[test]
fn machine_of_two_records_matches_hand_computation() {
    // At 1 and -1 the dual is 2 a - a^2 (1 - K), K = exp(-4), so a = 1 / (1 - K) if C allows that.
    let far = (-4.0f64).exp();
    for (c, alpha) in [(10.0, 1.0 / (1.0 - far)), (0.5, 0.5)] {
        let settings = TrainingSettings::new(c, 1.0).unwrap();
        let predictor = Predictor::train(&records(&[(50, 0.3), (100, 0.1)]), &settings).unwrap();
        let machine = only_classifier(&predictor);
        for x in [-1.0f64, -0.4, 0.0, 0.7, 1.0] {
            let by_hand = alpha * ((-(x - 1.0) * (x - 1.0)).exp() - (-(x + 1.0) * (x + 1.0)).exp());
            let found = machine.decision_value([x, 0.0], 1.0);
            assert!((found - by_hand).abs() < 1e-5, "C = {c}, {x}: {found}, by hand {by_hand}");
        }
        // The decision boundary is halfway; on it the vote goes to the larger class.
        assert_eq!([0.21, 0.19].map(|loss| predicted_buffer(&predictor, loss)), [50, 100]);
        assert_eq!(predictor.loss_scale().range(), (0.1, 0.3));
    }
}

/// The machine of two points per class: its decisions at the given points, by a search for multipliers on
/// finer and finer grids.
fn solve_by_grid_search(smaller: [f64; 2], larger: [f64; 2], c: f64, gamma: f64, at: &[f64]) -> Vec<f64> {
    const STEPS: i32 = 8;
    let points = [smaller[0], smaller[1], larger[0], larger[1]];
    let signs = [1.0, 1.0, -1.0, -1.0];
    let kernel = |a: f64, b: f64| (-gamma * (a - b) * (a - b)).exp();
    let sum = |a: &[f64; 4], x: f64| (0..4).map(|i| a[i] * signs[i] * kernel(points[i], x)).sum::<f64>();
    let value = |a: &[f64; 4]| {
        a.iter().sum::<f64>() - (0..4).map(|i| a[i] * signs[i] * sum(a, points[i])).sum::<f64>() / 2.0
    };
    let (mut best, mut width) = ([0.0; 4], c);
    // The dual is concave, so its optimum is near the best grid point.
    for _ in 0..50 {
        let middle = best;
        let at = |i: usize, step: i32| middle[i] + width * f64::from(step) / f64::from(STEPS);
        for first in -STEPS..=STEPS {
            for second in -STEPS..=STEPS {
                for third in -STEPS..=STEPS {
                    let (a, b, d) = (at(0, first), at(1, second), at(2, third));
                    // The sums of multipliers of both classes are equal.
                    let all = [a, b, d, a + b - d];
                    if all.iter().all(|a| (0.0..=c).contains(a)) && value(&all) > value(&best) {
                        best = all;
                    }
                }
            }
        }
        width *= 0.7;
    }
    // At a free multiplier the decision equals the sign. If no multiplier is free, any threshold between the
    // bounds is valid, and LibSVM uses the middle.
    let slack: Vec<f64> = (0..4).map(|i| sum(&best, points[i]) - signs[i]).collect();
    let free: Vec<f64> = (0..4).filter(|&i| best[i] > 1e-6 && best[i] < c - 1e-6).map(|i| slack[i]).collect();
    let rho = if free.is_empty() {
        let up = |i: usize| (best[i] < c / 2.0) == (signs[i] > 0.0);
        let above = (0..4).filter(|&i| up(i)).map(|i| slack[i]).fold(f64::INFINITY, f64::min);
        let below = (0..4).filter(|&i| !up(i)).map(|i| slack[i]).fold(f64::NEG_INFINITY, f64::max);
        (above + below) / 2.0
    } else {
        free.iter().sum::<f64>() / free.len() as f64
    };
    at.iter().map(|x| sum(&best, *x) - rho).collect()
}

#[test]
fn machine_of_four_records_matches_an_exhaustive_search() {
    // Separate, close, and overlapping classes; features are scaled to -1 to 1.
    let cases = [
        ([1.0, 0.5], [-1.0, -0.25]),
        ([1.0, 0.125], [-1.0, 0.0]),
        ([1.0, -0.5], [-1.0, 0.25]),
        ([-1.0, 0.75], [0.25, 1.0]),
    ];
    for (smaller, larger) in cases {
        for (c, gamma) in [(0.5, 1.0), (1.0, 1.0), (4.0, 0.5), (20.0, 4.0)] {
            let loss = |x: f64| 0.25 + 0.125 * x;
            let all = records(&[
                (50, loss(smaller[0])),
                (50, loss(smaller[1])),
                (100, loss(larger[0])),
                (100, loss(larger[1])),
            ]);
            let predictor = Predictor::train(&all, &TrainingSettings::new(c, gamma).unwrap()).unwrap();
            let at = [-1.0, -0.6, -0.1, 0.3, 0.8, 1.0];
            for (x, best) in at.into_iter().zip(solve_by_grid_search(smaller, larger, c, gamma, &at)) {
                let found = only_classifier(&predictor).decision_value([x, 0.0], gamma);
                // LibSVM stops when no pair of multipliers violates the optimality conditions by more than
                // 0.001.
                let case = format!("{smaller:?} {larger:?} C = {c} gamma = {gamma} at {x}");
                assert!((found - best).abs() < 3e-3, "{case}: {found}, tried {best}");
            }
        }
    }
}

#[test]
fn predictor_separates_separable_classes() {
    let all: Vec<(u32, f64)> = (1..=5)
        .flat_map(|class| {
            (0..10).map(move |run| (50 * class, 0.6 - 0.1 * f64::from(class) + 0.001 * f64::from(run)))
        })
        .collect();
    let all = records(&all);
    let predictor = Predictor::train(&all, &TrainingSettings::default()).unwrap();
    assert_eq!(predictor.classes(), [50, 100, 150, 200, 250]);
    assert_eq!(predictor.classifiers().count(), 10);
    assert_eq!(predictor.count_correct(&all), all.len());
    for class in predictor.classes() {
        let answer = predictor.predict(Loss::new(0.6 - 0.1 * f64::from(*class) / 50.0 + 0.005).unwrap(), 200);
        assert_eq!((answer.buffer, answer.votes), (*class, 4));
    }
    // Beyond the range of its records, the prediction is the nearest class.
    assert_eq!([0.0, 1.0].map(|loss| predicted_buffer(&predictor, loss)), [250, 50]);
    let mut other = all.clone();
    other.reverse();
    other.rotate_left(7);
    assert_eq!(Predictor::train(&other, &TrainingSettings::default()).unwrap(), predictor);
}

#[test]
fn predictor_training_rejects_degenerate_records_and_settings() {
    let train =
        |all: &[(u32, f64)]| Predictor::train(&records(all), &TrainingSettings::default()).unwrap_err();
    assert_eq!(train(&[]), TrainError::TooFewClasses(0));
    assert_eq!(train(&[(50, 0.1), (50, 0.2)]), TrainError::TooFewClasses(1));
    assert_eq!(train(&[(50, 0.1), (100, 0.1)]), TrainError::EqualLosses);
    for value in [0.0, -1.0, 1e5, f64::NAN, f64::INFINITY] {
        assert!(
            TrainingSettings::new(value, 1.0).is_err() && TrainingSettings::new(1.0, value).is_err(),
            "{value}"
        );
    }
}
