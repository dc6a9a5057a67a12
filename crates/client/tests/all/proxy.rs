//! A relay that fails on purpose.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use weir_flow::{BackLine, FirstLine, Reason};

/// How a connection fails.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// It closes after this many bytes of the stream.
    Close(usize),
    /// The byte at this position is changed.
    Corrupt(usize),
    /// It is reset after this many bytes.
    Reset(usize, Reason),
}

/// Forwards connections to a target, or to the receivers in their first lines. Each connection takes the next fault; connections after the
/// last fault succeed.
pub struct Proxy {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    pub fn start(target: Option<SocketAddr>, faults: Vec<Fault>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, faults) = (Arc::clone(&connections), Mutex::new(VecDeque::from(faults)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::Relaxed);
                let fault = faults.lock().unwrap().pop_front();
                thread::spawn(move || forward(stream.unwrap(), target, fault));
            }
        });
        Proxy { address, connections }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Forwards a connection until it fails. Errors are those of peers that have closed it.
fn forward(sender: TcpStream, target: Option<SocketAddr>, fault: Option<Fault>) {
    let mut input = BufReader::new(sender.try_clone().unwrap());
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    let receiver = FirstLine::parse(line.trim_end().as_bytes()).unwrap().receiver;
    let Ok(mut output) = TcpStream::connect(target.unwrap_or(receiver)) else { return };
    let mut answers = (output.try_clone().unwrap(), sender.try_clone().unwrap());
    let _ = output.write_all(line.as_bytes());
    thread::spawn(move || {
        let _ = std::io::copy(&mut answers.0, &mut answers.1);
        let _ = answers.1.shutdown(Shutdown::Both);
    });
    let _ = forward_stream(&mut input, &mut output, fault);
    if let Some(Fault::Reset(_, reason)) = fault {
        let _ = (&sender).write_all(BackLine::Reset(reason).encode().as_bytes());
        let _ = sender.shutdown(Shutdown::Write);
        // The kernel drops the line if it gets data after the socket is closed.
        let _ = std::io::copy(&mut input, &mut std::io::sink());
    }
    let _ = output.shutdown(Shutdown::Both);
    let _ = sender.shutdown(Shutdown::Both);
}

fn forward_stream(
    input: &mut impl Read,
    output: &mut TcpStream,
    fault: Option<Fault>,
) -> std::io::Result<()> {
    match fault {
        None => std::io::copy(input, output).map(drop),
        Some(Fault::Close(length) | Fault::Reset(length, _)) => {
            std::io::copy(&mut input.take(length as u64), output).map(drop)
        }
        Some(Fault::Corrupt(position)) => {
            std::io::copy(&mut input.take(position as u64), output)?;
            let mut byte = [0];
            input.read_exact(&mut byte)?;
            output.write_all(&[byte[0] ^ 0x10])?;
            std::io::copy(input, output).map(drop)
        }
    }
}
