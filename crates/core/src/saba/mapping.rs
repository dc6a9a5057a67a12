//! Applications to priority levels, and priority levels to queues (section 5.3).
//!
//! Applications with similar models share a priority level, by k-means on the models' coefficients. The levels' centroids are
//! clustered once into a hierarchy, from which each port takes what fits the levels that pass it and the queues that it has.
//!
//! What the paper leaves open:
//!
//! - *Names of levels.* They are numbered in the order of the first of their models in the sensitivity table, so that a
//!   model that joins tends to leave the other levels' numbers alone.
//! - *The reserved queue* of traffic that knows nothing of Saba (section 3): the last one of each port, if C_saba is less
//!   than all.
//! - *Levels that do not pass a port* have a queue there all the same, so that no packet is without one: that of
//!   the levels they are merged with first.

use std::num::{NonZeroU16, NonZeroUsize};

use super::sensitivity::Sensitivity;
use crate::model::Mask;
use crate::solve::cluster::{Cut, Dendrogram, k_means};

/// Which priority level a model has, and how levels go together.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    levels: Vec<Option<u16>>,
    dendrogram: Dendrogram,
    count: usize,
}

impl Mapping {
    /// Maps models to at most `levels` priority levels. Each stands for as many applications as `counts` says; those
    /// of none get no level. O(models x levels) a round of k-means, and O(levels^2).
    pub fn new(models: &[Sensitivity], counts: &[u32], levels: NonZeroU16) -> Mapping {
        let present = || models.iter().zip(counts).enumerate().filter(|(_, (_, count))| **count > 0);
        let points: Vec<_> =
            present().map(|(_, (model, &count))| (*model.model().coefficients(), count)).collect();
        let clusters = k_means(&points, NonZeroUsize::from(levels));
        let mut of = vec![None; models.len()];
        for ((model, _), &cluster) in present().zip(&clusters.of) {
            // There are no more clusters than levels, whose number fits.
            of[model] = Some(cluster as u16);
        }
        Mapping { levels: of, dendrogram: Dendrogram::new(&clusters.centres), count: clusters.centres.len() }
    }

    /// The priority level of a model; none if it stands for no application, or is unknown.
    pub fn level(&self, model: usize) -> Option<u16> {
        self.levels.get(model).copied().flatten()
    }

    /// How many priority levels are in use.
    pub fn levels(&self) -> usize {
        self.count
    }

    /// How levels go together, the closest first.
    pub fn hierarchy(&self) -> &Dendrogram {
        &self.dendrogram
    }

    /// For each level its queue, at a port with this many for Saba that the levels in `present` pass.
    pub fn queues(&self, present: &Mask, queues: NonZeroUsize) -> Cut {
        self.dendrogram.cut(present, queues)
    }
}
