//! The policies `netshare` and `saba`: weights at every port, and max-min fairness between flows inside. Both are
//! policy trees of one level.
//!
//! - `netshare`: NetShare (UCSD 2010), section 2, group allocation. Each service of the trace has its weight at every
//!   port, for any number of flows. TCP is modelled as per-flow max-min.
//! - `saba`: Saba (EuroSys '23), section 5.1. At every port, the applications with flows there get the weights of Eq.
//!   2 and a queue each; C_saba is 1.
//!
//! The parameter of `saba` is one number for each application: the slowdown s at half of the bandwidth. The sensitivity
//! model is D(b) = 1 + 4 (s - 1) (1 - b)^2, which decreases, is convex, and has D(1) = 1. For logistic regression at
//! 25, 50 and 75 % of the bandwidth, the model gives 3.8, 2.26 and 1.3; the paper measures 3.4, 2.26 and 1.3. To use
//! models that are fitted to profiles, write a policy tree with a sensitivity table.

use super::{Params, ParamsError};
use crate::saba::Sensitivity;
use crate::solve::Polynomial;
use crate::tree::spec::TreeSpec;

/// The slowdown of an application without a value.
const DEFAULT_SLOWDOWN: f64 = 2.0;

/// The maximum slowdown that the parameter accepts.
const MAX_SLOWDOWN: f64 = 1e6;

pub(super) fn netshare_tree(params: &mut Params) -> Result<TreeSpec, ParamsError> {
    let expected = "numbers from 1e-9 to 1e9, separated by `/`, such as 4/2/1";
    let weights = params.take_list("weights", |weight| (1e-9..=1e9).contains(&weight), expected)?;
    Ok(TreeSpec::Netshare(weights.unwrap_or_default()))
}

pub(super) fn saba_tree(params: &mut Params) -> Result<TreeSpec, ParamsError> {
    let expected = "numbers from 1 to 1e6, separated by `/`, such as 2.3/1.1";
    let slowdowns =
        params.take_list("slowdown", |slowdown| (1.0..=MAX_SLOWDOWN).contains(&slowdown), expected)?;
    let slowdowns = slowdowns.unwrap_or_else(|| vec![DEFAULT_SLOWDOWN]);
    Ok(TreeSpec::Saba(slowdowns.into_iter().map(sensitivity).collect()))
}

/// The sensitivity of an application about which nothing is known: twice the time at half of the bandwidth.
pub fn saba_sensitivity() -> Sensitivity {
    sensitivity(DEFAULT_SLOWDOWN)
}

/// The sensitivity model of an application with this slowdown at half of the bandwidth.
fn sensitivity(slowdown: f64) -> Sensitivity {
    let k = 4.0 * (slowdown - 1.0);
    let model = Polynomial::new(&[1.0 + k, -2.0 * k, k]);
    Sensitivity::new(model.expect("a slowdown of at most 1e6 has coefficients of at most 8e6"))
}
