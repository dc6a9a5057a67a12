//! Largest flow group first (Siphon, ATC '18, section 3.2): in which order a coflow's flows share their links, so that the *job*
//! ends early.
//!
//! All flows to one reduce task are a group. The task begins when the last of them has ended, and computes for a time in
//! proportion to the group's bytes; so the largest group goes first, preemptively, on all links. Ties, which the paper leaves open, go
//! to the group that is first in the list. A group's size is all that its task receives, as the paper defines it, from the task's own
//! region too.

/// The places of groups of these sizes, largest first.
pub fn largest_first(sizes: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| sizes[b].total_cmp(&sizes[a]));
    order
}
