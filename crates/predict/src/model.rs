//! A trained predictor with its origin and accuracy.

use crate::classifier::TrainingSettings;
use crate::data::{Conditions, Record, Records};
use crate::predictor::{Predictor, TrainError};

/// The origin and accuracy of a predictor.
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    /// The name of the file with the measurements.
    pub data: String,
    /// The parameters that all measurements share.
    pub conditions: Conditions,
    /// The seed that split the records.
    pub seed: u32,
    /// The training parameters.
    pub settings: TrainingSettings,
    /// Number of training records.
    pub training_records: usize,
    /// Number of test records.
    pub test_records: usize,
    /// Number of test records that were predicted correctly.
    pub correct_predictions: usize,
}

impl Training {
    /// The fraction of test records that were predicted correctly.
    pub fn accuracy(&self) -> f64 {
        self.correct_predictions as f64 / self.test_records as f64
    }
}

/// The accuracy of a predictor at one buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BufferAccuracy {
    /// The buffer, in packets.
    pub buffer: u32,
    /// The mean loss over all records, from 0 to 1.
    pub mean_loss: f64,
    /// Number of training records.
    pub training_records: usize,
    /// Number of test records; can be 0.
    pub test_records: usize,
    /// Number of test records that were predicted correctly.
    pub correct_predictions: usize,
}

/// A predictor with its origin and accuracy.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) predictor: Predictor,
    pub(crate) training: Training,
}

impl Model {
    /// Trains on three quarters of the measurements, selected by `seed`, and tests on the rest (Algorithm 1, lines 5 to 7).
    /// `data` is the name of the measurements; its control characters become `?`. The order of the measurements has no
    /// effect.
    ///
    /// # Errors
    /// As for [`Predictor::train`]; [`TrainError::EqualConnections`] if the training records lack a feature.
    pub fn train(
        records: &Records,
        data: &str,
        seed: u32,
        settings: TrainingSettings,
    ) -> Result<Model, TrainError> {
        let order = records.shuffled(&records.classes(), seed);
        let (train, test) = order.split_at(order.len() - test_record_count(order.len()));
        let predictor = Predictor::train(train, &settings)?;
        if records.conditions().connections.is_none() && predictor.connection_scale().is_none() {
            return Err(TrainError::EqualConnections);
        }
        let training = Training {
            data: data.replace(char::is_control, "?"),
            conditions: records.conditions().clone(),
            seed,
            settings,
            training_records: train.len(),
            test_records: test.len(),
            correct_predictions: predictor.count_correct(test),
        };
        Ok(Model { predictor, training })
    }

    /// The accuracy at each buffer, in ascending order. `records` must be those that the predictor was trained on.
    pub fn accuracies(&self, records: &Records) -> Vec<BufferAccuracy> {
        let classes = self.predictor.classes();
        let order = records.shuffled(classes, self.training.seed);
        let (train, test) = order.split_at(self.training.training_records);
        let accuracy = |&buffer: &u32| {
            let at_buffer = |records: &[Record]| -> Vec<Record> {
                records.iter().copied().filter(|record| record.buffer == buffer).collect()
            };
            let (all, tested) = (at_buffer(records.as_slice()), at_buffer(test));
            BufferAccuracy {
                buffer,
                mean_loss: all.iter().map(|record| record.loss.get()).sum::<f64>() / all.len() as f64,
                training_records: at_buffer(train).len(),
                test_records: tested.len(),
                correct_predictions: self.predictor.count_correct(&tested),
            }
        };
        classes.iter().map(accuracy).collect()
    }

    /// The predictor.
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// Its origin and accuracy.
    pub fn training(&self) -> &Training {
        &self.training
    }
}

/// The number of test records: a quarter, as 100 of the paper's 400, but at least one.
pub(crate) fn test_record_count(records: usize) -> usize {
    (records / 4).max(1)
}
