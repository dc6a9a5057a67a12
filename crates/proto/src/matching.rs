//! Defines the messages of hosts and the coordinator that match senders and receivers (policy `django`), and its encoding.
//!
//! Source: Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21, Table 1. A coflow is the
//! generation of its registration here. The coordinator orders SEND_START, SEND_RECOVERY and SEND_PAUSE as the rates of flows
//! ([`crate::OrderedRate`]).

use crate::encoding::{check_equal_lengths, check_max_length, sum};
use crate::{MAX_FLOWS_PER_HOST, MAX_REPORTED_FLOWS, MAX_REPORTED_SEGMENTS, MessageError, wire};

/// The questions and decisions of a host as a receiver, and the unused bandwidth of its links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatchingReport {
    /// The unused bandwidth of the link to the network, in bytes of packets per second.
    pub vacant_uplink: u64,
    /// The unused bandwidth of the link from the network, in bytes of packets per second.
    pub vacant_downlink: u64,
    /// The questions of reducers (REQ_CANDIDATE). Sorted by coflow, each once; at most one has priority.
    pub questions: Vec<Question>,
    /// The connections that open or close (REPLY_CHOSEN, SEND_PAUSE). Sorted by coflow and flow, each once.
    pub changes: Vec<ConnectionChange>,
    /// What flows from the host have sent since its last report, at most [`MAX_REPORTED_SEGMENTS`] of them. Sorted by coflow and flow, each
    /// once.
    pub segments: Vec<FlowSegments>,
}

/// The data packets of a flow since the last report of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowSegments {
    /// The coflow.
    pub coflow: u64,
    /// The position of the flow in the registration of its coflow.
    pub flow: u32,
    /// The number of data packets sent.
    pub segments: u32,
    /// How many of them had been sent before; at most `segments`.
    pub retransmitted: u32,
}

/// A reducer asks which flows may open a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The coflow of the reducer.
    pub coflow: u64,
    /// The number of the question; the answer repeats it.
    pub number: u32,
    /// Whether the reducer has priority at its host.
    pub is_prioritized: bool,
}

/// A receiver's decision about the connection of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionChange {
    /// The coflow.
    pub coflow: u64,
    /// The position of the flow in the registration of its coflow.
    pub flow: u32,
    /// Rises with each decision, from 1. The connection may send if it is odd.
    pub version: u32,
}

/// The state that a host needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MatchingOrder {
    /// The number of connections of the host's reducers; above 0.
    pub max_connections: u32,
    /// The fraction of the downlink that is unused if reducers without priority get more connections, 0 to 1.
    pub alpha: f64,
    /// The part of the connections for the reducer with priority, 0 to 1.
    pub beta: f64,
    /// The part of the free connections up to which a reducer without priority gets another one, 0 to 1.
    pub eta: f64,
    /// The changed flows to this host; in a full order, all with data. Sorted by coflow and flow, each once.
    pub flows: Vec<MatchedFlow>,
    /// The remaining bytes of coflows with flows from or to this host, as far as they change; 0 if the host no longer needs them. Sorted,
    /// each once.
    pub coflows: Vec<(u64, u64)>,
    /// The answers to questions. Sorted by coflow, each once.
    pub answers: Vec<Answer>,
}

/// A flow to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchedFlow {
    /// The coflow.
    pub coflow: u64,
    /// The position of the flow in the registration of its coflow.
    pub flow: u32,
    /// The remaining bytes. 0: the flow has completed, or has no data.
    pub remaining_bytes: u64,
    /// The newest version of its connection that the coordinator has received; 0 before the first.
    pub version: u32,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The coflow of the reducer.
    pub coflow: u64,
    /// The number of the question.
    pub number: u32,
    /// The flows that may open a connection, the best first.
    pub candidates: Vec<u32>,
}

impl From<&MatchingReport> for wire::MatchingReport {
    fn from(report: &MatchingReport) -> wire::MatchingReport {
        let MatchingReport { vacant_uplink, vacant_downlink, questions, changes, segments } = report;
        let prioritized = questions.iter().position(|question| question.is_prioritized);
        wire::MatchingReport {
            vacant_uplink: *vacant_uplink,
            vacant_downlink: *vacant_downlink,
            asking_coflows: questions.iter().map(|question| question.coflow).collect(),
            question_numbers: questions.iter().map(|question| question.number).collect(),
            prioritized: prioritized.map_or(0, |at| at as u32 + 1),
            changed_coflows: changes.iter().map(|change| change.coflow).collect(),
            changed_flows: changes.iter().map(|change| change.flow).collect(),
            versions: changes.iter().map(|change| change.version).collect(),
            sending_coflows: segments.iter().map(|flow| flow.coflow).collect(),
            sending_flows: segments.iter().map(|flow| flow.flow).collect(),
            segments: segments.iter().map(|flow| flow.segments).collect(),
            retransmitted: segments.iter().map(|flow| flow.retransmitted).collect(),
        }
    }
}

