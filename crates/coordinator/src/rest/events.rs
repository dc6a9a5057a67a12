//! Serves the event stream: `/v1/events`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::{Api, Client, check_may_see};
use crate::events::Event;
use crate::identity::Identity;
use crate::problem::Problem;

/// Interval of keepalive comments on an idle stream, which detect closed connections.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Events from now on, as server-sent events; for a framework, those of its service and those without a service. A client
/// that reads too slowly misses the oldest events, and receives an event `missed` with their number.
#[utoipa::path(get, path = "/v1/events", operation_id = "watch_events",
    responses((status = 200, description = "The events", body = Event, content_type = "text/event-stream"), Problem))]
pub async fn events(
    State(api): State<Api>,
    client: Client,
) -> Result<Sse<impl Stream<Item = Result<Line, Infallible>>>, Problem> {
    check_may_see(&client, None)?;
    let subscription = (api.registry.events.subscribe(), api.stop.clone(), Arc::clone(&client));
    Ok(Sse::new(unfold(subscription, next_event)).keep_alive(KeepAlive::new().interval(KEEPALIVE_INTERVAL)))
}

type Subscription = (Receiver<Event>, watch::Receiver<bool>, Arc<Identity>);

/// The next event for a client; `None` when the server stops.
async fn next_event(
    (mut events, mut stop, client): Subscription,
) -> Option<(Result<Line, Infallible>, Subscription)> {
    loop {
        let event = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return None,
            event = events.recv() => event,
        };
        let line = match event {
            Ok(event) if !client.may_see(event.service.as_deref()) => continue,
            // Serialization of these types cannot fail.
            Ok(event) => Line::default().json_data(&event).ok()?,
            Err(RecvError::Lagged(count)) => Line::default().event("missed").data(count.to_string()),
            Err(RecvError::Closed) => return None,
        };
        return Some((Ok(line), (events, stop, client)));
    }
}
