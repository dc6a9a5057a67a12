//! `weir predict`: a switch's buffer inferred from its loss, and the connections that fit into it.

use weir_console::failure::Failure;
use weir_console::output::{self, Pending};
use weir_console::record::Record;
use weir_console::table::{Align, Table, count, number, percent};
use weir_predict::{Answer, BufferAccuracy, Fit, Model, Settings, connections as fit, data, file};

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
    let file = args.out.as_deref().map(Pending::begin).transpose()?;
    let records = data::read(&args.data)?;
    let name = args.data.file_name().unwrap_or(args.data.as_os_str()).to_string_lossy();
    let settings = Settings::new(args.c, args.gamma).map_err(Failure::input)?;
    let model = Model::train(&records, &name, args.seed, settings)
        .map_err(|error| Failure::input(format_args!("{}: {error}", args.data.display())))?;
    if let Some(mut file) = file {
        file::write(&model, &mut file).map_err(|error| file.failure(&error))?;
        file.finish()?;
    }
    let accuracies = model.accuracies(&records);
    let table = || accuracy_table(&model, &accuracies);
    Ok(output::print(render::list(args.format, table, || accuracy_records(&model, &accuracies)))?)
}

fn accuracy_table(model: &Model, accuracies: &[BufferAccuracy]) -> String {
    let training = model.training();
    let heads = ["buffer packets", "mean loss", "trained", "held out", "right", "accuracy"];
    let mut table = Table::new(&heads.map(|head| (head, Align::Right)));
    for of in accuracies {
        // A buffer with few records may have none to test.
        let accuracy =
            if of.held_out == 0 { "-".to_owned() } else { percent(of.right as f64 / of.held_out as f64) };
        let counts = [of.trained, of.held_out, of.right].map(|count| count.to_string());
        table.line(
            [vec![of.buffer.to_string(), number(of.mean_loss)], counts.into(), vec![accuracy]].concat(),
        );
    }
    table.line(vec![
        "all".to_owned(),
        String::new(),
        training.trained.to_string(),
        training.held_out.to_string(),
        training.right.to_string(),
        percent(training.accuracy()),
    ]);
    format!(
        "{}: {} of {} bytes each. Seed {}, C = {}, gamma = {}:\n\n{table}",
        training.data,
        count(training.conditions.connections, "connection"),
        training.conditions.bytes,
        training.seed,
        training.settings.c(),
        training.settings.gamma(),
    )
}

fn accuracy_records(model: &Model, accuracies: &[BufferAccuracy]) -> Vec<Record> {
    let training = model.training();
    let record = |of: &BufferAccuracy| {
        let mut r = Record::default();
        r.add("buffer_packets", of.buffer);
        r.add("mean_loss", of.mean_loss);
        r.add_all(["trained", "held_out", "right"], [of.trained, of.held_out, of.right]);
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
    let answer = model.predictor().predict(args.loss);
    let fit = fit(answer.buffer, args.threshold);
    let record = || answer_record(args, &model, answer, fit);
    let table = || answer_table(args, &model, answer, fit);
    sink.fill(render::object(args.output.format, table, record, || vec![record()]))
}

fn answer_table(args: &args::PredictConnections, model: &Model, answer: Answer, fit: Fit) -> String {
    let training = model.training();
    let columns = [
        ("loss", Align::Right),
        ("buffer packets", Align::Right),
        ("votes", Align::Right),
        ("threshold packets", Align::Right),
        ("connections", Align::Right),
        ("policy", Align::Left),
    ];
    let mut table = Table::new(&columns);
    table.line(vec![
        number(args.loss.get()),
        answer.buffer.to_string(),
        format!("{} of {}", answer.votes, model.predictor().classes().len() - 1),
        args.threshold.to_string(),
        fit.connections.to_string(),
        policy(fit),
    ]);
    let mut out = format!(
        "{table}\nTrained on {} of {} bytes each ({}); right about {} of {} records held out ({}).\n",
        count(training.conditions.connections, "connection"),
        training.conditions.bytes,
        training.data,
        training.right,
        training.held_out,
        percent(training.accuracy()),
    );
    if !model.predictor().scale().holds(args.loss) {
        let (low, high) = model.predictor().scale().ends();
        let (low, high) = (number(low), number(high));
        out += &format!("The loss is outside the trained range, {low} to {high}; the nearest end is used.\n");
    }
    if fit.least {
        out += "Marking starts only when the buffer is full: any number of connections loses packets, one loses least.\n";
    }
    out
}

fn policy(fit: Fit) -> String {
    format!("django:connections={}", fit.connections)
}

fn answer_record(args: &args::PredictConnections, model: &Model, answer: Answer, fit: Fit) -> Record {
    let mut r = Record::default();
    r.add("loss", args.loss.get());
    r.add("within_training", model.predictor().scale().holds(args.loss));
    r.add("buffer_packets", answer.buffer);
    r.add("votes", answer.votes);
    r.add("threshold_packets", args.threshold);
    r.add("connections", fit.connections);
    r.add("least", fit.least);
    r.add("policy", policy(fit));
    r.add("accuracy", model.training().accuracy());
    r
}
