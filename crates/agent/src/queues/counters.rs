//! Parses the counters of an interface's classes from the output of `tc`.

use std::collections::BTreeMap;

use super::actual_queues::{ParseError, SIZE_UNITS, parse_class, parse_error, parse_quantity};

/// The counters of a class, since its queue was set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassCounters {
    /// The guaranteed rate, in bits per second.
    pub rate: u64,
    /// Bytes of packets that were sent.
    pub sent_bytes: u64,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Packets that found the queue full.
    pub dropped_packets: u64,
    /// Bytes of packets that wait, to about 1/1024.
    pub backlog_bytes: u64,
}

/// Parses the output of `tc -s -d class show dev IF`: the counters of the agent's classes, by number.
///
/// # Errors
/// The first line that has an unexpected form.
pub fn parse_counters(text: &str) -> Result<BTreeMap<u16, ClassCounters>, ParseError> {
    let mut all = BTreeMap::new();
    let mut current: Option<&mut ClassCounters> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.as_slice(), &mut current) {
            (["class", ..], _) => {
                current = parse_class(line)?.map(|(minor, class)| {
                    let counters = ClassCounters { rate: class.rate, ..ClassCounters::default() };
                    all.entry(minor).insert_entry(counters).into_mut()
                });
            }
            // `Sent 1514 bytes 1 pkt (dropped 0, overlimits 0 requeues 0)`
            (["Sent", bytes, "bytes", packets, "pkt", "(dropped", dropped, ..], Some(counters)) => {
                let number = |text: &str| text.trim_end_matches(',').parse().ok();
                (|| {
                    counters.sent_bytes = number(bytes)?;
                    counters.sent_packets = number(packets)?;
                    counters.dropped_packets = number(dropped)?;
                    Some(())
                })()
                .ok_or_else(|| parse_error(line, "three whole numbers"))?;
            }
            // `backlog 16Kb 11p requeues 0`
            (["backlog", bytes, ..], Some(counters)) => {
                counters.backlog_bytes = parse_quantity(bytes, SIZE_UNITS)
                    .ok_or_else(|| parse_error(line, "a size such as 16Kb after `backlog`"))?;
            }
            _ => {}
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_belong_to_the_agents_classes() {
        let text = "\
class htb 7765:101 parent 7765:1 leaf 7801: prio 0 quantum 1514 rate 698321Kbit ceil 990Mbit linklayer ethernet burst 123602b/1 mpu 0b cburst 123750b/1 mpu 0b level 0
 Sent 10000000000 bytes 7000000 pkt (dropped 12, overlimits 9 requeues 0)
 backlog 16Kb 11p requeues 0
 lended: 0 borrowed: 0 giants: 0
 tokens: 22140 ctokens: 15625

class htb 1:2 root rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b
 Sent 5 bytes 1 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 5b 1p requeues 0
";
        let counters = ClassCounters {
            rate: 698_321_000,
            sent_bytes: 10_000_000_000,
            sent_packets: 7_000_000,
            dropped_packets: 12,
            backlog_bytes: 16 << 10,
        };
        assert_eq!(parse_counters(text), Ok(BTreeMap::from([(0x101, counters)])));
        let broken = text.replace("bytes 7000000", "bytes x");
        assert!(parse_counters(&broken).unwrap_err().to_string().contains("expected three whole numbers"));
    }
}
