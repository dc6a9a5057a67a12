//! Serves metrics for Prometheus: `GET /metrics` over HTTP/1.1, over plain text or mutual TLS. A connection serves one request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use weir_tls::{LogLimit, RELOAD_INTERVAL, Reloaded, TlsError, TlsFiles, server_config};

/// The maximum number of concurrent connections. A further one replaces the oldest, so that idle ones do not block requests.
const MAX_CONNECTIONS: usize = 16;

/// The maximum duration of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The media type of metrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A certificate, which is read again when its files change. Clients need a certificate of the authority, with any role.
#[derive(Clone)]
pub struct MetricsTls(Arc<Reloaded<Arc<ServerConfig>>>);

impl MetricsTls {
    /// TLS with these files.
    ///
    /// # Errors
    /// A file cannot be read or parsed, or the certificate and the key do not match.
    pub fn read(files: &TlsFiles) -> Result<MetricsTls, TlsError> {
        let make = |files: &TlsFiles| server_config(files, b"http/1.1");
        Ok(MetricsTls(Arc::new(Reloaded::new(files, make)?)))
    }

    /// Reads changed files for ever. The owner of the certificate logs why new files are unusable.
    async fn reload(self) -> Infallible {
        loop {
            sleep(RELOAD_INTERVAL).await;
            let certificate = Arc::clone(&self.0);
            let _ = spawn_blocking(move || certificate.refresh()).await;
        }
    }
}

/// What a server shows.
pub trait MetricsSource: Clone + Send + Sync + 'static {
    /// The text in the OpenMetrics format; none if it is not available.
    fn text(&self) -> impl Future<Output = Option<String>> + Send;
}

/// Serves metrics until the caller drops the future.
pub async fn serve(listener: TcpListener, tls: Option<MetricsTls>, source: impl MetricsSource) -> Infallible {
    let accept = accept(listener, tls.clone(), source);
    match tls {
        None => accept.await,
        Some(tls) => tokio::select! {
            never = accept => never,
            never = tls.reload() => never,
        },
    }
}

async fn accept(listener: TcpListener, tls: Option<MetricsTls>, source: impl MetricsSource) -> Infallible {
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    let (start, log_limit) = (Instant::now(), Arc::new(Mutex::new(LogLimit::default())));
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) => {
                // Such as too many open files.
                tracing::warn!("cannot accept connections for metrics: {error}");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() == MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let (tls, source, log_limit) = (tls.clone(), source.clone(), Arc::clone(&log_limit));
        let connection = tokio::spawn(async move {
            // A client that is too slow is disconnected.
            let served = timeout(CONNECTION_TIMEOUT, serve_connection(stream, tls, source)).await;
            let Ok(Err(error)) = served else { return };
            let (peer, text) = (address.ip().to_string(), error.to_string());
            let mut limit = log_limit.lock().unwrap_or_else(PoisonError::into_inner);
            if limit.permits(&peer, &text, start.elapsed()) {
                tracing::warn!("metrics: {peer} is refused: {text}");
            }
        });
        connections.push_back(connection.abort_handle());
    }
}

async fn serve_connection(
    stream: TcpStream,
    tls: Option<MetricsTls>,
    source: impl MetricsSource,
) -> io::Result<()> {
    match tls {
        None => serve_request(stream, source).await,
        Some(tls) => {
            let config = Arc::clone(&*tls.0.current());
            serve_request(TlsAcceptor::from(config).accept(stream).await?, source).await;
        }
    }
    Ok(())
}

async fn serve_request(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    source: impl MetricsSource,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let source = source.clone();
        async move { Ok::<_, Infallible>(answer(&request, &source).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).keep_alive(false);
    // The client may close the connection early.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: &Request<Incoming>, source: &impl MetricsSource) -> Response<String> {
    let (status, header, text) = if request.uri().path() != "/metrics" {
        (StatusCode::NOT_FOUND, None, "unknown path; expected /metrics\n".to_owned())
    } else if request.method() != Method::GET {
        (StatusCode::METHOD_NOT_ALLOWED, Some((ALLOW, "GET")), "unknown method; expected GET\n".to_owned())
    } else {
        match source.text().await {
            Some(text) => (StatusCode::OK, Some((CONTENT_TYPE, OPENMETRICS)), text),
            None => (StatusCode::SERVICE_UNAVAILABLE, None, "metrics are not available now\n".to_owned()),
        }
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    if let Some((name, value)) = header {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
