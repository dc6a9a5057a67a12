//! Reads policy trees from TOML: which services and applications share with which, and under which policy.
//!
//! `docs/policy-tree.md` is the reference. Unknown keys are refused. A reader returns a [`Plan`] that is valid except for
//! the names of a workload that it does not know, or a [`TraceError`] that names the line, the field, the value and the
//! expected value.

use std::io::Read;
use std::path::Path;

use weir_core::model::Names;
use weir_core::policy::ParamsError;
use weir_core::saba::Sensitivity;
use weir_core::tree::{Application, Between, Plan, Service, TreeError, check_leaf};
use weir_core::wide_area;

use crate::bounds::{MAX_WEIGHT, MIN_WEIGHT};
use crate::error::TraceError;
use crate::fields::{self, Fields, Value};
use crate::sensitivity::{self, SensitivityTable};

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// A function that loads the sensitivity table of a given name.
pub type Tables<'a> = dyn Fn(&str) -> Result<SensitivityTable, TraceError> + 'a;

/// The key that contains the version.
const MAGIC: &str = "weir-tree";

/// Reads the tree at `path`; `-` is the standard input. If `names` is given, also checks that the tree fits a trace with
/// these names. Names of sensitivity tables are relative to the tree's folder.
///
/// # Errors
/// [`TraceError::Io`] if a file cannot be read; [`TraceError::Field`] for the first invalid field, or for a service or
/// application of `names` that the tree does not cover.
pub fn read(path: &Path, names: Option<&Names>) -> Result<Plan, TraceError> {
    fields::open_in_folder(path, |input, name, folder| read_from(input, name, folder, names))
}

/// Reads the tree at `path` as [`read`] does, with policies for a wide area instead of those for a switch.
///
/// # Errors
/// As for [`read`].
pub fn read_wide(path: &Path, names: Option<&Names>) -> Result<Plan, TraceError> {
    fields::open_in_folder(path, |input, name, folder| {
        let tables = |file: &str| sensitivity::read(&folder.join(file));
        read_of(input, name, &Parts { tables: &tables, leaf: |spec| wide_area::build(spec).map(drop) }, names)
    })
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
    names: Option<&Names>,
) -> Result<Plan, TraceError> {
    read_with(input, name, &|file| sensitivity::read(&folder.join(file)), names)
}

/// Reads a tree from `input`, which errors call `name`, as [`read`] does. `tables` loads sensitivity tables by the names in
/// the tree.
///
/// # Errors
/// As for [`read`], and the errors of `tables`.
pub fn read_with<R: Read>(
    input: R,
    name: &str,
    tables: &Tables<'_>,
    names: Option<&Names>,
) -> Result<Plan, TraceError> {
    read_of(input, name, &Parts { tables, leaf: check_leaf }, names)
}

/// Functions for the external parts of a tree.
struct Parts<'a> {
    tables: &'a Tables<'a>,
    /// Checks that a policy can be a leaf's.
    leaf: fn(&str) -> Result<(), ParamsError>,
}

fn read_of<R: Read>(
    input: R,
    name: &str,
    parts: &Parts<'_>,
    names: Option<&Names>,
) -> Result<Plan, TraceError> {
    fields::read_versioned(input, name, MAX_FILE_BYTES, (MAGIC, VERSION), |fields| {
        from_fields(fields, parts, names)
    })
}

/// The tree described by the keys of a file.
fn from_fields(mut fields: Fields<'_>, parts: &Parts<'_>, names: Option<&Names>) -> Result<Plan, TraceError> {
    let (listed, default) = (fields.maybe("service"), fields.maybe("default"));
    fields.finish()?;
    let mut listed = match &listed {
        Some(value) => fields.tables(value, |name| format!("service {name} "))?,
        None => Vec::new(),
    };
    let mut default =
        default.map(|value| fields.table(&value, format!("{} ", Names::DEFAULT))).transpose()?;
    let mut services = Vec::new();
    for (name, service) in &mut listed {
        services.push(read_service(name, service, parts)?);
    }
    let other = default.as_mut().map(|service| read_service(Names::DEFAULT, service, parts)).transpose()?;
    if services.is_empty() && other.is_none() {
        return Err(fields.wrong_at("service", "nothing", "a table `[service.NAME]`, or `[default]`"));
    }
    let plan = Plan::Services(services, other.map(Box::new));
    match names.map_or(Ok(()), |names| plan.check(names)) {
        Ok(()) => Ok(plan),
        Err(error) => Err(misfit(&error, &fields, &listed, default.as_ref())),
    }
}

