//! Predicts a buffer from a loss, or from a loss and the number of connections, by votes of machines for all pairs of classes.

use crate::classifier::{BinaryClassifier, ScaledFeatures, TrainingSettings};
use crate::data::{Loss, Record};

/// The linear scaling of a feature to -1 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FeatureScale {
    low: f64,
    high: f64,
}

impl FeatureScale {
    /// A scale from the lowest to the highest value; none if `low` is not below `high`, or one is not finite.
    pub fn new(low: f64, high: f64) -> Option<FeatureScale> {
        (low < high && low.is_finite() && high.is_finite()).then_some(FeatureScale { low, high })
    }

    /// The scale from the lowest to the highest of some values; none if fewer than two differ.
    fn from_values(values: impl Iterator<Item = f64> + Clone) -> Option<FeatureScale> {
        FeatureScale::new(values.clone().reduce(f64::min)?, values.reduce(f64::max)?)
    }

    /// The lowest and the highest value.
    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The scaled value, from -1 to 1; values outside the range are set to its ends.
    pub fn scale(&self, value: f64) -> f64 {
        (2.0 * (value - self.low) / (self.high - self.low) - 1.0).clamp(-1.0, 1.0)
    }

    /// Whether a value is in the range.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Why records are not sufficient for training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// There are fewer than two classes.
    #[error("records of {0} classes; expected at least 2")]
    TooFewClasses(usize),
    /// All losses are equal.
    #[error("all records have the same loss; expected losses that differ with the buffer")]
    EqualLosses,
    /// The number of connections differs between all records, but not between the training records.
    #[error("all training records have the same number of connections; help: measure more runs")]
    EqualConnections,
}

/// A prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The buffer, in packets.
    pub buffer: u32,
    /// Votes for the buffer. The maximum is the number of classes minus 1.
    pub votes: usize,
}

/// A predictor of the buffer: |Q| (|Q| - 1) / 2 machines, one for each pair of classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictor {
    pub(crate) classes: Vec<u32>,
    pub(crate) loss_scale: FeatureScale,
    /// `None` if the loss is the only feature.
    pub(crate) connection_scale: Option<FeatureScale>,
    pub(crate) gamma: f64,
    /// In the order of [`class_pairs`].
    pub(crate) classifiers: Vec<BinaryClassifier>,
}

/// The pairs of classes, the smaller first: 0 and 1, 0 and 2, ..., 1 and 2, ...
pub(crate) fn class_pairs(classes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..classes).flat_map(move |smaller| (smaller + 1..classes).map(move |larger| (smaller, larger)))
}

impl Predictor {
    /// Trains on records in any order. At least O(n^2) for the n records of a pair of classes. The number of connections is a
    /// feature if it differs between records.
    ///
    /// # Errors
    /// [`TrainError::TooFewClasses`] for fewer than two buffers; [`TrainError::EqualLosses`] if all losses are equal.
    pub fn train(records: &[Record], settings: &TrainingSettings) -> Result<Predictor, TrainError> {
        let mut records = records.to_vec();
        records.sort_by(Record::compare);
        let by_class: Vec<&[Record]> = records.chunk_by(|a, b| a.buffer == b.buffer).collect();
        if by_class.len() < 2 {
            return Err(TrainError::TooFewClasses(by_class.len()));
        }
        let loss_scale = FeatureScale::from_values(records.iter().map(|record| record.loss.get()));
        let loss_scale = loss_scale.ok_or(TrainError::EqualLosses)?;
        let connection_scale =
            FeatureScale::from_values(records.iter().map(|record| f64::from(record.connections)));
        let mut predictor = Predictor {
            classes: by_class.iter().map(|class| class[0].buffer).collect(),
            loss_scale,
            connection_scale,
            gamma: settings.gamma(),
            classifiers: Vec::new(),
        };
        let scale = |record: &Record| predictor.scale_features(record.loss, record.connections);
        let scaled: Vec<Vec<ScaledFeatures>> =
            by_class.iter().map(|class| class.iter().map(scale).collect()).collect();
        let train = |(a, b): (usize, usize)| BinaryClassifier::train(&scaled[a], &scaled[b], settings);
        predictor.classifiers = class_pairs(scaled.len()).map(train).collect();
        Ok(predictor)
    }

    fn scale_features(&self, loss: Loss, connections: u32) -> ScaledFeatures {
        let scale_connections = |scale: FeatureScale| scale.scale(f64::from(connections));
        [self.loss_scale.scale(loss.get()), self.connection_scale.map_or(0.0, scale_connections)]
    }

    /// The most probable buffer if this number of connections has this loss, by votes. Ties go to the smallest buffer. The number
    /// has no effect without [`Predictor::connection_scale`].
    pub fn predict(&self, loss: Loss, connections: u32) -> Prediction {
        let x = self.scale_features(loss, connections);
        let mut votes = vec![0; self.classes.len()];
        for ((smaller, larger), machine) in class_pairs(self.classes.len()).zip(&self.classifiers) {
            votes[if machine.decision_value(x, self.gamma) > 0.0 { smaller } else { larger }] += 1;
        }
        most_voted_class(&self.classes, &votes)
    }

    /// The number of records whose buffer is predicted correctly.
    pub fn count_correct(&self, records: &[Record]) -> usize {
        let predict = |record: &Record| self.predict(record.loss, record.connections).buffer;
        records.iter().filter(|record| predict(record) == record.buffer).count()
    }

    /// The buffers, in ascending order.
    pub fn classes(&self) -> &[u32] {
        &self.classes
    }

    /// The scaling of the training losses.
    pub fn loss_scale(&self) -> &FeatureScale {
        &self.loss_scale
    }

    /// The scaling of the numbers of connections of the training records; `None` if the loss is the only feature.
    pub fn connection_scale(&self) -> Option<&FeatureScale> {
        self.connection_scale.as_ref()
    }

    /// The kernel's gamma.
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// The machines, each with its smaller and its larger buffer.
    pub fn classifiers(&self) -> impl Iterator<Item = (u32, u32, &BinaryClassifier)> {
        let pairs = class_pairs(self.classes.len()).map(|(a, b)| (self.classes[a], self.classes[b]));
        pairs.zip(&self.classifiers).map(|((a, b), machine)| (a, b, machine))
    }
}

/// The class with most votes; the smallest if several are equal.
fn most_voted_class(classes: &[u32], votes: &[usize]) -> Prediction {
    let max_votes = votes.iter().copied().max().unwrap_or(0);
    let first = votes.iter().position(|count| *count == max_votes).unwrap_or(0);
    Prediction { buffer: classes[first], votes: max_votes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_count_matches_algorithm_1() {
        for classes in 2..=16 {
            assert_eq!(class_pairs(classes).count(), classes * (classes - 1) / 2);
        }
        assert_eq!(class_pairs(3).collect::<Vec<_>>(), [(0, 1), (0, 2), (1, 2)]);
    }

    #[test]
    fn smallest_buffer_wins_ties() {
        let classes = [50, 100, 150];
        assert_eq!(most_voted_class(&classes, &[0, 1, 2]), Prediction { buffer: 150, votes: 2 });
        // Each class beats one of the others.
        assert_eq!(most_voted_class(&classes, &[1, 1, 1]), Prediction { buffer: 50, votes: 1 });
        assert_eq!(
            most_voted_class(&[50, 100, 150, 200], &[1, 2, 2, 1]),
            Prediction { buffer: 100, votes: 2 }
        );
    }
}
