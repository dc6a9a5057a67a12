//! The order of coflows without completed flows, by the sizes of earlier coflows of a similar width.
//!
//! A wide coflow is often a large one. So the table of each class of widths learns from the coflows of its class, and until it has seen
//! some, it has the distribution of all coflows as its prior.

use super::super::attained_service::Levels;
use super::super::index_table::IndexTable;
use super::Constants;

/// Classes of widths: 1 flow, 2 to 3, 4 to 15, 16 to 63, 64 to 255, and more.
const CLASSES: usize = 6;

/// The sizes of earlier coflows, as attained service in seconds.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Empty before the first coflow.
    all: IndexTable,
    by_width: Vec<IndexTable>,
    median_seconds: f64,
}

impl Sizes {
    /// No sizes.
    pub fn new(levels: Levels, constants: &Constants) -> Sizes {
        let all = IndexTable::new(levels, constants.prior_weight);
        let class = IndexTable::new(levels, constants.width_weight);
        Sizes { all, by_width: vec![class; CLASSES], median_seconds: f64::INFINITY }
    }

    /// Whether the levels are not known yet.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Records that a coflow of `width` flows, which had reached level `from`, has reached level `to`. O(levels between them).
    pub fn add_passed(&mut self, width: usize, from: usize, to: usize) {
        if from < to {
            self.all.add_passed(from, to);
            self.by_width[class(width)].add_passed(from, to);
        }
    }

    /// Adds the size of a coflow that is recorded to have reached level `from`. O(levels).
    pub fn learn(&mut self, width: usize, from: usize, seconds: f64) {
        self.all.learn_size(from, seconds);
        self.by_width[class(width)].learn_size(from, seconds);
    }

    /// Computes the order, if sizes were added. O(levels).
    pub fn update(&mut self) {
        if !self.all.is_stale() {
            return;
        }
        self.all.update();
        self.median_seconds = self.all.median_seconds();
        for table in &mut self.by_width {
            table.set_prior(&self.all);
            table.update();
        }
    }

    /// The key of a coflow on a level: the expected service for a completion, in seconds.
    pub fn key(&self, width: usize, level: usize) -> f64 {
        self.by_width[class(width)].seconds(level)
    }

    /// The size that half of the coflows do not exceed, in seconds; infinite before the first size.
    pub fn median_seconds(&self) -> f64 {
        self.median_seconds
    }
}

/// The class of a width of at least 1.
fn class(width: usize) -> usize {
    match width {
        0 | 1 => 0,
        _ => (1 + width.ilog2() as usize / 2).min(CLASSES - 1),
    }
}
