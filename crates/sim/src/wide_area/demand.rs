//! The bytes that coflows move between regions.

use weir_core::model::WideArea;

/// The flows of one coflow.
#[derive(Debug, Clone, PartialEq)]
pub struct CoflowDemand {
    /// Its arrival, in seconds.
    pub arrival: f64,
    /// Its service and application, by number.
    pub service_and_application: (u32, u32),
    /// Its flows, by group.
    pub groups: Vec<FlowGroup>,
}

/// Flows that one task waits for, such as a reduce task.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowGroup {
    /// All bytes that the task waits for, including those from its own region.
    pub bytes: f64,
    /// The bytes from one region to another, by the link between them; each link at most once.
    pub flows: Vec<(u32, f64)>,
}

impl CoflowDemand {
    /// Multiplies all bytes.
    pub fn scale_bytes(&mut self, factor: f64) {
        for group in &mut self.groups {
            group.bytes *= factor;
            group.flows.iter_mut().for_each(|(_, bytes)| *bytes *= factor);
        }
    }
}

/// The load of each link until the last arrival: bytes over mean bandwidth.
pub fn link_loads(demands: &[CoflowDemand], area: &WideArea) -> Vec<f64> {
    let span = demands.iter().map(|demand| demand.arrival).fold(0.0, f64::max);
    let mut bytes = vec![0.0; area.links()];
    for &(link, flow_bytes) in demands.iter().flat_map(|demand| &demand.groups).flat_map(|group| &group.flows)
    {
        bytes[link as usize] += flow_bytes;
    }
    bytes.iter().zip(0..).map(|(bytes, link)| bytes / (area.mean_bandwidth(link) * span)).collect()
}
