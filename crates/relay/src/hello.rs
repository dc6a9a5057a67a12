//! The first line of a connection between relays.
//!
//! `weir-relay MIN MAX FROM TO LANE SESSION`: the versions that the relay speaks, the numbers of both relays, `bulk`, `express` or
//! `additional`, and the attempt that all connections belong to.
//!
//! Both ends use the highest version that both speak. Version 2 has `additional` connections.

use crate::message::RelayId;

/// The highest version of the protocol between relays that this relay speaks.
pub const VERSION: u32 = 2;

/// The lowest version that this relay speaks.
pub const MIN_VERSION: u32 = 1;

/// The first version with [`Role::Additional`].
pub const ADDITIONAL_VERSION: u32 = 2;

/// The first word of the first line.
const WORD: &str = "weir-relay";

/// The maximum length of the first line.
pub const MAX_LINE_BYTES: usize = 128;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// For data in both directions. A link has one such connection.
    Bulk,
    /// For control, and for short messages of a higher priority, in both directions. A link has one such connection.
    Express,
    /// For data of the relay that dials it, next to [`Role::Bulk`].
    Additional,
}

const ROLES: [(Role, &str); 3] =
    [(Role::Bulk, "bulk"), (Role::Express, "express"), (Role::Additional, "additional")];

/// The first line of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The relay that sends the line.
    pub from: RelayId,
    /// The relay that receives it.
    pub to: RelayId,
    /// What the connection is for.
    pub role: Role,
    /// The number of the attempt.
    pub session: u64,
    /// The highest version that both relays speak; [`VERSION`] in a line of this relay.
    pub version: u32,
}

/// Why a connection of a relay cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The line has other words.
    #[error("the first line is malformed; expected `{WORD} MIN MAX FROM TO LANE SESSION`")]
    Malformed,
    /// The relays have no common version.
    #[error(
        "the other relay speaks versions {min} to {max}; expected {MIN_VERSION} to {VERSION}; help: relays may differ by one version at most"
    )]
    Version {
        /// The lowest version of the other relay.
        min: u32,
        /// The highest version of the other relay.
        max: u32,
    },
}

impl Hello {
    /// The line with its end.
    pub fn encode(&self) -> String {
        let role = ROLES.iter().find(|(role, _)| *role == self.role).map_or("", |(_, word)| word);
        format!("{WORD} {MIN_VERSION} {VERSION} {} {} {role} {}\n", self.from.0, self.to.0, self.session)
    }

    /// Parses a line without its end.
    ///
    /// # Errors
    /// The line is malformed, or no version is common.
    pub fn parse(line: &[u8]) -> Result<Hello, HelloError> {
        let (versions, hello) = Hello::parse_words(line).ok_or(HelloError::Malformed)?;
        let (min, max) = versions;
        let version = max.min(VERSION);
        if version < min.max(MIN_VERSION) {
            return Err(HelloError::Version { min, max });
        }
        if hello.role == Role::Additional && version < ADDITIONAL_VERSION {
            return Err(HelloError::Malformed);
        }
        Ok(Hello { version, ..hello })
    }

    fn parse_words(line: &[u8]) -> Option<((u32, u32), Hello)> {
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let mut next = || words.next();
        if next()? != WORD {
            return None;
        }
        let versions = (next()?.parse().ok()?, next()?.parse().ok()?);
        let (from, to) = (RelayId(next()?.parse().ok()?), RelayId(next()?.parse().ok()?));
        let word = next()?;
        let (role, _) = *ROLES.iter().find(|(_, known)| *known == word)?;
        let session = next()?.parse().ok()?;
        next().is_none().then_some((versions, Hello { from, to, role, session, version: VERSION }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_are_parsed_and_bounded() {
        for role in [Role::Bulk, Role::Express, Role::Additional] {
            let hello =
                Hello { from: RelayId(1), to: RelayId(65535), role, session: u64::MAX, version: VERSION };
            let line = hello.encode();
            assert!(line.len() <= MAX_LINE_BYTES);
            assert_eq!(Hello::parse(line.trim_end().as_bytes()), Ok(hello));
        }
        for line in [
            "",
            "weir-relay 1 1 1 2 slow 7",
            "weir-relay 1 1 1 2 bulk 7 8",
            "weir-relay 1 1 1 65536 bulk 7",
            "weir-relay 1 1 1 2 bulk",
            "weir-relay 1 1 1 2 additional 7",
        ] {
            let error = Hello::parse(line.as_bytes()).unwrap_err().to_string();
            let expected = "the first line is malformed; expected `weir-relay MIN MAX FROM TO LANE SESSION`";
            assert_eq!(error, expected, "{line}");
        }
    }

    #[test]
    fn relays_use_the_highest_common_version() {
        let version = |line: &str| Hello::parse(line.as_bytes()).map(|hello| hello.version);
        assert_eq!(version("weir-relay 1 1 1 2 bulk 7"), Ok(1));
        assert_eq!(version("weir-relay 1 2 1 2 bulk 7"), Ok(2));
        assert_eq!(version("weir-relay 2 3 1 2 additional 7"), Ok(2));
    }

    #[test]
    fn first_lines_of_other_versions_name_the_versions() {
        let error = Hello::parse(b"weir-relay 3 4 1 2 bulk 7").unwrap_err().to_string();
        let expected = "the other relay speaks versions 3 to 4; expected 1 to 2; help: relays may differ by one version at most";
        assert_eq!(error, expected);
        for (min, max) in [(2, 1), (0, 0)] {
            let line = format!("weir-relay {min} {max} 1 2 bulk 7");
            assert_eq!(Hello::parse(line.as_bytes()), Err(HelloError::Version { min, max }));
        }
    }
}