impl TryFrom<wire::MatchingReport> for MatchingReport {
    type Error = MessageError;

    fn try_from(report: wire::MatchingReport) -> Result<MatchingReport, MessageError> {
        let asking = report.asking_coflows;
        check_max_length("questions", asking.len(), MAX_REPORTED_FLOWS)?;
        check_equal_lengths("numbers of questions", report.question_numbers.len(), asking.len())?;
        check_sorted("questions", &asking)?;
        if report.prioritized as usize > asking.len() {
            let (index, count) = (report.prioritized, asking.len());
            return Err(MessageError::IndexOutOfRange { list: "reducer with priority", index, count });
        }
        let to_question = |(at, (coflow, number))| Question {
            coflow,
            number,
            is_prioritized: at + 1 == report.prioritized as usize,
        };
        let questions = asking.into_iter().zip(report.question_numbers).enumerate().map(to_question);
        let coflows = report.changed_coflows;
        check_max_length("changed connections", coflows.len(), MAX_REPORTED_FLOWS)?;
        check_equal_lengths("changed flows", report.changed_flows.len(), coflows.len())?;
        check_equal_lengths("versions", report.versions.len(), coflows.len())?;
        let columns = coflows.into_iter().zip(report.changed_flows).zip(report.versions);
        let to_change = |((coflow, flow), version)| ConnectionChange { coflow, flow, version };
        let changes: Vec<ConnectionChange> = columns.map(to_change).collect();
        let keys: Vec<(u64, u32)> = changes.iter().map(|change| (change.coflow, change.flow)).collect();
        check_sorted("changed connections", &keys)?;
        check_versions(changes.iter().map(|change| change.version))?;
        if changes.iter().any(|change| change.version == 0) {
            return Err(VERSION_ERROR);
        }
        Ok(MatchingReport {
            vacant_uplink: report.vacant_uplink,
            vacant_downlink: report.vacant_downlink,
            questions: questions.collect(),
            changes,
            segments: decode_segments(
                report.sending_coflows,
                report.sending_flows,
                report.segments,
                report.retransmitted,
            )?,
        })
    }
}

fn decode_segments(
    coflows: Vec<u64>,
    flows: Vec<u32>,
    segments: Vec<u32>,
    retransmitted: Vec<u32>,
) -> Result<Vec<FlowSegments>, MessageError> {
    check_max_length("sending flows", coflows.len(), MAX_REPORTED_SEGMENTS)?;
    check_equal_lengths("sending flows", flows.len(), coflows.len())?;
    check_equal_lengths("packets of flows", segments.len(), coflows.len())?;
    check_equal_lengths("retransmitted packets", retransmitted.len(), coflows.len())?;
    let columns = coflows.into_iter().zip(flows).zip(segments.into_iter().zip(retransmitted));
    let to_segments =
        |((coflow, flow), (segments, retransmitted))| FlowSegments { coflow, flow, segments, retransmitted };
    let sending: Vec<FlowSegments> = columns.map(to_segments).collect();
    let keys: Vec<(u64, u32)> = sending.iter().map(|flow| (flow.coflow, flow.flow)).collect();
    check_sorted("sending flows", &keys)?;
    if sending.iter().any(|flow| flow.retransmitted > flow.segments) {
        let expected = "at most the number of packets of the flow";
        return Err(MessageError::Invalid { field: "number of retransmitted packets", expected });
    }
    Ok(sending)
}

impl From<&MatchingOrder> for wire::MatchingOrder {
    fn from(order: &MatchingOrder) -> wire::MatchingOrder {
        let MatchingOrder { flows, coflows, answers, .. } = order;
        wire::MatchingOrder {
            max_connections: order.max_connections,
            alpha: order.alpha,
            beta: order.beta,
            eta: order.eta,
            flow_coflows: flows.iter().map(|flow| flow.coflow).collect(),
            flow_indices: flows.iter().map(|flow| flow.flow).collect(),
            remaining_bytes: flows.iter().map(|flow| flow.remaining_bytes).collect(),
            versions: flows.iter().map(|flow| flow.version).collect(),
            coflows: coflows.iter().map(|(coflow, _)| *coflow).collect(),
            coflow_bytes: coflows.iter().map(|(_, bytes)| *bytes).collect(),
            answered_coflows: answers.iter().map(|answer| answer.coflow).collect(),
            answer_numbers: answers.iter().map(|answer| answer.number).collect(),
            candidate_counts: answers.iter().map(|answer| answer.candidates.len() as u32).collect(),
            candidates: answers.iter().flat_map(|answer| &answer.candidates).copied().collect(),
        }
    }
}

