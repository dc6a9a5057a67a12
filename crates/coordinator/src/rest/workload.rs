//! Serves the coflows since the start as a trace: `/v1/workload`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Time};
use weir_trace::check_workload;
use weir_trace::format::{self, Comments};

use super::{Api, Client, check_may_see_all_flows};
use crate::control_plane::RecordedCoflow;
use crate::control_thread::Handle;
use crate::problem::Problem;

/// The flows that one call of the control plane copies, about: a millisecond of its time.
const PAGE_FLOWS: usize = 50_000;

/// Maximum duration of a workload. Until it ends, its coflows use memory.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// Size of a chunk of the body, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Maximum number of chunks that wait for the client.
const MAX_WAITING_CHUNKS: usize = 4;

/// The coflows of hosts since the start of the coordinator as a trace in Weir's format (docs/trace-format.md), which the simulator
/// replays: active and ended ones by their registration. A size that was not registered is that of the bytes sent until now. Comments
/// contain the ids, and the number of coflows that `workload` of `[limits]` has dropped. A second concurrent workload is refused.
#[utoipa::path(get, path = "/v1/workload", operation_id = "show_workload",
    responses((status = 200, description = "The trace", body = String, content_type = "text/plain"), Problem))]
pub async fn workload(State(api): State<Api>, client: Client) -> Result<Response, Problem> {
    check_may_see_all_flows(&client)?;
    let Ok(permit) = api.workload_permits.clone().try_acquire_owned() else {
        return Err(Problem::limit_reached(
            "workload: another workload is in progress; expected at most one concurrent workload",
        ));
    };
    let (recorded, registry) = (Recorded::collect(api.registry.handle()).await?, api.registry);
    if recorded.coflows.is_empty() {
        return Err(Problem::conflict("workload: no coflow since the start; expected a registered one"));
    }
    let build = move || {
        let known = registry.hosts();
        let name = |number: u32| match known.get(number) {
            Some(entry) => entry.name.clone(),
            None => format!("slot-{number}"),
        };
        let hosts: Vec<String> = (0..known.slot_count() as u32).map(name).collect();
        let (workload, comments) = recorded.into_trace(hosts.len() as u32, registry.names());
        check_workload(&workload).map(|()| (workload, hosts, comments))
    };
    let trace = spawn_blocking(build).await.expect("the conversion does not panic");
    let (workload, hosts, comments) =
        trace.map_err(|error| Problem::conflict(&format!("workload: no trace can express it: {error}")))?;
    let (chunks, body) = mpsc::channel(MAX_WAITING_CHUNKS);
    // Writing waits for the client, so it runs on a thread of the pool for blocking work.
    spawn_blocking(move || {
        let _permit = permit;
        let mut out = ChunkWriter { chunks, chunk: Vec::new(), start: Instant::now() };
        if let Err(error) = format::write_with_comments(&workload, &hosts, &comments, &mut out) {
            tracing::warn!(%error, "workload incomplete");
            // The connection ends before the end of the body, so the client detects the failure.
            let _ = out.chunks.blocking_send(Err(io::Error::other(error.to_string())));
        }
    });
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((content_type, Body::from_stream(ReceiverStream::new(body))).into_response())
}

/// Sends the written bytes in chunks.
struct ChunkWriter {
    chunks: mpsc::Sender<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    start: Instant,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.start.elapsed() > MAX_DURATION {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.chunks.blocking_send(Ok(chunk)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// The coflows since the start of the coordinator.
struct Recorded {
    coflows: Vec<Arc<RecordedCoflow>>,
    dropped_count: u64,
    /// The time of the request, in seconds since the start.
    until: f64,
}

impl Recorded {
    /// Coflows registered until now. One call of the control plane copies a page, so that orders are not late.
    async fn collect(handle: &Handle) -> Result<Recorded, Problem> {
        // A coflow can end between two calls, and is then also among those that ended.
        let (mut coflows, mut after) = (BTreeMap::new(), None::<Arc<str>>);
        let until = handle.call(|_, now| now).await?;
        loop {
            let page = handle.call(move |plane, _| plane.recorded_page(after.as_deref(), PAGE_FLOWS)).await?;
            let key =
                |coflow: RecordedCoflow| ((coflow.generation, Arc::clone(&coflow.id)), Arc::new(coflow));
            coflows.extend(page.coflows.into_iter().map(key));
            after = page.last;
            if after.is_none() {
                break;
            }
        }
        let (ended, dropped_count) = handle.call(|plane, _| plane.ended_coflows()).await?;
        coflows.extend(ended.into_iter().map(|coflow| ((coflow.generation, Arc::clone(&coflow.id)), coflow)));
        let mut coflows: Vec<_> = coflows.into_values().filter(|coflow| coflow.arrival <= until).collect();
        // Equal arrivals stay in the order of generations.
        coflows.sort_by(|a, b| a.arrival.total_cmp(&b.arrival));
        Ok(Recorded { coflows, dropped_count, until })
    }

    /// The workload of a number of hosts, and the comments of its trace. Coflows are numbered from 1 in the order of their arrival.
    fn into_trace(self, hosts: u32, names: &ServiceNames) -> (Workload, Comments) {
        let Recorded { coflows, dropped_count, until } = self;
        let comments = Comments {
            head: head_comments(dropped_count, until),
            coflows: coflows.iter().map(|coflow| Arc::clone(&coflow.id)).collect(),
        };
        // Traces number names by their first coflow.
        let mut used_names = ServiceNames::empty();
        let to_spec = |(id, coflow): (u64, Arc<RecordedCoflow>)| {
            let service = names.service(coflow.service);
            let application = &names.applications(coflow.service)[coflow.application as usize];
            let (service, application) = used_names
                .intern(service, application)
                .expect("the names are some of the configuration, which has the same bound");
            let flows = coflow.flows.iter().map(|flow| {
                let bytes = Bytes::new(flow.bytes).expect("sizes and sent bytes are finite and not negative");
                FlowSpec::new(flow.src, flow.dst, bytes)
            });
            let spec = CoflowSpec::new(id, to_time(coflow.arrival), flows.collect());
            CoflowSpec { weight: coflow.weight, deadline: coflow.deadline, service, application, ..spec }
        };
        let coflows: Vec<CoflowSpec> = (1..).zip(coflows).map(to_spec).collect();
        (Workload { ports: hosts, coflows, events: Vec::new(), names: used_names }, comments)
    }
}

fn head_comments(dropped_count: u64, until: f64) -> Vec<String> {
    let until = to_time(until);
    let mut head = vec![format!("the coflows of a coordinator from its start (0s) until {until}")];
    if dropped_count > 0 {
        head.push(format!(
            "{dropped_count} coflows that were removed first are missing; `workload` of [limits] bounds the memory for them"
        ));
    }
    head
}

/// Seconds since the start as a time in microseconds.
fn to_time(seconds: f64) -> Time {
    Time::new((seconds * 1e6).round() / 1e6).expect("seconds since the start are finite and not negative")
}
