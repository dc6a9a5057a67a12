//! Parses the queues, classes and filters of an interface from the output of `tc`.
//!
//! Queues are parsed as JSON, classes and filters as text: many versions of `tc` print no JSON for HTB classes, and their JSON
//! for u32 filters repeats the same key for several matches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::desired_queues::{Filter, U32Match};
use super::ids;

/// Output of `tc` or `ip` that has an unexpected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{line}` is unexpected output of tc or ip; expected {expected}")]
pub struct ParseError {
    /// The line.
    pub line: String,
    /// The expected form.
    pub expected: &'static str,
}

pub(super) fn parse_error(line: &str, expected: &'static str) -> ParseError {
    ParseError { line: line.chars().take(200).collect(), expected }
}

/// The root queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootQdisc {
    /// The agent's.
    Agent,
    /// The kernel's default.
    KernelDefault,
    /// A FIFO that another process set up.
    Fifo(Fifo),
    /// `mq` that another process set up, over FIFOs and the kernel's default.
    Mq(Mq),
    /// Another kind that another process set up; `mq with KIND` if `mq` has such a queue.
    Other(String),
}

/// A FIFO of another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fifo {
    /// `pfifo` or `bfifo`.
    pub kind: String,
    /// The number of the handle.
    pub handle: u16,
    /// The queue limit, in packets (`pfifo`) or bytes (`bfifo`).
    pub limit: u32,
}

/// `mq` of another process: one queue for each transmit queue of the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Mq {
    /// The number of the handle.
    pub handle: u16,
    /// The FIFOs that the process set up, by transmit queue, from 1. The other queues are the kernel's default.
    pub fifos: BTreeMap<u16, Fifo>,
}

/// An HTB class below the agent's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActualClass {
    /// The parent class; none at the root.
    pub parent: Option<u16>,
    /// In bits per second. `tc` prints at least four digits of a rate.
    pub rate: u64,
    /// Like `rate`.
    pub ceil: u64,
    /// In bytes, to about 1/64.
    pub burst: u64,
    /// Like `burst`.
    pub cburst: u64,
    /// In bytes; none for a class with inner classes, where it has no effect.
    pub quantum: Option<u64>,
}

/// The queue of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafQueue {
    /// The number of the handle.
    pub handle: u16,
    /// The queue limit, in bytes; none if the queue is not a `bfifo`.
    pub limit_bytes: Option<u32>,
}

/// The position of a u32 filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterHandle {
    /// The preference.
    pub pref: u16,
    /// The hash table, which the kernel chooses.
    pub table: u16,
    /// The bucket in the table.
    pub bucket: u16,
    /// The number in the bucket.
    pub node: u16,
}

/// The queues, classes and filters of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActualQueues {
    /// The root queueing discipline.
    pub root: RootQdisc,
    /// Whether a queueing discipline is `fq`, which paces sockets: it marks them, and the kernel then paces them in no other way.
    pub has_fq: bool,
    /// Classes below the agent's root, by number; empty if the root is not the agent's.
    pub classes: BTreeMap<u16, ActualClass>,
    /// Queues of these classes, by the number of the class.
    pub leaves: BTreeMap<u16, LeafQueue>,
    /// Filters of the kind u32 below the agent's root.
    pub filters: BTreeMap<FilterHandle, Filter>,
}

#[derive(Deserialize)]
struct Qdisc {
    kind: String,
    handle: String,
    #[serde(default)]
    root: bool,
    parent: Option<String>,
    #[serde(default)]
    options: QdiscOptions,
}

#[derive(Deserialize, Default)]
struct QdiscOptions {
    limit: Option<u32>,
}

