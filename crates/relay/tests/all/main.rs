//! Tests of relays.

#[path = "../../../tls/tests/all/certificates.rs"]
mod certificates;
mod header;
mod hostile;
mod metrics;
mod relay;
mod reorder;
mod server;
mod simulation;
mod test_relay;
mod tls;
