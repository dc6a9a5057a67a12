//! The coflows over real sockets: a connection and two threads for each flow.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_core::model::{CoflowSpec, FlowSpec, Workload};
use weir_testbed::{Plan, namespace};

use super::control::Control;
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::progress::Progress;

/// How long threads wait at most before they look whether to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// How long a connection may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread's stack.
const STACK: usize = 128 << 10;

/// What is written and read at a time.
const CHUNK: usize = 64 << 10;

/// What all threads see.
struct Common<'a> {
    plan: &'a Plan,
    control: Option<&'a Control>,
    began: Instant,
    stop: AtomicBool,
    failure: Mutex<Option<Failure>>,
    /// When the last flow of each coflow ended so far, in nanoseconds.
    ends: Vec<AtomicU64>,
    flows_left: AtomicUsize,
}

impl Common<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Keeps the first failure, and stops all.
    fn fail(&self, failure: Failure) {
        self.failure.lock().expect("nobody panics while holding it").get_or_insert(failure);
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The CCT of each coflow, in seconds. `expected` is how long the whole should take.
///
/// # Errors
/// If a connection cannot be, all of it takes far too long, or somebody asks to stop.
pub fn measure(
    plan: &Plan,
    workload: &Workload,
    control: Option<&Control>,
    policy: &str,
    expected: f64,
    progress: &Progress,
) -> Result<Vec<f64>, Failure> {
    let flows = workload.coflows.iter().map(|coflow| coflow.flows.len()).sum();
    let common = Common {
        plan,
        control,
        began: Instant::now(),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
        ends: workload.coflows.iter().map(|_| AtomicU64::new(0)).collect(),
        flows_left: AtomicUsize::new(flows),
    };
    let bar = progress.steps(&format!("{policy}, in real time"), flows);
    let limit = Duration::from_secs_f64(3.0 * expected + 30.0);
    thread::scope(|scope| {
        let worked = arrive(scope, workload, &common).and_then(|()| {
            wait(&common, limit, || {
                bar.set_position((flows - common.flows_left.load(Ordering::Relaxed)) as u64)
            })
        });
        common.stop.store(true, Ordering::Relaxed);
        if let Err(failure) = worked {
            common.fail(failure);
        }
    });
    bar.finish_and_clear();
    if let Some(failure) = common.failure.into_inner().expect("nobody panicked while holding it") {
        return Err(failure);
    }
    let cct = |(end, coflow): (&AtomicU64, &CoflowSpec)| {
        end.load(Ordering::Relaxed) as f64 * 1e-9 - coflow.arrival.get()
    };
    Ok(common.ends.iter().zip(&workload.coflows).map(cct).collect())
}

/// Lets the coflows arrive at their times.
fn arrive<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    workload: &'scope Workload,
    common: &'scope Common<'_>,
) -> Result<(), Failure> {
    for (number, coflow) in workload.coflows.iter().enumerate() {
        let due = Duration::from_secs_f64(coflow.arrival.get());
        while common.began.elapsed() < due {
            check(common)?;
            thread::sleep(due.saturating_sub(common.began.elapsed()).min(GLANCE));
        }
        if let Some(control) = common.control {
            control.register(coflow)?;
        }
        for flow in 0..coflow.flows.len() {
            let work = move || match carry(coflow, flow, common) {
                Ok(Some(end)) => {
                    common.ends[number].fetch_max((end - common.began).as_nanos() as u64, Ordering::Relaxed);
                    common.flows_left.fetch_sub(1, Ordering::Relaxed);
                }
                Ok(None) => {}
                Err(error) => {
                    common.fail(Failure::undone(format_args!("coflow {}, flow {flow}: {error}", coflow.id)));
                }
            };
            let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            thread.map_err(|error| Failure::undone(format_args!("a thread cannot begin: {error}")))?;
        }
    }
    Ok(())
}

/// Waits until all flows have ended.
fn wait(common: &Common<'_>, limit: Duration, mut step: impl FnMut()) -> Result<(), Failure> {
    loop {
        let left = common.flows_left.load(Ordering::Relaxed);
        step();
        if left == 0 {
            return Ok(());
        }
        check(common)?;
        if common.began.elapsed() > limit {
            return Err(Failure::undone(format_args!(
                "{left} flows have not ended within {} s",
                limit.as_secs()
            )));
        }
        thread::sleep(GLANCE);
    }
}

/// Whether to go on. A thread's failure is kept already.
fn check(common: &Common<'_>) -> Result<(), Failure> {
    if interrupt::asked() || common.stopped() {
        return Err(Failure::interrupted("interrupted; nothing was written"));
    }
    Ok(())
}

/// Sends a flow; the answer is when its last byte was read, if nobody stopped it before.
fn carry(coflow: &CoflowSpec, at: usize, common: &Common<'_>) -> io::Result<Option<Instant>> {
    let FlowSpec { src, dst, bytes, .. } = coflow.flows[at];
    let (from, to) = (&common.plan.nodes[src as usize], &common.plan.nodes[dst as usize]);
    let bytes = bytes.get() as u64;
    namespace::enter(&to.namespace)?;
    let listener = TcpListener::bind(SocketAddr::from((to.address, 0)))?;
    let address = listener.local_addr()?;
    namespace::enter(&from.namespace)?;
    let sender = TcpStream::connect_timeout(&address, PATIENCE)?;
    // It is there once the other end is connected.
    let (receiver, _) = listener.accept()?;
    drop(listener);
    sender.set_write_timeout(Some(GLANCE))?;
    receiver.set_read_timeout(Some(GLANCE))?;
    if let Some(control) = common.control {
        let handed = control.agent(src).open(&coflow.id.to_string(), at as u32, &sender);
        handed.map_err(io::Error::other)?;
    }
    thread::scope(|scope| {
        let sending =
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || send(&sender, bytes, common))?;
        let end = receive(&receiver, bytes, common)?;
        sending.join().expect("it does not panic")?;
        Ok(end)
    })
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn send(mut stream: &TcpStream, bytes: u64, common: &Common<'_>) -> io::Result<()> {
    let buffer = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 && !common.stopped() {
        match stream.write(&buffer[..left.min(CHUNK as u64) as usize]) {
            Ok(written) => left -= written as u64,
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // Whoever paces it lets go of it then.
    stream.shutdown(Shutdown::Write)
}

fn receive(mut stream: &TcpStream, bytes: u64, common: &Common<'_>) -> io::Result<Option<Instant>> {
    let mut buffer = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        if common.stopped() {
            return Ok(None);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => left = left.saturating_sub(read as u64),
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(Instant::now()))
}
