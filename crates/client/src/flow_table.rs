//! The flows of a receiver, which the receiver, its flows and its thread share.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_flow::{BackLine, CoflowName, FirstLine, Reason, ReceiveState};

use crate::flow_connection::FlowConnection;

/// How many ended flows a receiver remembers. The sender of such a flow may ask again for the last acknowledgement.
const MAX_ENDED_FLOWS: usize = 16_384;

pub(crate) type FlowKey = (CoflowName, u32);

/// The state of the receiver, of its flows, and of its thread. A flow's lock is taken after that of the table.
#[derive(Debug)]
pub(crate) struct Shared {
    table: Mutex<Table>,
    /// Signals a flow that is ready.
    arrived: Condvar,
    /// Wakes the thread.
    wake: UnixStream,
}

#[derive(Debug, Default)]
struct Table {
    flows: BTreeMap<FlowKey, (Arc<Flow>, Stage)>,
    ready_count: usize,
    /// Ended flows, the oldest first.
    ended: VecDeque<FlowKey>,
    /// Connections that end, for the thread.
    draining: Vec<Arc<FlowConnection>>,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The flow waits for [`FlowReceiver::receive`](crate::FlowReceiver::receive).
    Ready,
    /// A program reads the flow.
    Taken,
    /// The flow has ended, or the program has dropped it.
    Ended,
}

#[derive(Debug, Default)]
pub(crate) struct Flow {
    pub(crate) progress: Mutex<Progress>,
    /// Signals a connection.
    pub(crate) connected: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) state: ReceiveState,
    pub(crate) connection: Option<Arc<FlowConnection>>,
    /// Whether no other connection can arrive.
    pub(crate) is_last: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// No flows. `wake` wakes the thread.
    pub(crate) fn new(wake: UnixStream) -> Shared {
        Shared { table: Mutex::default(), arrived: Condvar::new(), wake }
    }

    pub(crate) fn wake(&self) {
        // If the buffer is full, the thread wakes up anyway.
        let _ = (&self.wake).write(&[0]);
    }

    /// Closes the port, and wakes all waiting calls.
    pub(crate) fn close(&self) {
        let mut table = lock(&self.table);
        table.is_closed = true;
        for (flow, stage) in table.flows.values() {
            let mut progress = lock(&flow.progress);
            match stage {
                // The sender finds that the connection has failed.
                Stage::Ready => drop(progress.connection.take()),
                Stage::Taken | Stage::Ended => progress.is_last = true,
            }
            flow.connected.notify_all();
        }
        table.flows.retain(|_, (_, stage)| *stage != Stage::Ready);
        table.ready_count = 0;
        self.arrived.notify_all();
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.table).is_closed
    }

    /// Passes a connection to its flow, which may be new, or refuses it.
    pub(crate) fn admit(&self, connection: FlowConnection, line: &FirstLine) {
        let mut table = lock(&self.table);
        if table.is_closed {
            return;
        }
        let key = (line.coflow.clone(), line.flow);
        let known = table.flows.get(&key).map(|(flow, _)| Arc::clone(flow));
        let is_new = known.is_none();
        let flow = known.unwrap_or_default();
        let mut progress = lock(&flow.progress);
        let connection = Arc::new(connection);
        let answer = match progress.state.accept(line) {
            Ok(answer) if !progress.state.has_ended() => answer,
            Ok(answer) => {
                connection.send_last_line(answer);
                return table.draining.push(connection);
            }
            Err(reason) => {
                connection.send_last_line(BackLine::Reset(reason));
                return table.draining.push(connection);
            }
        };
        // The program's next read finds a failure.
        let _ = connection.send_line(&answer.encode());
        if let Some(earlier) = progress.connection.replace(connection) {
            earlier.send_last_line(BackLine::Reset(Reason::Replaced));
            // The program may wait for this connection.
            earlier.shutdown();
            table.draining.push(earlier);
        }
        drop(progress);
        flow.connected.notify_all();
        if is_new {
            table.flows.insert(key, (flow, Stage::Ready));
            table.ready_count += 1;
            self.arrived.notify_all();
        }
    }

    /// Sends the last acknowledgement of every flow again.
    pub(crate) fn repeat_acks(&self) {
        for (flow, _) in lock(&self.table).flows.values() {
            let mut progress = lock(&flow.progress);
            let line = progress.state.ack();
            if let Some(connection) = &progress.connection
                && connection.send_line(&line.encode()).is_err()
            {
                // The program's next read finds the failure.
                connection.shutdown();
            }
        }
    }

    /// Leaves a connection to the thread, which discards what arrives.
    pub(crate) fn drain(&self, connection: Arc<FlowConnection>) {
        lock(&self.table).draining.push(connection);
    }

    pub(crate) fn take_draining(&self) -> Vec<Arc<FlowConnection>> {
        std::mem::take(&mut lock(&self.table).draining)
    }

    pub(crate) fn ready_count(&self) -> usize {
        lock(&self.table).ready_count
    }

    /// Takes a flow that is ready.
    pub(crate) fn take_flow(&self, key: &FlowKey, timeout: Duration) -> io::Result<Arc<Flow>> {
        let start = Instant::now();
        let mut table = lock(&self.table);
        let error = loop {
            if table.is_closed {
                break (
                    ErrorKind::ConnectionAborted,
                    "cannot be received: the receiver was closed".to_owned(),
                );
            }
            match table.flows.get_mut(key) {
                None => {}
                Some((flow, stage @ Stage::Ready)) => {
                    *stage = Stage::Taken;
                    let flow = Arc::clone(flow);
                    table.ready_count -= 1;
                    self.wake();
                    return Ok(flow);
                }
                Some((_, Stage::Taken | Stage::Ended)) => {
                    let text = "was received before; expected one call of `receive` for each flow";
                    break (ErrorKind::AlreadyExists, text.to_owned());
                }
            }
            let remaining = timeout.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                break (ErrorKind::TimedOut, format!("did not arrive within {timeout:?}"));
            }
            let waited = self.arrived.wait_timeout(table, remaining);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        let ((kind, text), (coflow, flow)) = (error, key);
        Err(io::Error::new(kind, format!("flow {flow} of coflow `{coflow}` {text}")))
    }

    /// Marks a flow as ended. Its last connection ends with `line`.
    pub(crate) fn end_flow(&self, key: &FlowKey, flow: &Flow, line: BackLine) {
        let mut table = lock(&self.table);
        if let Some((_, stage)) = table.flows.get_mut(key) {
            *stage = Stage::Ended;
            table.ended.push_back(key.clone());
        }
        if table.ended.len() > MAX_ENDED_FLOWS
            && let Some(oldest) = table.ended.pop_front()
        {
            table.flows.remove(&oldest);
        }
        if let Some(connection) = lock(&flow.progress).connection.take() {
            connection.send_last_line(line);
            table.draining.push(connection);
        }
        self.wake();
    }
}
