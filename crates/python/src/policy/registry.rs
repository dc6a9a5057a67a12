//! The table of policies that are written in Python.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyString;
use weir_core::model::{SizesKnown, SizesUnknown};
use weir_core::policy::{self, AnyPolicy, Params, ParamsError, PolicyEntry};

use super::PythonPolicy;
use super::failure::{describe, keep_python_error};
use crate::error::{self, Error};

/// Makes the objects of a policy.
struct Factory {
    /// Takes the parameters of a specification as a list of names and texts; returns a `weir.simulator.own_policy.Runner`, or the error
    /// in the parameters.
    make_runner: Py<PyAny>,
    is_clairvoyant: bool,
}

/// By the name of the policy. The lock is never held while Python code runs.
static FACTORIES: Mutex<BTreeMap<String, Factory>> = Mutex::new(BTreeMap::new());

fn factories() -> MutexGuard<'static, BTreeMap<String, Factory>> {
    FACTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a policy, or replaces the one with this name that was registered before. `params` have the form `key=default` and a
/// description, as those of Weir's own policies.
#[pyfunction]
pub fn register_policy(
    name: &str,
    description: &str,
    params: Vec<(String, String)>,
    is_clairvoyant: bool,
    make_runner: Py<PyAny>,
) -> error::Result<()> {
    register_entry(name, description, params)?;
    let factory = Factory { make_runner, is_clairvoyant };
    // Dropped without the lock, since that can run Python code.
    let former = factories().insert(name.to_owned(), factory);
    drop(former);
    Ok(())
}

/// Whether a policy of this name is written in Python.
pub fn is_registered(name: &str) -> bool {
    factories().contains_key(name)
}

/// Adds the line of a policy to the table, whose texts stay in memory, unless it is there.
fn register_entry(name: &str, description: &str, params: Vec<(String, String)>) -> error::Result<()> {
    let is_same = |entry: &PolicyEntry| {
        let known = entry.params.iter().map(|(param, about)| (*param, *about));
        entry.description == description && known.eq(params.iter().map(|(p, about)| (&p[..], &about[..])))
    };
    if factories().contains_key(name) && policy::all().any(|entry| entry.name == name && is_same(entry)) {
        return Ok(());
    }
    let leak = |text: &str| -> &'static str { String::leak(text.to_owned()) };
    let params = params.iter().map(|(param, about)| (leak(param), leak(about))).collect::<Vec<_>>();
    let entry = PolicyEntry {
        name: leak(name),
        description: leak(description),
        params: params.leak(),
        build: build_policy,
    };
    policy::register(vec![entry]).map_err(Error::input)
}

/// Makes the object of a policy from its parameters.
fn build_policy(params: &mut Params) -> Result<AnyPolicy, ParamsError> {
    let given = params.take_rest();
    reject_unknown(params.name(), &given)?;
    let refused = |reason| ParamsError::Refused { policy: params.name().to_owned(), reason };
    let built = Python::try_attach(|py| {
        let build = || {
            let (make_runner, is_clairvoyant) = {
                let factories = factories();
                let factory = factories.get(params.name()).expect("the table has only registered policies");
                (factory.make_runner.clone_ref(py), factory.is_clairvoyant)
            };
            let runner = make_runner.bind(py).call1((given,))?;
            if let Ok(reason) = runner.cast::<PyString>() {
                return Ok(Err(reason.to_string()));
            }
            Ok(Ok(match is_clairvoyant {
                true => AnyPolicy::from(PythonPolicy::<SizesKnown>::new(&runner)?),
                false => AnyPolicy::from(PythonPolicy::<SizesUnknown>::new(&runner)?),
            }))
        };
        build().unwrap_or_else(|error: PyErr| {
            let reason = describe(py, &error);
            keep_python_error(error);
            Err(reason)
        })
    });
    built.unwrap_or_else(|| Err("the interpreter exits".to_owned())).map_err(refused)
}

/// Rejects parameters that are not in the table; an underscore is a hyphen there.
fn reject_unknown(name: &str, given: &[(String, String)]) -> Result<(), ParamsError> {
    let entry = policy::all().find(|entry| entry.name == name);
    let params = entry.map_or(&[][..], |entry| entry.params);
    let known: Vec<&str> = params.iter().filter_map(|(param, _)| param.split('=').next()).collect();
    let unknown = given.iter().find(|(key, _)| !known.contains(&key.replace('_', "-").as_str()));
    unknown.map_or(Ok(()), |(key, _)| {
        let known = if known.is_empty() { "none".to_owned() } else { format!("one of {}", known.join(", ")) };
        Err(ParamsError::UnknownKey { policy: name.to_owned(), key: key.clone(), known })
    })
}
