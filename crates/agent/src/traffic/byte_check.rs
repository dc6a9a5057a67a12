//! Compares the bytes of each mark that passed the program at an interface with the bytes that left in the queue of the mark.
//!
//! Programs behind it, as those of container networks, can change the mark or send the packet elsewhere, and foreign filters can select
//! another queue. Programs before it can end the chain of programs. The application then has no share of the link, which only this
//! comparison shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_proto::{Conflict, ConflictReason};

use super::{Traffic, TrafficError};
use crate::queues::ids::{CONTROL_CLASS, FIRST_LIMITED_CLASS, IPV4_MARK_FILTER_PREF, LINK_CLASS};
use crate::queues::{ActualQueues, ClassCounters, Interface, QueueError, RootQdisc};

/// How often to compare. A difference is a conflict if two consecutive comparisons find it.
pub const BYTE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The difference that is tolerated, as a fraction of the bytes.
const TOLERANCE: u64 = 10;

/// The difference that is tolerated in addition, in bytes: 0.8 Mbit/s.
const TOLERATED_BYTES: u64 = 1_000_000;

/// The maximum size of a dropped packet. Queues count dropped packets, which can consist of many segments, and not their bytes.
const MAX_PACKET_BYTES: u64 = 1 << 16;

/// What an interface has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentBytes {
    /// Bytes that passed the program, by mark; 0 is without a mark.
    marked: BTreeMap<u8, u64>,
    /// The class of the queue of each mark.
    queues: BTreeMap<u8, u16>,
    /// The counters of all classes.
    counters: BTreeMap<u16, ClassCounters>,
}

/// A wrong number of bytes in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// Packets with the queue's marks left elsewhere.
    Missing,
    /// Packets without the queue's marks left here.
    Additional,
    /// Packets left that have not passed the program.
    Bypassed,
}

impl SentBytes {
    /// Reads the counters of an interface, whose program these bytes have passed; none without queues of the agent. Starts `tc` four
    /// times.
    ///
    /// # Errors
    /// If `tc` fails, or prints something unexpected.
    fn read(interface: &Interface, marked: BTreeMap<u8, u64>) -> Result<Option<SentBytes>, QueueError> {
        let actual = interface.read_queues()?;
        if actual.root != RootQdisc::Agent {
            return Ok(None);
        }
        Ok(Some(SentBytes { marked, queues: queues_of_marks(&actual), counters: interface.read_counters()? }))
    }

    /// The differences since an earlier reading, by the queue's class. None if queues have changed in between.
    fn differences_since(&self, earlier: &SentBytes) -> BTreeSet<(u16, Difference)> {
        let is_later =
            |(class, last): (&u16, &ClassCounters)| self.counters[class].sent_bytes >= last.sent_bytes;
        let has_same_queues =
            self.queues == earlier.queues && self.counters.keys().eq(earlier.counters.keys());
        if !has_same_queues || !earlier.counters.iter().all(is_later) {
            return BTreeSet::new();
        }
        let since = |class: u16, get: fn(&ClassCounters) -> u64| {
            let get = |all: &BTreeMap<u16, ClassCounters>| all.get(&class).map_or(0, get);
            get(&self.counters).saturating_sub(get(&earlier.counters))
        };
        // Filters for streams to the coordinator and for limited flows come before those by mark.
        let is_special = |class: &&u16| **class == CONTROL_CLASS || **class >= FIRST_LIMITED_CLASS;
        let special: u64 =
            self.counters.keys().filter(is_special).map(|&class| since(class, |c| c.sent_bytes)).sum();
        let queues: BTreeSet<u16> = self.queues.values().copied().collect();
        let difference = |queue: u16| {
            let marks = self.queues.iter().filter(|(_, own)| **own == queue).map(|(mark, _)| mark);
            let bytes = |all: &BTreeMap<u8, u64>, mark: &u8| all.get(mark).copied().unwrap_or(0);
            let marked: u64 = marks
                .map(|mark| bytes(&self.marked, mark).saturating_sub(bytes(&earlier.marked, mark)))
                .sum();
            let sent = since(queue, |class| class.sent_bytes) + since(queue, |class| class.backlog_bytes);
            let dropped = since(queue, |class| class.dropped_packets).saturating_mul(MAX_PACKET_BYTES);
            if marked > (sent + dropped + special).saturating_add(marked / TOLERANCE + TOLERATED_BYTES) {
                return Some((queue, Difference::Missing));
            }
            // Packets that waited at the earlier reading were marked before it.
            let waited = earlier.counters.get(&queue).map_or(0, |class| class.backlog_bytes);
            let is_additional = sent > marked + waited + sent / TOLERANCE + TOLERATED_BYTES;
            is_additional.then_some((queue, Difference::Additional))
        };
        let mut differences: BTreeSet<_> = queues.into_iter().filter_map(difference).collect();
        let passed: u64 = self
            .marked
            .iter()
            .map(|(mark, bytes)| bytes.saturating_sub(earlier.marked.get(mark).copied().unwrap_or(0)))
            .sum();
        let waited: u64 = earlier.counters.values().map(|class| class.backlog_bytes).sum();
        let sent = since(LINK_CLASS, |class| class.sent_bytes);
        if sent > passed + waited + sent / TOLERANCE + TOLERATED_BYTES {
            differences.insert((LINK_CLASS, Difference::Bypassed));
        }
        differences
    }
}

