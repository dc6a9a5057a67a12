//! The flows of one coflow in rows, and the live ones as bits.

use std::ops::Range;

use crate::model::Coflow;
use crate::model::bit_set::WordBits;

/// Flows of one sender over the same trunks, at most one to a receiver.
#[derive(Debug)]
pub(super) struct Row {
    /// Its part of [`FlowMatrix::row_links`].
    links: Range<usize>,
    /// Its part of the words of flows, and the first of the words of receivers.
    words: Range<usize>,
    first_word: usize,
}

impl Row {
    /// Positions of its words among those of flows, and among those of receivers.
    #[inline]
    pub fn words(&self) -> impl Iterator<Item = (usize, usize)> {
        self.words.clone().zip(self.first_word..)
    }

    /// The position of its flows to a word of receivers.
    pub fn word(&self, word: usize) -> Option<usize> {
        let at = (self.words.start + word).checked_sub(self.first_word)?;
        self.words.contains(&at).then_some(at)
    }

    pub fn word_count(&self) -> usize {
        self.words.len()
    }
}

/// The flows of one coflow, as bits by row and receiver.
#[derive(Debug, Default)]
pub(super) struct FlowMatrix {
    pub rows: Vec<Row>,
    /// Positions of the sender and the trunks of each row among the coflow's links, which are senders, receivers, then trunks.
    row_links: Vec<u32>,
    pub sender_count: usize,
    pub receiver_count: usize,
    /// By word: the live flows, all flows, and the number of flows in earlier words.
    pub live: Vec<u64>,
    all: Vec<u64>,
    first_flows: Vec<u32>,
    /// The flows by row, then by receiver.
    flows: Vec<u32>,
    /// By flow.
    places: Vec<(u32, u32)>,
}

impl FlowMatrix {
    /// All flows of a coflow, none of them live. O(flows log flows).
    pub fn new(coflow: &Coflow) -> FlowMatrix {
        let mut matrix = FlowMatrix {
            sender_count: coflow.senders().len(),
            receiver_count: coflow.receivers().len(),
            places: vec![(0, 0); coflow.width()],
            ..FlowMatrix::default()
        };
        let mut flows: Vec<u32> = (0..coflow.width() as u32).collect();
        let links = |flow: u32| (coflow.flow_port_links(flow).0 as u32, coflow.flow_trunks(flow));
        flows.sort_by_key(|&flow| (links(flow).0, coflow.flow_path(flow), flow));
        // A second flow between two ports begins another row.
        let is_next =
            |a: u32, b: u32| links(a) == links(b) && coflow.receiver_index(a) < coflow.receiver_index(b);
        for row in flows.chunk_by(|&a, &b| is_next(a, b)) {
            let (first_link, first_bits) = (matrix.row_links.len(), matrix.live.len());
            let (src, trunks) = links(row[0]);
            matrix.row_links.push(coflow.senders().partition_point(|load| load.link < src) as u32);
            let (ports, trunk_loads) = coflow.links().split_at(matrix.sender_count + matrix.receiver_count);
            let position = |&trunk: &u32| trunk_loads.partition_point(|load| load.link < trunk) + ports.len();
            matrix.row_links.extend(trunks.iter().map(|trunk| position(trunk) as u32));
            let first_word = coflow.receiver_index(row[0]) / 64;
            for &flow in row {
                let receiver = coflow.receiver_index(flow);
                while matrix.live.len() <= first_bits + receiver / 64 - first_word {
                    matrix.live.push(0);
                    matrix.all.push(0);
                    matrix.first_flows.push(matrix.flows.len() as u32);
                }
                *matrix.all.last_mut().expect("the loop added it") |= 1 << (receiver % 64);
                matrix.places[flow as usize] = (matrix.rows.len() as u32, receiver as u32);
                matrix.flows.push(flow);
            }
            let (links, words) = (first_link..matrix.row_links.len(), first_bits..matrix.live.len());
            matrix.rows.push(Row { links, words, first_word });
        }
        matrix
    }

    /// Positions of a row's links among those of the coflow.
    #[inline]
    pub fn links(&self, row: &Row) -> &[u32] {
        &self.row_links[row.links.clone()]
    }

    /// The row and the receiver of a flow.
    #[inline]
    pub fn place(&self, flow: u32) -> (usize, usize) {
        let (row, receiver) = self.places[flow as usize];
        (row as usize, receiver as usize)
    }

    /// The word and the bit of a flow.
    #[inline]
    pub fn bit(&self, flow: u32) -> (usize, u64) {
        let (row, receiver) = self.place(flow);
        let row = &self.rows[row];
        (row.words.start + receiver / 64 - row.first_word, 1 << (receiver % 64))
    }

    /// The flow at a bit of a word.
    #[inline]
    pub fn flow(&self, word: usize, bit: usize) -> u32 {
        let earlier = (self.all[word] & ((1 << bit) - 1)).count_ones();
        self.flows[(self.first_flows[word] + earlier) as usize]
    }

    pub fn is_live(&self, flow: u32) -> bool {
        let (word, bit) = self.bit(flow);
        self.live[word] & bit != 0
    }

    pub fn live_flows(&self) -> impl Iterator<Item = u32> {
        let words = self.live.iter().enumerate();
        words.flat_map(move |(word, &live)| WordBits(live).map(move |bit| self.flow(word, bit)))
    }
}
