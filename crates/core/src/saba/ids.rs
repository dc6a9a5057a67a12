//! Numbers of ports, applications and connections.

/// A directed link's sending end, by its position in the list of all.
pub type Port = u32;

/// The driver's number of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(pub u64);

/// The driver's number of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);
