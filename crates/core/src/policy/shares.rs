//! NetShare and Saba by themselves: weights at every port, and max-min between flows inside. They are trees of one level.
//!
//! - `netshare`: NetShare (UCSD 2010), section 2, group allocation: each service has its weight at every port, whatever its
//!   number of flows. Services are those of the trace; TCP is per-flow max-min.
//! - `saba`: Saba (EuroSys '23), section 5.1: at every port the applications that meet there get the weights of Eq. 2, C_saba being
//!   all of it, with a queue each. Its sensitivity is one number for each application, the slowdown s with half of the
//!   bandwidth, and the model D(b) = 1 + 4 (s - 1) (1 - b)^2, which falls, is convex, and has D(1) = 1 (for LR, where the paper
//!   has 3.4, 2.26 and 1.3 at 25, 50 and 75 %, it has 3.8, 2.26 and 1.3). For models that were fitted to profiles, write a
//!   policy tree with a sensitivity table.

use super::{Params, ParamsError};
use crate::saba::Sensitivity;
use crate::solve::Polynomial;
use crate::tree::plan::Plan;

/// The greatest slowdown that can be given.
const MAX: f64 = 1e6;

pub(super) fn netshare(params: &mut Params) -> Result<Plan, ParamsError> {
    let expected = "numbers from 1e-9 to 1e9, such as 4/2/1";
    Ok(Plan::Netshare(params.take_list("weights", 1.0, |weight| (1e-9..=1e9).contains(&weight), expected)?))
}

pub(super) fn saba(params: &mut Params) -> Result<Plan, ParamsError> {
    let expected = "numbers of 1 to 1e6, such as 2.3/1.1";
    let slowdowns =
        params.take_list("slowdown", 2.0, |slowdown| (1.0..=MAX).contains(&slowdown), expected)?;
    Ok(Plan::Saba(slowdowns.into_iter().map(sensitivity).collect()))
}

/// The model of an application with this slowdown at half of the bandwidth.
fn sensitivity(slowdown: f64) -> Sensitivity {
    let k = 4.0 * (slowdown - 1.0);
    let model = Polynomial::new(&[1.0 + k, -2.0 * k, k]);
    Sensitivity::new(model.expect("a slowdown of at most 1e6 has coefficients of at most 8e6"))
}
