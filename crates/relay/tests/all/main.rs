//! Tests of relays.

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
#[path = "../../../tls/tests/all/certificates.rs"]
mod certificates;
#[path = "../../../core/tests/all/common.rs"]
mod common;
mod header;
mod hostile;
mod metrics;
mod parallel;
mod relay;
mod reorder;
mod server;
mod simulation;
mod test_relay;
mod tls;
