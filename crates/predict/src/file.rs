//! Reads and writes trained predictors in TOML. `docs/predict.md` describes the format.
//!
//! A reader returns a consistent [`Model`], or an error that names the line, the field, the value and the expected value.

use std::io::{self, Read, Write};
use std::path::Path;

use weir_fields::congestion_control::{EXPECTED_CONGESTION_CONTROL, is_congestion_control_name};
use weir_fields::{FileError, FileKind, TableFields, Value, to_toml_string};

use crate::classifier::{BinaryClassifier, MAX_PARAMETER, SupportVector, TrainingSettings};
use crate::data::{Conditions, MAX_BUFFER, MAX_CLASSES, MAX_RECORDS};
use crate::model::{Model, Training, test_record_count};
use crate::predictor::{FeatureScale, Predictor, class_pairs};

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The key that contains the version.
const MAGIC: &str = FileKind::Predictor.key();

/// The features: the first one, or both.
const FEATURES: [&str; 2] = ["loss", "connections"];

/// The maximum of `rho`: the maximum number of vectors, each with the maximum coefficient.
const MAX_RHO: f64 = MAX_RECORDS as f64 * MAX_PARAMETER;

const TABLES: &str = "a list of tables";

/// Writes a model. Reading the output gives an equal model.
///
/// # Errors
/// If `out` fails.
pub fn write<W: Write>(model: &Model, mut out: W) -> io::Result<()> {
    let (predictor, training) = (&model.predictor, &model.training);
    let has_connections = predictor.connection_scale.is_some();
    let features = &FEATURES[..1 + usize::from(has_connections)];
    let scale = match (predictor.loss_scale.range(), predictor.connection_scale.map(|scale| scale.range())) {
        ((low, high), None) => format!("# Losses that are scaled to -1 and 1.\nscale = [{low:?}, {high:?}]"),
        ((low, high), Some((few, many))) => format!(
            "# Losses and numbers of connections that are scaled to -1 and 1.\nscale = [[{low:?}, {high:?}], [{few:?}, {many:?}]]"
        ),
    };
    let Conditions {
        connections,
        bytes_per_connection: bytes,
        congestion_control: congestion,
        marking_threshold_packets: marks,
    } = &training.conditions;
    let congestion = congestion
        .as_ref()
        .map_or_else(String::new, |name| format!("congestion = {}\n", to_toml_string(name)));
    let marks = marks.map_or_else(String::new, |marks| format!("marks = {marks}\n"));
    let connections = connections.map_or_else(String::new, |count| format!("connections = {count}\n"));
    let (c, gamma) = (training.settings.c(), training.settings.gamma());
    writeln!(
        out,
        "# Made by `weir predict train {} --seed {} --c {c} --gamma {gamma}`.\n\
         {MAGIC} = {VERSION}\n\
         features = {features:?}\n\
         {scale}\n\
         # Buffers in packets.\n\
         classes = {:?}\n\
         \n[training]\n\
         data = {}\n\
         {connections}bytes = {bytes}\n\
         {congestion}{marks}seed = {}\n\
         c = {c:?}\n\
         gamma = {gamma:?}\n\
         trained = {}\n\
         held-out = {}\n\
         right = {}",
        training.data,
        training.seed,
        predictor.classes,
        to_toml_string(&training.data),
        training.seed,
        training.training_records,
        training.test_records,
        training.correct_predictions,
    )?;
    for (smaller, larger, machine) in predictor.classifiers() {
        writeln!(out, "\n[[machine]]\nsmaller = {smaller}\nlarger = {larger}\nrho = {:?}", machine.rho)?;
        let scaled = if has_connections { "losses and numbers of connections" } else { "losses" };
        writeln!(
            out,
            "# Scaled {scaled}, and their multipliers: above 0 for the smaller buffer.\nvectors = ["
        )?;
        for SupportVector { x: [loss, connections], coefficient } in &machine.vectors {
            match has_connections {
                true => writeln!(out, "  [{loss:?}, {connections:?}, {coefficient:?}],")?,
                false => writeln!(out, "  [{loss:?}, {coefficient:?}],")?,
            }
        }
        writeln!(out, "]")?;
    }
    out.flush()
}

/// Reads the model at `path`; `-` is the standard input.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<Model, FileError> {
    weir_fields::read_file(path, |input, name| read_from(input, name))
}

/// Reads a model from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<Model, FileError> {
    weir_fields::read_versioned(input, name, MAX_FILE_BYTES, (FileKind::Predictor, VERSION), from_fields)
}

