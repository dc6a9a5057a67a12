//! Runs `weir predict`: trains models that infer a switch's buffer from its loss, and computes numbers of connections.

use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile};
use weir_console::record::Record;
use weir_console::table::{Alignment, Table, format_count, format_number, format_percent};
use weir_predict::{
    BufferAccuracy, ConnectionLimit, FeatureScale, Model, Prediction, TrainingSettings, data, file,
    max_connections,
};

use crate::args;
use crate::render;

/// Runs `weir predict`.
pub fn predict(args: &args::Predict) -> Result<(), Failure> {
    match args {
        args::Predict::Train(args) => train(args),
        args::Predict::Connections(args) => connections(args),
    }
}

fn train(args: &args::PredictTrain) -> Result<(), Failure> {
    output::check_distinct(&args.data, &[("--out", args.out.as_deref())])?;
    let file = args.out.as_deref().map(OutputFile::create).transpose()?;
    let records = data::read(&args.data)?;
    let name = args.data.file_name().unwrap_or(args.data.as_os_str()).to_string_lossy();
    let settings = TrainingSettings::new(args.c, args.gamma).map_err(Failure::input)?;
    let model = Model::train(&records, &name, args.seed, settings)
        .map_err(|error| Failure::input(format_args!("{}: {error}", args.data.display())))?;
    if let Some(mut file) = file {
        file::write(&model, &mut file).map_err(|error| file.failure(&error))?;
        file.finish()?;
    }
    let accuracies = model.accuracies(&records);
    let table = || accuracy_table(&model, &accuracies, records.left_out());
    Ok(output::print(render::list(args.format, table, || accuracy_records(&model, &accuracies)))?)
}

/// The numbers of connections of the training records: `200 connections`, `1 to 100 connections`.
fn trained_connections(model: &Model) -> String {
    let range = model.predictor().connection_scale().map(FeatureScale::range);
    match (model.training().conditions.connections, range) {
        (None, Some((few, many))) => format!("{few} to {many} connections"),
        (count, _) => format_count(count.unwrap_or(1), "connection"),
    }
}

fn accuracy_table(model: &Model, accuracies: &[BufferAccuracy], left_out: usize) -> String {
    let training = model.training();
    let heads = ["buffer packets", "mean loss", "trained", "held out", "right", "accuracy"];
    let mut table = Table::new(&heads.map(|head| (head, Alignment::Right)));
    for buffer_accuracy in accuracies {
        // A buffer with few records can have no test record.
        let accuracy = if buffer_accuracy.test_records == 0 {
            "-".to_owned()
        } else {
            format_percent(buffer_accuracy.correct_predictions as f64 / buffer_accuracy.test_records as f64)
        };
        let counts = [
            buffer_accuracy.training_records,
            buffer_accuracy.test_records,
            buffer_accuracy.correct_predictions,
        ]
        .map(|count| count.to_string());
        table.add_row(
            [
                vec![buffer_accuracy.buffer.to_string(), format_number(buffer_accuracy.mean_loss)],
                counts.into(),
                vec![accuracy],
            ]
            .concat(),
        );
    }
    table.add_row(vec![
        "all".to_owned(),
        String::new(),
        training.training_records.to_string(),
        training.test_records.to_string(),
        training.correct_predictions.to_string(),
        format_percent(training.accuracy()),
    ]);
    let left_out = match left_out {
        0 => String::new(),
        count => format!("Left out: {} without loss.\n", format_count(count, "run")),
    };
    format!(
        "{}: {} of {} bytes each. Seed {}, C = {}, gamma = {}:\n{left_out}\n{table}",
        training.data,
        trained_connections(model),
        training.conditions.bytes_per_connection,
        training.seed,
        training.settings.c(),
        training.settings.gamma(),
    )
}

fn accuracy_records(model: &Model, accuracies: &[BufferAccuracy]) -> Vec<Record> {
    let training = model.training();
    let record = |buffer_accuracy: &BufferAccuracy| {
        let mut r = Record::default();
        r.add("buffer_packets", buffer_accuracy.buffer);
        r.add("mean_loss", buffer_accuracy.mean_loss);
        r.add_all(
            ["trained", "held_out", "right"],
            [
                buffer_accuracy.training_records,
                buffer_accuracy.test_records,
                buffer_accuracy.correct_predictions,
            ],
        );
        r.add("accuracy", training.accuracy());
        r.add("seed", training.seed);
        r.add("c", training.settings.c());
        r.add("gamma", training.settings.gamma());
        r
    };
    accuracies.iter().map(record).collect()
}

