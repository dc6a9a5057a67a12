//! The names and numbers of interfaces.

use std::fmt;
use std::str::FromStr;

use nix::net::if_::{if_indextoname, if_nametoindex};

/// The name of an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interface(pub(super) String);

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Interface, String> {
        // The kernel accepts more, but the name is one word on the command lines of `ip` and `tc`.
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        let has_allowed_start = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if has_allowed_start && text.len() < 16 && text.chars().all(is_allowed) {
            return Ok(Interface(text.to_owned()));
        }
        Err(format!(
            "interface name `{text}` is invalid; expected 1 to 15 letters, digits, `_`, `-`, `.` or `@`, beginning with a letter, a digit or `_`"
        ))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Interface {
    /// The number of the interface with this name; none if no interface has the name.
    pub fn index(&self) -> Option<u32> {
        if_nametoindex(self.0.as_str()).ok()
    }

    /// The present name of the interface with a number; none if it does not exist, or `tc` does not accept its name.
    pub fn from_index(index: u32) -> Option<Interface> {
        if_indextoname(index).ok()?.to_str().ok()?.parse().ok()
    }
}
