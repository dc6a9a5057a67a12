//! Defines conflicts: interfaces that differ from an agent's orders, each with a reason such as a missing interface.

use std::fmt;

use crate::{MessageError, wire};

/// The maximum length of an interface's name, in bytes.
const MAX_NAME_BYTES: usize = 15;

/// In place of an interface: a conflict of all interfaces.
pub const ALL_INTERFACES: &str = "-";

/// The maximum length of a detail, in bytes.
const MAX_DETAIL_BYTES: usize = 200;

/// Why an interface differs from the agent's orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConflictReason {
    /// Another process owns the root queueing discipline.
    ForeignQdisc,
    /// The interface does not exist.
    Missing,
    /// The interface is down, or its cable is unplugged.
    Down,
    /// The interface is slower than the link.
    Slow,
    /// The kernel refused a command.
    Refused,
    /// The agent's options and the coordinator's configuration have different rates of the link. The lower one counts.
    Rate,
    /// The agent does not apply the ordered traffic of an application. Such a conflict belongs to all interfaces ([`ALL_INTERFACES`]).
    Traffic,
    /// Packets of applications have no mark, or do not leave in the queue of their mark.
    Unmarked,
}

impl ConflictReason {
    /// All reasons.
    pub const ALL: [ConflictReason; 8] = [
        ConflictReason::ForeignQdisc,
        ConflictReason::Missing,
        ConflictReason::Down,
        ConflictReason::Slow,
        ConflictReason::Refused,
        ConflictReason::Rate,
        ConflictReason::Traffic,
        ConflictReason::Unmarked,
    ];

    /// The name in the API and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            ConflictReason::ForeignQdisc => "foreign-qdisc",
            ConflictReason::Missing => "missing",
            ConflictReason::Down => "down",
            ConflictReason::Slow => "slow",
            ConflictReason::Refused => "refused",
            ConflictReason::Rate => "rate",
            ConflictReason::Traffic => "traffic",
            ConflictReason::Unmarked => "unmarked",
        }
    }
}

/// An interface that differs from the agent's orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    interface: String,
    reason: ConflictReason,
    detail: String,
}

impl Conflict {
    /// A conflict at an interface, by the name in the agent's options. `detail` is the queueing discipline, the speed or the
    /// kernel's message; control characters become spaces, and the part after 200 bytes is cut.
    pub fn new(interface: &str, reason: ConflictReason, detail: &str) -> Conflict {
        let mut text: String = detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.truncate(text.floor_char_boundary(MAX_DETAIL_BYTES));
        let name = &interface[..interface.floor_char_boundary(MAX_NAME_BYTES)];
        Conflict { interface: name.to_owned(), reason, detail: text }
    }

    /// The interface, by the name in the agent's options.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The reason.
    pub fn reason(&self) -> ConflictReason {
        self.reason
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.interface, self.reason.name())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

impl From<&Conflict> for wire::Conflict {
    fn from(Conflict { interface, reason, detail }: &Conflict) -> wire::Conflict {
        let code = ConflictReason::ALL.iter().position(|known| known == reason).map_or(0, |at| at as u32 + 1);
        wire::Conflict { interface: interface.clone(), reason: code, detail: detail.clone() }
    }
}

impl TryFrom<wire::Conflict> for Conflict {
    type Error = MessageError;

    fn try_from(
        wire::Conflict { interface, reason, detail }: wire::Conflict,
    ) -> Result<Conflict, MessageError> {
        let is_text = |text: &str, max: usize| text.len() <= max && !text.chars().any(char::is_control);
        let known = (reason as usize).checked_sub(1).and_then(|at| ConflictReason::ALL.get(at));
        let is_name = !interface.is_empty() && is_text(&interface, MAX_NAME_BYTES);
        match known {
            Some(&reason) if is_name && is_text(&detail, MAX_DETAIL_BYTES) => {
                Ok(Conflict { interface, reason, detail })
            }
            _ => Err(MessageError::Conflict),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_survive_the_wire_and_invalid_ones_are_refused() {
        for reason in ConflictReason::ALL {
            let long = format!("a\nb{}", "é".repeat(200));
            let conflict = Conflict::new("eth0", reason, &long);
            let wire = wire::Conflict::from(&conflict);
            assert_eq!(Conflict::try_from(wire), Ok(conflict));
        }
        let good = wire::Conflict::from(&Conflict::new("eth0", ConflictReason::Down, ""));
        for bad in [
            wire::Conflict { reason: 0, ..good.clone() },
            wire::Conflict { reason: 9, ..good.clone() },
            wire::Conflict { interface: String::new(), ..good.clone() },
            wire::Conflict { interface: "x".repeat(16), ..good.clone() },
            wire::Conflict { detail: "x".repeat(201), ..good.clone() },
            wire::Conflict { detail: "\n".to_owned(), ..good },
        ] {
            assert_eq!(Conflict::try_from(bad), Err(MessageError::Conflict));
        }
    }

    #[test]
    fn a_conflict_reads_as_interface_reason_and_detail() {
        let text = |detail| Conflict::new("eth0", ConflictReason::ForeignQdisc, detail).to_string();
        assert_eq!(text("fq 8001:"), "eth0: foreign-qdisc (fq 8001:)");
        assert_eq!(text(""), "eth0: foreign-qdisc");
    }
}
