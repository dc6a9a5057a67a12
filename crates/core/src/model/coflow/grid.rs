//! Bit sets of the live flows of a coflow, by sending link and receiving link.

use std::ops::Range;

use super::super::bit_set::{BitSet, WordBits, bits_from};
use super::layout::FlowKey;
use super::live_links::LiveLinks;

/// Up to 64 flows of one sender to receivers in one word of a set of links. A block contains at most one flow per
/// receiver: a second flow between two ports is in another block.
#[derive(Debug, Clone)]
struct Block {
    first_flow: u32,
    receiver_bits: u64,
}

impl Block {
    /// The flow to the link at this bit of the word.
    #[inline]
    fn flow(&self, bit: usize) -> u32 {
        self.first_flow + (self.receiver_bits & ((1 << bit) - 1)).count_ones()
    }
}

/// The place of a flow in a [`LiveFlowGrid`].
#[derive(Debug, Clone, Copy)]
pub(super) struct GridPosition {
    pub block: u32,
    /// Position among the receivers.
    pub receiver: u32,
}

/// The maximum number of words of receivers for which [`LiveFlowGrid::visit_full_rows`] has room.
const MAX_FULL_WORDS: usize = 16;

/// Live flows in rows: a row has the flows of one sender, in the order of layers, then of receivers. Flows are numbered in the order of
/// rows.
#[derive(Debug, Clone)]
pub(super) struct LiveFlowGrid {
    /// In the order of [`LiveLinks::senders`].
    senders: Vec<SenderWord>,
    /// By sender: its first block, and the end of the last sender's blocks.
    first_blocks: Vec<u32>,
    blocks: Vec<Block>,
    /// By block: its word, and its live flows. Separate from `blocks`, because most look-ups need only these vectors.
    block_words: Vec<u32>,
    live_bits: Vec<u64>,
    /// The number of blocks of each sender, if each of them has the same words once, and few; otherwise 0.
    word_count: usize,
}

/// The senders in one word.
#[derive(Debug, Clone)]
struct SenderWord {
    word: u32,
    sender_bits: u64,
    /// Number of senders in earlier words.
    earlier_senders: u32,
}

impl SenderWord {
    /// The number of the sender at the link of this bit.
    #[inline]
    fn sender_index(&self, bit: usize) -> usize {
        (self.earlier_senders + (self.sender_bits & ((1 << bit) - 1)).count_ones()) as usize
    }
}

impl LiveFlowGrid {
    /// Creates a grid without live flows, and the places of the flows.
    ///
    /// `flows` are sorted. `receivers` contains every receiving link once, sorted.
    pub fn new(flows: &[FlowKey], receivers: &[u32]) -> (LiveFlowGrid, Vec<GridPosition>) {
        let mut grid = LiveFlowGrid {
            senders: Vec::new(),
            first_blocks: Vec::new(),
            blocks: Vec::new(),
            block_words: Vec::new(),
            live_bits: Vec::new(),
            word_count: 0,
        };
        let mut positions = Vec::with_capacity(flows.len());
        let (mut sender, mut block) = (None, None);
        for (at, flow) in flows.iter().enumerate() {
            if sender != Some(flow.src) {
                sender = Some(flow.src);
                grid.add_sender(flow.src);
            }
            let word = flow.dst / 64;
            if block != Some((flow.src, flow.layer, word)) {
                block = Some((flow.src, flow.layer, word));
                grid.block_words.push(word);
                grid.blocks.push(Block { first_flow: at as u32, receiver_bits: 0 });
            }
            let block = grid.blocks.len() - 1;
            grid.blocks[block].receiver_bits |= 1 << (flow.dst % 64);
            let receiver =
                receivers.binary_search(&flow.dst).expect("the caller lists every receiving link") as u32;
            positions.push(GridPosition { block: block as u32, receiver });
        }
        grid.first_blocks.push(grid.blocks.len() as u32);
        grid.live_bits = vec![0; grid.blocks.len()];
        grid.word_count = grid.find_word_count(receivers);
        (grid, positions)
    }

    /// The number of words of the receivers, if each sender has one block for each of them, and they are few.
    fn find_word_count(&self, receivers: &[u32]) -> usize {
        let mut words: Vec<u32> = receivers.iter().map(|receiver| receiver / 64).collect();
        words.dedup();
        let is_full = words.len() <= MAX_FULL_WORDS
            && self
                .first_blocks
                .windows(2)
                .all(|ends| self.block_words[ends[0] as usize..ends[1] as usize] == words[..]);
        if is_full { words.len() } else { 0 }
    }

    /// Starts the row of a sender.
    fn add_sender(&mut self, link: u32) {
        let earlier_senders = self.first_blocks.len() as u32;
        match self.senders.last_mut().filter(|last| last.word == link / 64) {
            Some(last) => last.sender_bits |= 1 << (link % 64),
            None => self.senders.push(SenderWord {
                word: link / 64,
                sender_bits: 1 << (link % 64),
                earlier_senders,
            }),
        }
        self.first_blocks.push(self.blocks.len() as u32);
    }

    /// Adds a live flow to a receiving link.
    pub fn insert(&mut self, position: GridPosition, receiver: u32) {
        self.live_bits[position.block as usize] |= 1 << (receiver % 64);
    }

    /// Removes a live flow to a receiving link.
    pub fn remove(&mut self, position: GridPosition, receiver: u32) {
        self.live_bits[position.block as usize] &= !(1 << (receiver % 64));
    }

