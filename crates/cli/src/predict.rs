//! `weir predict`: the buffer of a switch by what it loses, and the connections that fit into it.

use weir_predict::data::{self, Record as Run};
use weir_predict::{Answer, Fit, Model, Records, Settings, connections as fit, file};
use weir_sim::outcome::mean;

use crate::args::{self, Format};
use weir_console::failure::Failure;
use weir_console::output::{self, Pending, Sink};
use weir_console::record::{self, Record};
use weir_console::table::{Align, Table, count, number, percent};

/// Runs `weir predict`.
///
/// # Errors
/// Whatever ends it early.
pub fn predict(args: &args::Predict) -> Result<(), Failure> {
    match args {
        args::Predict::Train(args) => train(args),
        args::Predict::Connections(args) => connections(args),
    }
}

/// How good a model is at one buffer.
struct Class {
    buffer: u32,
    /// Of all records.
    loss: f64,
    trained: usize,
    held_out: usize,
    right: usize,
}

impl Class {
    /// Those of a model, from the smallest buffer.
    fn all(model: &Model, records: &Records) -> Vec<Class> {
        let classes = model.predictor().classes();
        let order = records.shuffled(classes, model.training().seed);
        let (train, test) = order.split_at(model.training().trained);
        let class = |&buffer: &u32| {
            let here = |runs: &[Run]| -> Vec<Run> {
                runs.iter().copied().filter(|run| run.buffer == buffer).collect()
            };
            let losses: Vec<f64> = here(records.all()).iter().map(|run| run.loss.get()).collect();
            let held = here(test);
            Class {
                buffer,
                loss: mean(&losses),
                trained: here(train).len(),
                held_out: held.len(),
                right: model.predictor().right(&held),
            }
        };
        classes.iter().map(class).collect()
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
    let classes = Class::all(&model, &records);
    let text = match args.format {
        Format::Table => trained_text(&model, &classes).into_bytes(),
        Format::Json => record::json(&trained_records(&model, &classes)).into_bytes(),
        Format::Csv => record::csv(&trained_records(&model, &classes)),
    };
    Ok(output::print(&text)?)
}

fn trained_text(model: &Model, classes: &[Class]) -> String {
    let training = model.training();
    let mut out = format!(
        "{}: {} of {} bytes each. Seed {}, C = {}, gamma = {}:\n\n",
        training.data,
        count(training.conditions.connections, "connection"),
        training.conditions.bytes,
        training.seed,
        training.settings.c(),
        training.settings.gamma(),
    );
    let heads = ["buffer packets", "mean loss", "trained", "held out", "right", "accuracy"];
    let mut table = Table::new(&heads.map(|head| (head, Align::Right)));
    for class in classes {
        // A class of few records may have none to test.
        let part = if class.held_out == 0 {
            "-".to_owned()
        } else {
            percent(class.right as f64 / class.held_out as f64)
        };
        table.line(vec![
            class.buffer.to_string(),
            number(class.loss),
            class.trained.to_string(),
            class.held_out.to_string(),
            class.right.to_string(),
            part,
        ]);
    }
    table.line(vec![
        "all".to_owned(),
        String::new(),
        training.trained.to_string(),
        training.held_out.to_string(),
        training.right.to_string(),
        percent(training.accuracy()),
    ]);
    table.print(&mut out);
    out
}

fn trained_records(model: &Model, classes: &[Class]) -> Vec<Record> {
    let training = model.training();
    let record = |class: &Class| {
        let mut r = Record::default();
        r.add("buffer_packets", class.buffer);
        r.add("mean_loss", class.loss);
        r.add("trained", class.trained);
        r.add("held_out", class.held_out);
        r.add("right", class.right);
        r.add("accuracy", training.accuracy());
        r.add("seed", training.seed);
        r.add("c", training.settings.c());
        r.add("gamma", training.settings.gamma());
        r
    };
    classes.iter().map(record).collect()
}

fn connections(args: &args::PredictConnections) -> Result<(), Failure> {
    output::check_distinct(&args.model, &[("--out", args.output.out.as_deref())])?;
    let model = file::read(&args.model)?;
    let answer = model.predictor().predict(args.loss);
    let fit = fit(answer.buffer, args.threshold);
    let text = match args.output.format {
        Format::Table => answer_text(args, &model, answer, fit).into_bytes(),
        Format::Json => record::json(&answer_record(args, &model, answer, fit)).into_bytes(),
        Format::Csv => record::csv(&[answer_record(args, &model, answer, fit)]),
    };
    Sink::new(args.output.out.as_deref())?.fill(&text)
}

fn answer_text(args: &args::PredictConnections, model: &Model, answer: Answer, fit: Fit) -> String {
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
    let mut out = String::new();
    table.print(&mut out);
    out.push_str(&format!(
        "\nLearned from {} of {} bytes each ({}); right about {} of {} records held out ({}).\n",
        count(training.conditions.connections, "connection"),
        training.conditions.bytes,
        training.data,
        training.right,
        training.held_out,
        percent(training.accuracy()),
    ));
    if !model.predictor().scale().holds(args.loss) {
        let (low, high) = model.predictor().scale().ends();
        out.push_str(&format!(
            "Losses that it was trained on are from {} to {}; this is taken as the nearest of them.\n",
            number(low),
            number(high)
        ));
    }
    if fit.least {
        out.push_str(
            "Marks begin only where the buffer is full, so any number of connections loses packets; one loses least.\n",
        );
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
