//! A goal for the mean of `weir`.

/// A goal for the mean of `weir`.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// The other side of the comparison.
    pub against: Yardstick,
    /// The maximum of the mean ratio over all workloads.
    pub max_mean: f64,
    /// The maximum of the ratio of each workload, if there is one.
    pub max_each: Option<f64>,
}

/// What `weir` is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yardstick {
    /// A policy.
    Policy(&'static str),
    /// The best policy that knows no sizes.
    BestRival,
}

impl Goal {
    /// A goal against a policy.
    pub fn over(policy: &'static str, max_mean: f64) -> Goal {
        Goal { against: Yardstick::Policy(policy), max_mean, max_each: None }
    }
}
