//! Converts between flows and shuffles (mappers and reducers).

use weir_core::model::FlowSpec;
use weir_core::units::{Bytes, Time};

/// A shuffle: every mapper sends to every reducer, and each reducer receives equal parts from all mappers.
pub(crate) struct Shuffle {
    /// Ports of the mappers.
    pub(crate) mappers: Vec<u32>,
    /// Ports of the reducers, and the bytes that each reducer receives from one mapper.
    pub(crate) reducers: Vec<(u32, f64)>,
}

/// Adds the flows of a shuffle in mapper-major order. `reducers` contains the bytes from one mapper.
pub(crate) fn push_flows(
    flows: &mut Vec<FlowSpec>,
    mappers: &[u32],
    reducers: &[(u32, Bytes)],
    release: Time,
) {
    for &src in mappers {
        let flow = |&(dst, bytes)| FlowSpec { data_delay: release, ..FlowSpec::new(src, dst, bytes) };
        flows.extend(reducers.iter().map(flow));
    }
}

/// All shuffles whose flows, in mapper-major order, are exactly `flows`; those with more reducers first.
///
/// There can be several only if a mapper or a reducer occurs twice.
pub(crate) fn shuffles_of_flows(flows: &[FlowSpec]) -> impl Iterator<Item = Shuffle> {
    // The flows of one mapper are consecutive, so there are at most as many reducers as leading flows from the first port.
    let max_reducers = flows.iter().take_while(|f| f.src == flows[0].src).count();
    let divides = |r: &usize| flows.len().is_multiple_of(*r);
    (1..=max_reducers).rev().filter(divides).filter_map(|r| shuffle_with_reducers(flows, r))
}

/// The shuffle with `r` reducers that has exactly these flows, if it exists.
fn shuffle_with_reducers(flows: &[FlowSpec], r: usize) -> Option<Shuffle> {
    let first = &flows[..r];
    let matches_first = |block: &[FlowSpec]| {
        let pairs = block.iter().zip(first);
        pairs.into_iter().all(|(f, g)| f.src == block[0].src && f.dst == g.dst && f.bytes == g.bytes)
    };
    flows.chunks_exact(r).all(matches_first).then(|| Shuffle {
        mappers: flows.iter().step_by(r).map(|f| f.src).collect(),
        reducers: first.iter().map(|f| (f.dst, f.bytes.get())).collect(),
    })
}
