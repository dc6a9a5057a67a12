//! Reads policy trees from TOML: how services and applications share the network, and their policies.
//!
//! `docs/policy-tree.md` is the reference. Unknown keys are refused. A reader returns a [`TreeSpec`] that is valid except for
//! the names of a workload that it does not know, or a [`FileError`] that names the line, the field, the value and the
//! expected value.

use std::io::Read;
use std::num::NonZeroU16;
use std::path::Path;

use weir_core::model::ServiceNames;
use weir_core::saba::{Fraction, SabaLimits, Sensitivity};
use weir_core::tree::{Application, ApplicationSharing, Service, TreeError, TreeSpec, check_leaf_policy};
use weir_fields::{FileError, FileKind, TableFields, Value, expectation};

use crate::bounds::{MAX_WEIGHT, MIN_WEIGHT};
use crate::sensitivity::{self, SensitivityTable};

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// A function that loads the sensitivity table of a given name.
pub type TableLoader<'a> = dyn Fn(&str) -> Result<SensitivityTable, FileError> + 'a;

/// Reads the tree at `path`; `-` is the standard input. If `names` is given, also checks that the tree fits a trace with
/// these names. Names of sensitivity tables are relative to the tree's folder.
///
/// # Errors
/// [`FileError::Io`] if a file cannot be read; [`FileError::Field`] for the first invalid field, or for a service or
/// application of `names` that the tree does not cover.
pub fn read(path: &Path, names: Option<&ServiceNames>) -> Result<TreeSpec, FileError> {
    weir_fields::read_file_in_folder(path, |input, name, folder| read_from(input, name, folder, names))
}

/// Reads a tree from `input`, which errors call `name`, as [`read`] does. Names of sensitivity tables are relative to
/// `folder`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(
    input: R,
    name: &str,
    folder: &Path,
    names: Option<&ServiceNames>,
) -> Result<TreeSpec, FileError> {
    read_with_tables(input, name, &|file| read_named_table(folder, file, name), names)
}

/// Reads the sensitivity table `file`, relative to `folder`. If the file cannot be read, the error also names `tree`, the file with its
/// name.
///
/// # Errors
/// As for [`sensitivity::read`].
pub fn read_named_table(folder: &Path, file: &str, tree: &str) -> Result<SensitivityTable, FileError> {
    sensitivity::read(&folder.join(file)).map_err(|error| match error {
        FileError::Io { file, source } => FileError::Io { file: format!("{tree}: {file}"), source },
        other => other,
    })
}

/// Reads a tree from `input`, which errors call `name`, as [`read`] does. `tables` loads sensitivity tables by the names in
/// the tree.
///
/// # Errors
/// As for [`read`], and the errors of `tables`.
pub fn read_with_tables<R: Read>(
    input: R,
    name: &str,
    load_table: &TableLoader<'_>,
    names: Option<&ServiceNames>,
) -> Result<TreeSpec, FileError> {
    weir_fields::read_versioned(input, name, MAX_FILE_BYTES, (FileKind::Tree, VERSION), |fields| {
        from_fields(fields, load_table, names)
    })
}

/// The tree described by the keys of a file.
fn from_fields(
    mut fields: TableFields<'_>,
    load_table: &TableLoader<'_>,
    names: Option<&ServiceNames>,
) -> Result<TreeSpec, FileError> {
    let (services_value, default_value) = (fields.optional("service"), fields.optional("default"));
    fields.finish()?;
    let mut service_tables = match &services_value {
        Some(value) => fields.read_tables(value, |name| format!("service {name} "))?,
        None => Vec::new(),
    };
    let mut default_table = default_value
        .map(|value| fields.read_table(&value, format!("{} ", ServiceNames::DEFAULT)))
        .transpose()?;
    let mut services = Vec::new();
    for (name, service) in &mut service_tables {
        services.push(read_service(name, service, load_table)?);
    }
    let default_service = default_table
        .as_mut()
        .map(|service| read_service(ServiceNames::DEFAULT, service, load_table))
        .transpose()?;
    if services.is_empty() && default_service.is_none() {
        return Err(fields.key_error("service", "nothing", "a table `[service.NAME]`, or `[default]`"));
    }
    let plan = TreeSpec::Services(services, default_service.map(Box::new));
    match names.map_or(Ok(()), |names| plan.check_names(names)) {
        Ok(()) => Ok(plan),
        Err(error) => Err(mismatch_error(&error, &fields, &service_tables, default_table.as_ref())),
    }
}

