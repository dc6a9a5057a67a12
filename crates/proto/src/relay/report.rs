//! Defines reports of relays: measurements of paths, the progress of coflows, and flows without a rule.

use std::time::Duration;

use super::{
    MAX_RELAYS, MAX_REPORTED_GROUPS, MAX_UNRULED_FLOWS, check_strictly_sorted, parse_known_micros,
    parse_number, wire,
};
use crate::MessageError;
use crate::encoding::{check_max_length, to_micros_rounding_up};

/// A report of a relay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelayReport {
    /// The epoch and the sequence number of the last order that the relay applied; zeros before the first.
    pub applied: (u64, u64),
    /// The paths to the other relays, sorted by peer.
    pub paths: Vec<PathSample>,
    /// The progress of flows that began at this relay, of known coflows. Sorted by coflow, source and destination.
    pub groups: Vec<GroupProgress>,
    /// Flows that the relay forwarded without a rule since the last report. Sorted by coflow and flow.
    pub unruled_flows: Vec<UnruledFlow>,
    /// The number of refused orders since the relay started.
    pub refused_orders: u64,
    /// Whether the relay refuses new flows, since it is about to stop.
    pub is_draining: bool,
}

/// A measurement of the path to another relay since the last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathSample {
    /// The number of the other relay.
    pub peer: u16,
    /// Whether all connections with it are established.
    pub is_connected: bool,
    /// The bytes per second that the path delivers while data waits. `None` if data never waited.
    pub rate: Option<u64>,
    /// The lowest round-trip time, if it is known.
    pub min_rtt: Option<Duration>,
    /// The smoothed round-trip time, if it is known.
    pub rtt: Option<Duration>,
    /// Segments that were sent since the connection began.
    pub segments: u64,
    /// Segments of these that were retransmitted.
    pub retransmitted_segments: u64,
    /// Bytes of messages that were sent to the peer since the relay started.
    pub sent_bytes: u64,
    /// Bytes of these that belong to flows that end at other relays.
    pub detoured_bytes: u64,
}

/// The progress of a coflow's flows between two relays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupProgress {
    /// The number of the coflow.
    pub coflow: u32,
    /// The number of the relay of the senders.
    pub source: u16,
    /// The number of the relay of the receivers.
    pub destination: u16,
    /// Bytes that the receivers have acknowledged, over all flows since the coflow was added.
    pub acked_bytes: u64,
    /// The number of open flows.
    pub open_flows: u32,
    /// Bytes that the relay of the senders sent on a detour since the coflow was added.
    pub detoured_bytes: u64,
}

/// A flow without a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnruledFlow {
    /// The number of its coflow.
    pub coflow: u32,
    /// The number of the flow in the coflow.
    pub flow: u32,
    /// The number of the relay of the receiver.
    pub destination: u16,
}

impl From<&RelayReport> for wire::RelayMessage {
    fn from(report: &RelayReport) -> wire::RelayMessage {
        let report = wire::RelayReport {
            applied_epoch: report.applied.0,
            applied_seq: report.applied.1,
            paths: report.paths.iter().map(|&path| path.into()).collect(),
            groups: report.groups.iter().map(|&group| group.into()).collect(),
            unruled_flows: report.unruled_flows.iter().map(|&flow| flow.into()).collect(),
            refused_orders: report.refused_orders,
            is_draining: report.is_draining,
        };
        wire::RelayMessage { body: Some(wire::relay_message::Body::Report(report)) }
    }
}

impl TryFrom<wire::RelayReport> for RelayReport {
    type Error = MessageError;

    fn try_from(report: wire::RelayReport) -> Result<RelayReport, MessageError> {
        check_max_length("paths", report.paths.len(), MAX_RELAYS)?;
        check_max_length("groups", report.groups.len(), MAX_REPORTED_GROUPS)?;
        check_max_length("flows without a rule", report.unruled_flows.len(), MAX_UNRULED_FLOWS)?;
        let paths: Vec<PathSample> =
            report.paths.into_iter().map(PathSample::try_from).collect::<Result<_, _>>()?;
        let groups: Vec<GroupProgress> =
            report.groups.into_iter().map(GroupProgress::try_from).collect::<Result<_, _>>()?;
        let unruled_flows: Vec<UnruledFlow> =
            report.unruled_flows.into_iter().map(UnruledFlow::try_from).collect::<Result<_, _>>()?;
        check_strictly_sorted("paths", &paths, |path| path.peer)?;
        check_strictly_sorted("groups", &groups, |group| (group.coflow, group.source, group.destination))?;
        check_strictly_sorted("flows without a rule", &unruled_flows, |flow| (flow.coflow, flow.flow))?;
        Ok(RelayReport {
            applied: (report.applied_epoch, report.applied_seq),
            paths,
            groups,
            unruled_flows,
            refused_orders: report.refused_orders,
            is_draining: report.is_draining,
        })
    }
}

impl From<PathSample> for wire::PathSample {
    fn from(path: PathSample) -> wire::PathSample {
        let micros = |time: Option<Duration>| time.map_or(0, to_micros_rounding_up);
        wire::PathSample {
            peer: path.peer.into(),
            is_connected: path.is_connected,
            rate: path.rate.unwrap_or(0),
            min_rtt_us: micros(path.min_rtt),
            rtt_us: micros(path.rtt),
            segments: path.segments,
            retransmitted_segments: path.retransmitted_segments,
            sent_bytes: path.sent_bytes,
            detoured_bytes: path.detoured_bytes,
        }
    }
}

impl TryFrom<wire::PathSample> for PathSample {
    type Error = MessageError;

    fn try_from(path: wire::PathSample) -> Result<PathSample, MessageError> {
        Ok(PathSample {
            peer: parse_number("peer", path.peer)?,
            is_connected: path.is_connected,
            rate: (path.rate > 0).then_some(path.rate),
            min_rtt: parse_known_micros(path.min_rtt_us),
            rtt: parse_known_micros(path.rtt_us),
            segments: path.segments,
            retransmitted_segments: path.retransmitted_segments,
            sent_bytes: path.sent_bytes,
            detoured_bytes: path.detoured_bytes,
        })
    }
}

impl From<GroupProgress> for wire::GroupProgress {
    fn from(group: GroupProgress) -> wire::GroupProgress {
        wire::GroupProgress {
            coflow: group.coflow,
            source: group.source.into(),
            destination: group.destination.into(),
            acked_bytes: group.acked_bytes,
            open_flows: group.open_flows,
            detoured_bytes: group.detoured_bytes,
        }
    }
}

impl TryFrom<wire::GroupProgress> for GroupProgress {
    type Error = MessageError;

    fn try_from(group: wire::GroupProgress) -> Result<GroupProgress, MessageError> {
        Ok(GroupProgress {
            coflow: group.coflow,
            source: parse_number("source", group.source)?,
            destination: parse_number("destination", group.destination)?,
            acked_bytes: group.acked_bytes,
            open_flows: group.open_flows,
            detoured_bytes: group.detoured_bytes,
        })
    }
}

impl From<UnruledFlow> for wire::UnruledFlow {
    fn from(UnruledFlow { coflow, flow, destination }: UnruledFlow) -> wire::UnruledFlow {
        wire::UnruledFlow { coflow, flow, destination: destination.into() }
    }
}

impl TryFrom<wire::UnruledFlow> for UnruledFlow {
    type Error = MessageError;

    fn try_from(flow: wire::UnruledFlow) -> Result<UnruledFlow, MessageError> {
        let destination = parse_number("destination", flow.destination)?;
        Ok(UnruledFlow { coflow: flow.coflow, flow: flow.flow, destination })
    }
}
