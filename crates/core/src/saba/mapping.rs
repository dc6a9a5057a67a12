//! Mapping of applications to priority levels, and of priority levels to queues (section 5.3).
//!
//! Applications with similar models share a priority level, by k-means on the models' coefficients. The centroids of
//! the levels are clustered once into a hierarchy. Each port uses the part of the hierarchy that fits its number of
//! queues and the levels that pass it.
//!
//! Choices that the paper leaves open:
//!
//! - *Numbers of levels* follow the order of the first of their models in the sensitivity table. So an additional
//!   model rarely changes the numbers of other levels.
//! - *The reserved queue*, for traffic that does not use Saba (section 3), is the last queue of each port if C_saba
//!   is below 1.
//! - *Levels that do not pass a port* have a queue there too, so that every packet has one: the queue of the levels
//!   that they are merged with first.

use std::num::{NonZeroU16, NonZeroUsize};

use super::sensitivity::Sensitivity;
use crate::model::BitSet;
use crate::solve::cluster::{Cut, Dendrogram, k_means};

/// The priority level of each model, and the hierarchy of the levels.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelMapping {
    level_by_model: Vec<Option<u16>>,
    dendrogram: Dendrogram,
    level_count: usize,
}

impl LevelMapping {
    /// Maps models to at most `levels` priority levels.
    ///
    /// `counts` gives the number of applications of each model. Models without applications get no level. O(models x
    /// levels) for each round of k-means, and O(levels^2).
    pub fn new(models: &[Sensitivity], counts: &[u32], levels: NonZeroU16) -> LevelMapping {
        let present = || models.iter().zip(counts).enumerate().filter(|(_, (_, count))| **count > 0);
        let points: Vec<_> =
            present().map(|(_, (model, &count))| (*model.model().coefficients(), count)).collect();
        let clusters = k_means(&points, NonZeroUsize::from(levels));
        let mut level_by_model = vec![None; models.len()];
        for ((model, _), &cluster) in present().zip(&clusters.cluster_by_point) {
            // The number of clusters is at most the number of levels, a `u16`.
            level_by_model[model] = Some(cluster as u16);
        }
        LevelMapping {
            level_by_model,
            dendrogram: Dendrogram::new(&clusters.centres),
            level_count: clusters.centres.len(),
        }
    }

    /// The priority level of a model; `None` if the model has no applications or does not exist.
    pub fn level_of_model(&self, model: usize) -> Option<u16> {
        self.level_by_model.get(model).copied().flatten()
    }

    /// Number of priority levels in use.
    pub fn level_count(&self) -> usize {
        self.level_count
    }

    /// The hierarchy in which levels are merged, the closest first.
    pub fn hierarchy(&self) -> &Dendrogram {
        &self.dendrogram
    }

    /// The queue of each level, at a port with `queues` queues for Saba that the levels in `present` pass.
    pub fn queue_by_level(&self, present: &BitSet, queues: NonZeroUsize) -> Cut {
        self.dendrogram.cut(present, queues)
    }
}
