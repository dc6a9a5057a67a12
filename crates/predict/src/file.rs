//! Reads and writes trained predictors in TOML. `docs/predict.md` describes the format.
//!
//! A reader returns a consistent [`Model`], or an error that names the line, the field, the value and the expected value.

use std::io::{self, Read, Write};
use std::path::Path;

use weir_trace::fields::{self, Fields, Value};
use weir_trace::incast::{CONGESTION, is_congestion};
use weir_trace::{TraceError, quoted};

use crate::data::{Conditions, Loss, MAX_BUFFER, MAX_CLASSES, MAX_RECORDS};
use crate::machine::{MAX_PARAMETER, Machine, Settings, Vector};
use crate::model::{Model, Training, held_out};
use crate::predictor::{Predictor, Scale, pairs};

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The key that contains the version.
const MAGIC: &str = "weir-predictor";

/// The only feature.
const FEATURE: &str = "loss";

/// The maximum of `rho`: the maximum number of vectors, each with the maximum coefficient.
const MAX_RHO: f64 = MAX_RECORDS as f64 * MAX_PARAMETER;

const TABLES: &str = "a list of tables";

/// Writes a model. Reading the output gives an equal model.
///
/// # Errors
/// If `out` fails.
pub fn write<W: Write>(model: &Model, mut out: W) -> io::Result<()> {
    let (predictor, training) = (&model.predictor, &model.training);
    let (low, high) = predictor.scale.ends();
    let Conditions { connections, bytes, congestion, marks } = &training.conditions;
    let congestion =
        congestion.as_ref().map_or_else(String::new, |name| format!("congestion = {}\n", quoted(name)));
    let marks = marks.map_or_else(String::new, |marks| format!("marks = {marks}\n"));
    let (c, gamma) = (training.settings.c(), training.settings.gamma());
    writeln!(
        out,
        "# Made by `weir predict train {} --seed {} --c {c} --gamma {gamma}`.\n\
         {MAGIC} = {VERSION}\n\
         features = [\"{FEATURE}\"]\n\
         # Losses that are -1 and 1 to the machines.\n\
         scale = [{low:?}, {high:?}]\n\
         # Buffers in packets.\n\
         classes = {:?}\n\
         \n[training]\n\
         data = {}\n\
         connections = {connections}\n\
         bytes = {bytes}\n\
         {congestion}{marks}seed = {}\n\
         c = {c:?}\n\
         gamma = {gamma:?}\n\
         trained = {}\n\
         held-out = {}\n\
         right = {}",
        training.data,
        training.seed,
        predictor.classes,
        quoted(&training.data),
        training.seed,
        training.trained,
        training.held_out,
        training.right,
    )?;
    for (smaller, larger, machine) in predictor.machines() {
        writeln!(out, "\n[[machine]]\nsmaller = {smaller}\nlarger = {larger}\nrho = {:?}", machine.rho)?;
        writeln!(
            out,
            "# Scaled losses, and their multipliers: above 0 for the smaller buffer.\nvectors = ["
        )?;
        for Vector { x, coefficient } in &machine.vectors {
            writeln!(out, "  [{x:?}, {coefficient:?}],")?;
        }
        writeln!(out, "]")?;
    }
    out.flush()
}

/// Reads the model at `path`; `-` is the standard input.
///
/// # Errors
/// [`TraceError::Io`] if the file cannot be read; [`TraceError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<Model, TraceError> {
    fields::open(path, |input, name| read_from(input, name))
}

/// Reads a model from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<Model, TraceError> {
    fields::read_versioned(input, name, MAX_FILE_BYTES, (MAGIC, VERSION), from_fields)
}

/// The model described by the keys of a file.
fn from_fields(mut fields: Fields<'_>) -> Result<Model, TraceError> {
    features(&mut fields)?;
    let scale = scale(&mut fields)?;
    let classes = classes(&mut fields)?;
    let value = fields.need("training", "a table")?;
    let training = training(fields.table(&value, "training ".to_owned())?)?;
    let listed = fields.need("machine", TABLES)?;
    let tables = fields.list(&listed, TABLES)?;
    fields.finish()?;
    let count = pairs(classes.len()).count();
    if tables.len() != count {
        let found = format!("{} tables", tables.len());
        return Err(fields.wrong_at("machine", &found, &format!("{count}, one for each pair of classes")));
    }
    let mut machines = Vec::with_capacity(count);
    for ((number, table), (a, b)) in (1..).zip(tables).zip(pairs(classes.len())) {
        let table = fields.table(&table, format!("machine {number} "))?;
        machines.push(machine(table, [classes[a], classes[b]], training.settings.c())?);
    }
    let predictor = Predictor { classes, scale, gamma: training.settings.gamma(), machines };
    Ok(Model { predictor, training })
}

fn features(fields: &mut Fields<'_>) -> Result<(), TraceError> {
    let expected = format!("[\"{FEATURE}\"]: this version knows no other features");
    let value = fields.need("features", &expected)?;
    match fields.list(&value, &expected)?.as_slice() {
        [one] if fields.text(one, &expected)? == FEATURE => Ok(()),
        _ => Err(fields.wrong(&value, &expected)),
    }
}

fn scale(fields: &mut Fields<'_>) -> Result<Scale, TraceError> {
    const ENDS: &str = "the lowest and the highest loss, from 0 to 1";
    let value = fields.need("scale", ENDS)?;
    let [low, high] = pair(fields, &value, ENDS)?;
    let ends = Loss::new(low).ok().zip(Loss::new(high).ok());
    ends.and_then(|(low, high)| Scale::new(low, high)).ok_or_else(|| fields.wrong(&value, ENDS))
}

