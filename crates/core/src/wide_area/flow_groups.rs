//! Largest flow group first (Siphon, ATC '18, section 3.2): orders the flows of a coflow so that the *job* ends early.
//!
//! All flows to one reduce task are a group. The task starts when the last of them ends, and computes for a time proportional
//! to the group's bytes. Therefore the largest group is served first, preemptively, on all links. The paper does not define
//! ties; here the group that is first in the list wins. As in the paper, the size of a group is everything that its task
//! receives, including bytes from the task's own region.

/// The indices of groups with these sizes, largest first.
pub fn order_largest_first(sizes: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| sizes[b].total_cmp(&sizes[a]));
    order
}