    /// Calls `visit` with each live flow between open links, and these two links, in order of ports, without the senders before
    /// `first_sender`.
    ///
    /// `visit` returns whether the sending and the receiving link close. The iteration skips closed links. `live_links` are the links of
    /// the live flows.
    ///
    /// Skipped and closed senders cost nothing, other senders one look-up for each word of 64 receivers. The iteration ends when
    /// it has closed the last open receiver.
    #[inline]
    pub fn visit_open_flows(
        &self,
        live_links: &LiveLinks,
        first_sender: usize,
        open: &mut BitSet,
        mut visit: impl FnMut(u32, usize, usize) -> (bool, bool),
    ) {
        let open = open.words_mut();
        if !live_links.have_open_ends(open) {
            return;
        }
        if self.is_full() {
            self.visit_full_rows(live_links, first_sender, open, visit);
            return;
        }
        for (live, of) in live_links.senders().iter().zip(&self.senders) {
            let at = live.word as usize;
            for sender in WordBits(live.open_bits(open) & bits_from(first_sender, at)) {
                let blocks = self.blocks_of(of.sender_index(sender));
                if !self.has_open_receiver(blocks.clone(), open) {
                    continue;
                }
                let mut closed = false;
                'sender: for block in blocks {
                    let word = self.block_words[block] as usize;
                    for bit in WordBits(self.live_bits[block] & open[word]) {
                        let flow = self.blocks[block].flow(bit);
                        let (src_closes, dst_closes) = visit(flow, 64 * at + sender, 64 * word + bit);
                        if dst_closes {
                            open[word] &= !(1 << bit);
                            closed = true;
                        }
                        if src_closes {
                            open[at] &= !(1 << sender);
                            break 'sender;
                        }
                    }
                }
                if closed && !live_links.have_open_receiver(open) {
                    return;
                }
            }
        }
    }

    /// Whether each sender has a block for each word of the receivers, as in a shuffle.
    #[inline]
    fn is_full(&self) -> bool {
        self.word_count > 0
    }

    /// [`LiveFlowGrid::visit_open_flows`] if the grid is full: the open receivers are copied to a few words, which all senders use. The
    /// inner loop stands twice, since a function for both makes schedules 10 % slower.
    #[inline]
    fn visit_full_rows(
        &self,
        live_links: &LiveLinks,
        first_sender: usize,
        open: &mut [u64],
        mut visit: impl FnMut(u32, usize, usize) -> (bool, bool),
    ) {
        let mut buffer = [0; MAX_FULL_WORDS];
        let open_receivers = &mut buffer[..self.word_count];
        for (copy, live) in open_receivers.iter_mut().zip(live_links.receivers()) {
            *copy = live.open_bits(open);
        }
        for (live, of) in live_links.senders().iter().zip(&self.senders) {
            let at = live.word as usize;
            for sender in WordBits(live.open_bits(open) & bits_from(first_sender, at)) {
                let first = of.sender_index(sender) * self.word_count;
                let row = &self.live_bits[first..first + self.word_count];
                if row.iter().zip(&*open_receivers).fold(0, |any, (live, open)| any | live & open) == 0 {
                    continue;
                }
                let mut closed = false;
                'sender: for (block, (live, open_receivers)) in
                    (first..).zip(row.iter().zip(&mut *open_receivers))
                {
                    let word = self.block_words[block] as usize;
                    for bit in WordBits(live & *open_receivers) {
                        let flow = self.blocks[block].flow(bit);
                        let (src_closes, dst_closes) = visit(flow, 64 * at + sender, 64 * word + bit);
                        if dst_closes {
                            *open_receivers &= !(1 << bit);
                            open[word] &= !(1 << bit);
                            closed = true;
                        }
                        if src_closes {
                            open[at] &= !(1 << sender);
                            break 'sender;
                        }
                    }
                }
                if closed && open_receivers.iter().all(|open| *open == 0) {
                    return;
                }
            }
        }
    }

    /// The blocks of the sender at a bit of the `at`-th word of senders.
    #[inline]
    pub fn blocks_of_bit(&self, at: usize, bit: usize) -> Range<usize> {
        self.blocks_of(self.senders[at].sender_index(bit))
    }

    /// The live flows of a block to open receivers, as bits of its word.
    #[inline]
    pub fn open_bits(&self, block: usize, open: &BitSet) -> u64 {
        self.live_bits[block] & open.word(self.block_words[block] as usize)
    }

    /// The flow at a bit of a block, and its receiving link.
    #[inline]
    pub fn flow(&self, block: usize, bit: usize) -> (u32, usize) {
        (self.blocks[block].flow(bit), 64 * self.block_words[block] as usize + bit)
    }

    /// Whether a live flow of these blocks has an open receiver. Most senders reach none, and one branch covers all blocks of the sender.
    #[inline]
    fn has_open_receiver(&self, blocks: Range<usize>, open: &[u64]) -> bool {
        let reached = self.live_bits[blocks.clone()].iter().zip(&self.block_words[blocks]);
        reached.fold(0, |any, (live, &word)| any | live & open[word as usize]) != 0
    }

    #[inline]
    fn blocks_of(&self, sender: usize) -> Range<usize> {
        self.first_blocks[sender] as usize..self.first_blocks[sender + 1] as usize
    }

    /// Calls `visit` with the live flows from the `sender`-th sender, and their receiving links.
    #[inline]
    pub fn visit_flows_of_sender(&self, sender: usize, mut visit: impl FnMut(u32, u32)) {
        for block in self.blocks_of(sender) {
            let first = 64 * self.block_words[block];
            for bit in WordBits(self.live_bits[block]) {
                visit(self.blocks[block].flow(bit), first + bit as u32);
            }
        }
    }

    /// The live flows, in order.
    pub fn live_flows(&self) -> impl Iterator<Item = u32> + '_ {
        let blocks = self.blocks.iter().zip(&self.live_bits);
        blocks.flat_map(|(block, &live)| WordBits(live).map(|bit| block.flow(bit)))
    }
}
