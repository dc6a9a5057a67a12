//! First lines, and the lines to the sender.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The maximum length of a line with its line end, in bytes.
pub const MAX_LINE_BYTES: usize = 256;

/// The maximum length of a coflow's name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// The highest position in a stream.
pub const MAX_OFFSET: u64 = 1 << 62;

/// The first word of a first line.
const PROTOCOL_WORD: &str = "weir-flow/2";

/// Why a line is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line has no end within [`MAX_LINE_BYTES`].
    #[error("line is too long; expected at most {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// The coflow's name is invalid.
    #[error(
        "coflow name is invalid; expected 1 to {MAX_NAME_BYTES} printable ASCII characters without spaces"
    )]
    Name,
    /// The line is no first line.
    #[error("first line is malformed; expected `{PROTOCOL_WORD} COFLOW FLOW GENERATION OFFSET RECEIVER`")]
    FirstLine,
    /// The line is no line to the sender.
    #[error("line is malformed; expected `ack OFFSET` or `reset REASON`")]
    BackLine,
}

/// The name of a coflow: 1 to [`MAX_NAME_BYTES`] printable ASCII characters without spaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoflowName(Box<str>);

impl CoflowName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CoflowName {
    type Err = LineError;

    fn from_str(text: &str) -> Result<CoflowName, LineError> {
        let is_valid =
            (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_valid { Ok(CoflowName(text.into())) } else { Err(LineError::Name) }
    }
}

impl fmt::Display for CoflowName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A position in a stream, at most [`MAX_OFFSET`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(u64);

impl Offset {
    /// The position `bytes` after the start of the stream; none beyond [`MAX_OFFSET`].
    pub fn new(bytes: u64) -> Option<Offset> {
        (bytes <= MAX_OFFSET).then_some(Offset(bytes))
    }

    /// The number of bytes before this position.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The first line of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstLine {
    /// The name of the coflow.
    pub coflow: CoflowName,
    /// The number of the flow in its coflow.
    pub flow: u32,
    /// The number of earlier connections of the flow.
    pub generation: u16,
    /// The position of the first byte after this line.
    pub offset: Offset,
    /// The address of the receiver.
    pub receiver: SocketAddr,
}

impl FirstLine {
    /// Parses a line without its line end.
    ///
    /// # Errors
    /// If the line is malformed.
    pub fn parse(line: &[u8]) -> Result<FirstLine, LineError> {
        let text = std::str::from_utf8(line).ok().filter(|text| text.len() < MAX_LINE_BYTES);
        text.and_then(Self::parse_text).ok_or(LineError::FirstLine)
    }

    fn parse_text(text: &str) -> Option<FirstLine> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        if next()? != PROTOCOL_WORD {
            return None;
        }
        let line = FirstLine {
            coflow: next()?.parse().ok()?,
            flow: parse_number(next()?)?.try_into().ok()?,
            generation: parse_number(next()?)?.try_into().ok()?,
            offset: Offset::new(parse_number(next()?)?)?,
            receiver: parse_address(next()?)?,
        };
        words.next().is_none().then_some(line)
    }

    /// The line with its line end, at most [`MAX_LINE_BYTES`] bytes.
    pub fn encode(&self) -> String {
        let FirstLine { coflow, flow, generation, offset, receiver } = self;
        format!("{PROTOCOL_WORD} {coflow} {flow} {generation} {} {receiver}\n", offset.get())
    }
}

/// Parses a decimal number without sign or leading zeros.
fn parse_number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

/// Parses an address and port. The standard library also accepts ports with leading zeros.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (_, port) = text.rsplit_once(':')?;
    parse_number(port)?;
    text.parse().ok()
}

/// Why a connection was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The relay does not know the coflow yet.
    UnknownCoflow,
    /// The relay has no memory for the flow.
    Busy,
    /// The relay cannot reach the receiver.
    Unreachable,
    /// A relay or a path failed.
    Lost,
    /// A checksum is wrong.
    Corrupt,
    /// The offset is beyond the receiver's position.
    Gap,
    /// The receiver has a later generation.
    Replaced,
    /// The first line or a header is malformed.
    Invalid,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 8] = [
        Reason::UnknownCoflow,
        Reason::Busy,
        Reason::Unreachable,
        Reason::Lost,
        Reason::Corrupt,
        Reason::Gap,
        Reason::Replaced,
        Reason::Invalid,
    ];

    /// The word of a `reset` line.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::UnknownCoflow => "unknown-coflow",
            Reason::Busy => "busy",
            Reason::Unreachable => "unreachable",
            Reason::Lost => "lost",
            Reason::Corrupt => "corrupt",
            Reason::Gap => "gap",
            Reason::Replaced => "replaced",
            Reason::Invalid => "invalid",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A line to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackLine {
    /// Chunks that end at or before this position have arrived, and were read by the program.
    Ack(Offset),
    /// This connection ends.
    Reset(Reason),
}

impl BackLine {
    /// Parses a line without its line end.
    ///
    /// # Errors
    /// If the line is malformed.
    pub fn parse(line: &[u8]) -> Result<BackLine, LineError> {
        let text = std::str::from_utf8(line).map_err(|_| LineError::BackLine)?;
        let parsed = match text.split_once(' ') {
            Some(("ack", offset)) => parse_number(offset).and_then(Offset::new).map(BackLine::Ack),
            Some(("reset", word)) => {
                Reason::ALL.into_iter().find(|reason| reason.as_str() == word).map(BackLine::Reset)
            }
            _ => None,
        };
        parsed.ok_or(LineError::BackLine)
    }

    /// The line with its line end.
    pub fn encode(&self) -> String {
        match self {
            BackLine::Ack(offset) => format!("ack {}\n", offset.get()),
            BackLine::Reset(reason) => format!("reset {reason}\n"),
        }
    }
}

/// Cuts bytes into lines of at most [`MAX_LINE_BYTES`].
#[derive(Debug, Default)]
pub struct LineReader {
    partial: Vec<u8>,
}

impl LineReader {
    /// Takes bytes off `input` up to the end of a line, and returns the line without its line end; none if the line is incomplete.
    ///
    /// # Errors
    /// If the line is too long.
    pub fn read_line(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, LineError> {
        let end = input.iter().position(|&byte| byte == b'\n');
        let (part, rest) = input.split_at(end.unwrap_or(input.len()));
        if self.partial.len() + part.len() >= MAX_LINE_BYTES {
            return Err(LineError::TooLong);
        }
        self.partial.extend_from_slice(part);
        *input = rest.get(1..).unwrap_or_default();
        Ok(end.map(|_| std::mem::take(&mut self.partial)))
    }
}