impl TryFrom<wire::MatchingOrder> for MatchingOrder {
    type Error = MessageError;

    fn try_from(order: wire::MatchingOrder) -> Result<MatchingOrder, MessageError> {
        let is_fraction = |value: &f64| (0.0..=1.0).contains(value);
        if order.max_connections == 0 || ![order.alpha, order.beta, order.eta].iter().all(is_fraction) {
            let expected = "at least 1 connection, and fractions from 0 to 1";
            return Err(MessageError::Invalid { field: "parameter of matching", expected });
        }
        let flow_count = order.flow_coflows.len();
        check_max_length("flows to match", flow_count, MAX_FLOWS_PER_HOST)?;
        check_equal_lengths("flows to match", order.flow_indices.len(), flow_count)?;
        check_equal_lengths("remaining bytes", order.remaining_bytes.len(), flow_count)?;
        check_equal_lengths("versions", order.versions.len(), flow_count)?;
        let keys = order.flow_coflows.into_iter().zip(order.flow_indices);
        let columns = keys.zip(order.remaining_bytes).zip(order.versions);
        let to_flow = |(((coflow, flow), remaining_bytes), version)| MatchedFlow {
            coflow,
            flow,
            remaining_bytes,
            version,
        };
        let flows: Vec<MatchedFlow> = columns.map(to_flow).collect();
        check_versions(flows.iter().map(|flow| flow.version))?;
        let keys: Vec<(u64, u32)> = flows.iter().map(|flow| (flow.coflow, flow.flow)).collect();
        check_sorted("flows to match", &keys)?;
        check_max_length("coflows to match", order.coflows.len(), MAX_FLOWS_PER_HOST)?;
        check_equal_lengths("bytes of coflows", order.coflow_bytes.len(), order.coflows.len())?;
        check_sorted("coflows to match", &order.coflows)?;
        let coflows = order.coflows.into_iter().zip(order.coflow_bytes).collect();
        Ok(MatchingOrder {
            max_connections: order.max_connections,
            alpha: order.alpha,
            beta: order.beta,
            eta: order.eta,
            flows,
            coflows,
            answers: decode_answers(
                order.answered_coflows,
                order.answer_numbers,
                &order.candidate_counts,
                order.candidates,
            )?,
        })
    }
}

fn decode_answers(
    coflows: Vec<u64>,
    numbers: Vec<u32>,
    counts: &[u32],
    candidates: Vec<u32>,
) -> Result<Vec<Answer>, MessageError> {
    check_max_length("answers", coflows.len(), MAX_REPORTED_FLOWS)?;
    check_equal_lengths("numbers of answers", numbers.len(), coflows.len())?;
    check_equal_lengths("counts of candidates", counts.len(), coflows.len())?;
    check_max_length("candidates", candidates.len(), MAX_FLOWS_PER_HOST)?;
    check_equal_lengths("candidates", candidates.len(), sum(counts))?;
    check_sorted("answers", &coflows)?;
    let mut candidates = candidates.into_iter();
    let to_answer = |((coflow, number), &count): ((u64, u32), &u32)| Answer {
        coflow,
        number,
        candidates: candidates.by_ref().take(count as usize).collect(),
    };
    Ok(coflows.into_iter().zip(numbers).zip(counts).map(to_answer).collect())
}

/// The highest version of a connection. No connection opens and closes that often.
const MAX_VERSION: u32 = u32::MAX / 2;

const VERSION_ERROR: MessageError = MessageError::Invalid {
    field: "version of a connection",
    expected: "a number above 0, and below 2147483648",
};

fn check_versions(mut versions: impl Iterator<Item = u32>) -> Result<(), MessageError> {
    if versions.all(|version| version <= MAX_VERSION) { Ok(()) } else { Err(VERSION_ERROR) }
}

fn check_sorted<T: PartialOrd>(list: &'static str, keys: &[T]) -> Result<(), MessageError> {
    if keys.windows(2).all(|pair| pair[0] < pair[1]) { Ok(()) } else { Err(MessageError::Unsorted(list)) }
}
