//! Bit sets of the live flows of a coflow, by sending port and receiving port.

use std::ops::Range;

use super::super::bit_set::{BitSet, WordBits};
use super::layout::FlowKey;
use super::paths::{OpenPaths, Paths};

/// Up to 64 flows of one sender to receivers in one word of a port mask. A block contains at most one flow per
/// receiver: a second flow between two ports is in another block.
#[derive(Debug, Clone)]
struct Block {
    first_flow: u32,
    receiver_bits: u64,
}

impl Block {
    /// The flow to the port at this bit of the word.
    #[inline]
    fn flow(&self, bit: usize) -> u32 {
        self.first_flow + (self.receiver_bits & ((1 << bit) - 1)).count_ones()
    }
}

/// Live flows of one block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockFlows {
    block: u32,
    receiver_bits: u64,
}

/// The place of a flow in a [`LiveFlowGrid`].
#[derive(Debug, Clone, Copy)]
pub(super) struct GridPosition {
    pub block: u32,
    /// Position among the receiving ports.
    pub receiver: u32,
}

/// Live flows in rows: a row has the flows of one sender, in the order of layers, then of receiving ports. Flows are numbered in the
/// order of rows.
#[derive(Debug, Clone)]
pub(super) struct LiveFlowGrid {
    /// By words of a port mask.
    senders: Vec<SenderWord>,
    /// By sender: its first block, and the end of the last sender's blocks.
    first_blocks: Vec<u32>,
    blocks: Vec<Block>,
    /// By block: index of its word, and its live flows. Separate from `blocks`, because most look-ups need only these
    /// vectors.
    block_words: Vec<u32>,
    live_bits: Vec<u64>,
}

/// The senders among 64 ports.
#[derive(Debug, Clone, Default)]
struct SenderWord {
    sender_bits: u64,
    /// Number of senders before these ports.
    earlier_senders: u32,
}

impl SenderWord {
    /// The number of the sender at the port of this bit.
    #[inline]
    fn sender_index(&self, bit: usize) -> usize {
        (self.earlier_senders + (self.sender_bits & ((1 << bit) - 1)).count_ones()) as usize
    }
}

impl LiveFlowGrid {
    /// Creates a grid without live flows, and the places of the flows.
    ///
    /// `flows` are sorted. `receivers` contains every receiving port once, sorted.
    pub fn new(flows: &[FlowKey], receivers: &[u32]) -> (LiveFlowGrid, Vec<GridPosition>) {
        let ports = flows.last().map_or(0, |flow| flow.src as usize + 1);
        let mut grid = LiveFlowGrid {
            senders: vec![SenderWord::default(); ports.div_ceil(64)],
            first_blocks: Vec::new(),
            blocks: Vec::new(),
            block_words: Vec::new(),
            live_bits: Vec::new(),
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
                receivers.binary_search(&flow.dst).expect("the caller lists every receiving port") as u32;
            positions.push(GridPosition { block: block as u32, receiver });
        }
        grid.first_blocks.push(grid.blocks.len() as u32);
        grid.live_bits = vec![0; grid.blocks.len()];
        (grid, positions)
    }

    /// Starts the row of a sender.
    fn add_sender(&mut self, port: u32) {
        let word = &mut self.senders[port as usize / 64];
        if word.sender_bits == 0 {
            word.earlier_senders = self.first_blocks.len() as u32;
        }
        word.sender_bits |= 1 << (port % 64);
        self.first_blocks.push(self.blocks.len() as u32);
    }

    /// Adds a live flow to `port`.
    pub fn insert(&mut self, position: GridPosition, port: u32) {
        self.live_bits[position.block as usize] |= 1 << (port % 64);
    }

    /// Removes a live flow to `port`.
    pub fn remove(&mut self, position: GridPosition, port: u32) {
        self.live_bits[position.block as usize] &= !(1 << (port % 64));
    }

