//! Numbers by which our own objects are known.

/// The handle of the root queue: "we" in ASCII.
pub const ROOT: u16 = 0x7765;

/// The class of the whole link.
pub const WHOLE: u16 = 1;

/// The class of the first queue; the others follow.
pub const QUEUES: u16 = 0x100;

/// The class of packets that no filter knows.
pub const REST: u16 = 0x1ff;

/// What packets of the first class of applications have as their priority; those of the others follow. There is no class of HTB of this
/// number, so filters by mark find their queue, here as at every other port.
pub const MARKS: u16 = 0x400;

/// The class of the first limited flow; the others follow.
pub const LIMITED: u16 = 0x1000;

/// The most limited flows of an interface.
pub const MAX_LIMITED: u16 = 1000;

/// The preference of filters of limited flows: before those of marks.
pub const BY_FLOW: u16 = 30563;

/// The preference of filters by mark, IPv4.
pub const BY_MARK: u16 = 30565;

/// The preference of filters by mark, IPv6.
pub const BY_MARK6: u16 = 30566;

/// Whether a class below our root is ours.
pub const fn is_class(minor: u16) -> bool {
    minor == WHOLE || (minor >= QUEUES && minor <= REST) || is_limited(minor)
}

const fn is_limited(minor: u16) -> bool {
    minor >= LIMITED && minor < LIMITED + MAX_LIMITED
}

/// Whether filters of this preference below our root are ours.
pub const fn is_filter(pref: u16) -> bool {
    matches!(pref, BY_FLOW | BY_MARK | BY_MARK6)
}

/// The handle of the queue inside a class of ours; below 0x8000, from where on the kernel chooses.
pub const fn leaf(minor: u16) -> u16 {
    if is_limited(minor) { 0x6000 + (minor - LIMITED) } else { 0x7800 + (minor - QUEUES) }
}
