//! Reads the counters of interfaces.

use std::fs;

use crate::queues::Interface;

/// The bytes that interfaces have sent and received since they exist; zeros if the kernel's table cannot be read.
pub fn read<'a>(interfaces: impl Iterator<Item = &'a Interface>) -> [u64; 2] {
    let names: Vec<String> = interfaces.map(ToString::to_string).collect();
    // Unlike `/sys`, it belongs to the network namespace of the thread.
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    count_bytes(&table, &names)
}

/// The bytes that interfaces have sent and received, by the kernel's table.
fn count_bytes(table: &str, names: &[String]) -> [u64; 2] {
    let counts = table.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        names.iter().any(|known| known == name.trim()).then_some(())?;
        let mut numbers = numbers.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
        let received = numbers.next()?;
        Some([numbers.nth(7)?, received])
    });
    counts.fold([0, 0], |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_the_named_interfaces() {
        let table = "Inter-|   Receive   |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n    lo: 1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0\n  eth0: 500 2 0 0 0 0 0 0 700 2 0 0 0 0 0 0\neth1:3 2 0 0 0 0 0 0 4 2 0 0 0 0 0 0\n";
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(count_bytes(table, &names(&["eth0"])), [700, 500]);
        assert_eq!(count_bytes(table, &names(&["eth0", "eth1"])), [704, 503]);
        assert_eq!(count_bytes(table, &names(&["eth"])), [0, 0]);
        let own = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        assert!(own.lines().any(|line| line.trim_start().starts_with("lo:")), "{own}");
    }
}
