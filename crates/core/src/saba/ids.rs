//! Numbers of ports, applications and connections.

/// The sending end of a directed link, by its position in the list of all ports.
pub type Port = u32;

/// Number of an application, chosen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(pub u64);

/// Number of a connection, chosen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);