/// The model described by the keys of a file.
fn from_fields(mut fields: TableFields<'_>) -> Result<Model, FileError> {
    let has_connections = read_features(&mut fields)?;
    let (loss_scale, connection_scale) = read_scales(&mut fields, has_connections)?;
    let classes = read_classes(&mut fields)?;
    let value = fields.required("training", "a table")?;
    let training = read_training(fields.read_table(&value, "training ".to_owned())?, has_connections)?;
    let machines_value = fields.required("machine", TABLES)?;
    let tables = fields.read_list(&machines_value, TABLES)?;
    fields.finish()?;
    let count = class_pairs(classes.len()).count();
    if tables.len() != count {
        let found = format!("{} tables", tables.len());
        return Err(fields.key_error("machine", &found, &format!("{count}, one for each pair of classes")));
    }
    let mut classifiers = Vec::with_capacity(count);
    for ((number, table), (a, b)) in (1..).zip(tables).zip(class_pairs(classes.len())) {
        let table = fields.read_table(&table, format!("machine {number} "))?;
        let pair = [classes[a], classes[b]];
        classifiers.push(read_classifier(table, pair, training.settings.c(), has_connections)?);
    }
    let gamma = training.settings.gamma();
    let predictor = Predictor { classes, loss_scale, connection_scale, gamma, classifiers };
    Ok(Model { predictor, training })
}

/// Whether the number of connections is a feature.
fn read_features(fields: &mut TableFields<'_>) -> Result<bool, FileError> {
    let expected = format!("{:?} or {FEATURES:?}: this version knows no other features", &FEATURES[..1]);
    let value = fields.required("features", &expected)?;
    let listed = fields.read_list(&value, &expected)?;
    let names: Vec<&str> =
        listed.iter().map(|name| fields.read_string(name, &expected)).collect::<Result<_, _>>()?;
    let has_connections = names == FEATURES;
    if has_connections || names == FEATURES[..1] {
        Ok(has_connections)
    } else {
        Err(fields.value_error(&value, &expected))
    }
}

/// The scale of losses, and that of numbers of connections if they are a feature.
fn read_scales(
    fields: &mut TableFields<'_>,
    has_connections: bool,
) -> Result<(FeatureScale, Option<FeatureScale>), FileError> {
    const LOSSES: &str = "the lowest and the highest loss, from 0 to 1";
    const PAIRS: &str = "a pair of losses and one of numbers of connections";
    const CONNECTIONS: &str = "the lowest and the highest number of connections, from 1 to 4294967295";
    let value = fields.required("scale", if has_connections { PAIRS } else { LOSSES })?;
    let read_scale = |value: &Value<'_>, [min, max]: [f64; 2], expected: &str| {
        let [low, high] = read_numbers(fields, value, expected)?;
        let scale = FeatureScale::new(low, high).filter(|_| min <= low && high <= max);
        scale.ok_or_else(|| fields.value_error(value, expected))
    };
    if !has_connections {
        return Ok((read_scale(&value, [0.0, 1.0], LOSSES)?, None));
    }
    match fields.read_list(&value, PAIRS)?.as_slice() {
        [losses, connections] => {
            let connections = read_scale(connections, [1.0, f64::from(u32::MAX)], CONNECTIONS)?;
            Ok((read_scale(losses, [0.0, 1.0], LOSSES)?, Some(connections)))
        }
        _ => Err(fields.value_error(&value, PAIRS)),
    }
}

/// A list of numbers of this length.
fn read_numbers<const N: usize>(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    expected: &str,
) -> Result<[f64; N], FileError> {
    let listed = fields.read_list(value, expected)?;
    let numbers: Vec<f64> =
        listed.iter().map(|number| fields.read_number(number)).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| fields.value_error(value, expected))
}

fn read_classes(fields: &mut TableFields<'_>) -> Result<Vec<u32>, FileError> {
    let expected = format!("2 to {MAX_CLASSES} buffers from 1 to {MAX_BUFFER} packets, the smallest first");
    let value = fields.required("classes", &expected)?;
    let listed = fields.read_list(&value, &expected)?;
    if !(2..=MAX_CLASSES).contains(&listed.len()) {
        return Err(fields.value_error(&value, &expected));
    }
    let mut classes = Vec::with_capacity(listed.len());
    for value in &listed {
        let class = fields.read_u32(value, &expected)?;
        if !(1..=MAX_BUFFER).contains(&class) || classes.last().is_some_and(|last| class <= *last) {
            return Err(fields.value_error(value, &expected));
        }
        classes.push(class);
    }
    Ok(classes)
}

