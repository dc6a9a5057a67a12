//! The first line of a connection between relays.
//!
//! `weir-relay MIN MAX FROM TO LANE SESSION`: the versions that the relay speaks, the numbers of both relays, `bulk` or `express`, and the
//! attempt that both connections belong to.

use crate::forwarding::RelayId;
use crate::relay::Lane;

/// The version of the protocol between relays.
pub const VERSION: u32 = 1;

/// The first word of the first line.
const WORD: &str = "weir-relay";

/// The maximum length of the first line.
pub const MAX_LINE_BYTES: usize = 128;

/// The first line of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The relay that sends the line.
    pub from: RelayId,
    /// The relay that receives it.
    pub to: RelayId,
    /// The kind of the connection.
    pub lane: Lane,
    /// The number of the attempt.
    pub session: u64,
}

/// Why a connection of a relay cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The line has other words.
    #[error("the first line is malformed; expected `{WORD} MIN MAX FROM TO LANE SESSION`")]
    Malformed,
    /// The relays have no common version.
    #[error(
        "the other relay speaks versions {min} to {max}; expected {VERSION}; help: relays may differ by one version at most"
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
        let lane = if self.lane == Lane::Bulk { "bulk" } else { "express" };
        format!("{WORD} {VERSION} {VERSION} {} {} {lane} {}\n", self.from.0, self.to.0, self.session)
    }

    /// Parses a line without its end.
    ///
    /// # Errors
    /// The line is malformed, or no version is common.
    pub fn parse(line: &[u8]) -> Result<Hello, HelloError> {
        let (versions, hello) = Hello::parse_words(line).ok_or(HelloError::Malformed)?;
        let (min, max) = versions;
        if (min..=max).contains(&VERSION) { Ok(hello) } else { Err(HelloError::Version { min, max }) }
    }

    fn parse_words(line: &[u8]) -> Option<((u32, u32), Hello)> {
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let mut next = || words.next();
        if next()? != WORD {
            return None;
        }
        let versions = (next()?.parse().ok()?, next()?.parse().ok()?);
        let (from, to) = (RelayId(next()?.parse().ok()?), RelayId(next()?.parse().ok()?));
        let lane = match next()? {
            "bulk" => Lane::Bulk,
            "express" => Lane::Express,
            _ => return None,
        };
        let session = next()?.parse().ok()?;
        next().is_none().then_some((versions, Hello { from, to, lane, session }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_are_parsed_and_bounded() {
        let hello = Hello { from: RelayId(1), to: RelayId(65535), lane: Lane::Express, session: u64::MAX };
        let line = hello.encode();
        assert!(line.len() <= MAX_LINE_BYTES);
        assert_eq!(Hello::parse(line.trim_end().as_bytes()), Ok(hello));
        assert!(Hello::parse(b"weir-relay 1 2 1 2 bulk 7").is_ok());
        for line in [
            "",
            "weir-relay 1 1 1 2 slow 7",
            "weir-relay 1 1 1 2 bulk 7 8",
            "weir-relay 1 1 1 65536 bulk 7",
            "weir-relay 1 1 1 2 bulk",
        ] {
            let error = Hello::parse(line.as_bytes()).unwrap_err().to_string();
            let expected = "the first line is malformed; expected `weir-relay MIN MAX FROM TO LANE SESSION`";
            assert_eq!(error, expected, "{line}");
        }
    }

    #[test]
    fn first_lines_of_other_versions_name_the_versions() {
        let error = Hello::parse(b"weir-relay 2 3 1 2 bulk 7").unwrap_err().to_string();
        let expected = "the other relay speaks versions 2 to 3; expected 1; help: relays may differ by one version at most";
        assert_eq!(error, expected);
        assert_eq!(Hello::parse(b"weir-relay 2 1 1 2 bulk 7"), Err(HelloError::Version { min: 2, max: 1 }));
    }
}