/// The class of the queue of each mark.
fn queues_of_marks(actual: &ActualQueues) -> BTreeMap<u8, u16> {
    let by_mark = actual.filters.iter().filter(|(handle, _)| handle.pref == IPV4_MARK_FILTER_PREF);
    let queue = |filter: &crate::queues::Filter| {
        // The DSCP is in the upper six bits of the header's second byte.
        let mark = filter.matches.first()?.value >> 18 & 63;
        Some((u8::try_from(mark).ok()?, filter.class))
    };
    by_mark.filter_map(|(_, filter)| queue(filter)).collect()
}

/// The comparisons of all interfaces.
#[derive(Debug, Default)]
pub struct ByteCheck {
    last: BTreeMap<Interface, SentBytes>,
    /// The differences that the last comparison found.
    found: BTreeSet<(Interface, u16, Difference)>,
}

impl ByteCheck {
    /// Compares what interfaces have sent since the last call, and returns the differences that the last call has found as well.
    pub fn compare(&mut self, readings: BTreeMap<Interface, SentBytes>) -> Vec<Conflict> {
        let mut found = BTreeSet::new();
        for (interface, reading) in &readings {
            let last = self.last.get(interface);
            for (queue, difference) in last.iter().flat_map(|last| reading.differences_since(last)) {
                found.insert((interface.clone(), queue, difference));
            }
        }
        let lasting = found.intersection(&self.found);
        let conflicts = lasting.map(|(interface, queue, difference)| {
            let marks: Vec<String> = readings[interface]
                .queues
                .iter()
                .filter(|(_, own)| *own == queue)
                .map(|(mark, _)| mark.to_string())
                .collect();
            let detail = match difference {
                Difference::Missing => {
                    format!("packets with mark {} leave in another queue", marks.join(", "))
                }
                Difference::Additional => {
                    format!("packets without mark {} leave in its queue", marks.join(", "))
                }
                Difference::Bypassed => {
                    "packets do not reach the agent's program at the interface, after another one".to_owned()
                }
            };
            Conflict::new(&interface.to_string(), ConflictReason::Unmarked, &detail)
        });
        let conflicts = conflicts.collect();
        (self.last, self.found) = (readings, found);
        conflicts
    }
}

/// What interfaces have sent, for [`ByteCheck::compare`]: of each interface, the bytes that passed the program.
///
/// # Errors
/// If `tc` fails, or prints something unexpected.
pub fn read_sent_bytes(
    marked: BTreeMap<Interface, BTreeMap<u8, u64>>,
) -> Result<BTreeMap<Interface, SentBytes>, QueueError> {
    let mut readings = BTreeMap::new();
    for (interface, marked) in marked {
        if let Some(reading) = SentBytes::read(&interface, marked)? {
            readings.insert(interface, reading);
        }
    }
    Ok(readings)
}

