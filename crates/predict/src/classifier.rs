//! Support vector machines for pairs of classes: C-SVC with a Gaussian kernel, as in LibSVM.

use libsvm_rs::train::svm_train;
use libsvm_rs::{SvmNode, SvmParameter, SvmProblem};

/// The maximum C and gamma.
pub const MAX_PARAMETER: f64 = 1e3;

/// Training parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingSettings {
    c: f64,
    gamma: f64,
}

/// An invalid training parameter.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`{value}` is out of range; expected a number above 0 and up to {MAX_PARAMETER:e}")]
pub struct TrainingSettingError {
    /// The parameter's value.
    pub value: f64,
}

impl TrainingSettings {
    /// `c` is the cost of misclassification; `gamma` is the rate at which the kernel decreases with the squared distance.
    ///
    /// # Errors
    /// If a number is not above 0, or is above [`MAX_PARAMETER`].
    pub fn new(c: f64, gamma: f64) -> Result<TrainingSettings, TrainingSettingError> {
        match [c, gamma].into_iter().find(|value| !(*value > 0.0 && *value <= MAX_PARAMETER)) {
            Some(value) => Err(TrainingSettingError { value }),
            None => Ok(TrainingSettings { c, gamma }),
        }
    }

    /// The cost of misclassification, C.
    pub const fn c(&self) -> f64 {
        self.c
    }

    /// The kernel's gamma.
    pub const fn gamma(&self) -> f64 {
        self.gamma
    }
}

impl Default for TrainingSettings {
    /// LibSVM's defaults for one feature; the paper states no others.
    fn default() -> TrainingSettings {
        TrainingSettings { c: 1.0, gamma: 1.0 }
    }
}

/// The scaled loss and number of connections, each from -1 to 1. The second is 0 if the loss is the only feature.
pub type ScaledFeatures = [f64; 2];

/// A support vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SupportVector {
    /// Its features.
    pub x: ScaledFeatures,
    /// Its coefficient, from -C to C: positive for records of the smaller class.
    pub coefficient: f64,
}

/// A support vector machine that separates a smaller class from a larger one.
#[derive(Debug, Clone, PartialEq)]
pub struct BinaryClassifier {
    pub(crate) vectors: Vec<SupportVector>,
    pub(crate) rho: f64,
}

impl BinaryClassifier {
    /// Trains a machine on the records of two non-empty classes. The last digits of the result depend on the order of the
    /// records.
    pub(crate) fn train(
        smaller: &[ScaledFeatures],
        larger: &[ScaledFeatures],
        settings: &TrainingSettings,
    ) -> BinaryClassifier {
        // Otherwise the library prints progress to the standard error.
        libsvm_rs::set_quiet(true);
        let labeled_features = || smaller.iter().map(|x| (1.0, *x)).chain(larger.iter().map(|x| (-1.0, *x)));
        let nodes = |x: ScaledFeatures| (1..).zip(x).map(|(index, value)| SvmNode { index, value }).collect();
        let problem = SvmProblem {
            labels: labeled_features().map(|(label, _)| label).collect(),
            instances: labeled_features().map(|(_, x)| nodes(x)).collect(),
        };
        // The defaults are C-SVC and a Gaussian kernel.
        let parameter = SvmParameter { c: settings.c, gamma: settings.gamma, ..SvmParameter::default() };
        let model = svm_train(&problem, &parameter);
        let vectors = model.sv.iter().zip(&model.sv_coef[0]);
        let vectors = vectors.map(|(nodes, coefficient)| SupportVector {
            x: [nodes[0].value, nodes[1].value],
            coefficient: *coefficient,
        });
        BinaryClassifier { vectors: vectors.collect(), rho: model.rho[0] }
    }

    /// The decision function: above 0 for the smaller class, else the larger class. The absolute value grows with the
    /// distance from the boundary.
    pub fn decision_value(&self, x: ScaledFeatures, gamma: f64) -> f64 {
        let squared_distance = |v: &SupportVector| {
            let [loss, connections] = [x[0] - v.x[0], x[1] - v.x[1]];
            loss * loss + connections * connections
        };
        let kernel = |v: &SupportVector| v.coefficient * libm::exp(-gamma * squared_distance(v));
        self.vectors.iter().map(kernel).sum::<f64>() - self.rho
    }

    /// The support vectors.
    pub fn vectors(&self) -> &[SupportVector] {
        &self.vectors
    }
}
