//! Serves backups of the store: `/v1/backup`.

use std::io;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;

use super::Api;
use crate::audit::Actor;
use crate::problem::Problem;
use crate::store::{Snapshot, StoreError};

/// Maximum duration of a backup. Until it ends, the store keeps the pages that the backup reads.
const MAX_BACKUP_DURATION: Duration = Duration::from_secs(600);

/// Size of a chunk of the body, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Maximum number of chunks that wait for the client.
const MAX_WAITING_CHUNKS: usize = 4;

/// A consistent backup of the store, as lines of JSON (docs/api.md). Operators only. A second concurrent backup is refused.
#[utoipa::path(get, path = "/v1/backup", operation_id = "back_up",
    responses((status = 200, description = "The backup", body = String, content_type = "application/x-ndjson"), Problem))]
pub async fn backup(State(api): State<Api>, actor: Actor) -> Result<Response, Problem> {
    if !actor.identity().may_change(None) {
        return Err(Problem::forbidden(format!(
            "{} may not back up the store; expected an operator",
            actor.identity()
        )));
    }
    let Ok(permit) = api.backup_permits.clone().try_acquire_owned() else {
        return Err(Problem::limit_reached(
            "backup: another backup is in progress; expected at most one concurrent backup",
        ));
    };
    let snapshot = api.registry.snapshot()?;
    api.registry.audit().note_accepted(&actor, Value::Null, Value::Null);
    let (chunks, body) = mpsc::channel(MAX_WAITING_CHUNKS);
    // Reading waits for the disk and for the client, so it runs on a thread of the pool for blocking work.
    spawn_blocking(move || {
        let _permit = permit;
        if let Err(error) = send_chunks(&snapshot, &chunks) {
            tracing::warn!(%error, "backup incomplete");
            // The connection ends before the end of the body, so the client detects the failure.
            let _ = chunks.blocking_send(Err(io::Error::other(error.to_string())));
        }
    });
    let content_type = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((content_type, Body::from_stream(ReceiverStream::new(body))).into_response())
}

fn send_chunks(snapshot: &Snapshot, chunks: &mpsc::Sender<io::Result<Vec<u8>>>) -> Result<(), StoreError> {
    let (start, mut chunk) = (Instant::now(), Vec::with_capacity(CHUNK_BYTES));
    snapshot.send_lines(|line| {
        chunk.extend_from_slice(&line);
        if chunk.len() < CHUNK_BYTES {
            return true;
        }
        let full_chunk = std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK_BYTES));
        start.elapsed() < MAX_BACKUP_DURATION && chunks.blocking_send(Ok(full_chunk)).is_ok()
    })?;
    chunks.blocking_send(Ok(chunk)).map_err(|_| StoreError::Closed)
}
