//! What an interface has, as `tc` prints it.
//!
//! Of the queues there is JSON. `tc` has none of HTB's classes in many versions, and JSON of u32 filters that names several keys
//! alike, so these two are read as text.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::desired::{Filter, Key};
use super::ids;

/// A text that is not what `tc` prints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tc printed `{line}`: expected {expected}")]
pub struct ParseError {
    /// The line.
    pub line: String,
    /// What it should have been.
    pub expected: &'static str,
}

fn wrong(line: &str, expected: &'static str) -> ParseError {
    ParseError { line: line.chars().take(200).collect(), expected }
}

/// The root queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// Ours.
    Ours,
    /// What the kernel gives by itself.
    Default,
    /// Somebody's, of a simple kind.
    Fifo {
        /// `pfifo` or `bfifo`.
        kind: String,
        /// Its handle's number.
        handle: u16,
        /// What waits at most, in packets or bytes.
        limit: u32,
    },
    /// Somebody's, of another kind.
    Other(String),
}

/// A class of HTB below our root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The class that it is in, if it is in one.
    pub parent: Option<u16>,
    /// In bits per second, as all that `tc` prints: to four digits or more.
    pub rate: u64,
    /// See `rate`.
    pub ceil: u64,
    /// In bytes, to some 64th.
    pub burst: u64,
    /// See `burst`.
    pub cburst: u64,
    /// In bytes; none if there are classes inside, which makes it no matter.
    pub quantum: Option<u64>,
}

/// The queue inside a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its handle's number.
    pub handle: u16,
    /// What waits at most, in bytes; none if it is no `bfifo`.
    pub bytes: Option<u32>,
}

/// Where a u32 filter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its preference.
    pub pref: u16,
    /// Its table, which the kernel chooses.
    pub table: u16,
    /// Its place there.
    pub bucket: u16,
    /// Its number.
    pub node: u16,
}

/// What an interface has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actual {
    /// At the root.
    pub root: Root,
    /// Below our root, by number; nothing if it is not ours.
    pub classes: BTreeMap<u16, Found>,
    /// Queues of these classes, by number of the class.
    pub leaves: BTreeMap<u16, Leaf>,
    /// Filters of the kind u32 below our root.
    pub filters: BTreeMap<Place, Filter>,
}

#[derive(Deserialize)]
struct Qdisc {
    kind: String,
    handle: String,
    #[serde(default)]
    root: bool,
    parent: Option<String>,
    #[serde(default)]
    options: Limit,
}

#[derive(Deserialize, Default)]
struct Limit {
    limit: Option<u32>,
}

impl Actual {
    /// From what `tc -j qdisc show dev IF`, `tc -d class show dev IF` and `tc filter show dev IF parent 7765:` print.
    ///
    /// # Errors
    /// The first line that they do not print.
    pub fn parse(qdiscs: &str, classes: &str, filters: &str) -> Result<Actual, ParseError> {
        let qdiscs: Vec<Qdisc> =
            serde_json::from_str(qdiscs).map_err(|_| wrong(qdiscs, "a JSON array of queues"))?;
        // Without one an interface has what the kernel gives, as with the handle 0.
        let root = qdiscs.iter().find(|q| q.root).map_or(Ok(Root::Default), root)?;
        let mut actual =
            Actual { root, classes: BTreeMap::new(), leaves: BTreeMap::new(), filters: BTreeMap::new() };
        if actual.root != Root::Ours {
            return Ok(actual);
        }
        for qdisc in &qdiscs {
            let Some(Some((ids::ROOT, class))) = qdisc.parent.as_deref().map(id) else { continue };
            let handle = handle(&qdisc.handle)?;
            let bytes = qdisc.options.limit.filter(|_| qdisc.kind == "bfifo");
            actual.leaves.insert(class, Leaf { handle, bytes });
        }
        for line in classes.lines() {
            if let Some((minor, found)) = class(line)? {
                actual.classes.insert(minor, found);
            }
        }
        actual.filters = self::filters(filters)?;
        Ok(actual)
    }
}

fn handle(text: &str) -> Result<u16, ParseError> {
    let number = text.strip_suffix(':').and_then(|hex| u16::from_str_radix(hex, 16).ok());
    number.ok_or_else(|| wrong(text, "a handle such as 7765:"))
}

/// As in `7765:1ff`.
fn id(text: &str) -> Option<(u16, u16)> {
    let (major, minor) = text.split_once(':')?;
    Some((u16::from_str_radix(major, 16).ok()?, u16::from_str_radix(minor, 16).ok()?))
}

