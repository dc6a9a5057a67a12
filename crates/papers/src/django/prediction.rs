//! Evaluates the predictor: its accuracy (6.2, Fig. 4), and the number of connections that it predicts (theorem 4.1).

use weir_console::chart::{Dot, DotRow, Scale};
use weir_predict::data::{self, Record, Records};
use weir_predict::{Loss, Model, Predictor, TrainingSettings, file, max_connections};
use weir_sim::outcome::percentile;

use super::replays::Replays;
use super::setup::{DEFAULT, Setup};
use crate::claim::Claim;
use crate::markdown::{format_cell, format_interval, format_percent, table};
use crate::picture::{Pictures, published_next_to_measured};
use weir_console::confidence_interval::ConfidenceInterval;
use weir_console::failure::Failure;
use weir_console::progress::Progress;

/// The measured losses at known buffers.
const CLASSES_CSV: &str = include_str!("../../../../examples/incast/classes.csv");
const CLASSES_NAME: &str = "examples/incast/classes.csv";

/// The model that `weir predict train` makes of these losses.
const MODEL_TOML: &str = include_str!("../../../../examples/incast/model.toml");

/// The number of random divisions of the records into training and test.
pub const SPLITS: u32 = 20;

/// Accuracies by the number of classes (6.2). Up to three classes "perform well"; their value is the 98 % of the abstract.
const PUBLISHED_ACCURACIES: [(usize, f64); 4] = [(2, 0.98), (3, 0.98), (4, 0.877), (5, 0.736)];

/// The numbers of training records in Fig. 4.
const TRAINING_COUNTS: [usize; 6] = [50, 100, 150, 200, 250, 300];

/// The numbers of connections that are compared with the predicted one for theorem 4.1.
const CANDIDATE_CONNECTIONS: [usize; 9] = [1, 2, 4, 6, 8, 11, 16, 32, 64];

/// The records that the predictor learns from.
///
/// # Errors
/// If the file is malformed.
pub fn records() -> Result<Records, Failure> {
    Ok(data::read_from(CLASSES_CSV.as_bytes(), CLASSES_NAME)?)
}

/// Records in an order drawn by a seed. The last quarter are the test records.
pub struct Split(Vec<Record>);

impl Split {
    pub fn new(records: &Records, classes: &[u32], seed: u32) -> Split {
        Split(records.shuffled(classes, seed))
    }

    /// The maximum number of training records.
    pub fn max_training_count(&self) -> usize {
        self.0.len() - self.0.len() / 4
    }

    pub fn training_records(&self, count: usize) -> &[Record] {
        &self.0[..count]
    }

    pub fn test_records(&self) -> &[Record] {
        &self.0[self.max_training_count()..]
    }
}

/// The accuracies of predictors on test records, one for each split.
fn accuracies(records: &Records, classes: &[u32], training_count: usize) -> Result<Vec<f64>, Failure> {
    let split_accuracy = |seed| {
        Failure::check_interrupt()?;
        let split = Split::new(records, classes, seed);
        let predictor =
            Predictor::train(split.training_records(training_count), &TrainingSettings::default());
        let correct = predictor.map_err(Failure::runtime)?.count_correct(split.test_records());
        Ok(correct as f64 / split.test_records().len() as f64)
    };
    (1..=SPLITS).map(split_accuracy).collect()
}

