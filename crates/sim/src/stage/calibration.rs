//! Fits a workload's shape to what the paper publishes about it.
//!
//! A [`Shape`] is a stage in parts of the time that it takes with all bandwidth. Some of its numbers are free, and are searched
//! for: along each of them and each pair of them, by a factor that halves when nothing gets better. What is searched for is
//! the least sum of squared misses, a slowdown's miss by its ratio and an R^2's by its difference, in units of [`UNIT`].
//!
//! The paper publishes fewer numbers than a shape has, so the rest of a shape is ours: what is not free stays as it starts,
//! and a [`Target`] says whether the paper has it.

use weir_core::saba::profile::FRACTIONS;
use weir_core::solve::polynomial::{self, Degree};

/// A miss that counts as 1: 2 % of a slowdown, or 0.02 of an R^2.
pub const UNIT: f64 = 0.02;

/// The smallest step of the search, as a part of a number.
const FINEST: f64 = 1e-6;

/// The most steps of the search: far more than it takes.
const STEPS: u32 = 100_000;

/// A stage in parts of the time that it takes with all bandwidth, which is 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Moving bytes, with all bandwidth.
    pub moving: f64,
    /// Computing meanwhile.
    pub beside: f64,
    /// The longest that those bytes are waited for; infinite if as long as it takes.
    pub patience: f64,
    /// Moving bytes that are waited for however long it takes, with all bandwidth.
    pub after: f64,
}

/// Which numbers of a shape are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// [`Shape::moving`].
    Moving,
    /// [`Shape::beside`].
    Beside,
    /// [`Shape::patience`].
    Patience,
    /// [`Shape::after`].
    After,
}

/// What a number is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// The slowdown at this part of the bandwidth.
    Slowdown(f64),
    /// The slowdown at the first part of the bandwidth over that at the second.
    Ratio(f64, f64),
    /// R^2 of the model of this degree.
    Explained(Degree),
}

/// A number that a shape should have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// What of.
    pub quantity: Quantity,
    /// The number.
    pub value: f64,
    /// Where the paper has it; `None` if it is ours.
    pub source: Option<&'static str>,
}

impl Shape {
    /// What is computed before bytes move; below 0 if there is no such shape.
    pub fn compute(&self) -> f64 {
        1.0 - self.beside.max(self.moving.min(self.patience)) - self.after
    }

    /// The slowdown with this part of the bandwidth.
    pub fn slowdown(&self, bandwidth: f64) -> f64 {
        let moving = (self.moving / bandwidth).min(self.patience);
        self.compute() + self.beside.max(moving) + self.after / bandwidth
    }

    /// What the profiler would see (section 7.1).
    pub fn samples(&self) -> Vec<(f64, f64)> {
        FRACTIONS.iter().map(|b| (b.get(), self.slowdown(b.get()))).collect()
    }

    /// A quantity of it.
    pub fn measure(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Slowdown(bandwidth) => self.slowdown(bandwidth),
            Quantity::Ratio(a, b) => self.slowdown(a) / self.slowdown(b),
            Quantity::Explained(degree) => {
                polynomial::fit(&self.samples(), degree).map_or(f64::NEG_INFINITY, |fit| fit.r2)
            }
        }
    }

    /// How far it is from all targets together; infinite if there is no such shape.
    pub fn miss(&self, targets: &[Target]) -> f64 {
        if self.compute() < 0.0 || self.patience < self.moving {
            return f64::INFINITY;
        }
        let miss = |target: &Target| {
            let measured = self.measure(target.quantity);
            let miss = match target.quantity {
                Quantity::Explained(_) => measured - target.value,
                _ => measured / target.value - 1.0,
            };
            (miss / UNIT).powi(2)
        };
        targets.iter().map(miss).sum()
    }

    fn number(&mut self, free: Free) -> &mut f64 {
        match free {
            Free::Moving => &mut self.moving,
            Free::Beside => &mut self.beside,
            Free::Patience => &mut self.patience,
            Free::After => &mut self.after,
        }
    }
}

/// The shape nearest to `targets` that a search from `start` finds, with only `free` numbers changed.
pub fn fit(start: Shape, free: &[Free], targets: &[Target]) -> Shape {
    let ways = directions(free.len());
    let (mut best, mut least) = (start, start.miss(targets));
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
            let miss = shape.miss(targets);
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