    /// Calls `visit` with each live flow between open ports, and its two ports, in order of ports.
    ///
    /// `visit` returns whether the sending and the receiving port close. The iteration skips closed ports. `senders`
    /// and `receivers` are the ports of the live flows.
    ///
    /// Closed senders cost nothing, other senders one look-up for each word of 64 receivers. The iteration ends when
    /// it has closed the last open receiver.
    #[inline]
    pub fn visit_open_flows(
        &self,
        senders: &BitSet,
        receivers: &BitSet,
        open_send: &mut BitSet,
        open_recv: &mut BitSet,
        mut visit: impl FnMut(u32, usize, usize) -> (bool, bool),
    ) {
        let (send, recv) = (open_send.words_mut(), open_recv.words_mut());
        let receivers = receivers.words();
        for (at, (live, of)) in senders.words().iter().zip(&self.senders).enumerate() {
            for port in WordBits(live & of.sender_bits & send[at]) {
                let blocks = self.blocks_of(of.sender_index(port));
                if !self.reaches(blocks.clone(), recv) {
                    continue;
                }
                let mut closed = false;
                'sender: for block in blocks {
                    let word = self.block_words[block] as usize;
                    for bit in WordBits(self.live_bits[block] & recv[word]) {
                        let flow = self.blocks[block].flow(bit);
                        let (src_closes, dst_closes) = visit(flow, 64 * at + port, 64 * word + bit);
                        if dst_closes {
                            recv[word] &= !(1 << bit);
                            closed = true;
                        }
                        if src_closes {
                            send[at] &= !(1 << port);
                            break 'sender;
                        }
                    }
                }
                if closed && receivers.iter().zip(&*recv).all(|(mine, open)| mine & open == 0) {
                    return;
                }
            }
        }
    }

    /// Writes the live flows from `port` to open receivers to `found`, in order, without most of those over paths that are not open.
    pub fn find_flows(
        &self,
        port: usize,
        paths: &Paths,
        open_paths: &OpenPaths,
        receivers: &BitSet,
        found: &mut Vec<BlockFlows>,
    ) {
        let sender = self.sender_index(port);
        let (blocks, receivers) = (self.blocks_of(sender), receivers.words());
        found.clear();
        if !self.reaches(blocks.clone(), receivers) {
            return;
        }
        for block in blocks.clone() {
            found.push(BlockFlows { block: block as u32, receiver_bits: 0 });
        }
        // Loops without iterator adapters, which builds without link-time optimization do not inline.
        for run in paths.sender_runs(sender) {
            let open_bits = open_paths.bits_of(run);
            if run.has_few(open_bits) {
                for path in WordBits(open_bits) {
                    for members in paths.members(run, path) {
                        found[members.block as usize - blocks.start].receiver_bits |= members.receiver_bits;
                    }
                }
            } else {
                for members in paths.all_members(run) {
                    found[members.block as usize - blocks.start].receiver_bits |= members.receiver_bits;
                }
            }
        }
        for (block, flows) in blocks.zip(found) {
            flows.receiver_bits &= self.live_bits[block] & receivers[self.block_words[block] as usize];
        }
    }

    /// The flows of a block, in order.
    #[inline]
    pub fn flows_of_block(&self, flows: BlockFlows) -> impl Iterator<Item = u32> {
        WordBits(flows.receiver_bits).map(move |bit| self.blocks[flows.block as usize].flow(bit))
    }

    #[inline]
    fn sender_index(&self, port: usize) -> usize {
        self.senders[port / 64].sender_index(port % 64)
    }

    /// Whether a live flow of these blocks has an open receiver. Most senders reach none, and one branch covers all
    /// blocks of the sender.
    #[inline]
    fn reaches(&self, blocks: Range<usize>, open_recv: &[u64]) -> bool {
        let reached = self.live_bits[blocks.clone()].iter().zip(&self.block_words[blocks]);
        reached.fold(0, |any, (live, &word)| any | live & open_recv[word as usize]) != 0
    }

    #[inline]
    fn blocks_of(&self, sender: usize) -> Range<usize> {
        self.first_blocks[sender] as usize..self.first_blocks[sender + 1] as usize
    }

    /// The blocks of a sender with live flows to ports of `open`: block, word, and the bits of these flows.
    #[inline]
    fn open_blocks(&self, sender: usize, open: &BitSet) -> impl Iterator<Item = (usize, u32, u64)> {
        self.blocks_of(sender).map(move |block| {
            let word = self.block_words[block];
            (block, word, self.live_bits[block] & open.word(word as usize))
        })
    }

    /// Calls `visit` with the live flows, and their receiving ports, from the `sender`-th sender to ports of `open`.
    #[inline]
    pub fn visit_flows_of_sender(&self, sender: usize, open: &BitSet, mut visit: impl FnMut(u32, u32)) {
        for (block, word, live) in self.open_blocks(sender, open) {
            for bit in WordBits(live) {
                visit(self.blocks[block].flow(bit), 64 * word + bit as u32);
            }
        }
    }

    /// Number of live flows from the `sender`-th sender to ports of `open`.
    #[inline]
    pub fn count_flows_of_sender(&self, sender: usize, open: &BitSet) -> u32 {
        self.open_blocks(sender, open).map(|(.., live)| live.count_ones()).sum()
    }

    /// The live flows, in order.
    pub fn live_flows(&self) -> impl Iterator<Item = u32> + '_ {
        let blocks = self.blocks.iter().zip(&self.live_bits);
        blocks.flat_map(|(block, &live)| WordBits(live).map(|bit| block.flow(bit)))
    }
}