fn root(qdisc: &Qdisc) -> Result<Root, ParseError> {
    Ok(match (qdisc.kind.as_str(), handle(&qdisc.handle)?, qdisc.options.limit) {
        ("htb", ids::ROOT, _) => Root::Ours,
        (_, 0, _) => Root::Default,
        (kind @ ("pfifo" | "bfifo"), handle, Some(limit)) => {
            Root::Fifo { kind: kind.to_owned(), handle, limit }
        }
        (kind, ..) => Root::Other(kind.to_owned()),
    })
}

/// A line such as `class htb 7765:100 parent 7765:1 leaf 7800: prio 0 quantum 1514 rate 1Mbit ceil 1Mbit ...`.
fn class(line: &str) -> Result<Option<(u16, Found)>, ParseError> {
    let Some(rest) = line.strip_prefix("class htb ") else { return Ok(None) };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let after = |key: &str| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1));
    let found = words.first().and_then(|text| id(text)).filter(|(major, _)| *major == ids::ROOT);
    let Some((_, minor)) = found else { return Ok(None) };
    let number = |key, units: &[(&str, u64)], expected| {
        after(key).and_then(|text| quantity(text, units)).ok_or_else(|| wrong(line, expected))
    };
    let parent = after("parent").map(|text| {
        id(text).map(|(_, minor)| minor).ok_or_else(|| wrong(line, "a class's number after `parent`"))
    });
    Ok(Some((
        minor,
        Found {
            parent: parent.transpose()?,
            rate: number("rate", RATES, "a rate such as 10Mbit after `rate`")?,
            ceil: number("ceil", RATES, "a rate such as 10Mbit after `ceil`")?,
            burst: number("burst", SIZES, "a size such as 16Kb after `burst`")?,
            cburst: number("cburst", SIZES, "a size such as 16Kb after `cburst`")?,
            quantum: after("quantum")
                .map(|_| number("quantum", SIZES, "a number after `quantum`"))
                .transpose()?,
        },
    )))
}

const RATES: &[(&str, u64)] =
    &[("Tbit", 1_000_000_000_000), ("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("Kbit", 1000), ("bit", 1)];

const SIZES: &[(&str, u64)] = &[("Mb", 1 << 20), ("Kb", 1 << 10), ("b", 1), ("", 1)];

/// As in `16Kb` or `16368b/1`.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.split('/').next()?;
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Lines such as `filter protocol ip pref 30565 u32 chain 0 fh 800::1 order 1 key ht 800 bkt 0 *flowid 7765:100 not_in_hw`,
/// each with lines `  match 00200000/00fc0000 at 0`.
fn filters(text: &str) -> Result<BTreeMap<Place, Filter>, ParseError> {
    let mut filters: BTreeMap<Place, Filter> = BTreeMap::new();
    let mut current: Option<Place> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |key: &str| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1));
        match words.first() {
            Some(&"filter") => {
                current = None;
                // Others are nobody's business, and headers of tables have no number.
                let Some(place) = after("fh").filter(|_| words.contains(&"u32")) else { continue };
                let Some(pref) = after("pref").and_then(|pref| pref.parse().ok()) else { continue };
                let Some(place) = self::place(pref, place) else { continue };
                let to = after("flowid").or_else(|| after("*flowid")).and_then(|text| id(text));
                // Those that lead nowhere are not ours to read either; what is ours and leads elsewhere is to be made anew.
                let to = to.filter(|(major, _)| *major == ids::ROOT).map_or(0, |(_, minor)| minor);
                filters.insert(place, Filter { keys: Vec::new(), to });
                current = Some(place);
            }
            Some(&"match") => {
                let Some(filter) = current.and_then(|place| filters.get_mut(&place)) else { continue };
                let key = key(&words);
                // Offsets that another header gives, as others' filters may have: nothing of ours looks like it.
                filter.keys.push(key.unwrap_or(Key { at: u16::MAX, value: 0, mask: 0 }));
            }
            _ => {}
        }
    }
    Ok(filters)
}

/// As in `800::1`: table, bucket and number.
fn place(pref: u16, text: &str) -> Option<Place> {
    let mut parts =
        text.split(':').map(|part| if part.is_empty() { Ok(0) } else { u16::from_str_radix(part, 16) });
    let mut next = || parts.next()?.ok();
    let place = Place { pref, table: next()?, bucket: next()?, node: next()? };
    (place.node != 0).then_some(place)
}

/// As in `match 00200000/00fc0000 at 0`.
fn key(words: &[&str]) -> Option<Key> {
    let [_, bits, "at", at] = words else { return None };
    let (value, mask) = bits.split_once('/')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    Some(Key { at: at.parse().ok()?, value: hex(value)?, mask: hex(mask)? })
}