/// The error for a tree that does not fit a trace, with its position in the file and a remedy.
fn misfit(
    error: &TreeError,
    all: &Fields<'_>,
    listed: &[(&str, Fields<'_>)],
    default: Option<&Fields<'_>>,
) -> TraceError {
    match error {
        TreeError::Service(service) => {
            let expected = format!(
                "all services of the trace: `[service.{service}]`, or `[default]` for those without a table"
            );
            all.wrong_at("service", service, &expected)
        }
        TreeError::Sensitivity { service, application } => {
            let (place, fields) = match listed.iter().find(|(name, _)| name == service) {
                Some((_, own)) => (format!("service.{service}"), own),
                None => (Names::DEFAULT.to_owned(), default.unwrap_or(all)),
            };
            let expected = format!(
                "a table that has all applications of the trace's service `{service}`, or `[{place}.application.{application}]` \
                 with the `model` of another"
            );
            fields.wrong_at("sensitivity", application, &expected)
        }
        // Weights and policies were checked when they were read.
        other => all.wrong_at("service", &other.to_string(), "a tree that fits the trace"),
    }
}

fn read_service(name: &str, fields: &mut Fields<'_>, parts: &Parts<'_>) -> Result<Service, TraceError> {
    const APPLICATIONS: &str = "`whole`, `weights` or `saba`";
    check_name(name, fields)?;
    let weight = weight(fields)?;
    let policy = policy(fields, parts)?.unwrap_or_else(|| "fair".to_owned());
    let way = match fields.maybe("applications") {
        None => "whole",
        Some(value) => fields.text(&value, APPLICATIONS)?,
    };
    let between = match way {
        "whole" => Between::Whole(policy.clone()),
        "weights" => Between::Weights,
        "saba" => Between::Saba(table(fields, parts.tables)?),
        other => return Err(fields.wrong_at("applications", other, APPLICATIONS)),
    };
    let other = Application { name: Names::DEFAULT.to_owned(), weight: 1.0, model: None, policy };
    if way == "whole" && fields.has("application") {
        let expected = "none in a service that is `whole`: leave its applications out, or share between them with \
                        `applications = \"weights\"` or `\"saba\"`";
        return Err(fields.wrong_at("application", "a table", expected));
    }
    if way != "saba" && fields.has("sensitivity") {
        let expected =
            format!("none with `applications = \"{way}\"`: leave it out, or set `applications = \"saba\"`");
        return Err(fields.wrong_at("sensitivity", "a file", &expected));
    }
    let mut applications = Vec::new();
    if let Some(value) = fields.maybe("application") {
        let place = |application: &str| format!("service {name} application {application} ");
        for (name, mut application) in fields.tables(&value, place)? {
            applications.push(read_application(name, &mut application, &between, &other, parts)?);
        }
    }
    fields.finish()?;
    Ok(Service { name: name.to_owned(), weight, between, applications, other })
}

fn read_application(
    name: &str,
    fields: &mut Fields<'_>,
    between: &Between,
    other: &Application,
    parts: &Parts<'_>,
) -> Result<Application, TraceError> {
    const MODEL: &str = "the name of an application in the sensitivity table";
    check_name(name, fields)?;
    let mut application = Application { name: name.to_owned(), ..other.clone() };
    if let Some(policy) = policy(fields, parts)? {
        application.policy = policy;
    }
    match between {
        Between::Saba(table) => {
            let model = fields.maybe("model");
            let wanted = match &model {
                Some(value) => fields.text(value, MODEL)?,
                None => name,
            };
            if !table.iter().any(|(row, _)| row == wanted) {
                return Err(fields.wrong_at("model", wanted, MODEL));
            }
            application.model = Some(wanted.to_owned());
        }
        _ => application.weight = weight(fields)?,
    }
    fields.finish()?;
    Ok(application)
}

fn check_name(name: &str, fields: &Fields<'_>) -> Result<(), TraceError> {
    if Names::is_name(name) { Ok(()) } else { Err(fields.wrong_at("name", name, Names::RULE)) }
}

/// An optional weight; 1 if missing.
fn weight(fields: &mut Fields<'_>) -> Result<f64, TraceError> {
    let Some(value) = fields.maybe("weight") else { return Ok(1.0) };
    let weight = fields.float(&value)?;
    if (MIN_WEIGHT..=MAX_WEIGHT).contains(&weight) {
        return Ok(weight);
    }
    Err(fields.wrong(&value, &format!("a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}")))
}

/// The optional policy of a leaf.
fn policy(fields: &mut Fields<'_>, parts: &Parts<'_>) -> Result<Option<String>, TraceError> {
    const POLICY: &str = "a policy with its parameters, such as \"saath:d=4\"";
    let Some(value) = fields.maybe("policy") else { return Ok(None) };
    let spec = fields.text(&value, POLICY)?;
    match (parts.leaf)(spec) {
        Ok(()) => Ok(Some(spec.to_owned())),
        Err(error) => Err(fields.wrong(&value, &format!("{POLICY} ({error})"))),
    }
}

/// The sensitivity table that a service names.
fn table(fields: &mut Fields<'_>, tables: &Tables<'_>) -> Result<Vec<(String, Sensitivity)>, TraceError> {
    const FILE: &str = "the file of a sensitivity table";
    let value: Value<'_> = fields.need("sensitivity", FILE)?;
    let table = tables(fields.text(&value, FILE)?)?;
    Ok(table.rows().iter().map(|row| (row.name.clone(), row.sensitivity)).collect())
}
