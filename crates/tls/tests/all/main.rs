//! Tests of TLS sessions.

mod certificates;
mod session;
