//! The live flows of a coflow, in *rows*: flows of one sender over the same trunks.
//!
//! A row has a common limit apart from its receivers, and its rates are subtracted from its links at once. Flows are adjacent
//! in memory in the order in which an update visits them.

use std::ops::Range;

use crate::model::Coflow;

/// No entry.
const NONE: u32 = u32::MAX;

/// Number of flows that one comparison covers.
const CHUNK: usize = 16;

/// Flows of one sender over the same trunks.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// The sender and the trunks, as a range of [`CoflowFlows::row_links`].
    pub links: Range<usize>,
    pub entries: Range<usize>,
}

/// The live flows of one coflow: one entry a flow, by row.
#[derive(Debug, Default)]
pub(super) struct CoflowFlows {
    /// The coflow's sequence number, because slots are reused, and the layout of its flows.
    pub seq: Option<u64>,
    pub layout: Option<u64>,
    /// By sender, then by trunks.
    pub rows: Vec<Row>,
    pub row_links: Vec<u32>,
    // By entry. Entries between rows are unused, because flows have ended.
    pub flows: Vec<u32>,
    pub receiver_links: Vec<u32>,
    pub remaining_bytes: Vec<f64>,
    pub rates: Vec<f64>,
    /// By flow: its entry, or [`NONE`].
    entry_of_flow: Vec<u32>,
    /// Flows that started since the last update, and their remaining bytes.
    pub started: Vec<(u32, f64)>,
    /// Bytes sent by all flows until the last update, and their rate since.
    pub sent_bytes: f64,
    pub total_rate: f64,
    /// The end of the first flow; infinite if no flow ends.
    pub next_end: f64,
}

impl CoflowFlows {
    pub(super) fn new(coflow: &Coflow) -> CoflowFlows {
        CoflowFlows {
            seq: Some(coflow.seq),
            layout: Some(coflow.layout()),
            entry_of_flow: vec![NONE; coflow.width()],
            next_end: f64::INFINITY,
            ..CoflowFlows::default()
        }
    }

    /// Adds the started flows to the rows, and removes unused entries. O(live flows log live flows).
    pub(super) fn build_rows(&mut self, coflow: &Coflow) {
        let mut flows = std::mem::take(&mut self.started);
        for row in &self.rows {
            let entries = row.entries.clone();
            flows.extend(entries.map(|entry| (self.flows[entry], self.remaining_bytes[entry])));
        }
        let links = |flow: u32| (coflow.flow_port_links(flow).0 as u32, coflow.flow_trunks(flow));
        flows.sort_unstable_by_key(|&(flow, _)| (links(flow).0, coflow.flow_path(flow), flow));
        self.rows.clear();
        self.row_links.clear();
        self.flows.clear();
        self.receiver_links.clear();
        self.remaining_bytes.clear();
        for row in flows.chunk_by(|a, b| links(a.0) == links(b.0)) {
            let (src, trunks) = links(row[0].0);
            let (first_link, first) = (self.row_links.len(), self.flows.len());
            self.row_links.push(src);
            self.row_links.extend_from_slice(trunks);
            self.rows
                .push(Row { links: first_link..self.row_links.len(), entries: first..first + row.len() });
            for &(flow, remaining_bytes) in row {
                self.entry_of_flow[flow as usize] = self.flows.len() as u32;
                self.flows.push(flow);
                self.receiver_links.push(coflow.flow_port_links(flow).1 as u32);
                self.remaining_bytes.push(remaining_bytes);
            }
        }
        self.rates.clear();
        self.rates.resize(self.flows.len(), 0.0);
    }

    pub(super) fn entry(&self, flow: u32) -> Option<usize> {
        self.entry_of_flow.get(flow as usize).filter(|entry| **entry != NONE).map(|&entry| entry as usize)
    }

    /// Whether flows have started, or most entries are unused.
    pub(super) fn needs_new_rows(&self, coflow: &Coflow) -> bool {
        !self.started.is_empty() || 2 * coflow.live_count() < self.flows.len()
    }

    /// Adds the bytes sent in `seconds`, and resets the rates.
    pub(super) fn advance(&mut self, seconds: f64) {
        self.sent_bytes += self.total_rate * seconds;
        self.total_rate = 0.0;
        for (remaining_bytes, rate) in self.remaining_bytes.iter_mut().zip(&mut self.rates) {
            *remaining_bytes -= *rate * seconds;
            *rate = 0.0;
        }
    }

    /// Computes the end of the first flow at the present rates, which apply from `since` on.
    pub(super) fn find_next_end(&mut self, since: f64) {
        let mut seconds = f64::MAX;
        // A product is cheaper than a quotient, and few chunks have a flow that ends earlier than all before. The rates of
        // unused entries are 0.
        let chunks = self.remaining_bytes.chunks(CHUNK).zip(self.rates.chunks(CHUNK));
        for (remaining_bytes, rates) in chunks {
            let flows = || remaining_bytes.iter().zip(rates);
            if !flows().fold(false, |any, (left, rate)| any | (*left < seconds * rate)) {
                continue;
            }
            for (left, rate) in flows().filter(|(_, rate)| **rate > 0.0) {
                seconds = seconds.min(left.max(0.0) / rate);
            }
        }
        self.next_end = if seconds < f64::MAX { since + seconds } else { f64::INFINITY };
    }

    /// The end of a flow at its present rate, which applies from `since` on.
    pub(super) fn end_of(&self, entry: usize, since: f64) -> f64 {
        since + self.remaining_bytes[entry].max(0.0) / self.rates[entry]
    }

    /// Ends a flow that has sent its bytes.
    pub(super) fn complete_flow(&mut self, flow: u32) {
        let Some(entry) = self.entry(flow) else { return };
        // Count the bytes at the end of this flow; the next count may be later.
        self.sent_bytes += self.remaining_bytes[entry];
        self.total_rate -= self.rates[entry];
        self.remove_entry(entry);
    }

    /// Removes a flow of a row.
    pub(super) fn remove_entry(&mut self, entry: usize) {
        let at = self.rows.partition_point(|row| row.entries.end <= entry);
        let row = &mut self.rows[at].entries;
        row.end -= 1;
        let last = row.end;
        if row.start == row.end {
            self.rows.remove(at);
        }
        self.entry_of_flow[self.flows[entry] as usize] = NONE;
        if entry != last {
            self.entry_of_flow[self.flows[last] as usize] = entry as u32;
            self.flows[entry] = self.flows[last];
            self.receiver_links[entry] = self.receiver_links[last];
            self.remaining_bytes[entry] = self.remaining_bytes[last];
            self.rates[entry] = self.rates[last];
        }
        self.rates[last] = 0.0;
    }
}
