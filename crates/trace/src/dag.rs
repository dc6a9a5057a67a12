//! Orders coflows by their dependencies.

use weir_core::model::CoflowSpec;

/// The indices of the coflows, parents before children. If the dependencies have a cycle, returns the coflows of one
/// cycle instead: each depends on the next one, the last on the first.
pub(crate) fn order(coflows: &[CoflowSpec]) -> Result<Vec<usize>, Vec<usize>> {
    let mut waiting: Vec<usize> = coflows.iter().map(|c| c.parents.len()).collect();
    let mut children = vec![Vec::new(); coflows.len()];
    for (child, coflow) in coflows.iter().enumerate() {
        for &parent in &coflow.parents {
            children[parent].push(child);
        }
    }
    let mut order: Vec<usize> = (0..coflows.len()).filter(|&c| waiting[c] == 0).collect();
    let mut done = 0;
    while let Some(&parent) = order.get(done) {
        done += 1;
        for &child in &children[parent] {
            waiting[child] -= 1;
            if waiting[child] == 0 {
                order.push(child);
            }
        }
    }
    match waiting.iter().position(|&w| w > 0) {
        None => Ok(order),
        Some(stuck) => Err(circle(coflows, &waiting, stuck)),
    }
}

/// Finds a cycle. `stuck` can be downstream of it, so the search follows parents until a coflow repeats.
fn circle(coflows: &[CoflowSpec], waiting: &[usize], stuck: usize) -> Vec<usize> {
    let mut path = vec![stuck];
    let mut place = vec![None; coflows.len()];
    place[stuck] = Some(0);
    let mut at = stuck;
    while let Some(&parent) = coflows[at].parents.iter().find(|&&p| waiting[p] > 0) {
        if let Some(start) = place[parent] {
            return path.split_off(start);
        }
        place[parent] = Some(path.len());
        path.push(parent);
        at = parent;
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
