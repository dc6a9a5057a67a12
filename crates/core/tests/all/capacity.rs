//! Checks the current rates of an engine against the capacities of its ports.

use weir_core::engine::Engine;

/// Checks that no rate is negative or infinite, and that no port exceeds its capacity by more than one part
/// in 10^9.
///
/// # Errors
/// Returns the first flow or port that fails a check.
pub fn check_rates(engine: &Engine) -> Result<(), String> {
    let network = engine.network();
    let ports = network.fabric().ports();
    let (mut send, mut recv) = (vec![0.0; ports], vec![0.0; ports]);
    for &slot in network.active_coflows() {
        let coflow = network.coflow(slot);
        for flow in coflow.live_flows() {
            let rate = engine.flow_rate(slot, flow);
            if !(rate.is_finite() && rate >= 0.0) {
                return Err(format!("coflow {}, flow {flow}: rate {rate}", coflow.id));
            }
            let (src, dst) = coflow.flow_ports(flow);
            send[src as usize] += rate;
            recv[dst as usize] += rate;
        }
    }
    let sides = [
        ("send", send, network.fabric().send_capacities().collect::<Vec<f64>>()),
        ("recv", recv, network.fabric().recv_capacities().collect()),
    ];
    for (side, rates, capacities) in sides {
        for (port, (&rate, &capacity)) in rates.iter().zip(&capacities).enumerate() {
            if rate > capacity + 1e-9 * network.fabric().nominal_rate() {
                return Err(format!(
                    "port {port} ({side}): rates sum to {rate} B/s, above the capacity of {capacity} B/s"
                ));
            }
        }
    }
    Ok(())
}
