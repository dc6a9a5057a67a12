//! Keeps a stream to the coordinator open. When the stream ends, it is opened again, with increasing waits between attempts.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{Up, down::What};
use weir_proto::{MAX_ORDER, MAX_REPORT, Order, Report, wire};

/// The maximum time without a message from the coordinator, which renews a lease at least once a second.
const PATIENCE: Duration = Duration::from_secs(2);

/// The wait after the first failure, and the maximum wait.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The maximum report interval that an agent accepts.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// An event on the stream.
pub enum Event {
    /// The coordinator has accepted the stream.
    Begun {
        /// How often to report.
        every: Duration,
        /// Whether to report UDP that arrives.
        arrivals: bool,
        /// Whether to report the demands of applications.
        demands: bool,
        /// Where to send reports.
        up: mpsc::Sender<Report>,
    },
    /// An order arrived.
    Order(Order),
    /// The stream ended.
    Ended,
}

/// Keeps a stream open for a host, until the receiver of events is dropped. Logs changes of its state by `say`.
pub async fn keep(coordinator: Endpoint, host: u32, events: mpsc::Sender<Event>, say: impl Fn(&str)) {
    // Agents that lost the same coordinator do not connect again at the same time.
    let spread = 0.75 + f64::from(host % 64) / 128.0;
    let mut wait = FIRST_WAIT;
    let mut last = String::new();
    loop {
        let began = Instant::now();
        let why = attend(&coordinator, host, &events, &say).await;
        if events.send(Event::Ended).await.is_err() {
            return;
        }
        if began.elapsed() > MAX_WAIT {
            (wait, last) = (FIRST_WAIT, String::new());
        }
        if why != last {
            say(&format!("no coordinator: {why}"));
            last = why;
        }
        sleep(wait.mul_f64(spread)).await;
        wait = (wait * 2).min(MAX_WAIT);
    }
}

/// Opens one stream and passes its orders on. Returns why the stream ended.
async fn attend(
    coordinator: &Endpoint,
    host: u32,
    events: &mpsc::Sender<Event>,
    say: &impl Fn(&str),
) -> String {
    let silent = |_| format!("it said nothing for {} s", PATIENCE.as_secs());
    match timeout(PATIENCE, begin(coordinator, host)).await.map_err(silent).and_then(|begun| begun) {
        Err(why) => why,
        Ok((welcome, up, mut orders)) => {
            let (every, wire::Welcome { arrivals, demands, .. }) = (welcome.interval(), welcome);
            if events.send(Event::Begun { every, arrivals, demands, up }).await.is_err() {
                return String::new();
            }
            say(&format!("host {host} has a coordinator, reports every {} ms", every.as_secs_f64() * 1e3));
            loop {
                // The coordinator sends orders to a host after its first report, so the first order may take longer.
                let order = match timeout(PATIENCE, orders.message()).await.map_err(silent) {
                    Err(why) => return why,
                    Ok(Err(status)) => return status.message().to_owned(),
                    Ok(Ok(None)) => return "it ended the stream".to_owned(),
                    Ok(Ok(Some(down))) => down.what,
                };
                let Some(What::Order(order)) = order else {
                    return "it sent something that is no order".to_owned();
                };
                let order = match Order::try_from(order) {
                    Err(why) => return format!("it sent something that is no order: {why}"),
                    Ok(order) => order,
                };
                if events.send(Event::Order(order)).await.is_err() {
                    return String::new();
                }
            }
        }
    }
}

type Begun = (wire::Welcome, mpsc::Sender<Report>, tonic::Streaming<wire::Down>);

async fn begin(coordinator: &Endpoint, host: u32) -> Result<Begun, String> {
    let channel = coordinator.connect().await.map_err(|error| chain(&error))?;
    let mut control = ControlClient::new(channel)
        .max_decoding_message_size(MAX_ORDER)
        .max_encoding_message_size(MAX_REPORT);
    let (up, reports) = mpsc::channel(1);
    let said = ReceiverStream::new(reports).map(|report| Up::report(&report));
    let said = tokio_stream::once(Up::hello(host)).chain(said);
    let answer = control.attend(said).await.map_err(|status| status.message().to_owned())?;
    let mut orders = answer.into_inner();
    let first = orders.message().await.map_err(|status| status.message().to_owned())?;
    let Some(What::Welcome(welcome)) = first.and_then(|down| down.what) else {
        return Err("it did not begin with a welcome".to_owned());
    };
    let every = welcome.interval();
    if every.is_zero() || every > MAX_INTERVAL {
        return Err(format!(
            "it wants reports every {} s: expected more than 0 s and at most {} s",
            every.as_secs_f64(),
            MAX_INTERVAL.as_secs()
        ));
    }
    Ok((welcome, up, orders))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