/// `has_connections` is whether the number of connections is a feature, and not a condition.
fn read_training(mut fields: TableFields<'_>, has_connections: bool) -> Result<Training, FileError> {
    const NAME: &str = "a name without control characters";
    let value = fields.required("data", NAME)?;
    let data = fields.read_string(&value, NAME)?.to_owned();
    if data.contains(char::is_control) {
        return Err(fields.value_error(&value, NAME));
    }
    let conditions = Conditions {
        connections: match has_connections {
            true => None,
            false => Some(read_integer(&mut fields, "connections", 1, u32::MAX)?),
        },
        bytes_per_connection: read_integer(&mut fields, "bytes", 1, u32::MAX)?,
        congestion_control: read_congestion_control(&mut fields)?,
        marking_threshold_packets: if fields.has_key("marks") {
            Some(read_integer(&mut fields, "marks", 1, MAX_BUFFER)?)
        } else {
            None
        },
    };
    let seed = fields.required_u32("seed")?;
    let mut parameter = |key| {
        let expected = format!("a number above 0 and up to {MAX_PARAMETER:e}");
        let value = fields.required(key, &expected)?;
        let number = fields.read_number(&value)?;
        TrainingSettings::new(number, number)
            .map(|_| number)
            .map_err(|_| fields.value_error(&value, &expected))
    };
    let (c, gamma) = (parameter("c")?, parameter("gamma")?);
    let settings = TrainingSettings::new(c, gamma).expect("both values were accepted as parameters above");
    let max_records = MAX_RECORDS as u32;
    let trained = read_integer(&mut fields, "trained", 2, max_records)?;
    let test_records = read_integer(&mut fields, "held-out", 1, max_records)?;
    let correct_predictions = read_integer(&mut fields, "right", 0, test_records)?;
    fields.finish()?;
    let (trained, test_records) = (trained as usize, test_records as usize);
    let expected_test_records = test_record_count(trained + test_records);
    if test_records != expected_test_records {
        let expected = format!("{expected_test_records}, a quarter of all records");
        return Err(fields.key_error("held-out", &test_records.to_string(), &expected));
    }
    Ok(Training {
        data,
        conditions,
        seed,
        settings,
        training_records: trained,
        test_records,
        correct_predictions: correct_predictions as usize,
    })
}

/// The optional congestion control, which older models lack.
fn read_congestion_control(fields: &mut TableFields<'_>) -> Result<Option<String>, FileError> {
    let Some(value) = fields.optional("congestion") else { return Ok(None) };
    let name = fields.read_string(&value, EXPECTED_CONGESTION_CONTROL)?;
    if is_congestion_control_name(name) {
        Ok(Some(name.to_owned()))
    } else {
        Err(fields.value_error(&value, EXPECTED_CONGESTION_CONTROL))
    }
}

fn read_integer(
    fields: &mut TableFields<'_>,
    key: &'static str,
    min: u32,
    max: u32,
) -> Result<u32, FileError> {
    let expected = format!("a whole number from {min} to {max}");
    let value = fields.required(key, &expected)?;
    let number = fields.read_u32(&value, &expected)?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(fields.value_error(&value, &expected)) }
}

fn read_classifier(
    mut fields: TableFields<'_>,
    classes: [u32; 2],
    c: f64,
    has_connections: bool,
) -> Result<BinaryClassifier, FileError> {
    for (key, class) in [("smaller", classes[0]), ("larger", classes[1])] {
        let expected = format!("{class}: machines are for the pairs of classes, in order");
        let value = fields.required(key, &expected)?;
        if fields.read_u32(&value, &expected)? != class {
            return Err(fields.value_error(&value, &expected));
        }
    }
    let expected = format!("a number from -{MAX_RHO:e} to {MAX_RHO:e}");
    let value = fields.required("rho", &expected)?;
    let rho = fields.read_number(&value)?;
    if !(-MAX_RHO..=MAX_RHO).contains(&rho) {
        return Err(fields.value_error(&value, &expected));
    }
    let expected = match has_connections {
        true => "lists of a scaled loss, a scaled number of connections, both from -1 to 1,",
        false => "pairs of a scaled loss from -1 to 1",
    };
    let expected = format!("1 to {MAX_RECORDS} {expected} and a multiplier from -C to C");
    let value = fields.required("vectors", &expected)?;
    let listed = fields.read_list(&value, &expected)?;
    fields.finish()?;
    if !(1..=MAX_RECORDS).contains(&listed.len()) {
        return Err(fields.key_error("vectors", &format!("{} pairs", listed.len()), &expected));
    }
    let mut vectors = Vec::with_capacity(listed.len());
    for value in &listed {
        let (x, coefficient) = if has_connections {
            let [loss, connections, coefficient] = read_numbers(&fields, value, &expected)?;
            ([loss, connections], coefficient)
        } else {
            let [loss, coefficient] = read_numbers(&fields, value, &expected)?;
            ([loss, 0.0], coefficient)
        };
        if !(x.iter().all(|x| (-1.0..=1.0).contains(x)) && (-c..=c).contains(&coefficient)) {
            return Err(fields.value_error(value, &expected));
        }
        vectors.push(SupportVector { x, coefficient });
    }
    Ok(BinaryClassifier { vectors, rho })
}
