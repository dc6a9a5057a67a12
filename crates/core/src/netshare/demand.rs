//! Demand prediction of NetShare's central allocator (3.3): "a standard least squares predictor using the last 5
//! measurements of offered traffic".
//!
//! What the paper leaves open: the line through the measurements is read off one period after the last one, and is not
//! taken below zero. With fewer measurements the line goes through those; one is a line by itself.

use crate::units::Rate;

/// How many measurements count.
const WINDOW: usize = 5;

/// What one flow was measured to offer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Demand {
    /// From the oldest to the latest, then unused.
    rates: [f64; WINDOW],
    count: usize,
}

impl Demand {
    /// A flow that was not measured yet.
    pub fn new() -> Demand {
        Demand::default()
    }

    /// The flow offered this rate in the period that ends now.
    pub fn measured(&mut self, rate: Rate) {
        if self.count == WINDOW {
            self.rates.rotate_left(1);
            self.count -= 1;
        }
        self.rates[self.count] = rate.get();
        self.count += 1;
    }

    /// What it will offer in the next period; nothing is known before it is measured.
    pub fn predict(&self) -> Option<Rate> {
        let rates = &self.rates[..self.count];
        let count = rates.len() as f64;
        if rates.is_empty() {
            return None;
        }
        // Times around their middle, in periods: -2, -1, 0, 1, 2; the next is count / 2 + 1/2. Each rate counts with
        // 1 / count for the mean, and with its time for the slope; in this order of division nothing overflows.
        let middle = (count - 1.0) / 2.0;
        let squares: f64 = (0..rates.len()).map(|at| (at as f64 - middle).powi(2)).sum();
        let ahead = (count + 1.0) / 2.0;
        let weight = |at: usize| match squares {
            0.0 => 1.0,
            squares => 1.0 / count + ahead * (at as f64 - middle) / squares,
        };
        let predicted: f64 = rates.iter().enumerate().map(|(at, rate)| weight(at) * rate).sum();
        // Rates near the highest number there is may add up to more than that; then the last one has to do.
        Some(Rate::new(predicted.max(0.0)).unwrap_or(Rate::new(rates[self.count - 1])?))
    }
}
