//! Files of error cases below `tests/errors`: an input and the complete message of its error, on one line or two.
//!
//! `FROM -> TO` replaces the first `FROM` of a valid document; `FROM ->` removes it. Any other input is inserted at the document's `@`, or
//! appended if the input begins with `[` or the document has no `@`. `\n` ends a line. `WEIR_WRITE_DOCS=1` writes the messages.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The maximum length of a line with input and message. A longer message is on the next line.
const MAX_LINE: usize = 140;

/// Reads each input of `tests/errors/NAME.txt` and compares the complete message.
#[track_caller]
pub fn check_error_cases<T>(name: &str, valid: &str, read: impl Fn(&str) -> Result<T, String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/errors/{name}.txt"));
    let stored = fs::read_to_string(&path).unwrap();
    let (mut written, mut mismatches) = (String::new(), String::new());
    let mut lines = stored.lines().peekable();
    while let Some(line) = lines.next() {
        let (input, message) = line.split_once(" => ").unwrap_or((line, ""));
        let message = lines.next_if(|next| next.starts_with("=> ")).map_or(message, |next| &next[3..]);
        let found = read(&apply_input(valid, input)).err().unwrap_or_default();
        if found.is_empty() || found != message {
            writeln!(mismatches, "{input}\n  expected: {message}\n  found:    {found}").unwrap();
        }
        let separator = if input.len() + found.len() + 4 <= MAX_LINE { ' ' } else { '\n' };
        writeln!(written, "{input}{separator}=> {found}").unwrap();
    }
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        return fs::write(&path, &written).unwrap();
    }
    assert!(mismatches.is_empty() && !stored.is_empty(), "{}:\n{mismatches}", path.display());
}

fn apply_input(valid: &str, input: &str) -> String {
    let input = input.replace("\\n", "\n");
    if let Some((from, to)) = input.split_once(" ->") {
        let to = to.strip_prefix(' ').unwrap_or(to);
        assert!(valid.contains(from), "`{from}` is not in the document");
        return valid.replacen(from, to, 1).replace('@', "");
    }
    match valid.split_once('@') {
        Some((head, tail)) if !input.starts_with('[') => format!("{head}{input}{tail}"),
        _ => format!("{}{input}\n", valid.replace('@', "")),
    }
}
