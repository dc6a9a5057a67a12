//! Tokens of connections in the events of epoll.

/// What an event of epoll is about. The last bits of a token; the others are a serial number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Wake,
    Programs,
    Relays,
    Sender,
    Receiver,
    Unidentified,
    Lane,
}

/// The kinds by the last bits of a token.
pub(super) const KINDS: [Kind; 7] =
    [Kind::Wake, Kind::Programs, Kind::Relays, Kind::Sender, Kind::Receiver, Kind::Unidentified, Kind::Lane];

/// The token of a connection, unique while the relay runs.
pub(super) type Token = u64;
