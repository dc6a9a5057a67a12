//! Serves the decisions of the last minutes as trace events: `/v1/trace`.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::json;
use tokio::task::spawn_blocking;
use weir_trace::trace_events::{EventWriter, Track};

use super::{Api, Client, check_may_see_all_flows};
use crate::control_plane::Decision;
use crate::problem::Problem;

/// The groups of tracks, as processes of the format.
const COFLOWS: u32 = 1;
const COFLOW_RATES: u32 = 2;

/// The decisions of the last five minutes as trace events, which Perfetto and chrome://tracing display: a track for each coflow with
/// slices from its first to its last decision and for each decision, instants for changes of its queue, and its ordered rate. Times count
/// from the start of the coordinator.
#[utoipa::path(get, path = "/v1/trace", operation_id = "show_trace",
    responses((status = 200, description = "The decisions, in the Trace Event Format", body = Object, content_type = "application/json"), Problem))]
pub async fn trace(State(api): State<Api>, client: Client) -> Result<impl IntoResponse, Problem> {
    check_may_see_all_flows(&client)?;
    let Ok(permit) = api.trace_permits.clone().try_acquire_owned() else {
        return Err(Problem::limit_reached(
            "trace: another trace is in progress; expected at most one concurrent trace",
        ));
    };
    let (decisions, now) = api.registry.handle().call(|plane, now| (plane.decisions(now), now)).await?;
    // Tens of megabytes of text, which must not delay the streams of agents.
    let events = spawn_blocking(move || {
        let _permit = permit;
        trace_events(decisions, now)
    });
    let events = events.await.expect("`trace_events` does not panic");
    Ok(([(header::CONTENT_TYPE, "application/json")], events))
}

/// The file in the Trace Event Format. Decisions in force end at `now`.
fn trace_events(mut decisions: Vec<Decision>, now: f64) -> Vec<u8> {
    decisions.sort_by(|a, b| a.coflow.cmp(&b.coflow).then(a.from.total_cmp(&b.from)));
    let mut file = Vec::new();
    let mut out = EventWriter::new(&mut file);
    out.name_group(COFLOWS, "coflows");
    out.name_group(COFLOW_RATES, "ordered rates of coflows");
    for (number, of_coflow) in decisions.chunk_by(|a, b| a.coflow == b.coflow).enumerate() {
        write_coflow(&mut out, Track { group: COFLOWS, number }, of_coflow, now);
    }
    out.finish().expect("a vector accepts all bytes");
    file
}

/// Writes the decisions for one coflow, in the order of time.
fn write_coflow(out: &mut EventWriter<&mut Vec<u8>>, track: Track, decisions: &[Decision], now: f64) {
    let end_of = |decision: &Decision| decision.until.unwrap_or(now).max(decision.from);
    let ([first, ..], [.., last]) = (decisions, decisions) else { return };
    let name = format!("coflow {}", first.coflow);
    out.name_track(track, &name);
    out.slice(track, &name, [first.from, end_of(last)], &json!({}));
    for (at, decision) in decisions.iter().enumerate() {
        let facts = json!({ "queue": decision.class, "Gbit/s": decision.rate.map(|rate| rate * 8e-9) });
        out.slice(track, decision.rule.name(), [decision.from, end_of(decision)], &facts);
        if at > 0 && decisions[at - 1].class != decision.class {
            out.instant(track, &format!("queue {}", decision.class), decision.from);
        }
        // A counter keeps its value, so it is 0 while TCP divides the links.
        out.rate(COFLOW_RATES, &name, decision.from, decision.rate.unwrap_or(0.0));
        // Without another decision at its end, the coflow has ended.
        let next = decisions.get(at + 1);
        let end = decision.until.filter(|until| next.is_none_or(|next| next.from > *until));
        if let Some(end) = end {
            out.rate(COFLOW_RATES, &name, end, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use weir_core::allocation::Rule;

    use super::*;

    #[test]
    fn coflow_has_a_lifetime_slices_of_its_decisions_and_an_instant_for_its_queue() {
        let decision = |from, until, class| Decision {
            coflow: "a".into(),
            from,
            until,
            rate: Some(125e6),
            rule: Rule::AllOrNone,
            class,
        };
        let file = trace_events(vec![decision(2.0, None, 1), decision(1.0, Some(2.0), 0)], 5.0);
        let all: Value = serde_json::from_slice(&file).unwrap();
        let events = |kind: &str| -> Vec<(String, f64, Option<f64>)> {
            let of_kind = all["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == kind);
            let text = |event: &Value| event["name"].as_str().unwrap().to_owned();
            of_kind.map(|event| (text(event), event["ts"].as_f64().unwrap(), event["dur"].as_f64())).collect()
        };
        let rule = Rule::AllOrNone.name().to_owned();
        let slices =
            [("coflow a".to_owned(), 1e6, Some(4e6)), (rule.clone(), 1e6, Some(1e6)), (rule, 2e6, Some(3e6))];
        assert_eq!(events("X"), slices);
        assert_eq!(events("i"), [("queue 1".to_owned(), 2e6, None)]);
        assert_eq!(events("C").len(), 2);
    }
}