/// Fig. 4, the paper's statement about 100 training records, and the rows of a plot of accuracies in percent.
///
/// # Errors
/// If a signal stops the work.
pub fn fig4(records: &Records, progress: &Progress) -> Result<(String, Claim, Vec<DotRow>), Failure> {
    let bar = progress.add_step_bar("predictors", PUBLISHED_ACCURACIES.len());
    let percent = |values: &[f64]| {
        let interval = ConfidenceInterval::from_values(values);
        format!("{:.1} ± {:.1} %", 100.0 * interval.mean, 100.0 * interval.half_width)
    };
    let classes = records.classes();
    let (mut rows, mut all_classes, mut dots) = (Vec::new(), Vec::new(), Vec::new());
    for (count, published) in PUBLISHED_ACCURACIES {
        let classes = &classes[..count];
        let max = Split::new(records, classes, 1).max_training_count();
        let all = accuracies(records, classes, max)?;
        let mut row = vec![
            count.to_string(),
            format_percent(published),
            percent(&all),
            format_percent(1.0 / count as f64),
        ];
        let interval = ConfidenceInterval::from_values(&all);
        let measured = Dot { value: 100.0 * interval.mean, half_width: 100.0 * interval.half_width };
        dots.push(DotRow {
            name: format!("{count} classes"),
            dots: vec![Some((100.0 * published).into()), Some(measured)],
        });
        let with_records =
            |count| if count <= max { accuracies(records, classes, count) } else { Ok(Vec::new()) };
        all_classes = TRAINING_COUNTS.into_iter().map(with_records).collect::<Result<Vec<_>, _>>()?;
        row.extend(
            all_classes.iter().map(|found| if found.is_empty() { "-".to_owned() } else { percent(found) }),
        );
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let [_, few, .., all] = &all_classes[..] else { unreachable!("there are six numbers of records") };
    let accuracy_loss = ConfidenceInterval::from_values(
        &all.iter().zip(few).map(|(all, few)| 100.0 * (all - few)).collect::<Vec<f64>>(),
    );
    let claim = Claim::statement(
        "accuracy lost with 100 training records instead of 300, points",
        "6.2: \"only 3% accuracy loss\"",
        "3",
        format_interval(&accuracy_loss),
    );
    let heads = TRAINING_COUNTS.map(|trained| format!("{trained} records"));
    let head: Vec<&str> = ["classes", "published", "measured", "chance"]
        .into_iter()
        .chain(heads.iter().map(String::as_str))
        .collect();
    let conditions = records.conditions();
    let section = format!(
        "## Fig. 4: buffer prediction (6.2)\n\n\
         A record is the loss in one run of {} connections, {} bytes each, at a known buffer. There are {} records over {} \
         buffers, measured on the testbed ([how](../testbed.md#incast)). Three quarters train the \
         [predictor](../predict.md), with LibSVM's default parameters, and one quarter tests it. Accuracies are means over \
         {SPLITS} random divisions, with the 95 % confidence interval of the mean. A row with n classes has the n smallest \
         buffers. The paper does not state its buffers.\n\
         {}",
        records.as_slice()[0].connections,
        conditions.bytes_per_connection,
        records.as_slice().len(),
        classes.len(),
        table(&head, 0, &rows)
    );
    Ok((section, claim, dots))
}

/// The picture of Fig. 4.
pub fn picture(accuracies: &[DotRow], pictures: &mut Pictures) -> String {
    pictures.add(
        "accuracy",
        "Accuracy of the buffer prediction by the number of classes: published and measured",
        "The accuracies of the table, with all training records.",
        published_next_to_measured("accuracy (%)", Scale::Linear, None, accuracies.to_vec()),
    )
}

/// The prediction for one buffer.
pub struct Prediction {
    /// The real buffer, in packets.
    buffer: u32,
    /// The median loss at this buffer.
    loss: Loss,
    /// The predicted buffer, in packets.
    predicted: u32,
    /// The number of connections for the predicted buffer.
    connections: usize,
}

/// Predicts every buffer from its median loss. The switch marks from `threshold` packets on.
///
/// # Errors
/// If the model is malformed.
pub fn predictions(records: &Records, threshold: u32) -> Result<Vec<Prediction>, Failure> {
    let model: Model = file::read_from(MODEL_TOML.as_bytes(), "examples/incast/model.toml")?;
    let to_prediction = |class: &[Record]| {
        let losses: Vec<f64> = class.iter().map(|record| record.loss.get()).collect();
        let loss =
            Loss::new(percentile(&losses, 50.0)).expect("the median of losses is one of them or between two");
        let predicted = model.predictor().predict(loss, class[0].connections).buffer;
        let connections = max_connections(predicted, threshold).connections as usize;
        Prediction { buffer: class[0].buffer, loss, predicted, connections }
    };
    Ok(records.as_slice().chunk_by(|a, b| a.buffer == b.buffer).map(to_prediction).collect())
}

/// Theorem 4.1: the predicted number of connections next to the best one, at the buffers with measured costs.
pub fn theorem(replays: &Replays<'_>, predictions: &[Prediction], claims: &mut Vec<Claim>) -> String {
    let measured = replays.inputs.base().incast.buffers();
    let (mut rows, mut max_cct_ratio) = (Vec::new(), 0.0_f64);
    for Prediction { buffer, loss, predicted, connections } in predictions {
        if !measured.contains(buffer) {
            continue;
        }
        let setup = Setup { buffer_packets: *buffer, ..DEFAULT };
        let cct = |connections: usize| replays.django_with(setup, connections, "").mean();
        let candidates =
            CANDIDATE_CONNECTIONS.into_iter().chain([*connections]).map(|count| (count, cct(count)));
        let best =
            candidates.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0))).expect("there are candidates");
        max_cct_ratio = max_cct_ratio.max(cct(*connections) / best.1);
        let counts =
            [buffer.to_string(), format_percent(loss.get()), predicted.to_string(), connections.to_string()];
        rows.push(
            [counts.to_vec(), vec![format_cell(cct(*connections)), best.0.to_string(), format_cell(best.1)]]
                .concat(),
        );
    }
    claims.push(Claim::statement(
        "predicted number of connections: mean CCT / lowest mean CCT",
        "4, theorem 4.1",
        "\"the optimal number\"",
        format!("up to {}", format_cell(max_cct_ratio)),
    ));
    let candidates = CANDIDATE_CONNECTIONS.map(|count| count.to_string()).join(", ");
    let head = ["packets", "loss", "predicted packets", "connections", "mean CCT s", "best", "mean CCT s"];
    format!(
        "### Theorem 4.1\n\n\
         The predictor receives the median loss at each buffer and predicts q; the number of connections is q - k. The best \
         number has the lowest mean CCT among this number and {candidates}. The losses are those of connections that start \
         together, and the CCTs have the costs of steady ones. These costs are low, so many numbers are about as good, and this test of \
         the theorem is weak.\n\
         {}",
        table(&head, 0, &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sim::outcome::mean;

    #[test]
    fn held_out_records_do_not_train() {
        let records = records().unwrap();
        let split = Split::new(&records, &records.classes(), 1);
        assert_eq!(
            split.training_records(split.max_training_count()).len() + split.test_records().len(),
            records.as_slice().len()
        );
        assert_eq!(split.test_records().len(), records.as_slice().len() / 4);
    }

    #[test]
    fn predictor_tells_the_smallest_and_the_largest_buffer_apart() {
        let records = records().unwrap();
        let classes = records.classes();
        let ends = [classes[0], classes[classes.len() - 1]];
        assert_eq!(mean(&accuracies(&records, &ends, 100).unwrap()), 1.0);
    }
}