fn connections(args: &args::PredictConnections) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.model)?;
    let model = file::read(&args.model)?;
    let connections = measured_connections(args, &model)?;
    let answer = model.predictor().predict(args.loss, connections);
    let limit = max_connections(answer.buffer, args.threshold);
    let record = || answer_record(args, &model, answer, limit);
    let table = || answer_table(args, &model, answer, limit);
    sink.write_text(render::object(args.output.format, table, record, || vec![record()]))
}

/// The number of connections that had the loss.
///
/// # Errors
/// If it is a feature of the model and not given, or given and not a feature.
fn measured_connections(args: &args::PredictConnections, model: &Model) -> Result<u32, Failure> {
    let file = args.model.display();
    match (args.connections, model.training().conditions.connections) {
        (Some(given), None) => Ok(given),
        (None, Some(trained)) => Ok(trained),
        (None, None) => Err(Failure::input(format_args!(
            "{file}: the model was trained on {}, and --connections is missing; help: state the number that had this loss",
            trained_connections(model),
        ))),
        (Some(given), Some(_)) => Err(Failure::input(format_args!(
            "--connections {given}: the model {file} was trained on {} only; help: omit --connections",
            trained_connections(model),
        ))),
    }
}

/// Whether the loss, and the number of connections if it is a feature, are in the range of the training records.
fn is_within_training(args: &args::PredictConnections, model: &Model) -> bool {
    let counts = model.predictor().connection_scale().zip(args.connections);
    model.predictor().loss_scale().contains(args.loss.get())
        && counts.is_none_or(|(scale, count)| scale.contains(f64::from(count)))
}

fn answer_table(
    args: &args::PredictConnections,
    model: &Model,
    answer: Prediction,
    limit: ConnectionLimit,
) -> String {
    let training = model.training();
    let columns = [
        ("loss", Alignment::Right),
        ("buffer packets", Alignment::Right),
        ("votes", Alignment::Right),
        ("threshold packets", Alignment::Right),
        ("connections", Alignment::Right),
        ("policy", Alignment::Left),
    ];
    let mut table = Table::new(&columns);
    table.add_row(vec![
        format_number(args.loss.get()),
        answer.buffer.to_string(),
        format!("{} of {}", answer.votes, model.predictor().classes().len() - 1),
        args.threshold.to_string(),
        limit.connections.to_string(),
        policy_spec(limit),
    ]);
    let mut out = format!(
        "{table}\nTrained on {} of {} bytes each ({}); right about {} of {} records held out ({}).\n",
        trained_connections(model),
        training.conditions.bytes_per_connection,
        training.data,
        training.correct_predictions,
        training.test_records,
        format_percent(training.accuracy()),
    );
    if !model.predictor().loss_scale().contains(args.loss.get()) {
        let (low, high) = model.predictor().loss_scale().range();
        let (low, high) = (format_number(low), format_number(high));
        out += &format!(
            "The loss is outside the trained range, {low} to {high}; the prediction uses the nearest end of the range.\n"
        );
    }
    if let Some((scale, count)) = model.predictor().connection_scale().zip(args.connections)
        && !scale.contains(f64::from(count))
    {
        let (few, many) = scale.range();
        out += &format!(
            "The number of connections is outside the trained range, {few} to {many}; the prediction uses the nearest end of the range.\n"
        );
    }
    if limit.is_clamped {
        out += "Marking starts only when the buffer is full, so any number of connections loses packets; one connection loses the fewest.\n";
    }
    out
}

/// The policy with the computed number of connections, as `--policies` accepts it.
fn policy_spec(limit: ConnectionLimit) -> String {
    format!("django:connections={}", limit.connections)
}

fn answer_record(
    args: &args::PredictConnections,
    model: &Model,
    answer: Prediction,
    limit: ConnectionLimit,
) -> Record {
    let mut r = Record::default();
    r.add("loss", args.loss.get());
    r.add("within_training", is_within_training(args, model));
    r.add("buffer_packets", answer.buffer);
    r.add("votes", answer.votes);
    r.add("threshold_packets", args.threshold);
    r.add("connections", limit.connections);
    r.add("always_loses", limit.is_clamped);
    r.add("policy", policy_spec(limit));
    r.add("accuracy", model.training().accuracy());
    r
}
