//! Tests of the server of metrics.

#[path = "../../../tls/tests/all/certificates.rs"]
mod certificates;
mod server;
