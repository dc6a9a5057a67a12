//! Bit sets of the live flows of a coflow, by sending and receiving port.

use std::ops::Range;

use super::super::mask::{Bits, Mask};

/// Up to 64 flows of one sender to receivers in one word of a port mask. A block contains at most one flow per
/// receiver: a second flow between two ports is in another block.
#[derive(Debug, Clone)]
struct Block {
    first: u32,
    all: u64,
}

impl Block {
    /// The flow to the port at this bit of the word.
    #[inline]
    fn flow(&self, bit: usize) -> u32 {
        self.first + (self.all & ((1 << bit) - 1)).count_ones()
    }
}

/// The place of a flow in a [`Grid`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    block: u32,
    /// Position among the receiving ports.
    pub receiver: u32,
}

/// Live flows by sender. Flows are numbered in the order of senders, and for one sender in the order of receiving
/// ports.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    /// Sending ports, by words of a port mask.
    senders: Vec<Senders>,
    /// The first block of each sender, and the end of the last sender's blocks.
    firsts: Vec<u32>,
    blocks: Vec<Block>,
    /// By block: index of its word, and its live flows. Separate from `blocks`, because most look-ups need only these
    /// vectors.
    words: Vec<u32>,
    live: Vec<u64>,
}

/// The senders among 64 ports.
#[derive(Debug, Clone, Default)]
struct Senders {
    all: u64,
    /// Number of senders before these ports.
    before: u32,
}

impl Senders {
    /// The number of the sender at the port of this bit.
    #[inline]
    fn rank(&self, bit: usize) -> usize {
        (self.before + (self.all & ((1 << bit) - 1)).count_ones()) as usize
    }
}

impl Grid {
    /// Creates a grid without live flows, and the places of the flows.
    ///
    /// `flows` are (sending port, layer, receiving port), sorted. `receivers` contains every receiving port once,
    /// sorted.
    pub fn new(flows: &[(u32, u32, u32)], receivers: &[u32]) -> (Grid, Vec<Place>) {
        let ports = flows.last().map_or(0, |&(src, ..)| src as usize + 1);
        let mut senders = vec![Senders::default(); ports.div_ceil(64)];
        let (mut firsts, mut blocks, mut words) = (Vec::new(), Vec::<Block>::new(), Vec::new());
        let mut places = Vec::with_capacity(flows.len());
        let (mut sender, mut block) = (None, None);
        for (at, &(src, layer, dst)) in flows.iter().enumerate() {
            if sender != Some(src) {
                sender = Some(src);
                let of = &mut senders[src as usize / 64];
                if of.all == 0 {
                    of.before = firsts.len() as u32;
                }
                of.all |= 1 << (src % 64);
                firsts.push(blocks.len() as u32);
            }
            let word = dst / 64;
            if block != Some((src, layer, word)) {
                block = Some((src, layer, word));
                words.push(word);
                blocks.push(Block { first: at as u32, all: 0 });
            }
            let block = blocks.len() - 1;
            blocks[block].all |= 1 << (dst % 64);
            let receiver =
                receivers.binary_search(&dst).expect("the caller lists every receiving port") as u32;
            places.push(Place { block: block as u32, receiver });
        }
        firsts.push(blocks.len() as u32);
        let live = vec![0; blocks.len()];
        (Grid { senders, firsts, blocks, words, live }, places)
    }

    /// Adds a live flow to `port`.
    pub fn insert(&mut self, at: Place, port: u32) {
        self.live[at.block as usize] |= 1 << (port % 64);
    }

    /// Removes a live flow to `port`.
    pub fn remove(&mut self, at: Place, port: u32) {
        self.live[at.block as usize] &= !(1 << (port % 64));
    }

    /// Calls `visit` with each live flow between open ports, and its two ports, in order of ports.
    ///
    /// `visit` returns whether the sending and the receiving port close. The iteration skips closed ports. `senders`
    /// and `receivers` are the ports of the live flows.
    ///
    /// Closed senders cost nothing, other senders one look-up for each word of 64 receivers. The iteration ends when
    /// it has closed the last open receiver.
    #[inline]
    pub fn visit_open(
        &self,
        senders: &Mask,
        receivers: &Mask,
        open_send: &mut Mask,
        open_recv: &mut Mask,
        mut visit: impl FnMut(u32, usize, usize) -> (bool, bool),
    ) {
        let (send, recv) = (open_send.words_mut(), open_recv.words_mut());
        let receivers = receivers.words();
        for (at, (live, of)) in senders.words().iter().zip(&self.senders).enumerate() {
            for port in Bits(live & send[at]) {
                let blocks = self.blocks_of(of.rank(port));
                // Most senders reach no open receiver. One branch covers all blocks of the sender.
                let reached = self.live[blocks.clone()].iter().zip(&self.words[blocks.clone()]);
                if reached.fold(0, |any, (live, &word)| any | live & recv[word as usize]) == 0 {
                    continue;
                }
                let mut closed = false;
                'sender: for block in blocks {
                    let word = self.words[block] as usize;
                    for bit in Bits(self.live[block] & recv[word]) {
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

    #[inline]
    fn blocks_of(&self, sender: usize) -> Range<usize> {
        self.firsts[sender] as usize..self.firsts[sender + 1] as usize
    }

    /// The blocks of a sender with live flows to ports of `open`: block, word, and the bits of these flows.
    #[inline]
    fn open_blocks(&self, sender: usize, open: &Mask) -> impl Iterator<Item = (usize, u32, u64)> {
        self.blocks_of(sender).map(move |block| {
            let word = self.words[block];
            (block, word, self.live[block] & open.word(word as usize))
        })
    }

    /// Calls `visit` with the live flows, and their receiving ports, from the `sender`-th sender to ports of `open`.
    #[inline]
    pub fn visit_sender(&self, sender: usize, open: &Mask, mut visit: impl FnMut(u32, u32)) {
        for (block, word, live) in self.open_blocks(sender, open) {
            for bit in Bits(live) {
                visit(self.blocks[block].flow(bit), 64 * word + bit as u32);
            }
        }
    }

    /// Number of live flows from the `sender`-th sender to ports of `open`.
    #[inline]
    pub fn count_sender(&self, sender: usize, open: &Mask) -> u32 {
        self.open_blocks(sender, open).map(|(.., live)| live.count_ones()).sum()
    }

    /// The live flows, in order.
    pub fn live_flows(&self) -> impl Iterator<Item = u32> + '_ {
        let blocks = self.blocks.iter().zip(&self.live);
        blocks.flat_map(|(block, &live)| Bits(live).map(|bit| block.flow(bit)))
    }
}
