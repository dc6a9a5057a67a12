//! Tests of TLS sessions.

mod certificates;
mod reload;
mod session;
