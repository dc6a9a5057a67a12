//! Estimates of the sizes of a coflow's live flows, from the sizes of its completed flows and the bytes that live flows have sent.

use super::super::normal::upper_tail;
use super::Constants;

/// Completed flows to one receiver: their number, their mean size, and the sum of the squared deviations from the mean.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    count: u32,
    mean: f64,
    squares: f64,
}

impl Sample {
    /// Adds a size (Welford's algorithm).
    fn add(&mut self, size: f64) {
        self.count += 1;
        let from_mean = size - self.mean;
        self.mean += from_mean / f64::from(self.count);
        self.squares += from_mean * (size - self.mean);
    }
}

/// Completed flows of one coflow, by receiver.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    by_receiver: Vec<Sample>,
    count: u32,
}

impl Samples {
    /// No completed flows, to this number of receivers.
    pub fn new(receivers: usize) -> Samples {
        Samples { by_receiver: vec![Sample::default(); receivers], count: 0 }
    }

    /// Adds a completed flow. A flow without bytes says nothing about other flows.
    pub fn add(&mut self, receiver: usize, size: f64) {
        if size > 0.0 {
            self.by_receiver[receiver].add(size);
            self.count += 1;
        }
    }

    /// Whether no flow has completed.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of completed flows.
    pub fn total(&self) -> u32 {
        self.count
    }

    /// Number of completed flows to a receiver.
    pub fn count(&self, receiver: usize) -> u32 {
        self.by_receiver[receiver].count
    }

    /// Summarizes the completed flows, of which there is at least one. O(receivers).
    pub fn summarize(&self) -> Summary {
        let seen = || self.by_receiver.iter().filter(|sample| sample.count > 0);
        let receivers = seen().count() as f64;
        let mean = seen().map(|sample| sample.mean).sum::<f64>() / receivers;
        let degrees = seen().map(|sample| sample.count - 1).sum::<u32>();
        let relative_squares: f64 = seen().map(|sample| sample.squares / (sample.mean * sample.mean)).sum();
        let within = if degrees > 0 { relative_squares / f64::from(degrees) } else { 0.0 };
        let between = if receivers > 1.0 {
            let squares: f64 = seen().map(|sample| (sample.mean - mean).powi(2)).sum();
            let noise: f64 = seen().map(|sample| within * mean * mean / f64::from(sample.count)).sum();
            (squares / (receivers - 1.0) - noise / receivers).max(0.0)
        } else {
            0.0
        };
        Summary { mean, within, between, degrees }
    }
}

/// What the completed flows of a coflow say about its other flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summary {
    /// Mean over receivers of the mean size, in bytes.
    pub mean: f64,
    /// Variance of sizes inside a receiver, relative to the square of their mean.
    pub within: f64,
    /// Variance between the mean sizes of receivers, in bytes squared, without the part that `within` explains.
    pub between: f64,
    /// Degrees of freedom of `within`.
    pub degrees: u32,
}

impl Summary {
    /// The variance of all sizes, relative to the square of their mean.
    pub fn relative_variance(&self) -> f64 {
        self.within + self.between / (self.mean * self.mean)
    }

    /// The mean size of the flows to a receiver: the mean of its completed flows, moved towards the mean of all receivers the more,
    /// the less the completed flows say (the best linear predictor).
    pub fn receiver_mean(&self, samples: &Samples, receiver: usize) -> f64 {
        let sample = samples.by_receiver[receiver];
        if sample.count == 0 {
            return self.mean;
        }
        if self.within == 0.0 {
            return sample.mean;
        }
        let noise = self.within * self.mean * self.mean / f64::from(sample.count);
        let weight = self.between / (self.between + noise);
        weight * sample.mean + (1.0 - weight) * self.mean
    }

    /// The relative variance of the sizes of flows to a receiver around [`Summary::receiver_mean`].
    fn receiver_variance(&self, samples: &Samples, receiver: usize) -> f64 {
        let is_sampled = samples.count(receiver) > 0;
        self.within + if is_sampled { 0.0 } else { self.between / (self.mean * self.mean) }
    }
}

/// The mean and the relative variance of the sizes of flows, by receiver.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceiverEstimates {
    by_receiver: Vec<(f64, f64)>,
    spread: Option<(f64, u32)>,
}

impl ReceiverEstimates {
    /// Computes the estimates from completed flows, of which there is at least one. Returns whether an estimate differs by more than
    /// rounding. O(receivers).
    pub fn update(&mut self, samples: &Samples) -> bool {
        let summary = samples.summarize();
        self.spread = Some((summary.within, summary.degrees));
        let mut is_changed = self.by_receiver.len() != samples.by_receiver.len();
        self.by_receiver.resize(samples.by_receiver.len(), (0.0, 0.0));
        for (receiver, estimate) in self.by_receiver.iter_mut().enumerate() {
            let new =
                (summary.receiver_mean(samples, receiver), summary.receiver_variance(samples, receiver));
            if (new.0 - estimate.0).abs() > 1e-6 * new.0 || (new.1 - estimate.1).abs() > 1e-6 {
                *estimate = new;
                is_changed = true;
            }
        }
        is_changed
    }

    /// The mean size of flows to a receiver in bytes, and the variance relative to its square.
    pub fn mean_and_variance(&self, receiver: usize) -> (f64, f64) {
        self.by_receiver[receiver]
    }

    /// The relative variance inside receivers, and its degrees of freedom; `None` before the first completed flow.
    pub fn spread(&self) -> Option<(f64, u32)> {
        self.spread
    }
}

/// The expected size of a flow that has sent `sent` bytes, if sizes are lognormal with this mean and relative variance; always more
/// than `sent`.
pub(super) fn expected_size(mean: f64, relative_variance: f64, sent: f64, constants: &Constants) -> f64 {
    let mut size = mean;
    if sent > 0.0 && relative_variance > 0.0 {
        let log_variance = libm::log1p(relative_variance);
        let deviation = log_variance.sqrt();
        let median_distance = (libm::log(mean / sent) - log_variance / 2.0) / deviation;
        let survival = upper_tail(-median_distance);
        if survival > 1e-9 {
            size = mean * upper_tail(-median_distance - deviation) / survival;
        }
    }
    if sent > mean {
        // The flow is an outlier: the completed flows say little about it.
        size = size.max(sent + constants.outlier_growth * (sent - mean));
    }
    let is_credible = sent < (1.0 - constants.credible_remainder) * size;
    if is_credible { size } else { (1.0 + constants.exceeded_growth) * sent }
}
