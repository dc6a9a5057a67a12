//! Bit sets of links or coflow slots.
//!
//! Schedules mostly test whether one set contains another, and whether two sets intersect. Words of 64 bits need a
//! few instructions for either test.

use smallvec::SmallVec;

/// A set of small numbers. Sets up to 384 need no heap memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitSet(SmallVec<[u64; 6]>);

impl BitSet {
    /// The empty set over `0..len`.
    pub fn empty(len: usize) -> BitSet {
        BitSet(SmallVec::from_elem(0, len.div_ceil(64)))
    }

    /// Empties the set, over `0..len`.
    pub fn reset(&mut self, len: usize) {
        self.0.clear();
        self.0.resize(len.div_ceil(64), 0);
    }

    /// Sets the contents to the positions in `values` for which `predicate` returns true.
    pub(crate) fn set_where<T>(&mut self, values: &[T], predicate: impl Fn(&T) -> bool) {
        self.0.clear();
        self.0.extend(values.chunks(64).map(|word| {
            word.iter().enumerate().fold(0, |bits, (bit, value)| bits | u64::from(predicate(value)) << bit)
        }));
    }

    /// Copies another set. Reuses the memory if both sets have the same number of words.
    #[inline]
    pub(crate) fn copy_from(&mut self, other: &BitSet) {
        if self.0.len() == other.0.len() {
            self.0.copy_from_slice(&other.0);
        } else {
            self.0 = SmallVec::from_slice(&other.0);
        }
    }

    /// Adds `bit`. Grows the set if needed.
    #[inline]
    pub fn insert(&mut self, bit: usize) {
        if bit / 64 >= self.0.len() {
            self.0.resize(bit / 64 + 1, 0);
        }
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    /// Adds all bits of another set. Grows the set if needed.
    pub fn union_with(&mut self, other: &BitSet) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// Removes all bits that another set does not have.
    pub(crate) fn intersect_with(&mut self, other: &BitSet) {
        self.0.iter_mut().enumerate().for_each(|(i, word)| *word &= other.word(i));
    }

    /// Removes all bits of another set.
    pub(crate) fn difference_with(&mut self, other: &BitSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, less)| *word &= !less);
    }

    /// Removes `bit`.
    pub fn remove(&mut self, bit: usize) {
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    /// Whether the set contains `bit`.
    #[inline]
    pub fn contains(&self, bit: usize) -> bool {
        self.word(bit / 64) >> (bit % 64) & 1 == 1
    }

    /// All words, 64 bits each.
    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }

    /// All words, mutable.
    #[inline]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    /// The word with the bits `64 * index ..`.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// Whether the two sets intersect.
    #[inline]
    pub fn intersects(&self, other: &BitSet) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    /// Number of bits in both sets.
    #[inline]
    pub fn intersection_count(&self, other: &BitSet) -> u32 {
        self.0.iter().zip(&other.0).map(|(a, b)| (a & b).count_ones()).sum()
    }

    /// The bits in both sets, in rising order.
    pub(crate) fn intersection(&self, other: &BitSet) -> impl Iterator<Item = usize> {
        let words = self.0.iter().zip(&other.0).enumerate();
        words.flat_map(|(i, (a, b))| WordBits(a & b).map(move |bit| 64 * i + bit))
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// Removes all bits.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The bits of the set, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| WordBits(word).map(move |b| 64 * i + b))
    }
}

/// The bits of a word for numbers from `first` on.
#[inline]
pub(crate) fn bits_from(first: usize, word: usize) -> u64 {
    match first.saturating_sub(64 * word) {
        skipped @ 0..64 => u64::MAX << skipped,
        _ => 0,
    }
}

/// The bits of one word, in rising order.
pub(crate) struct WordBits(pub u64);

impl Iterator for WordBits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}
