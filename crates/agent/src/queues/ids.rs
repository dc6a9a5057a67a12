//! Defines the numbers that identify the agent's objects.

/// The handle of the root queue: "we" in ASCII.
pub const ROOT: u16 = 0x7765;

/// The class of the whole link.
pub const WHOLE: u16 = 1;

/// The class of the first queue; those of further queues follow.
pub const QUEUES: u16 = 0x100;

/// The class of packets that match no filter.
pub const REST: u16 = 0x1ff;

/// The priority of packets of the first class of applications; those of further classes follow. HTB has no class of this number, so the
/// filters by mark select the queue, as at every other port.
pub const MARKS: u16 = 0x400;

/// The class of the first limited flow; those of further limited flows follow.
pub const LIMITED: u16 = 0x1000;

/// The maximum number of limited flows of an interface.
pub const MAX_LIMITED: u16 = 1000;

/// The preference of filters for limited flows, which match before filters by mark.
pub const BY_FLOW: u16 = 30563;

/// The preference of filters by mark, IPv4.
pub const BY_MARK: u16 = 30565;

/// The preference of filters by mark, IPv6.
pub const BY_MARK6: u16 = 30566;

/// Whether a class below the agent's root is one of the agent's.
pub const fn is_class(minor: u16) -> bool {
    minor == WHOLE || (minor >= QUEUES && minor <= REST) || is_limited(minor)
}

const fn is_limited(minor: u16) -> bool {
    minor >= LIMITED && minor < LIMITED + MAX_LIMITED
}

/// Whether filters of this preference below the agent's root are the agent's.
pub const fn is_filter(pref: u16) -> bool {
    matches!(pref, BY_FLOW | BY_MARK | BY_MARK6)
}

/// The handle of the queue of a class. It is below 0x8000: the kernel chooses handles from there on.
pub const fn leaf(minor: u16) -> u16 {
    if is_limited(minor) { 0x6000 + (minor - LIMITED) } else { 0x7800 + (minor - QUEUES) }
}
