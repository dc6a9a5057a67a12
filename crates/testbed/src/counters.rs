//! What the kernel counts in a namespace.

use std::fs;
use std::io::{self, ErrorKind};

use crate::namespace;

/// Segments of TCP since a namespace is there, of all its connections: data as well as acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// That came.
    pub received: u64,
    /// That left connections; some of what opens and ends them is not counted.
    pub sent: u64,
}

/// Reads a namespace's counters.
///
/// # Errors
/// If it is not there, or its kernel counts otherwise.
pub fn segments(name: &str) -> io::Result<Segments> {
    let text = namespace::inside(name, || fs::read_to_string("/proc/thread-self/net/snmp"))??;
    read(&text).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no counters of TCP in net/snmp"))
}

/// Two lines of each protocol: names, and values in the same order.
fn read(text: &str) -> Option<Segments> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |name: &str| {
        let place = names.split(' ').position(|found| found == name)?;
        values.split(' ').nth(place)?.parse().ok()
    };
    Some(Segments { received: value("InSegs")?, sent: value("OutSegs")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        let text = "Ip: Forwarding InSegs\nIp: 1 99\nTcp: MaxConn InSegs OutSegs RetransSegs\nTcp: -1 8 5 3\nUdp: InSegs\n";
        assert_eq!(read(text), Some(Segments { received: 8, sent: 5 }));
        assert_eq!(read(&text.replace("OutSegs", "Sent")), None);
        assert_eq!(read(&text.replace("-1 8 5 3", "-1 8")), None);
        assert_eq!(read("Tcp: InSegs OutSegs\n"), None);
    }
}