impl Traffic {
    /// The bytes that have passed the program at each interface, by mark.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn marked_bytes(&self) -> Result<BTreeMap<Interface, BTreeMap<u8, u64>>, TrafficError> {
        let by_index = self.maps.marked_bytes()?;
        let interfaces = self.present_interfaces().into_iter();
        Ok(interfaces
            .map(|(name, index)| (name, by_index.get(&index).cloned().unwrap_or_default()))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: u16 = 0x100;

    fn interface() -> Interface {
        "eth0".parse().unwrap()
    }

    fn reading(marked: u64, sent_bytes: u64, dropped_packets: u64, backlog_bytes: u64) -> SentBytes {
        let counters =
            ClassCounters { sent_bytes, dropped_packets, backlog_bytes, ..ClassCounters::default() };
        SentBytes {
            marked: BTreeMap::from([(1, marked)]),
            queues: BTreeMap::from([(1, QUEUE), (2, QUEUE + 1)]),
            counters: BTreeMap::from([
                (QUEUE, counters),
                (QUEUE + 1, ClassCounters::default()),
                (CONTROL_CLASS, ClassCounters::default()),
            ]),
        }
    }

    /// The differences in the queue of mark 1 between two readings.
    fn differences(earlier: SentBytes, now: SentBytes) -> Vec<Difference> {
        now.differences_since(&earlier).into_iter().map(|(_, difference)| difference).collect()
    }

    #[test]
    fn bytes_differ_beyond_a_tenth_and_a_megabyte() {
        let begin = || reading(5_000_000, 3_000_000, 7, 0);
        for (marked, sent, expected) in [
            (105_000_000, 103_000_000, vec![]),
            (105_000_000, 92_100_000, vec![]),
            (105_000_000, 91_900_000, vec![Difference::Missing]),
            (5_000_000, 3_000_000, vec![]),
            (5_900_000, 3_000_000, vec![]),
            (95_000_000, 104_000_000, vec![]),
            (91_000_000, 104_000_000, vec![Difference::Additional]),
        ] {
            assert_eq!(differences(begin(), reading(marked, sent, 7, 0)), expected, "{marked} {sent}");
        }
    }

    #[test]
    fn dropped_and_waiting_packets_and_special_classes_are_not_missing() {
        let (begin, missing) = (|| reading(0, 0, 0, 0), vec![Difference::Missing]);
        assert_eq!(differences(begin(), reading(100_000_000, 50_000_000, 0, 0)), missing);
        assert_eq!(differences(begin(), reading(100_000_000, 50_000_000, 1000, 0)), []);
        assert_eq!(differences(begin(), reading(100_000_000, 50_000_000, 10, 0)), missing);
        assert_eq!(differences(begin(), reading(100_000_000, 50_000_000, 0, 45_000_000)), []);
        // Packets that waited at the earlier reading.
        assert_eq!(differences(reading(0, 0, 0, 45_000_000), reading(0, 45_000_000, 0, 0)), []);
        let mut special = reading(100_000_000, 50_000_000, 0, 0);
        special.counters.get_mut(&CONTROL_CLASS).unwrap().sent_bytes = 45_000_000;
        assert_eq!(differences(begin(), special), []);
    }

    #[test]
    fn packets_of_the_link_that_have_not_passed_the_program_are_bypassed() {
        let reading = |unmarked, sent_bytes, backlog_bytes| {
            let mut reading = reading(0, 0, 0, backlog_bytes);
            reading.marked.insert(0, unmarked);
            let link = ClassCounters { sent_bytes, ..ClassCounters::default() };
            reading.counters.insert(LINK_CLASS, link);
            reading
        };
        let begin = || reading(0, 7_000_000, 0);
        assert_eq!(differences(begin(), reading(90_000_000, 107_000_000, 0)), []);
        assert_eq!(differences(begin(), reading(88_000_000, 107_000_000, 0)), [Difference::Bypassed]);
        assert_eq!(differences(reading(0, 0, 9_000_000), reading(1_000_000, 11_000_000, 0)), []);
    }

    #[test]
    fn changed_queues_are_not_compared() {
        let now = || reading(100_000_000, 50_000_000, 0, 0);
        let mut other_queue = reading(0, 0, 0, 0);
        other_queue.queues.insert(1, QUEUE + 1);
        assert_eq!(differences(other_queue, now()), []);
        let mut other_classes = reading(0, 0, 0, 0);
        other_classes.counters.remove(&CONTROL_CLASS);
        assert_eq!(differences(other_classes, now()), []);
        // The queue was created again.
        assert_eq!(differences(reading(0, 60_000_000, 0, 0), now()), []);
    }

    #[test]
    fn differences_of_two_consecutive_comparisons_are_conflicts() {
        let mut check = ByteCheck::default();
        let mut compare = |marked: u64, sent: u64| {
            let conflicts = check.compare(BTreeMap::from([(interface(), reading(marked, sent, 0, 0))]));
            conflicts.iter().map(Conflict::to_string).collect::<Vec<_>>()
        };
        assert!(compare(0, 0).is_empty());
        assert!(compare(10_000_000, 0).is_empty());
        assert_eq!(compare(20_000_000, 0), ["eth0: unmarked (packets with mark 1 leave in another queue)"]);
        assert_eq!(compare(30_000_000, 0).len(), 1);
        assert!(compare(40_000_000, 10_000_000).is_empty());
        assert!(compare(40_000_000, 20_000_000).is_empty());
        assert_eq!(
            compare(40_000_000, 30_000_000),
            ["eth0: unmarked (packets without mark 1 leave in its queue)"]
        );
    }
}
