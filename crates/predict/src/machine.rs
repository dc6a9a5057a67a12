//! A machine that tells two classes apart: C-SVC with a Gaussian kernel, as LibSVM has it.

use libsvm_rs::train::svm_train;
use libsvm_rs::{SvmNode, SvmParameter, SvmProblem};

/// The largest C and gamma.
pub const MAX_PARAMETER: f64 = 1e3;

/// How machines are trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    c: f64,
    gamma: f64,
}

/// What is no setting.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`{value}`: expected a number above 0 and up to {MAX_PARAMETER:e}")]
pub struct SettingError {
    /// What was given.
    pub value: f64,
}

impl Settings {
    /// What it costs to be on the wrong side (`c`), and how fast the kernel falls with the distance (`gamma`).
    ///
    /// # Errors
    /// A number that is not above 0, or above [`MAX_PARAMETER`].
    pub fn new(c: f64, gamma: f64) -> Result<Settings, SettingError> {
        match [c, gamma].into_iter().find(|value| !(*value > 0.0 && *value <= MAX_PARAMETER)) {
            Some(value) => Err(SettingError { value }),
            None => Ok(Settings { c, gamma }),
        }
    }

    /// C.
    pub const fn c(&self) -> f64 {
        self.c
    }

    /// Gamma.
    pub const fn gamma(&self) -> f64 {
        self.gamma
    }
}

impl Default for Settings {
    /// LibSVM's for one feature; the paper names no others.
    fn default() -> Settings {
        Settings { c: 1.0, gamma: 1.0 }
    }
}

/// A support vector: a record that decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vector {
    /// Its feature, scaled.
    pub x: f64,
    /// Its multiplier, at most C: positive for records of the smaller class.
    pub coefficient: f64,
}

/// A machine that tells a smaller class from a larger one.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub(crate) vectors: Vec<Vector>,
    pub(crate) rho: f64,
}

impl Machine {
    /// Trains one on the scaled features of two classes, of which neither is empty. It depends on their order in its last digits.
    pub(crate) fn train(smaller: &[f64], larger: &[f64], settings: &Settings) -> Machine {
        // The library would narrate on the standard error.
        libsvm_rs::set_quiet(true);
        let both = || smaller.iter().map(|x| (1.0, *x)).chain(larger.iter().map(|x| (-1.0, *x)));
        let problem = SvmProblem {
            labels: both().map(|(label, _)| label).collect(),
            instances: both().map(|(_, value)| vec![SvmNode { index: 1, value }]).collect(),
        };
        // C-SVC with a Gaussian kernel is its default.
        let parameter = SvmParameter { c: settings.c, gamma: settings.gamma, ..SvmParameter::default() };
        let model = svm_train(&problem, &parameter);
        let vectors = model.sv.iter().zip(&model.sv_coef[0]);
        let vectors =
            vectors.map(|(node, coefficient)| Vector { x: node[0].value, coefficient: *coefficient });
        Machine { vectors: vectors.collect(), rho: model.rho[0] }
    }

    /// Above 0 for the smaller class, else the larger. The amount grows with the distance from the border.
    pub fn decide(&self, x: f64, gamma: f64) -> f64 {
        let kernel = |v: &Vector| v.coefficient * libm::exp(-gamma * (x - v.x) * (x - v.x));
        self.vectors.iter().map(kernel).sum::<f64>() - self.rho
    }

    /// The records that decide.
    pub fn vectors(&self) -> &[Vector] {
        &self.vectors
    }
}
