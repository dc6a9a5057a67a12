//! Tables of errors: an edit of a valid text, and a part of the expected error.

/// For each edit, replaces the first `from` by `to` and checks that the error contains the expected text.
pub fn check_edits(valid_text: &str, edits: &[(&str, &str, &str)], error: impl Fn(&str) -> String) {
    for (from, to, expected) in edits {
        assert!(valid_text.contains(from), "`{from}` is not in the text");
        let found = error(&valid_text.replacen(from, to, 1));
        assert!(found.contains(expected), "{from:?} -> {to:?}: expected\n{expected}\nin\n{found}");
    }
}