impl ActualQueues {
    /// Parses the output of `tc -j qdisc show dev IF`, `tc -d class show dev IF` and `tc filter show dev IF parent 7765:`.
    ///
    /// # Errors
    /// The first line that has an unexpected form.
    pub fn parse(qdiscs: &str, classes: &str, filters: &str) -> Result<ActualQueues, ParseError> {
        let qdiscs: Vec<Qdisc> =
            serde_json::from_str(qdiscs).map_err(|_| parse_error(qdiscs, "a JSON array of queues"))?;
        // An interface without a root qdisc in the list has the kernel's default, like one whose root has the handle 0.
        let root = qdiscs
            .iter()
            .find(|q| q.root)
            .map_or(Ok(RootQdisc::KernelDefault), |root| parse_root(root, &qdiscs))?;
        let has_fq = qdiscs.iter().any(|qdisc| qdisc.kind == "fq");
        let mut actual = ActualQueues {
            root,
            has_fq,
            classes: BTreeMap::new(),
            leaves: BTreeMap::new(),
            filters: BTreeMap::new(),
        };
        if actual.root != RootQdisc::Agent {
            return Ok(actual);
        }
        for qdisc in &qdiscs {
            let Some(Some((ids::ROOT_HANDLE, class))) = qdisc.parent.as_deref().map(parse_class_id) else {
                continue;
            };
            let handle = parse_handle(&qdisc.handle)?;
            let limit_bytes = qdisc.options.limit.filter(|_| qdisc.kind == "bfifo");
            actual.leaves.insert(class, LeafQueue { handle, limit_bytes });
        }
        for line in classes.lines() {
            if let Some((minor, found)) = parse_class(line)? {
                actual.classes.insert(minor, found);
            }
        }
        actual.filters = self::parse_filters(filters)?;
        Ok(actual)
    }
}

fn parse_handle(text: &str) -> Result<u16, ParseError> {
    let number = text.strip_suffix(':').and_then(|hex| u16::from_str_radix(hex, 16).ok());
    number.ok_or_else(|| parse_error(text, "a handle such as 7765:"))
}

/// Parses a class number such as `7765:1ff`.
fn parse_class_id(text: &str) -> Option<(u16, u16)> {
    let (major, minor) = text.split_once(':')?;
    Some((u16::from_str_radix(major, 16).ok()?, u16::from_str_radix(minor, 16).ok()?))
}

fn parse_root(root: &Qdisc, qdiscs: &[Qdisc]) -> Result<RootQdisc, ParseError> {
    let handle = parse_handle(&root.handle)?;
    Ok(match (root.kind.as_str(), handle) {
        ("htb", ids::ROOT_HANDLE) => RootQdisc::Agent,
        (_, 0) => RootQdisc::KernelDefault,
        ("mq", _) => parse_mq(handle, qdiscs)?,
        (kind, _) => {
            parse_fifo(root, handle).map_or_else(|| RootQdisc::Other(kind.to_owned()), RootQdisc::Fifo)
        }
    })
}

/// The root `mq` with this handle, and the queues that its owner set up below it.
fn parse_mq(handle: u16, qdiscs: &[Qdisc]) -> Result<RootQdisc, ParseError> {
    let mut fifos = BTreeMap::new();
    for qdisc in qdiscs {
        let parent = qdisc.parent.as_deref().and_then(parse_class_id);
        let Some((_, queue)) = parent.filter(|(major, _)| *major == handle) else { continue };
        match parse_handle(&qdisc.handle)? {
            0 => {}
            own => match parse_fifo(qdisc, own) {
                Some(fifo) => drop(fifos.insert(queue, fifo)),
                None => return Ok(RootQdisc::Other(format!("mq with {}", qdisc.kind))),
            },
        }
    }
    Ok(RootQdisc::Mq(Mq { handle, fifos }))
}

fn parse_fifo(qdisc: &Qdisc, handle: u16) -> Option<Fifo> {
    let is_fifo = matches!(qdisc.kind.as_str(), "pfifo" | "bfifo");
    let limit = qdisc.options.limit.filter(|_| is_fifo)?;
    Some(Fifo { kind: qdisc.kind.clone(), handle, limit })
}

