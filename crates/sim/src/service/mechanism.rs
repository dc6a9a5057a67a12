//! NetShare's mechanisms by name.

use std::fmt;
use std::str::FromStr;

/// The mechanism by which services share a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// One queue at every link, and no limits: plain TCP and UDP.
    None,
    /// Group allocation (3.1): a queue for each service.
    Queues,
    /// Rate throttling (3.2) alone: Algorithm 1 for unresponsive connections, one queue.
    Throttling,
    /// Group allocation and rate throttling.
    QueuesThrottling,
    /// Central allocation (3.3) alone: limits for all connections, one queue.
    Central,
    /// Group allocation and central allocation.
    QueuesCentral,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Mechanism; 6] = [
        Mechanism::None,
        Mechanism::Queues,
        Mechanism::Throttling,
        Mechanism::QueuesThrottling,
        Mechanism::Central,
        Mechanism::QueuesCentral,
    ];

    /// The mechanism's name.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::None => "none",
            Mechanism::Queues => "queues",
            Mechanism::Throttling => "throttling",
            Mechanism::QueuesThrottling => "queues+throttling",
            Mechanism::Central => "central",
            Mechanism::QueuesCentral => "queues+central",
        }
    }

    /// Whether every service has queues.
    pub const fn has_service_queues(self) -> bool {
        matches!(self, Mechanism::Queues | Mechanism::QueuesThrottling | Mechanism::QueuesCentral)
    }

    /// Whether hosts limit unresponsive connections by Algorithm 1.
    pub const fn has_throttling(self) -> bool {
        matches!(self, Mechanism::Throttling | Mechanism::QueuesThrottling)
    }

    /// Whether an allocator limits all connections.
    pub const fn has_allocator(self) -> bool {
        matches!(self, Mechanism::Central | Mechanism::QueuesCentral)
    }

    /// Whether hosts limit any connections.
    pub const fn has_limits(self) -> bool {
        self.has_throttling() || self.has_allocator()
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(text: &str) -> Result<Mechanism, String> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == text).ok_or_else(|| {
            let names = Mechanism::ALL.map(Mechanism::name).join(", ");
            format!("unknown mechanism `{text}`; expected one of {names}")
        })
    }
}
