//! Models: training, writing to a file, reading back, and errors of files.

use crate::common::config_with_cases;
use crate::edits::check_edits;
use proptest::prelude::*;
use weir_predict::data;
use weir_predict::file::{self, MAX_FILE_BYTES};
use weir_predict::{ConnectionLimit, Loss, Model, Records, TrainingSettings, max_connections};

/// Losses of three buffers with `runs` runs each, which overlap slightly.
fn run_lines(runs: u32) -> Vec<String> {
    let line = |buffer: u32, run: u32| {
        let loss = 30.0 / f64::from(buffer) + f64::from(run * 37 % 101) / 700.0;
        format!("{buffer},200,64000,{run},{loss}\n")
    };
    [50, 100, 150].into_iter().flat_map(|buffer| (1..=runs).map(move |run| line(buffer, run))).collect()
}

fn parse_records(lines: &[String]) -> Records {
    let text = format!("buffer_packets,connections,bytes,run,loss\n{}", lines.concat());
    data::read_from(text.as_bytes(), "d.csv").unwrap()
}

fn train_model(seed: u32) -> Model {
    Model::train(&parse_records(&run_lines(40)), "d.csv", seed, TrainingSettings::default()).unwrap()
}

fn write_to_string(model: &Model) -> String {
    let mut out = Vec::new();
    file::write(model, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn read(text: &str) -> Result<Model, String> {
    file::read_from(text.as_bytes(), "m.toml").map_err(|error| error.to_string())
}

#[test]
fn predictor_file_round_trips() {
    let model = train_model(1);
    assert_eq!(read(&write_to_string(&model)).unwrap(), model);
    let (trained, held) = (model.training().training_records, model.training().test_records);
    assert_eq!((trained, held), (90, 30));
    // A source name with characters that TOML and comments must escape.
    let odd = Model::train(&parse_records(&run_lines(8)), "a \"b\"\\\nc.csv", 1, TrainingSettings::default())
        .unwrap();
    assert_eq!(read(&write_to_string(&odd)).unwrap(), odd);
    assert_eq!(odd.training().data, "a \"b\"\\?c.csv");
}

#[test]
fn predictor_training_is_reproducible_for_a_seed() {
    let mut other = run_lines(40);
    other.reverse();
    other.rotate_left(31);
    let permuted = Model::train(&parse_records(&other), "d.csv", 1, TrainingSettings::default()).unwrap();
    assert_eq!(write_to_string(&permuted), write_to_string(&train_model(1)));
    assert_ne!(write_to_string(&train_model(2)), write_to_string(&train_model(1)));
}

#[test]
fn predictor_accuracy_is_measured_on_held_out_records() {
    let records = parse_records(&run_lines(40));
    for seed in 1..=5 {
        let model = train_model(seed);
        let order = records.shuffled(&[50, 100, 150], seed);
        let held = &order[model.training().training_records..];
        assert_eq!(held.len(), model.training().test_records);
        assert_eq!(model.predictor().count_correct(held), model.training().correct_predictions);
        assert_eq!(model.training().accuracy(), model.training().correct_predictions as f64 / 30.0);
    }
}

#[test]
fn shipped_predictors_have_their_stated_accuracy() {
    check_shipped("classes.csv", "model.toml");
    check_shipped("steady-dctcp.csv", "steady-model.toml");
}

fn check_shipped(measurements: &str, model: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/incast");
    let records = data::read(format!("{folder}/{measurements}").as_ref()).unwrap();
    let model = file::read(format!("{folder}/{model}").as_ref()).unwrap();
    let training = model.training();
    assert_eq!((training.data.as_str(), &training.conditions), (measurements, records.conditions()));
    assert_eq!(training.training_records + training.test_records, records.as_slice().len());
    let order = records.shuffled(&records.classes(), training.seed);
    let (train, test) = order.split_at(training.training_records);
    assert_eq!(model.predictor().count_correct(test), training.correct_predictions);
    // The platform's exponential may differ in the last digit, so the bytes of the file may differ.
    let again = Model::train(&records, measurements, training.seed, training.settings).unwrap();
    for record in train.iter().chain(test) {
        let predict = |model: &Model| model.predictor().predict(record.loss, record.connections);
        assert_eq!(predict(&again), predict(&model));
    }
}

/// Losses of three buffers, each with `runs` runs of 30 to 200 connections: the part of the packets for which the buffer has no room.
fn runs_of_several_counts(runs: u32) -> Vec<String> {
    let line = |buffer: u32, run: u32| {
        let connections = 30 + run * 170 / runs;
        let loss = (1.0 - f64::from(buffer) / f64::from(2 * connections)).max(0.0);
        format!("{buffer},{connections},64000,{run},{loss}\n")
    };
    [50, 100, 150].into_iter().flat_map(|buffer| (1..=runs).map(move |run| line(buffer, run))).collect()
}

#[test]
fn predictor_of_several_counts_uses_both_features() {
    let records = parse_records(&runs_of_several_counts(60));
    assert!(records.left_out() > 0);
    let settings = TrainingSettings::new(100.0, 4.0).unwrap();
    let model = Model::train(&records, "d.csv", 1, settings).unwrap();
    let training = model.training();
    assert_eq!(training.conditions.connections, None);
    assert_eq!(training.training_records + training.test_records, 180 - records.left_out());
    assert!(training.accuracy() > 0.9, "{}", training.accuracy());
    // The same loss is that of a smaller buffer if fewer connections have it.
    let half = Loss::new(0.5).unwrap();
    let buffers = [50, 100, 150].map(|connections| model.predictor().predict(half, connections).buffer);
    assert_eq!(buffers, [50, 100, 150]);
    // Beyond the training range, the nearest end counts.
    let at = |connections| model.predictor().predict(half, connections);
    assert_eq!((at(1), at(60_000)), (at(31), at(200)));
    let text = write_to_string(&model);
    assert_eq!(read(&text).unwrap(), model);
}

#[test]
fn predictor_file_errors_of_two_features_name_the_line() {
    let records = parse_records(&runs_of_several_counts(30));
    let good = write_to_string(&Model::train(&records, "d.csv", 1, TrainingSettings::default()).unwrap());
    let vector = good.lines().find(|line| line.starts_with("  [")).unwrap();
    let cases = [
        (
            "[\"loss\", \"connections\"]",
            "[\"connections\", \"loss\"]",
            "expected [\"loss\"] or [\"loss\", \"connections\"]",
        ),
        ("[\"loss\", \"connections\"]", "[\"loss\"]", "field `scale`"),
        (
            "scale = [[",
            "scale = [[0.0, 2.0], [1.0, 9.0]] # ",
            "`[0.0, 2.0]`: expected the lowest and the highest loss",
        ),
        (
            "scale = [[",
            "scale = [[0.1, 0.9], [0.5, 9.0]] # ",
            "`[0.5, 9.0]`: expected the lowest and the highest number",
        ),
        ("scale = [[", "scale = [[0.1, 0.9], [9.0, 9.0]] # ", "`[9.0, 9.0]`"),
        (
            "scale = [[",
            "scale = [[0.1, 0.9]] # ",
            "expected a pair of losses and one of numbers of connections",
        ),
        (
            "[training]",
            "[training]\nconnections = 200",
            "field `training key`: `connections`: expected one of",
        ),
        (
            vector,
            "[0.5, 0.5],",
            "field `machine 1 vectors`: `[0.5, 0.5]`: expected 1 to 2000 lists of a scaled loss",
        ),
        (vector, "[0.5, 1.5, 0.5],", "field `machine 1 vectors`: `[0.5, 1.5, 0.5]`"),
    ];
    check_edits(&good, &cases, |text| read(text).unwrap_err());
}

#[test]
fn connection_count_fits_the_buffer_above_the_marking_threshold() {
    let fit = |buffer, threshold| max_connections(buffer, threshold);
    // Theorem 4.1 with 20 packets at 1 Gbit, and 65 at 10 Gbit (6.1).
    assert_eq!(fit(100, 20), ConnectionLimit { connections: 80, is_clamped: false });
    assert_eq!(fit(100, 65), ConnectionLimit { connections: 35, is_clamped: false });
    assert_eq!(fit(66, 65), ConnectionLimit { connections: 1, is_clamped: false });
    assert_eq!(fit(65, 65), ConnectionLimit { connections: 1, is_clamped: true });
    assert_eq!(fit(50, u32::MAX), ConnectionLimit { connections: 1, is_clamped: true });
}

#[test]
fn predictor_file_errors_name_the_line() {
    let good = write_to_string(&train_model(1));
    let first = good.lines().position(|line| line.starts_with("  [")).unwrap();
    let vector = good.lines().nth(first).unwrap();
    let cases = [
        ("weir-predictor = 1", "weir-predictor = 2", "field `weir-predictor`: `2`: expected version 1"),
        ("weir-predictor = 1", "", "expected the format's version, `weir-predictor = 1`"),
        ("[\"loss\"]", "[\"loss\", \"rtt\"]", "field `features`: `[\"loss\", \"rtt\"]`: expected [\"loss\"]"),
        ("[\"loss\"]", "[\"rtt\"]", "field `features`: `[\"rtt\"]`: expected [\"loss\"]"),
        ("[\"loss\"]", "[]", "field `features`: `[]`"),
        (
            "[50, 100, 150]",
            "[100, 50, 150]",
            "field `classes`: `50`: expected 2 to 16 buffers from 1 to 65536 packets, the smallest first",
        ),
        ("[50, 100, 150]", "[50, 50, 150]", "field `classes`: `50`"),
        ("[50, 100, 150]", "[50]", "field `classes`: `[50]`"),
        ("[50, 100, 150]", "[50, 100, 99999]", "field `classes`: `99999`"),
        ("[50, 100, 150]", "[50, 100]", "field `machine`: `3 tables`: expected 1, one for each pair"),
        ("[50, 100, 150]", "[50, 100, 200]", "field `machine 2 larger`: `150`: expected 200"),
        ("smaller = 100", "smaller = 50", "field `machine 3 smaller`: `50`: expected 100"),
        ("scale = [", "scale = [nan, ", "field `scale`"),
        (
            "scale = [",
            "scale = [0.9, 0.1] # ",
            "field `scale`: `[0.9, 0.1]`: expected the lowest and the highest loss",
        ),
        ("scale = [", "scale = [-0.1, 0.1] # ", "field `scale`"),
        ("scale = [", "scale = [nan, 0.1] # ", "field `scale`"),
        ("c = 1.0", "c = nan", "field `training c`: `nan`: expected a number above 0"),
        ("gamma = 1.0", "gamma = 0", "field `training gamma`: `0`"),
        (
            "held-out = 30",
            "held-out = 31",
            "field `training held-out`: `31`: expected 30, a quarter of all records",
        ),
        (
            "trained = 90",
            "trained = 5000",
            "field `training trained`: `5000`: expected a whole number from 2 to 2000",
        ),
        ("right = ", "right = 31 #", "field `training right`: `31`: expected a whole number from 0 to 30"),
        ("seed = 1\n", "seed = -1\n", "field `training seed`: `-1`"),
        ("rho = ", "rho = inf #", "field `machine 1 rho`: `inf`"),
        ("data = \"d.csv\"", "data = \"d\\u0007\"", "field `training data`"),
        (
            "data = \"d.csv\"",
            "data = \"d.csv\"\nepochs = 3",
            "field `training key`: `epochs`: expected one of",
        ),
        ("[training]", "[other]\n[training]", "field `key`: `other`"),
        (
            vector,
            "[0.5, nan],",
            "field `machine 1 vectors`: `[0.5, nan]`: expected 1 to 2000 pairs of a scaled loss",
        ),
        (vector, "[1.5, 0.5],", "field `machine 1 vectors`: `[1.5, 0.5]`"),
        (vector, "[0.5, 1.5],", "field `machine 1 vectors`: `[0.5, 1.5]`"),
        (vector, "[0.5],", "field `machine 1 vectors`: `[0.5]`"),
        (vector, "0.5,", "field `machine 1 vectors`: `0.5`"),
    ];
    check_edits(&good, &cases, |text| {
        let error = read(text).unwrap_err();
        assert!(error.starts_with("m.toml:"), "{error}");
        error
    });
    let line = read(&good.replacen(vector, "  [0.5, nan],", 1)).unwrap_err();
    assert!(line.starts_with(&format!("m.toml:{}: ", first + 1)), "{line}");
    let begin = good.find("vectors = [").unwrap();
    let end = begin + good[begin..].find("\n]").unwrap();
    let none = format!("{}vectors = [{}", &good[..begin], &good[end..]);
    assert!(read(&none).unwrap_err().contains("field `machine 1 vectors`: `0 pairs`"));
    let endless = std::io::Read::take(std::io::repeat(b'#'), 1 << 40);
    let error = file::read_from(endless, "m.toml").unwrap_err().to_string();
    assert!(error.contains(&format!("at most {MAX_FILE_BYTES} bytes")), "{error}");
}

proptest! {
    #![proptest_config(config_with_cases(200))]

    /// Reading any damaged file returns a model that answers, or an error.
    #[test]
    fn damaged_predictor_file_gives_a_usable_model_or_an_error(cuts in proptest::collection::vec((0.0..1.0f64, "[-0-9.e\\[\\],=\"a-z\n ]{0,4}"), 1..4), loss in 0.0..=1.0f64) {
        let mut bad = write_to_string(&Model::train(&parse_records(&run_lines(4)), "d.csv", 1, TrainingSettings::default()).unwrap());
        for (place, piece) in cuts {
            let at = (place * bad.len() as f64) as usize;
            let end = (at + 2).min(bad.len());
            bad.replace_range(at..end, &piece);
        }
        match read(&bad) {
            Ok(model) => {
                let answer = model.predictor().predict(Loss::new(loss).unwrap(), 200);
                prop_assert!(model.predictor().classes().contains(&answer.buffer));
            }
            Err(error) => prop_assert!(error.starts_with("m.toml:"), "{}", error),
        }
    }
}
