//! Defines the numbers that identify the agent's objects.

/// The handle of the root queue: "we" in ASCII.
pub const ROOT_HANDLE: u16 = 0x7765;

/// The class of the whole link.
pub const LINK_CLASS: u16 = 1;

/// The class of the first queue; those of further queues follow.
pub const FIRST_QUEUE_CLASS: u16 = 0x100;

/// The class of the streams between agents and the coordinator.
pub const CONTROL_CLASS: u16 = 0x1fe;

/// The class of packets that match no filter.
pub const DEFAULT_CLASS: u16 = 0x1ff;

/// The priority of packets of the first class of applications; those of further classes follow. HTB has no class of this number, so the
/// filters by mark select the queue, as at every other port.
pub const FIRST_MARK_PRIORITY: u16 = 0x400;

/// The class of the first limited flow; those of further limited flows follow.
pub const FIRST_LIMITED_CLASS: u16 = 0x1000;

/// The maximum number of limited flows of an interface.
pub const MAX_LIMITED_FLOWS: u16 = 1000;

/// The preference of filters for the streams to the coordinator, IPv4.
pub const IPV4_CONTROL_FILTER_PREF: u16 = 30561;

/// The preference of filters for the streams to the coordinator, IPv6.
pub const IPV6_CONTROL_FILTER_PREF: u16 = 30562;

/// The preference of filters for limited flows, IPv4. They match before filters by mark.
pub const IPV4_FLOW_FILTER_PREF: u16 = 30563;

/// The preference of filters for limited flows, IPv6.
pub const IPV6_FLOW_FILTER_PREF: u16 = 30564;

/// The preference of filters by mark, IPv4.
pub const IPV4_MARK_FILTER_PREF: u16 = 30565;

/// The preference of filters by mark, IPv6.
pub const IPV6_MARK_FILTER_PREF: u16 = 30566;

/// Whether a class below the agent's root is one of the agent's.
pub const fn is_agent_class(minor: u16) -> bool {
    minor == LINK_CLASS
        || (minor >= FIRST_QUEUE_CLASS && minor <= DEFAULT_CLASS)
        || is_limited_flow_class(minor)
}

const fn is_limited_flow_class(minor: u16) -> bool {
    minor >= FIRST_LIMITED_CLASS && minor < FIRST_LIMITED_CLASS + MAX_LIMITED_FLOWS
}

/// Whether filters of this preference below the agent's root are the agent's.
pub const fn is_agent_filter_pref(pref: u16) -> bool {
    matches!(
        pref,
        IPV4_CONTROL_FILTER_PREF
            | IPV6_CONTROL_FILTER_PREF
            | IPV4_FLOW_FILTER_PREF
            | IPV6_FLOW_FILTER_PREF
            | IPV4_MARK_FILTER_PREF
            | IPV6_MARK_FILTER_PREF
    )
}

/// The handle of the queue of a class. It is below 0x8000: the kernel chooses handles from there on.
pub const fn leaf_handle(minor: u16) -> u16 {
    if is_limited_flow_class(minor) {
        0x6000 + (minor - FIRST_LIMITED_CLASS)
    } else {
        0x7800 + (minor - FIRST_QUEUE_CLASS)
    }
}
