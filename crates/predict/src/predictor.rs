//! Predicts a buffer from a loss by votes of machines for all pairs of classes.

use crate::classifier::{BinaryClassifier, TrainingSettings};
use crate::data::{Loss, Record};

/// The linear scaling of losses to -1 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScale {
    low: f64,
    high: f64,
}

impl LossScale {
    /// A scale from the lowest to the highest loss; none if `low` is not below `high`.
    pub fn new(low: Loss, high: Loss) -> Option<LossScale> {
        (low < high).then_some(LossScale { low: low.get(), high: high.get() })
    }

    /// The lowest and the highest loss.
    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The scaled loss, from -1 to 1; losses outside the range are set to its ends.
    pub fn scale_loss(&self, loss: Loss) -> f64 {
        (2.0 * (loss.get() - self.low) / (self.high - self.low) - 1.0).clamp(-1.0, 1.0)
    }

    /// Whether a loss is in the range.
    pub fn contains(&self, loss: Loss) -> bool {
        (self.low..=self.high).contains(&loss.get())
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
}

/// A prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The buffer, in packets.
    pub buffer: u32,
    /// Votes for the buffer. The maximum is the number of classes minus 1.
    pub votes: usize,
}

/// A predictor of the buffer from the loss: |Q| (|Q| - 1) / 2 machines, one for each pair of classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictor {
    pub(crate) classes: Vec<u32>,
    pub(crate) scale: LossScale,
    pub(crate) gamma: f64,
    /// In the order of [`class_pairs`].
    pub(crate) classifiers: Vec<BinaryClassifier>,
}

/// The pairs of classes, the smaller first: 0 and 1, 0 and 2, ..., 1 and 2, ...
pub(crate) fn class_pairs(classes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..classes).flat_map(move |smaller| (smaller + 1..classes).map(move |larger| (smaller, larger)))
}

impl Predictor {
    /// Trains on records in any order. At least O(n^2) for the n records of a pair of classes.
    ///
    /// # Errors
    /// [`TrainError::TooFewClasses`] for fewer than two buffers; [`TrainError::EqualLosses`] if all losses are equal.
    pub fn train(records: &[Record], settings: &TrainingSettings) -> Result<Predictor, TrainError> {
        let mut records = records.to_vec();
        records.sort_by(|a, b| a.buffer.cmp(&b.buffer).then(a.loss.get().total_cmp(&b.loss.get())));
        let by_class: Vec<&[Record]> = records.chunk_by(|a, b| a.buffer == b.buffer).collect();
        if by_class.len() < 2 {
            return Err(TrainError::TooFewClasses(by_class.len()));
        }
        let losses = || by_class.iter().flat_map(|class| class.iter().map(|record| record.loss));
        let lowest = losses().reduce(|a, b| if b < a { b } else { a });
        let highest = losses().reduce(|a, b| if b > a { b } else { a });
        let ends = lowest.zip(highest).expect("`chunk_by` yields no empty class, and there are two or more");
        let scale = LossScale::new(ends.0, ends.1).ok_or(TrainError::EqualLosses)?;
        let scaled: Vec<Vec<f64>> = by_class
            .iter()
            .map(|class| class.iter().map(|record| scale.scale_loss(record.loss)).collect())
            .collect();
        let train = |(a, b): (usize, usize)| BinaryClassifier::train(&scaled[a], &scaled[b], settings);
        Ok(Predictor {
            classes: by_class.iter().map(|class| class[0].buffer).collect(),
            scale,
            gamma: settings.gamma(),
            classifiers: class_pairs(scaled.len()).map(train).collect(),
        })
    }

    /// The most probable buffer at this loss, by votes. Ties go to the smallest buffer.
    pub fn predict(&self, loss: Loss) -> Prediction {
        let x = self.scale.scale_loss(loss);
        let mut votes = vec![0; self.classes.len()];
        for ((smaller, larger), machine) in class_pairs(self.classes.len()).zip(&self.classifiers) {
            votes[if machine.decision_value(x, self.gamma) > 0.0 { smaller } else { larger }] += 1;
        }
        most_voted_class(&self.classes, &votes)
    }

    /// The number of records whose buffer is predicted correctly.
    pub fn count_correct(&self, records: &[Record]) -> usize {
        records.iter().filter(|record| self.predict(record.loss).buffer == record.buffer).count()
    }

    /// The buffers, in ascending order.
    pub fn classes(&self) -> &[u32] {
        &self.classes
    }

    /// The scaling of the training losses.
    pub fn scale(&self) -> &LossScale {
        &self.scale
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
