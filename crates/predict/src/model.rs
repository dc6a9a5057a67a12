//! A predictor, and where it comes from.

use crate::data::{Conditions, Record, Records};
use crate::machine::Settings;
use crate::predictor::{Predictor, TrainError};

/// How a predictor was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    /// The name of the file with the measurements.
    pub data: String,
    /// What these have in common.
    pub conditions: Conditions,
    /// By which records were divided.
    pub seed: u32,
    /// How machines were trained.
    pub settings: Settings,
    /// How many records it was trained on.
    pub trained: usize,
    /// How many it was then tested on.
    pub held_out: usize,
    /// How many of these it was right about.
    pub right: usize,
}

impl Training {
    /// The part of the records held out that it was right about.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.held_out as f64
    }
}

/// How well a predictor does at one buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BufferAccuracy {
    /// The buffer, in packets.
    pub buffer: u32,
    /// The mean loss over all records, from 0 to 1.
    pub mean_loss: f64,
    /// How many records it was trained on.
    pub trained: usize,
    /// How many records it was tested on; may be 0.
    pub held_out: usize,
    /// How many of the records held out it was right about.
    pub right: usize,
}

/// A predictor, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) predictor: Predictor,
    pub(crate) training: Training,
}

impl Model {
    /// Trains on three quarters of the measurements, as drawn by `seed`, and tests on the rest (Algorithm 1, lines 5 to 7). They are called
    /// `data`, in which control characters become `?`; the same measurements in another order give the same model.
    ///
    /// # Errors
    /// If nothing can be learned from them.
    pub fn train(records: &Records, data: &str, seed: u32, settings: Settings) -> Result<Model, TrainError> {
        let order = records.shuffled(&records.classes(), seed);
        let (train, test) = order.split_at(order.len() - held_out(order.len()));
        let predictor = Predictor::train(train, &settings)?;
        let training = Training {
            data: data.replace(char::is_control, "?"),
            conditions: records.conditions().clone(),
            seed,
            settings,
            trained: train.len(),
            held_out: test.len(),
            right: predictor.right(test),
        };
        Ok(Model { predictor, training })
    }

    /// How well the predictor does at each buffer, from the smallest. `records` are those that it was trained on.
    pub fn accuracies(&self, records: &Records) -> Vec<BufferAccuracy> {
        let classes = self.predictor.classes();
        let order = records.shuffled(classes, self.training.seed);
        let (train, test) = order.split_at(self.training.trained);
        let accuracy = |&buffer: &u32| {
            let at_buffer = |records: &[Record]| -> Vec<Record> {
                records.iter().copied().filter(|record| record.buffer == buffer).collect()
            };
            let (all, tested) = (at_buffer(records.all()), at_buffer(test));
            BufferAccuracy {
                buffer,
                mean_loss: all.iter().map(|record| record.loss.get()).sum::<f64>() / all.len() as f64,
                trained: at_buffer(train).len(),
                held_out: tested.len(),
                right: self.predictor.right(&tested),
            }
        };
        classes.iter().map(accuracy).collect()
    }

    /// What tells buffers by losses.
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// How that was made.
    pub fn training(&self) -> &Training {
        &self.training
    }
}

/// How many of so many records test: a quarter, as 100 of the paper's 400, but at least one.
pub(crate) fn held_out(records: usize) -> usize {
    (records / 4).max(1)
}
