//! The messages that an agent sends to programs (`docs/live.md`).

use std::time::Duration;

use crate::agent_error::UnscheduledReason;
use crate::gate::{Permission, Unscheduled};

/// A message of the agent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AgentMessage<'a> {
    /// The permission of a flow, and the lease of a pause.
    Permission { coflow: &'a str, flow: u32, permission: Permission, lease: Option<Duration> },
    /// All pauses hold for this long from now on.
    Renewal(Duration),
    /// An answer to a request.
    Answer(&'a str),
}

impl AgentMessage<'_> {
    pub(crate) fn parse(text: &str) -> AgentMessage<'_> {
        parse_push(text).unwrap_or(AgentMessage::Answer(text))
    }
}

fn parse_lease(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// Parses a message that is not an answer.
fn parse_push(text: &str) -> Option<AgentMessage<'_>> {
    let (command, rest) = text.split_once(' ')?;
    if command == "renew" {
        return parse_lease(rest).map(AgentMessage::Renewal);
    }
    let mut words = rest.splitn(3, ' ');
    let (coflow, flow, value) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let (permission, lease) = match command {
        "pause" => (Permission::Paused, Some(parse_lease(value)?)),
        "go" => (parse_permission(value)?, None),
        _ => return None,
    };
    Some(AgentMessage::Permission { coflow, flow, permission, lease })
}

fn parse_permission(value: &str) -> Option<Permission> {
    match value.split_once(' ') {
        None if value == "free" => Some(Permission::Free(None)),
        Some(("free", text)) => Some(Permission::Free(Some(parse_unscheduled(text)))),
        _ => value.parse().ok().map(Permission::Rate),
    }
}

/// Parses the code of a reason and its message. An unknown code belongs to the message.
fn parse_unscheduled(text: &str) -> Unscheduled {
    let known = text.split_once(": ").and_then(|(code, message)| {
        Some(Unscheduled { reason: UnscheduledReason::parse(code)?, message: message.to_owned() })
    });
    known.unwrap_or_else(|| Unscheduled::other(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_permissions_renewals_or_answers() {
        let permission =
            |permission, lease| AgentMessage::Permission { coflow: "c", flow: 7, permission, lease };
        let free = |reason: Option<Unscheduled>| permission(Permission::Free(reason), None);
        let unknown = Unscheduled {
            reason: UnscheduledReason::UnknownCoflow,
            message: "no coflow; help: register".to_owned(),
        };
        let lease = Duration::from_millis(80);
        assert_eq!(AgentMessage::parse("pause c 7 80"), permission(Permission::Paused, Some(lease)));
        assert_eq!(AgentMessage::parse("go c 7 1250"), permission(Permission::Rate(1250), None));
        assert_eq!(AgentMessage::parse("go c 7 free"), free(None));
        assert_eq!(
            AgentMessage::parse("go c 7 free unknown-coflow: no coflow; help: register"),
            free(Some(unknown))
        );
        for other in ["no order", "new-code: no order", "unknown-flow"] {
            let message = format!("go c 7 free {other}");
            assert_eq!(AgentMessage::parse(&message), free(Some(Unscheduled::other(other))));
        }
        assert_eq!(AgentMessage::parse("renew 80"), AgentMessage::Renewal(lease));
        for answer in [
            "ok",
            "no: renew 80",
            "",
            "renew",
            "renew x",
            "go c 7",
            "go c 7 -1",
            "go c x free",
            "pause c 7 1 2",
        ] {
            assert_eq!(AgentMessage::parse(answer), AgentMessage::Answer(answer));
        }
    }
}
