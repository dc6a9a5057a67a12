//! Which flows of a coflow are live, by sending and by receiving port, as bits.

use super::super::mask::{Bits, Mask};

/// Flows of one sender, at most one per receiver (a second flow between two ports is in a second row).
#[derive(Debug, Clone)]
struct Row {
    port: u32,
    live: u32,
    blocks: std::ops::Range<u32>,
}

/// Up to 64 flows of a row: those whose receivers share a word of a port mask.
#[derive(Debug, Clone)]
struct Block {
    word: u32,
    first: u32,
    all: u64,
    live: u64,
}

/// Where a flow is in a [`Grid`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    block: u32,
    /// Position among the receiving ports.
    pub receiver: u32,
}

/// Live flows by sender (rows). Flows are numbered in the order of rows, inside a row in that of
/// receiving ports.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    rows: Vec<Row>,
    blocks: Vec<Block>,
    /// The first row of each sender.
    firsts: Vec<u32>,
}

impl Grid {
    /// The grid of flows given as (sending port, layer, receiving port), sorted, none of them live, and their places.
    /// `receivers` has every receiving port once, sorted.
    pub fn new(flows: &[(u32, u32, u32)], receivers: &[u32]) -> (Grid, Vec<Place>) {
        let (mut rows, mut blocks, mut firsts) = (Vec::<Row>::new(), Vec::<Block>::new(), Vec::new());
        let mut places = Vec::with_capacity(flows.len());
        let mut before = None;
        for (at, &(src, layer, dst)) in flows.iter().enumerate() {
            let word = dst / 64;
            if before != Some((src, layer)) {
                if before.is_none_or(|(port, _)| port != src) {
                    firsts.push(rows.len() as u32);
                }
                before = Some((src, layer));
                rows.push(Row { port: src, live: 0, blocks: blocks.len() as u32..blocks.len() as u32 });
            }
            let row = rows.last_mut().expect("a row was pushed for the first flow");
            if row.blocks.is_empty() || blocks.last().is_none_or(|block| block.word != word) {
                blocks.push(Block { word, first: at as u32, all: 0, live: 0 });
                row.blocks.end += 1;
            }
            let block = blocks.len() - 1;
            blocks[block].all |= 1 << (dst % 64);
            let receiver = receivers.binary_search(&dst).expect("every receiver is in the list") as u32;
            places.push(Place { block: block as u32, receiver });
        }
        (Grid { rows, blocks, firsts }, places)
    }

    /// A flow to `port` goes live.
    pub fn insert(&mut self, at: Place, port: u32) {
        self.blocks[at.block as usize].live |= 1 << (port % 64);
        let row = self.row_of(at);
        self.rows[row].live += 1;
    }

    /// A live flow to `port` is so no longer.
    pub fn remove(&mut self, at: Place, port: u32) {
        self.blocks[at.block as usize].live &= !(1 << (port % 64));
        let row = self.row_of(at);
        self.rows[row].live -= 1;
    }

    fn row_of(&self, at: Place) -> usize {
        self.rows.partition_point(|row| row.blocks.end <= at.block)
    }

    /// Calls `visit` with each live flow between open ports, and with its ports, in their order. `visit` answers whether
    /// that closes the sending and the receiving port; what is closed is skipped from then on. `receivers` are the
    /// ports that live flows receive at.
    ///
    /// Rows whose sender is closed cost one look, the others one look a word of 64 receivers; with few receivers open, rows
    /// that do not reach them cost nothing.
    #[inline]
    pub fn visit_open(
        &self,
        receivers: &Mask,
        open_send: &mut Mask,
        open_recv: &mut Mask,
        mut visit: impl FnMut(u32, usize, usize) -> (bool, bool),
    ) {
        let (send, recv) = (open_send.words_mut(), open_recv.words_mut());
        let receivers = receivers.words();
        for row in &self.rows {
            let src = row.port as usize;
            if row.live == 0 || send[src / 64] >> (src % 64) & 1 == 0 {
                continue;
            }
            let mut closed = false;
            'row: for block in self.blocks_of(row) {
                let word = block.word as usize;
                for bit in Bits(block.live & recv[word]) {
                    let flow = block.first + (block.all & ((1 << bit) - 1)).count_ones();
                    let (src_closes, dst_closes) = visit(flow, src, 64 * word + bit);
                    if dst_closes {
                        recv[word] &= !(1 << bit);
                        closed = true;
                    }
                    if src_closes {
                        send[src / 64] &= !(1 << (src % 64));
                        break 'row;
                    }
                }
            }
            if closed && receivers.iter().zip(&*recv).all(|(mine, open)| mine & open == 0) {
                return;
            }
        }
    }

    #[inline]
    fn blocks_of(&self, row: &Row) -> &[Block] {
        &self.blocks[row.blocks.start as usize..row.blocks.end as usize]
    }

    fn rows_of(&self, sender: usize) -> &[Row] {
        let end = self.firsts.get(sender + 1).map_or(self.rows.len(), |&next| next as usize);
        &self.rows[self.firsts[sender] as usize..end]
    }

    /// Calls `visit` with the live flows, and their receiving ports, of the `sender`-th sender to ports of `open`.
    #[inline]
    pub fn visit_sender(&self, sender: usize, open: &Mask, mut visit: impl FnMut(u32, u32)) {
        for row in self.rows_of(sender) {
            for block in self.blocks_of(row) {
                for bit in Bits(block.live & open.word(block.word as usize)) {
                    let flow = block.first + (block.all & ((1 << bit) - 1)).count_ones();
                    visit(flow, 64 * block.word + bit as u32);
                }
            }
        }
    }

    /// How many live flows the `sender`-th sender has to ports of `open`.
    #[inline]
    pub fn count_sender(&self, sender: usize, open: &Mask) -> u32 {
        let blocks = self.rows_of(sender).iter().flat_map(|row| self.blocks_of(row));
        blocks.map(|block| (block.live & open.word(block.word as usize)).count_ones()).sum()
    }

    /// The live flows, in order.
    pub fn live_flows(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().flat_map(|block| {
            Bits(block.live).map(move |bit| block.first + (block.all & ((1 << bit) - 1)).count_ones())
        })
    }
}