/// A list of two numbers.
fn pair(fields: &Fields<'_>, value: &Value<'_>, expected: &str) -> Result<[f64; 2], TraceError> {
    match fields.list(value, expected)?.as_slice() {
        [a, b] => Ok([fields.float(a)?, fields.float(b)?]),
        _ => Err(fields.wrong(value, expected)),
    }
}

fn classes(fields: &mut Fields<'_>) -> Result<Vec<u32>, TraceError> {
    let expected = format!("2 to {MAX_CLASSES} buffers from 1 to {MAX_BUFFER} packets, the smallest first");
    let value = fields.need("classes", &expected)?;
    let listed = fields.list(&value, &expected)?;
    if !(2..=MAX_CLASSES).contains(&listed.len()) {
        return Err(fields.wrong(&value, &expected));
    }
    let mut classes = Vec::with_capacity(listed.len());
    for value in &listed {
        let class = fields.whole(value, &expected)?;
        if !(1..=MAX_BUFFER).contains(&class) || classes.last().is_some_and(|last| class <= *last) {
            return Err(fields.wrong(value, &expected));
        }
        classes.push(class);
    }
    Ok(classes)
}

fn training(mut fields: Fields<'_>) -> Result<Training, TraceError> {
    const NAME: &str = "a name without control characters";
    let value = fields.need("data", NAME)?;
    let data = fields.text(&value, NAME)?.to_owned();
    if data.contains(char::is_control) {
        return Err(fields.wrong(&value, NAME));
    }
    let conditions = Conditions {
        connections: whole(&mut fields, "connections", 1, u32::MAX)?,
        bytes: whole(&mut fields, "bytes", 1, u32::MAX)?,
        congestion: congestion(&mut fields)?,
        marks: if fields.has("marks") { Some(whole(&mut fields, "marks", 1, MAX_BUFFER)?) } else { None },
    };
    let seed = fields.count("seed")?;
    let mut parameter = |key| {
        let expected = format!("a number above 0 and up to {MAX_PARAMETER:e}");
        let value = fields.need(key, &expected)?;
        let number = fields.float(&value)?;
        Settings::new(number, number).map(|_| number).map_err(|_| fields.wrong(&value, &expected))
    };
    let (c, gamma) = (parameter("c")?, parameter("gamma")?);
    let settings = Settings::new(c, gamma).expect("both values were accepted as parameters above");
    let most = MAX_RECORDS as u32;
    let trained = whole(&mut fields, "trained", 2, most)?;
    let tested = whole(&mut fields, "held-out", 1, most)?;
    let right = whole(&mut fields, "right", 0, tested)?;
    fields.finish()?;
    let (trained, tested) = (trained as usize, tested as usize);
    let quarter = held_out(trained + tested);
    if tested != quarter {
        let expected = format!("{quarter}, a quarter of all records");
        return Err(fields.wrong_at("held-out", &tested.to_string(), &expected));
    }
    Ok(Training { data, conditions, seed, settings, trained, held_out: tested, right: right as usize })
}

/// The optional congestion control, which older models lack.
fn congestion(fields: &mut Fields<'_>) -> Result<Option<String>, TraceError> {
    let Some(value) = fields.maybe("congestion") else { return Ok(None) };
    let name = fields.text(&value, CONGESTION)?;
    if is_congestion(name) { Ok(Some(name.to_owned())) } else { Err(fields.wrong(&value, CONGESTION)) }
}

fn whole(fields: &mut Fields<'_>, key: &'static str, least: u32, most: u32) -> Result<u32, TraceError> {
    let expected = format!("a whole number from {least} to {most}");
    let value = fields.need(key, &expected)?;
    let number = fields.whole(&value, &expected)?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(fields.wrong(&value, &expected)) }
}

fn machine(mut fields: Fields<'_>, classes: [u32; 2], c: f64) -> Result<Machine, TraceError> {
    for (key, class) in [("smaller", classes[0]), ("larger", classes[1])] {
        let expected = format!("{class}: machines are for the pairs of classes, in order");
        let value = fields.need(key, &expected)?;
        if fields.whole(&value, &expected)? != class {
            return Err(fields.wrong(&value, &expected));
        }
    }
    let expected = format!("a number from -{MAX_RHO:e} to {MAX_RHO:e}");
    let value = fields.need("rho", &expected)?;
    let rho = fields.float(&value)?;
    if !(-MAX_RHO..=MAX_RHO).contains(&rho) {
        return Err(fields.wrong(&value, &expected));
    }
    let expected =
        format!("1 to {MAX_RECORDS} pairs of a scaled loss from -1 to 1 and a multiplier from -C to C");
    let value = fields.need("vectors", &expected)?;
    let listed = fields.list(&value, &expected)?;
    fields.finish()?;
    if !(1..=MAX_RECORDS).contains(&listed.len()) {
        return Err(fields.wrong_at("vectors", &format!("{} pairs", listed.len()), &expected));
    }
    let mut vectors = Vec::with_capacity(listed.len());
    for value in &listed {
        let [x, coefficient] = pair(&fields, value, &expected)?;
        if !((-1.0..=1.0).contains(&x) && (-c..=c).contains(&coefficient)) {
            return Err(fields.wrong(value, &expected));
        }
        vectors.push(Vector { x, coefficient });
    }
    Ok(Machine { vectors, rho })
}
