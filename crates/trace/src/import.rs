//! Reads the formats of other programs.
//!
//! | Module | Format |
//! |---|---|
//! | [`sunflow`] | the public trace in Sunflow's variant: a coflow in each line, no header |
//! | [`sincronia`] | the output of Sincronia's generator: a coflow in each line, with each of its flows |
//! | [`htsim`] | connections of the packet simulator htsim, with triggers |
//! | [`hpcc`] | the list of flows of the simulator of HPCC |
//! | [`spark_log`] | the event log of a Spark application, from which coflows are estimated |
//! | [`flow_table`] | any table with a flow in each line |
//!
//! A flow from a port to itself does not use the network: it has no bytes, unless the caller asks for them.

pub mod flow_table;
pub mod hpcc;
pub mod htsim;
pub mod sincronia;
pub mod spark_log;
pub mod sunflow;

use weir_core::model::{CoflowSpec, FlowSpec, Workload};
use weir_core::units::{Bytes, Time};

pub use flow_table::{Columns, ColumnsError};

/// Removes the bytes of flows from a port to itself. Returns a warning if there are any.
pub(crate) fn drop_local_bytes(workload: &mut Workload) -> Option<String> {
    let flows = workload.coflows.iter_mut().flat_map(|coflow| &mut coflow.flows);
    let (mut count, mut bytes) = (0_usize, 0.0);
    for flow in flows.filter(|flow| flow.src == flow.dst && flow.bytes != Bytes::ZERO) {
        count += 1;
        bytes += std::mem::replace(&mut flow.bytes, Bytes::ZERO).get();
    }
    let bytes = Bytes::new(bytes)?;
    let flows = if count == 1 { "1 flow".to_owned() } else { format!("{count} flows") };
    (count > 0).then(|| {
        format!("{flows} from a port to itself, of {bytes}, do not use the network; `weir trace convert --local-flows keep` keeps their bytes")
    })
}

/// A coflow of one flow.
fn single_flow(id: u64, src: u32, dst: u32, bytes: Bytes) -> CoflowSpec {
    CoflowSpec::new(id, Time::ZERO, vec![FlowSpec::new(src, dst, bytes)])
}
