//! Descriptions of traces and fabrics as records.

use serde_json::{Value, json};
use weir_console::record::Record;
use weir_console::table::BITS_PER_BYTE;
use weir_trace::describe::{PERCENTILES, WorkloadStatistics};
use weir_trace::topology::describe::{HostPairs, TopologyStatistics};

use crate::source::Source;

/// The scalar fields of a trace's description, for CSV and JSON.
pub fn trace_record(source: &Source, d: &WorkloadStatistics) -> Record {
    let mut r = Record::default();
    source.record_fields().into_iter().for_each(|(name, value)| r.add(name, value));
    r.add("ports", d.ports);
    r.add("coflows", d.coflows);
    r.add("flows", d.flows);
    r.add("empty_flows", d.empty_flows);
    // `Sum` for an empty iterator of f64 is -0.0; `abs` prints it as 0.
    r.add("bytes", d.bytes.abs());
    r.add("same_port", d.same_port_fraction);
    r.add_all(["first_arrival_s", "last_arrival_s"], [d.first_arrival, d.last_arrival]);
    r.add("events", d.events);
    r.add("services", d.services);
    r.add("applications", d.applications);
    r.add("depth", d.longest_chain);
    for (percentage, width) in PERCENTILES.iter().zip(d.width_percentiles) {
        r.add_named(format!("width_p{percentage}"), width);
    }
    r.add_all(
        ["single", "equal", "unequal"],
        [d.single_flow_share, d.equal_flows_share, d.unequal_flows_share],
    );
    r.add_all(["bin1", "bin2", "bin3", "bin4"], d.bin_shares);
    r.add("send_busiest", d.send_load.busiest_port);
    r.add_all(["send_max_bytes", "send_mean_bytes"], [d.send_load.max_bytes, d.send_load.mean_bytes]);
    r.add("recv_busiest", d.receive_load.busiest_port);
    r.add_all(["recv_max_bytes", "recv_mean_bytes"], [d.receive_load.max_bytes, d.receive_load.mean_bytes]);
    r
}

/// The scalar fields of a trace's description, and the distribution of Fig. 2b in the Saath paper, for JSON.
pub fn trace_object(source: &Source, d: &WorkloadStatistics) -> Record {
    let mut r = trace_record(source, d);
    let points: Vec<Value> = d
        .deviation_distribution
        .iter()
        .map(|(value, share)| json!({ "deviation": value, "share": share }))
        .collect();
    r.add("deviations", points);
    r
}

/// The scalar fields of a fabric's description, for CSV and JSON.
pub fn fabric_record(name: &str, d: &TopologyStatistics) -> Record {
    let mut r = Record::default();
    r.add("fabric", name);
    r.add("hosts", d.hosts);
    r.add("switches", d.switches);
    r.add("cables", d.cables);
    r.add("tiers", d.tiers.len());
    let max_oversubscription = d.tiers.iter().filter_map(|tier| tier.oversubscription).reduce(f64::max);
    r.add("max_oversubscription", max_oversubscription);
    r.add("bisection_bit_per_s", d.bisection_bytes_per_sec.map(|rate| rate * BITS_PER_BYTE));
    r.add("half_hosts_bit_per_s", d.half_send_bytes_per_sec * BITS_PER_BYTE);
    let pairs = || d.host_pairs.iter().flatten();
    r.add("min_hops", pairs().map(|pairs| pairs.hops).min());
    r.add("max_hops", pairs().map(|pairs| pairs.hops).max());
    r.add("min_paths", pairs().map(|pairs| pairs.paths).min());
    r.add("max_paths", pairs().map(|pairs| pairs.paths).max());
    r
}

/// The scalar fields and the lists of a fabric's description, for JSON.
pub fn fabric_object(name: &str, d: &TopologyStatistics) -> Record {
    let mut r = fabric_record(name, d);
    let tiers = d
        .tiers
        .iter()
        .map(|t| json!({ "tier": t.tier, "switches": t.switches, "oversubscription": t.oversubscription }));
    r.add("by_tier", tiers.collect::<Vec<Value>>());
    let cables = d.cables_between_tiers.iter().map(|c| {
        json!({ "low": c.lower_tier, "high": c.upper_tier, "cables": c.count, "min_bit_per_s": c.min_bytes_per_sec * BITS_PER_BYTE,
            "max_bit_per_s": c.max_bytes_per_sec * BITS_PER_BYTE, "total_bit_per_s": c.total_bytes_per_sec * BITS_PER_BYTE })
    });
    r.add("cables_by_tier", cables.collect::<Vec<Value>>());
    let pair = |p: &HostPairs| json!({ "hops": p.hops, "paths": p.paths, "pairs": p.count });
    r.add("pairs", d.host_pairs.as_ref().map(|pairs| pairs.iter().map(pair).collect::<Vec<Value>>()));
    r
}
