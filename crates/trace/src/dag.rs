//! Orders coflows by their dependencies.

use weir_core::model::CoflowSpec;

/// The indices of the coflows, parents before children. If the dependencies have a cycle, returns the coflows of one
/// cycle instead: each depends on the next one, the last on the first.
pub(crate) fn topological_order(coflows: &[CoflowSpec]) -> Result<Vec<usize>, Vec<usize>> {
    let mut pending_parents: Vec<usize> = coflows.iter().map(|c| c.parents.len()).collect();
    let mut children = vec![Vec::new(); coflows.len()];
    for (child, coflow) in coflows.iter().enumerate() {
        for &parent in &coflow.parents {
            children[parent].push(child);
        }
    }
    let mut order: Vec<usize> = (0..coflows.len()).filter(|&c| pending_parents[c] == 0).collect();
    let mut visited = 0;
    while let Some(&parent) = order.get(visited) {
        visited += 1;
        for &child in &children[parent] {
            pending_parents[child] -= 1;
            if pending_parents[child] == 0 {
                order.push(child);
            }
        }
    }
    match pending_parents.iter().position(|&w| w > 0) {
        None => Ok(order),
        Some(blocked) => Err(find_cycle(coflows, &pending_parents, blocked)),
    }
}

/// Finds a cycle. `blocked` can be downstream of it, so the search follows parents until a coflow repeats.
fn find_cycle(coflows: &[CoflowSpec], pending_parents: &[usize], blocked: usize) -> Vec<usize> {
    let mut path = vec![blocked];
    let mut position_in_path = vec![None; coflows.len()];
    position_in_path[blocked] = Some(0);
    let mut current = blocked;
    while let Some(&parent) = coflows[current].parents.iter().find(|&&p| pending_parents[p] > 0) {
        if let Some(start) = position_in_path[parent] {
            return path.split_off(start);
        }
        position_in_path[parent] = Some(path.len());
        path.push(parent);
        current = parent;
    }
    path
}

/// The number of coflows in the longest chain of parents: 1 without dependencies, 0 without coflows.
pub(crate) fn depth(coflows: &[CoflowSpec], order: &[usize]) -> usize {
    let mut depths = vec![1_usize; coflows.len()];
    for &c in order {
        depths[c] = coflows[c].parents.iter().map(|&p| depths[p] + 1).max().unwrap_or(1);
    }
    depths.into_iter().max().unwrap_or(0)
}
