//! The leaves of a policy tree by coflow.

use std::collections::BTreeMap;

use weir_core::model::{CoflowSpec, Workload};
use weir_core::policy::AnyPolicy;
use weir_core::tree::{TreeError, TreeLeaf};

/// By id of a coflow: its leaf. Empty unless the policy is a tree.
pub struct Leaves(BTreeMap<u64, TreeLeaf>);

impl Leaves {
    /// Finds the leaves of all coflows.
    ///
    /// # Errors
    /// If the tree does not fit the workload's names.
    pub fn new(policy: &AnyPolicy, workload: &Workload) -> Result<Leaves, TreeError> {
        let AnyPolicy::Tree(tree) = policy else { return Ok(Leaves(BTreeMap::new())) };
        let leaves = tree.leaves_by_application(&workload.names)?;
        let leaf = |spec: &CoflowSpec| leaves[spec.service as usize][spec.application as usize].clone();
        Ok(Leaves(workload.coflows.iter().map(|spec| (spec.id, leaf(spec))).collect()))
    }

    /// The leaf of a coflow.
    pub fn find(&self, coflow: u64) -> Option<&TreeLeaf> {
        self.0.get(&coflow)
    }
}
