//! Transfers flows with the library, whose senders write only while their agent lets them.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::Instant;
use weir_client::{FlowReceiver, FlowSender, Route};
use weir_testbed::{Plan, namespace};

use super::flow::{Flow, FlowEnd};

/// The maximum time until a flow's connection arrives.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(120);

/// The number of bytes of a write.
const CHUNK_BYTES: usize = 64 << 10;

/// A receiver at each host.
pub struct LibraryReceivers(Vec<Arc<FlowReceiver>>);

impl LibraryReceivers {
    /// Listens at each host.
    pub fn listen(plan: &Plan) -> io::Result<LibraryReceivers> {
        let listen = |node: &weir_testbed::Node| {
            namespace::run_inside(&node.namespace, || FlowReceiver::bind((node.address, 0)))?.map(Arc::new)
        };
        plan.nodes.iter().map(listen).collect::<io::Result<_>>().map(LibraryReceivers)
    }

    /// The receiver at a host.
    pub fn at(&self, host: u32) -> Arc<FlowReceiver> {
        Arc::clone(&self.0[host as usize])
    }
}

/// Sends a flow.
pub async fn transfer(flow: Flow, receiver: Arc<FlowReceiver>) -> io::Result<FlowEnd> {
    let flow = Arc::new(flow);
    let route = Route::direct(receiver.address())?;
    let sending = {
        let flow = Arc::clone(&flow);
        let send = move || namespace::run_inside(&flow.ends[0].namespace, || send(&flow, route)).flatten();
        async { spawn_blocking(send).await.expect("`send` does not panic") }
    };
    let receive = move || receive(&flow, &receiver);
    let receiving = async { spawn_blocking(receive).await.expect("`receive` does not panic") };
    let (is_scheduled, time) = tokio::try_join!(sending, receiving)?;
    Ok(FlowEnd { time, is_scheduled })
}

/// Sends a flow. Returns whether the agent scheduled it at its end.
fn send(flow: &Flow, route: Route) -> io::Result<bool> {
    let mut sender = FlowSender::new(&flow.coflow, flow.flow, route)?;
    if let Some(agent) = &flow.agent {
        sender = sender.with_agent(agent);
    }
    let (zeros, mut remaining) = ([0; CHUNK_BYTES], flow.bytes);
    while remaining > 0 {
        let chunk = remaining.min(CHUNK_BYTES as u64);
        sender.write_all(&zeros[..chunk as usize])?;
        remaining -= chunk;
    }
    Ok(sender.finish()?.unpaced.is_none())
}

fn receive(flow: &Flow, receiver: &FlowReceiver) -> io::Result<Instant> {
    let mut incoming = receiver.receive(&flow.coflow, flow.flow, ARRIVAL_TIMEOUT)?;
    match io::copy(&mut incoming, &mut io::sink())? {
        received if received == flow.bytes => Ok(Instant::now()),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}
