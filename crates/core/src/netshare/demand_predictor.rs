//! Demand prediction of NetShare's central allocator (3.3): "a standard least squares predictor using the last 5
//! measurements of offered traffic".
//!
//! Choices that the paper leaves open: the predictor extrapolates the fitted line to one period after the last
//! measurement, and clips the result at zero. With fewer measurements, the line is fitted to those. A single
//! measurement is its own prediction.

use crate::units::Rate;

/// Number of measurements in the fit.
const WINDOW_LEN: usize = 5;

/// The measured traffic of one flow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DemandPredictor {
    /// Measurements from the oldest to the latest; the rest is unused.
    rates: [f64; WINDOW_LEN],
    count: usize,
}

impl DemandPredictor {
    /// Creates the state of a flow without measurements.
    pub fn new() -> DemandPredictor {
        DemandPredictor::default()
    }

    /// Adds the rate that the flow offered in the period that ends now.
    pub fn add_measurement(&mut self, rate: Rate) {
        if self.count == WINDOW_LEN {
            self.rates.rotate_left(1);
            self.count -= 1;
        }
        self.rates[self.count] = rate.get();
        self.count += 1;
    }

    /// Predicts the rate of the next period. `None` without measurements.
    pub fn predict_rate(&self) -> Option<Rate> {
        let rates = &self.rates[..self.count];
        let count = rates.len() as f64;
        if rates.is_empty() {
            return None;
        }
        // Times relative to their middle, in periods: -2, -1, 0, 1, 2; the next is count / 2 + 1/2. Each rate has the
        // weight 1 / count in the mean, and its time as weight in the slope. Dividing in this order prevents
        // overflow.
        let middle = (count - 1.0) / 2.0;
        let squares: f64 = (0..rates.len()).map(|at| (at as f64 - middle).powi(2)).sum();
        let next_time = (count + 1.0) / 2.0;
        let weight = |at: usize| match squares {
            0.0 => 1.0,
            squares => 1.0 / count + next_time * (at as f64 - middle) / squares,
        };
        let predicted: f64 = rates.iter().enumerate().map(|(at, rate)| weight(at) * rate).sum();
        // Rates near the maximum number may overflow in the sum. The last rate is the prediction then.
        Some(Rate::new(predicted.max(0.0)).unwrap_or(Rate::new(rates[self.count - 1])?))
    }
}
