//! Serves the decisions of the last minutes as trace events: `/v1/trace`.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{Api, Client, check_may_see_all_flows};
use crate::control_plane::Decision;
use crate::problem::Problem;

/// The groups of tracks, as processes of the format.
const COFLOWS: u32 = 1;
const COFLOW_RATES: u32 = 2;

/// The decisions of the last five minutes as trace events, which Perfetto and chrome://tracing display: a track for each coflow with a
/// slice for each decision, and its ordered rate. Times count from the start of the coordinator.
#[utoipa::path(get, path = "/v1/trace",
    responses((status = 200, body = String, content_type = "application/json"), (status = "4XX", body = Problem)))]
pub async fn trace(State(api): State<Api>, client: Client) -> Result<impl IntoResponse, Problem> {
    check_may_see_all_flows(&client)?;
    let Ok(permit) = api.trace_permits.clone().try_acquire_owned() else {
        return Err(Problem::limit_reached(
            "trace: another trace is in progress; expected at most one concurrent trace",
        ));
    };
    let (decisions, now) = api.registry.handle().decisions().await?;
    // Tens of megabytes of text, which must not delay the streams of agents.
    let events = spawn_blocking(move || {
        let _permit = permit;
        trace_events(decisions, now)
    });
    let events = events.await.expect("`trace_events` does not panic");
    Ok(([(header::CONTENT_TYPE, "application/json")], events))
}

/// The file in the Trace Event Format. Decisions in force end at `now`.
fn trace_events(mut decisions: Vec<Decision>, now: f64) -> String {
    decisions.sort_by(|a, b| a.coflow.cmp(&b.coflow).then(a.from.total_cmp(&b.from)));
    let mut out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n".to_owned();
    for (group, name) in [(COFLOWS, "coflows"), (COFLOW_RATES, "ordered rates of coflows")] {
        let event = json!({ "ph": "M", "name": "process_name", "pid": group, "args": { "name": name } });
        let _ = writeln!(out, "{event},");
    }
    for (track, of_coflow) in (0u32..).zip(decisions.chunk_by(|a, b| a.coflow == b.coflow)) {
        let name = format!("coflow {}", of_coflow[0].coflow);
        let event = json!({ "ph": "M", "name": "thread_name", "pid": COFLOWS, "tid": track, "args": { "name": name } });
        let _ = writeln!(out, "{event},");
        for (decision, next) in of_coflow.iter().zip(of_coflow.iter().skip(1).map(Some).chain([None])) {
            let _ = writeln!(out, "{},", slice(decision, track, now));
            // A counter keeps its value, so it is 0 while TCP divides the links.
            let _ = writeln!(out, "{},", counter(&name, decision.from, decision.rate.unwrap_or(0.0)));
            // Without another decision at its end, the coflow has ended.
            let end = decision.until.filter(|until| next.is_none_or(|next| next.from > *until));
            if let Some(end) = end {
                let _ = writeln!(out, "{},", counter(&name, end, 0.0));
            }
        }
    }
    // The format has no comma after the last event.
    out.truncate(out.len() - ",\n".len());
    out + "\n]}\n"
}

fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).round()
}

fn slice(decision: &Decision, track: u32, now: f64) -> Value {
    let end = decision.until.unwrap_or(now).max(decision.from);
    json!({
        "ph": "X", "pid": COFLOWS, "tid": track, "name": decision.rule.name(),
        "ts": micros(decision.from), "dur": micros(end) - micros(decision.from),
        "args": { "queue": decision.class, "Gbit/s": decision.rate.map(|rate| rate * 8e-9) },
    })
}

fn counter(name: &str, at: f64, rate: f64) -> Value {
    let gbit = rate * 8e-9;
    json!({ "ph": "C", "pid": COFLOW_RATES, "name": name, "ts": micros(at), "args": { "Gbit/s": gbit } })
}
