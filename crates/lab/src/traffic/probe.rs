//! Measures the latency of small requests.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_testbed::Network;

use super::first_line;
use super::send::Route;
use crate::LabError;

/// The time after which a request has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests of `bytes` bytes on one flow for `duration`, the next one `pause` after an answer. Returns the times until answers.
///
/// # Errors
/// If the flow fails, or an answer takes more than 10 s.
pub fn probe(
    network: &Network,
    node: &str,
    (flow, route): (u32, Route),
    bytes: usize,
    (duration, pause): (Duration, Duration),
) -> Result<Vec<Duration>, LabError> {
    let measure = || {
        let mut stream = TcpStream::connect_timeout(&route.connect.into(), TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(first_line(flow, route.receiver).as_bytes())?;
        read_answer(&mut stream)?;
        let (request, started) = (vec![0x5a; bytes], Instant::now());
        let mut latencies = Vec::new();
        while started.elapsed() < duration {
            std::thread::sleep(pause);
            let sent = Instant::now();
            stream.write_all(&request)?;
            read_answer(&mut stream)?;
            latencies.push(sent.elapsed());
        }
        io::Result::Ok(latencies)
    };
    network.run_inside(node, measure)?.map_err(LabError::system("probe"))
}

/// Reads an acknowledgement, which arrives after each request.
fn read_answer(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count if bytes[..count].ends_with(b"\n") => return Ok(()),
            _ => {}
        }
    }
}
