//! Fits a workload's shape to the published numbers.
//!
//! A [`StageShape`] is a stage whose times are fractions of its duration with full bandwidth. Some of its numbers are free. The
//! search changes each of them, and each pair of them, by a factor, which it halves when no change is an improvement. It
//! minimizes the sum of squared misses in units of [`UNIT_MISS`]. The miss of a slowdown is based on a ratio, that of an R^2 on a
//! difference.
//!
//! The paper publishes fewer numbers than a shape has. Numbers that are not free keep their start values, and a [`Target`]
//! states whether it is from the paper.

use weir_core::saba::profile::PROFILED_FRACTIONS;
use weir_core::solve::polynomial::{self, Degree};

/// The miss that counts as 1: 2 % of a slowdown, or 0.02 of an R^2.
pub const UNIT_MISS: f64 = 0.02;

/// The smallest step of the search, as a part of a number.
const FINEST: f64 = 1e-6;

/// The most steps of the search: far more than it takes.
const STEPS: u32 = 100_000;

/// A stage whose times are fractions of its duration with full bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageShape {
    /// The transfer time with full bandwidth.
    pub transfer: f64,
    /// The computing time in parallel with that transfer.
    pub overlapped_compute: f64,
    /// The maximum time to wait for that transfer; can be infinite.
    pub max_transfer_time: f64,
    /// The time, with full bandwidth, of a second transfer without a maximum time.
    pub second_transfer: f64,
}

/// A number of a shape that the search can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeParameter {
    /// [`StageShape::transfer`].
    Transfer,
    /// [`StageShape::overlapped_compute`].
    OverlappedCompute,
    /// [`StageShape::max_transfer_time`].
    MaxTransferTime,
    /// [`StageShape::second_transfer`].
    SecondTransfer,
}

/// A quantity of a shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// The slowdown at this fraction of the bandwidth.
    Slowdown(f64),
    /// The slowdown at the first fraction of the bandwidth divided by that at the second.
    SlowdownRatio(f64, f64),
    /// R^2 of the model of this degree.
    ModelR2(Degree),
}

/// A desired value of a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The quantity.
    pub quantity: Quantity,
    /// The desired value.
    pub value: f64,
    /// The place in the paper; `None` if the value is not from the paper.
    pub source: Option<&'static str>,
}

impl StageShape {
    /// The computing time before the transfer; below 0 if the shape is invalid.
    pub fn compute(&self) -> f64 {
        1.0 - self.overlapped_compute.max(self.transfer.min(self.max_transfer_time)) - self.second_transfer
    }

    /// The slowdown at this fraction of the bandwidth.
    pub fn slowdown(&self, bandwidth: f64) -> f64 {
        let moving = (self.transfer / bandwidth).min(self.max_transfer_time);
        self.compute() + self.overlapped_compute.max(moving) + self.second_transfer / bandwidth
    }

    /// The samples that the profiler would measure (section 7.1).
    pub fn samples(&self) -> Vec<(f64, f64)> {
        PROFILED_FRACTIONS.iter().map(|b| (b.get(), self.slowdown(b.get()))).collect()
    }

    /// The value of a quantity.
    pub fn value_of(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Slowdown(bandwidth) => self.slowdown(bandwidth),
            Quantity::SlowdownRatio(a, b) => self.slowdown(a) / self.slowdown(b),
            Quantity::ModelR2(degree) => {
                polynomial::fit_polynomial(&self.samples(), degree).map_or(f64::NEG_INFINITY, |fit| fit.r2)
            }
        }
    }

    /// The sum of squared misses of all targets; infinite if the shape is invalid.
    pub fn squared_error(&self, targets: &[Target]) -> f64 {
        if self.compute() < 0.0 || self.max_transfer_time < self.transfer {
            return f64::INFINITY;
        }
        let miss = |target: &Target| {
            let measured = self.value_of(target.quantity);
            let miss = match target.quantity {
                Quantity::ModelR2(_) => measured - target.value,
                _ => measured / target.value - 1.0,
            };
            (miss / UNIT_MISS).powi(2)
        };
        targets.iter().map(miss).sum()
    }

    fn number(&mut self, free: FreeParameter) -> &mut f64 {
        match free {
            FreeParameter::Transfer => &mut self.transfer,
            FreeParameter::OverlappedCompute => &mut self.overlapped_compute,
            FreeParameter::MaxTransferTime => &mut self.max_transfer_time,
            FreeParameter::SecondTransfer => &mut self.second_transfer,
        }
    }
}

/// The shape nearest to `targets` that a search from `start` finds by changing the `free` numbers.
pub fn fit_shape(start: StageShape, free: &[FreeParameter], targets: &[Target]) -> StageShape {
    let ways = directions(free.len());
    let (mut best, mut least) = (start, start.squared_error(targets));
    let mut step = 0.5;
    for _ in 0..STEPS {
        if step < FINEST {
            break;
        }
        let (from, before) = (best, least);
        for way in &ways {
            let mut shape = from;
            for (&free, &sign) in free.iter().zip(way) {
                let factor = match sign {
                    1 => 1.0 + step,
                    -1 => 1.0 / (1.0 + step),
                    _ => 1.0,
                };
                *shape.number(free) *= factor;
            }
            let miss = shape.squared_error(targets);
            if miss < least {
                (best, least) = (shape, miss);
            }
        }
        if least >= before {
            step /= 2.0;
        }
    }
    best
}

/// One number up or down, or two.
fn directions(count: usize) -> Vec<Vec<i8>> {
    let mut ways = vec![vec![]];
    for _ in 0..count {
        ways =
            ways.iter().flat_map(|way| [0, 1, -1].map(|sign| [way.as_slice(), &[sign]].concat())).collect();
    }
    ways.retain(|way| (1..=2).contains(&way.iter().filter(|sign| **sign != 0).count()));
    ways
}
