//! Reloads the configuration file of a running coordinator.
//!
//! A reload is a second start while the coordinator runs: the file is read and checked whole, and changes of the store wait while its
//! contents are loaded into a new control plane. If the file has an error, or an object of the store would lose its host or service, the
//! reload is refused and nothing changes. Otherwise the epoch rises, and the new control plane takes over. What a start learns from
//! reports, such as the bytes that flows have sent, it learns from them here too. Hosts keep their rates meanwhile: agents open another
//! stream on their connection, before their leases end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::http::StatusCode;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tracing::{error, info};
use utoipa::ToSchema;

use crate::config::{self, Config};
use crate::problem::Problem;
use crate::registry::UnfitRecords;
use crate::server::Term;
use crate::store::unix_millis;

/// The maximum number of records that a refusal names.
const MAX_NAMED_RECORDS: usize = 5;

/// A request to reload the configuration file.
pub(crate) struct Reload {
    /// Whether the file is only checked.
    is_check: bool,
    answer: oneshot::Sender<Result<Reloaded, Problem>>,
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Reloaded {
    /// Whether the configuration is in use now; false for a check.
    pub applied: bool,
    /// The lines of the summary of `weir serve --check` that the former configuration has alone (`- `), and the file (`+ `).
    pub difference: Vec<String>,
}

/// Whether the last reload succeeded, and when.
#[derive(Debug, Default)]
struct Outcome {
    /// When the configuration in use was loaded, in milliseconds since 1970.
    loaded_unix_ms: AtomicU64,
    has_failed: AtomicBool,
}

/// Sends requests to reload the configuration. Clones share a coordinator.
#[derive(Clone)]
pub struct Reloader {
    requests: mpsc::Sender<Reload>,
    outcome: Arc<Outcome>,
}

impl Reloader {
    pub(crate) fn new(requests: mpsc::Sender<Reload>) -> Reloader {
        let outcome = Outcome { loaded_unix_ms: unix_millis().into(), ..Outcome::default() };
        Reloader { requests, outcome: Arc::new(outcome) }
    }

    /// Reloads the configuration file, or only checks it.
    ///
    /// # Errors
    /// [`Problem`]: the file cannot be used, or does not fit the objects of the store, or the store cannot be written. The former
    /// configuration stays in use.
    pub async fn reload(&self, is_check: bool) -> Result<Reloaded, Problem> {
        let (answer, answer_receiver) = oneshot::channel();
        let stopped = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the coordinator stops");
        self.requests.send(Reload { is_check, answer }).await.map_err(|_| stopped())?;
        let result = answer_receiver.await.unwrap_or_else(|_| Err(stopped()));
        if !is_check {
            self.outcome.has_failed.store(result.is_err(), Ordering::Relaxed);
            if result.is_ok() {
                self.outcome.loaded_unix_ms.store(unix_millis(), Ordering::Relaxed);
            }
        }
        result
    }

    /// When the configuration in use was loaded, in seconds since 1970.
    pub(crate) fn loaded_at(&self) -> f64 {
        self.outcome.loaded_unix_ms.load(Ordering::Relaxed) as f64 / 1e3
    }

    /// Whether the last reload was refused.
    pub(crate) fn has_failed(&self) -> bool {
        self.outcome.has_failed.load(Ordering::Relaxed)
    }
}

/// The term after a reload, whose requester waits for it.
pub(crate) struct NextTerm {
    pub term: Term,
    reloaded: Reloaded,
    answer: oneshot::Sender<Result<Reloaded, Problem>>,
}

impl NextTerm {
    /// Answers the requester: the term serves requests now.
    pub fn confirm(self) -> Term {
        let NextTerm { term, reloaded, answer } = self;
        info!(different_lines = reloaded.difference.len(), "configuration reloaded");
        reloaded.difference.iter().for_each(|line| info!("{line}"));
        // The requester may have been cancelled.
        let _ = answer.send(Ok(reloaded));
        term
    }
}

/// Handles requests until one replaces the term. Returns the next term.
pub(crate) async fn next_term(term: &Term, requests: &mut mpsc::Receiver<Reload>) -> NextTerm {
    loop {
        let Some(Reload { is_check, answer }) = requests.recv().await else {
            return std::future::pending().await;
        };
        match prepare(term, is_check).await {
            Ok((reloaded, Some(term))) => return NextTerm { term, reloaded, answer },
            Ok((checked, None)) => drop(answer.send(Ok(checked))),
            Err(problem) => {
                error!(%problem, "configuration not reloaded; the former one stays in use");
                let _ = answer.send(Err(problem));
            }
        }
    }
}

/// Reads and checks the file of a term, and loads the store. Returns the next term unless `is_check`.
async fn prepare(term: &Term, is_check: bool) -> Result<(Reloaded, Option<Term>), Problem> {
    let path = term.config.path.clone();
    let config = read_config(path).await?;
    check_fixed_keys(&term.config, &config)?;
    let difference = term.config.difference(&config);
    term.registry.store_measurements().await;
    let successor = term.registry.store().hold().await;
    let audit = Arc::clone(term.registry.audit());
    let next = Term::load(config, successor.store().clone(), audit).await.map_err(unusable)?;
    check_records(next.registry.unfit_records(), term.registry.unfit_records())?;
    if is_check {
        return Ok((Reloaded { applied: false, difference }, None));
    }
    next.registry.carry_over(&term.registry).await?;
    successor.take_over().await?;
    Ok((Reloaded { applied: true, difference }, Some(next)))
}

async fn read_config(path: PathBuf) -> Result<Config, Problem> {
    let read = spawn_blocking(move || config::read(&path)).await;
    read.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
        .map_err(|error| unusable(error.to_string()))
}

/// The problem of a configuration that cannot be used.
fn unusable(reason: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason)
}

/// Refuses changes of what an open coordinator cannot replace.
fn check_fixed_keys(former: &Config, config: &Config) -> Result<(), Problem> {
    let keys = [
        (
            "`listen`",
            former.agents_address == config.agents_address && former.api_address == config.api_address,
        ),
        ("`store`", former.store_path == config.store_path),
        ("`audit`", former.audit_path == config.audit_path),
        ("`tls`", former.tls == config.tls),
    ];
    match keys.iter().find(|(_, is_same)| !is_same) {
        None => Ok(()),
        Some((key, _)) => Err(unusable(format!(
            "{key} has changed; expected the former value; help: restart the coordinator"
        ))),
    }
}

/// Refuses a configuration that an object of the store does not fit, unless the object did not fit the former one either.
fn check_records(unfit: &UnfitRecords, former: &UnfitRecords) -> Result<(), Problem> {
    let named: Vec<String> =
        unfit.since(former).map(|(record, reason)| format!("{record}: {reason}")).collect();
    if named.is_empty() {
        return Ok(());
    }
    let more = match named.len().saturating_sub(MAX_NAMED_RECORDS) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named = named[..named.len().min(MAX_NAMED_RECORDS)].join("; ");
    let detail = format!(
        "registered objects do not fit the configuration: {named}{more}; help: deregister them first, or restart to ignore them"
    );
    Err(Problem::conflict(&detail))
}
