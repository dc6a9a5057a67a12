//! Tables of errors: an edit of a valid text, and a part of the expected error.

/// For each edit, replaces the first `from` by `to` and checks that the error contains the expected text.
pub fn check_edits(good: &str, edits: &[(&str, &str, &str)], error: impl Fn(&str) -> String) {
    for (from, to, expected) in edits {
        assert!(good.contains(from), "`{from}` is not in the text");
        let found = error(&good.replacen(from, to, 1));
        assert!(found.contains(expected), "{from:?} -> {to:?}: expected\n{expected}\nin\n{found}");
    }
}
