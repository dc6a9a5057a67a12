//! The links with live flows of a coflow.

use std::ops::Range;

use super::super::bit_set::BitSet;

/// The live links in one word of a set of links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LiveWord {
    pub word: u32,
    pub bits: u64,
}

impl LiveWord {
    /// Those of the links that are open.
    #[inline]
    pub fn open_bits(self, open: &[u64]) -> u64 {
        self.bits & open[self.word as usize]
    }
}

/// What a link is for the coflow.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Sender,
    Receiver,
    Trunk,
}

/// The links with live flows: as a set, and as words by role. Most coflows use few words of a large network.
#[derive(Debug, Clone)]
pub(super) struct LiveLinks {
    set: BitSet,
    /// The words of all links that the coflow ever uses, those of senders first, then of receivers, then of trunks; each in order. A
    /// word can have links of several roles.
    words: Vec<LiveWord>,
    sender_words: usize,
    /// The end of the words of receivers.
    port_words: usize,
}

impl LiveLinks {
    /// No live links of these, which are sorted.
    pub fn new(senders: &[u32], receivers: &[u32], trunks: &[u32]) -> LiveLinks {
        let mut words = Vec::new();
        let ends = [senders, receivers, trunks].map(|links| {
            let start = words.len();
            for &link in links {
                if words[start..].last().is_none_or(|last: &LiveWord| last.word != link / 64) {
                    words.push(LiveWord { word: link / 64, bits: 0 });
                }
            }
            words.len()
        });
        let last = words.iter().map(|word| word.word as usize + 1).max().unwrap_or(0);
        LiveLinks { set: BitSet::empty(64 * last), words, sender_words: ends[0], port_words: ends[1] }
    }

    fn words_of(&self, role: Role) -> Range<usize> {
        match role {
            Role::Sender => 0..self.sender_words,
            Role::Receiver => self.sender_words..self.port_words,
            Role::Trunk => self.port_words..self.words.len(),
        }
    }

    fn word_mut(&mut self, link: u32, role: Role) -> &mut LiveWord {
        let range = self.words_of(role);
        let at = self.words[range.clone()].partition_point(|other| other.word < link / 64);
        &mut self.words[range.start + at]
    }

    pub fn insert(&mut self, link: u32, role: Role) {
        self.set.insert(link as usize);
        self.word_mut(link, role).bits |= 1 << (link % 64);
    }

    pub fn remove(&mut self, link: u32, role: Role) {
        self.set.remove(link as usize);
        self.word_mut(link, role).bits &= !(1 << (link % 64));
    }

    /// All live links.
    #[inline]
    pub fn set(&self) -> &BitSet {
        &self.set
    }

    /// All words, of senders, of receivers and of trunks.
    #[inline]
    pub fn words(&self) -> &[LiveWord] {
        &self.words
    }

    /// The words of the senders.
    #[inline]
    pub fn senders(&self) -> &[LiveWord] {
        &self.words[..self.sender_words]
    }

    /// The words of the receivers.
    #[inline]
    pub fn receivers(&self) -> &[LiveWord] {
        &self.words[self.sender_words..self.port_words]
    }

    /// Whether all live links are open.
    #[inline]
    pub fn are_open(&self, open: &BitSet) -> bool {
        let open = open.words();
        self.words.iter().all(|live| live.open_bits(open) == live.bits)
    }

    /// Whether some live sender and some live receiver are open.
    #[inline]
    pub fn have_open_ends(&self, open: &[u64]) -> bool {
        self.senders().iter().any(|live| live.open_bits(open) != 0) && self.have_open_receiver(open)
    }

    /// Whether some live receiver is open.
    #[inline]
    pub fn have_open_receiver(&self, open: &[u64]) -> bool {
        self.receivers().iter().any(|live| live.open_bits(open) != 0)
    }
}