/// The error for a tree that does not fit a trace, with its position in the file and a remedy.
fn mismatch_error(
    error: &TreeError,
    root: &TableFields<'_>,
    service_tables: &[(&str, TableFields<'_>)],
    default_table: Option<&TableFields<'_>>,
) -> FileError {
    match error {
        TreeError::UnknownService(service) => {
            let expected = format!(
                "all services of the trace: `[service.{service}]`, or `[default]` for those without a table"
            );
            root.key_error("service", service, &expected)
        }
        TreeError::UnknownSensitivity { service, application } => {
            let (table_name, fields) = match service_tables.iter().find(|(name, _)| name == service) {
                Some((_, table)) => (format!("service.{service}"), table),
                None => (ServiceNames::DEFAULT.to_owned(), default_table.unwrap_or(root)),
            };
            let expected = format!(
                "a table that has all applications of the trace's service `{service}`, or `[{table_name}.application.{application}]` \
                 with the `model` of another"
            );
            fields.key_error("sensitivity", application, &expected)
        }
        // Weights and policies were checked when they were read.
        other => root.key_error("service", &other.to_string(), "a tree that fits the trace"),
    }
}

fn read_service(
    name: &str,
    fields: &mut TableFields<'_>,
    load_table: &TableLoader<'_>,
) -> Result<Service, FileError> {
    const APPLICATIONS: &str = "`whole`, `weights` or `saba`";
    check_name(name, fields)?;
    let weight = read_weight(fields)?;
    let policy = read_policy(fields)?.unwrap_or_else(|| "fair".to_owned());
    let mode = match fields.optional("applications") {
        None => "whole",
        Some(value) => fields.read_string(&value, APPLICATIONS)?,
    };
    let between = match mode {
        "whole" => ApplicationSharing::SingleLeaf(policy.clone()),
        "weights" => ApplicationSharing::Weighted,
        "saba" => {
            ApplicationSharing::Saba(read_sensitivity_table(fields, load_table)?, read_saba_limits(fields)?)
        }
        other => return Err(fields.key_error("applications", other, APPLICATIONS)),
    };
    let default_application =
        Application { name: ServiceNames::DEFAULT.to_owned(), weight: 1.0, model: None, policy };
    if mode == "whole" && fields.has_key("application") {
        let expected = "none in a service that is `whole`: leave its applications out, or share between them with \
                        `applications = \"weights\"` or `\"saba\"`";
        return Err(fields.key_error("application", "a table", expected));
    }
    for (key, found) in SABA_KEYS {
        if mode != "saba" && fields.has_key(key) {
            let expected = format!(
                "none with `applications = \"{mode}\"`: leave it out, or set `applications = \"saba\"`"
            );
            return Err(fields.key_error(key, found, &expected));
        }
    }
    let mut applications = Vec::new();
    if let Some(value) = fields.optional("application") {
        let place = |application: &str| format!("service {name} application {application} ");
        for (name, mut application) in fields.read_tables(&value, place)? {
            applications.push(read_application(name, &mut application, &between, &default_application)?);
        }
    }
    fields.finish()?;
    Ok(Service {
        name: name.to_owned(),
        weight,
        application_sharing: between,
        applications,
        default_application,
    })
}

fn read_application(
    name: &str,
    fields: &mut TableFields<'_>,
    between: &ApplicationSharing,
    default_application: &Application,
) -> Result<Application, FileError> {
    const MODEL: &str = "the name of an application in the sensitivity table";
    check_name(name, fields)?;
    let mut application = Application { name: name.to_owned(), ..default_application.clone() };
    if let Some(policy) = read_policy(fields)? {
        application.policy = policy;
    }
    match between {
        ApplicationSharing::Saba(table, _) => {
            let model = fields.optional("model");
            let model_name = match &model {
                Some(value) => fields.read_string(value, MODEL)?,
                None => name,
            };
            if !table.iter().any(|(row, _)| row == model_name) {
                return Err(fields.key_error("model", model_name, MODEL));
            }
            application.model = Some(model_name.to_owned());
        }
        _ => application.weight = read_weight(fields)?,
    }
    fields.finish()?;
    Ok(application)
}

fn check_name(name: &str, fields: &TableFields<'_>) -> Result<(), FileError> {
    if ServiceNames::is_name(name) {
        Ok(())
    } else {
        Err(fields.key_error("name", name, ServiceNames::NAME_RULE))
    }
}

/// An optional weight; 1 if missing.
fn read_weight(fields: &mut TableFields<'_>) -> Result<f64, FileError> {
    let Some(value) = fields.optional("weight") else { return Ok(1.0) };
    let weight = fields.read_number(&value)?;
    if (MIN_WEIGHT..=MAX_WEIGHT).contains(&weight) {
        return Ok(weight);
    }
    Err(fields.value_error(&value, &format!("a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}")))
}

/// The optional policy of a leaf.
fn read_policy(fields: &mut TableFields<'_>) -> Result<Option<String>, FileError> {
    const POLICY: &str = "a policy with its parameters, such as \"saath:d=4\"";
    let Some(value) = fields.optional("policy") else { return Ok(None) };
    let spec = fields.read_string(&value, POLICY)?;
    match check_leaf_policy(spec) {
        Ok(()) => Ok(Some(spec.to_owned())),
        Err(error) => Err(fields.value_error(&value, &expectation(error))),
    }
}

/// The keys of services whose applications share by Saba, and their kinds of values.
const SABA_KEYS: [(&str, &str); 5] = [
    ("sensitivity", "a file"),
    ("share", "a number"),
    ("levels", "a number"),
    ("queues", "a number"),
    ("min-weight", "a number"),
];

/// C_saba and the limits of levels and queues of a service.
fn read_saba_limits(fields: &mut TableFields<'_>) -> Result<SabaLimits, FileError> {
    let mut limits = SabaLimits::default();
    if let Some(value) = fields.optional("share") {
        let share = Fraction::new(fields.read_number(&value)?);
        limits.c_saba = share.map_err(|_| fields.value_error(&value, "a number above 0 and up to 1"))?;
    }
    if let Some(value) = fields.optional("levels") {
        limits.max_levels = Some(read_count(fields, &value, 1, "a whole number from 1 to 65535")?);
    }
    if let Some(value) = fields.optional("queues") {
        limits.queues = Some(match limits.min_queues() {
            1 => read_count(fields, &value, 1, "a whole number from 1 to 65535")?,
            min => {
                let expected = "a whole number from 2 to 65535, since `share` reserves one queue";
                read_count(fields, &value, min, expected)?
            }
        });
    }
    if let Some(value) = fields.optional("min-weight") {
        limits.min_weight = fields.read_number(&value)?;
        if !limits.is_feasible() {
            let expected = match limits.max_min_weight() {
                Some(max) => format!("a number from 0 to {max}, the maximum for the `queues`"),
                None => "0, or also `queues`".to_owned(),
            };
            return Err(fields.value_error(&value, &expected));
        }
    }
    Ok(limits)
}

fn read_count(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    min: u16,
    expected: &str,
) -> Result<NonZeroU16, FileError> {
    let count = u16::try_from(fields.read_u32(value, expected)?).ok().filter(|count| *count >= min);
    count.and_then(NonZeroU16::new).ok_or_else(|| fields.value_error(value, expected))
}

/// The sensitivity table that a service names.
fn read_sensitivity_table(
    fields: &mut TableFields<'_>,
    load_table: &TableLoader<'_>,
) -> Result<Vec<(String, Sensitivity)>, FileError> {
    const FILE: &str = "the file of a sensitivity table";
    let value: Value<'_> = fields.required("sensitivity", FILE)?;
    let table = load_table(fields.read_string(&value, FILE)?)?;
    Ok(table.rows().iter().map(|row| (row.name.clone(), row.sensitivity)).collect())
}
