//! Measures the processor times of the predictor (6.2) and of schedules (Fig. 10).

use weir_predict::data::Records;
use weir_predict::{Predictor, TrainingSettings};
use weir_sim::outcome::{mean, percentile};

use super::prediction::{SPLITS, Split};
use super::replays::{PUBLISHED_BEST, Replays};
use super::setup::{DEFAULT, Setup};
use crate::claim::{Claim, claims_table};
use crate::markdown;
use weir_console::failure::Failure;
use weir_sim::thread_clock::thread_cpu_time;

/// The processor times of the predictor, as medians over splits.
pub struct PredictorTimes {
    /// Training and testing, in milliseconds.
    total_ms: f64,
    /// One estimate, in microseconds.
    estimate_us: f64,
}

impl PredictorTimes {
    /// Trains and tests predictors with all classes.
    ///
    /// # Errors
    /// If records cannot train a predictor.
    pub fn measure(records: &Records) -> Result<PredictorTimes, Failure> {
        let (mut total, mut estimate) = (Vec::new(), Vec::new());
        for seed in 1..=SPLITS {
            let split = Split::new(records, &records.classes(), seed);
            let start = thread_cpu_time();
            let training = split.training_records(split.max_training_count());
            let predictor =
                Predictor::train(training, &TrainingSettings::default()).map_err(Failure::runtime)?;
            let trained = thread_cpu_time();
            std::hint::black_box(predictor.count_correct(split.test_records()));
            let tested = thread_cpu_time();
            total.push(1e3 * (tested - start).as_secs_f64());
            estimate.push(1e6 * (tested - trained).as_secs_f64() / split.test_records().len() as f64);
        }
        let median = |values: &[f64]| percentile(values, 50.0);
        Ok(PredictorTimes { total_ms: median(&total), estimate_us: median(&estimate) })
    }
}

/// The last section of the page. Its figures differ from run to run.
pub fn section(replays: &Replays<'_>, predictor: &PredictorTimes) -> String {
    let run = |hosts, connections| replays.django_with(Setup { hosts, ..DEFAULT }, connections, "");
    let below_10_ms =
        |times: &[f64]| times.iter().filter(|&&ms| ms < 10.0).count() as f64 / times.len() as f64;
    let mut rows = Vec::new();
    for connections in [PUBLISHED_BEST, replays.inputs.connections(&DEFAULT)] {
        for hosts in [16, 32, 64, 128] {
            let times = &run(hosts, connections).schedule_ms;
            let ms = [mean(times), percentile(times, 50.0), percentile(times, 95.0), percentile(times, 99.0)];
            let mut row = vec![
                connections.to_string(),
                hosts.to_string(),
                markdown::format_percent(below_10_ms(times)),
            ];
            row.extend(ms.map(|ms| markdown::format_cell(ms * 1e3)));
            row.push(markdown::format_cell(mean(times) * 1e3 / f64::from(hosts)));
            rows.push(row);
        }
    }
    let times = &run(DEFAULT.hosts, PUBLISHED_BEST).schedule_ms;
    let list = [
        Claim::number(
            "training and testing, 5 classes, ms",
            "6.2: \"less than 20 ms\"",
            20.0,
            predictor.total_ms,
        ),
        Claim::number("one estimate, us", "6.2: \"75 us on average\"", 75.0, predictor.estimate_us),
        Claim::number("schedules below 10 ms, %", "6.4, Fig. 10", 94.1, 100.0 * below_10_ms(times)),
        Claim::number("mean time of a schedule, ms", "6.4, Fig. 10", 4.8, mean(times)),
    ];
    let head = ["connections", "hosts", "below 10 ms", "mean us", "P50", "P95", "P99", "mean us per host"];
    format!(
        "## Timings\n\n\
         These figures differ from run to run. Fig. 10: a schedule here decides for all hosts and computes the rates that \
         TCP would reach. In the paper, each host decides for itself. Other replays ran concurrently, as many as `--jobs` \
         allows. The measured figures next to published ones are for {PUBLISHED_BEST} connections and {} hosts. Predictors: \
         processor time of one thread, median over {SPLITS} divisions.\n\
         {}{}",
        DEFAULT.hosts,
        claims_table(&list),
        markdown::table(&head, 0, &rows)
    )
}
