//! Backups of the store: `/v1/backup`.

use std::io;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;

use super::{Api, Who};
use crate::problem::Problem;
use crate::store::{Snapshot, StoreError};

/// Maximum duration of a backup. Until it ends, the store keeps the pages that the backup reads.
const LIMIT: Duration = Duration::from_secs(600);

/// Size of a chunk in bytes, and maximum number of chunks that wait for the client.
const CHUNK: usize = 64 << 10;
const WAITING: usize = 4;

/// A consistent backup of the store, as lines of JSON (docs/api.md). Operators only; a second concurrent backup is
/// refused.
#[utoipa::path(get, path = "/v1/backup",
    responses((status = 200, body = String, content_type = "application/x-ndjson"), (status = "4XX", body = Problem)))]
pub async fn backup(State(api): State<Api>, who: Who) -> Result<Response, Problem> {
    if !who.may_change(None) {
        return Err(Problem::forbidden(format!("{} may not back up the store; expected an operator", *who)));
    }
    let Ok(permit) = api.backups.clone().try_acquire_owned() else {
        return Err(Problem::full("backup: another backup is in progress; expected one at a time"));
    };
    let snapshot = api.registry.snapshot()?;
    let (chunks, body) = mpsc::channel(WAITING);
    // Reading blocks on the disk and on the client, so it runs on a thread of the pool for blocking work.
    spawn_blocking(move || {
        let _permit = permit;
        if let Err(error) = send(&snapshot, &chunks) {
            tracing::warn!(%error, "the backup is incomplete");
            // The connection ends before the end of the body, so the client detects the failure.
            let _ = chunks.blocking_send(Err(io::Error::other(error.to_string())));
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(ReceiverStream::new(body))).into_response())
}

fn send(snapshot: &Snapshot, chunks: &mpsc::Sender<io::Result<Vec<u8>>>) -> Result<(), StoreError> {
    let (began, mut chunk) = (Instant::now(), Vec::with_capacity(CHUNK));
    snapshot.lines(|line| {
        chunk.extend_from_slice(&line);
        if chunk.len() < CHUNK {
            return true;
        }
        let full = std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK));
        began.elapsed() < LIMIT && chunks.blocking_send(Ok(full)).is_ok()
    })?;
    chunks.blocking_send(Ok(chunk)).map_err(|_| StoreError::Closed)
}
