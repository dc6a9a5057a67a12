//! Links in explanations.

/// A link that limits a coflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// The sending side of a port.
    Sender(u32),
    /// The receiving side of a port.
    Receiver(u32),
    /// A link between switches or regions, by number.
    Trunk(u32),
}

impl Link {
    /// `send`, `receive` or `trunk`.
    pub const fn kind(self) -> &'static str {
        match self {
            Link::Sender(_) => "send",
            Link::Receiver(_) => "receive",
            Link::Trunk(_) => "trunk",
        }
    }

    /// The port, if the link is a side of one.
    pub const fn port(self) -> Option<u32> {
        match self {
            Link::Sender(port) | Link::Receiver(port) => Some(port),
            Link::Trunk(_) => None,
        }
    }

    /// The number of the trunk, if the link is one.
    pub const fn trunk(self) -> Option<u32> {
        match self {
            Link::Sender(_) | Link::Receiver(_) => None,
            Link::Trunk(trunk) => Some(trunk),
        }
    }
}