/// Parses a line such as `class htb 7765:100 parent 7765:1 leaf 7800: prio 0 quantum 1514 rate 1Mbit ceil 1Mbit ...`.
pub(super) fn parse_class(line: &str) -> Result<Option<(u16, ActualClass)>, ParseError> {
    let Some(rest) = line.strip_prefix("class htb ") else { return Ok(None) };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let word_after = |key: &str| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1));
    let class_id =
        words.first().and_then(|text| parse_class_id(text)).filter(|(major, _)| *major == ids::ROOT_HANDLE);
    let Some((_, minor)) = class_id else { return Ok(None) };
    let quantity_after = |key, units: &[(&str, u64)], expected| {
        word_after(key)
            .and_then(|text| parse_quantity(text, units))
            .ok_or_else(|| parse_error(line, expected))
    };
    let parent = word_after("parent").map(|text| {
        parse_class_id(text)
            .map(|(_, minor)| minor)
            .ok_or_else(|| parse_error(line, "a class's number after `parent`"))
    });
    Ok(Some((
        minor,
        ActualClass {
            parent: parent.transpose()?,
            rate: quantity_after("rate", RATE_UNITS, "a rate such as 10Mbit after `rate`")?,
            ceil: quantity_after("ceil", RATE_UNITS, "a rate such as 10Mbit after `ceil`")?,
            burst: quantity_after("burst", SIZE_UNITS, "a size such as 16Kb after `burst`")?,
            cburst: quantity_after("cburst", SIZE_UNITS, "a size such as 16Kb after `cburst`")?,
            quantum: word_after("quantum")
                .map(|_| quantity_after("quantum", SIZE_UNITS, "a number after `quantum`"))
                .transpose()?,
        },
    )))
}

const RATE_UNITS: &[(&str, u64)] =
    &[("Tbit", 1_000_000_000_000), ("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("Kbit", 1000), ("bit", 1)];

pub(super) const SIZE_UNITS: &[(&str, u64)] = &[("Mb", 1 << 20), ("Kb", 1 << 10), ("b", 1), ("", 1)];

/// Parses a quantity such as `16Kb` or `16368b/1`.
pub(super) fn parse_quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.split('/').next()?;
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Parses lines such as `filter protocol ip pref 30565 u32 chain 0 fh 800::1 order 1 key ht 800 bkt 0 *flowid 7765:100 not_in_hw`,
/// each followed by lines `  match 00200000/00fc0000 at 0`.
fn parse_filters(text: &str) -> Result<BTreeMap<FilterHandle, Filter>, ParseError> {
    let mut filters: BTreeMap<FilterHandle, Filter> = BTreeMap::new();
    let mut current_handle: Option<FilterHandle> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word_after =
            |key: &str| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1));
        match words.first() {
            Some(&"filter") => {
                current_handle = None;
                // Filters of other kinds are not the agent's, and headers of hash tables have no number.
                let Some(handle) = word_after("fh").filter(|_| words.contains(&"u32")) else { continue };
                let Some(pref) = word_after("pref").and_then(|pref| pref.parse().ok()) else { continue };
                let Some(handle) = self::parse_filter_handle(pref, handle) else { continue };
                let class = word_after("flowid")
                    .or_else(|| word_after("*flowid"))
                    .and_then(|text| parse_class_id(text));
                // A target outside the agent's root becomes class 0, which no desired filter has. If such a filter has one of the agent's
                // preferences, it is deleted and replaced.
                let class =
                    class.filter(|(major, _)| *major == ids::ROOT_HANDLE).map_or(0, |(_, minor)| minor);
                filters.insert(handle, Filter { matches: Vec::new(), class });
                current_handle = Some(handle);
            }
            Some(&"match") => {
                let Some(filter) = current_handle.and_then(|handle| filters.get_mut(&handle)) else {
                    continue;
                };
                let u32_match = parse_match(&words);
                // A match at an offset of another header can only be in a filter of another process: no desired filter has this key.
                filter.matches.push(u32_match.unwrap_or(U32Match { offset: u16::MAX, value: 0, mask: 0 }));
            }
            _ => {}
        }
    }
    Ok(filters)
}

/// Parses a filter handle such as `800::1`: table, bucket and number.
fn parse_filter_handle(pref: u16, text: &str) -> Option<FilterHandle> {
    let mut parts =
        text.split(':').map(|part| if part.is_empty() { Ok(0) } else { u16::from_str_radix(part, 16) });
    let mut next = || parts.next()?.ok();
    let handle = FilterHandle { pref, table: next()?, bucket: next()?, node: next()? };
    (handle.node != 0).then_some(handle)
}

/// Parses a match such as `match 00200000/00fc0000 at 0`.
fn parse_match(words: &[&str]) -> Option<U32Match> {
    let [_, bits, "at", offset] = words else { return None };
    let (value, mask) = bits.split_once('/')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    Some(U32Match { offset: offset.parse().ok()?, value: hex(value)?, mask: hex(mask)? })
}
