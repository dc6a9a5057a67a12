//! Tables of errors: an edit of a good text, and a part of the error that it causes.

/// Replaces the first `from` by `to` in a text that is read, and checks that the error contains what is expected.
pub fn check_edits(good: &str, edits: &[(&str, &str, &str)], error: impl Fn(&str) -> String) {
    for (from, to, expected) in edits {
        assert!(good.contains(from), "`{from}` is not in the text");
        let found = error(&good.replacen(from, to, 1));
        assert!(found.contains(expected), "{from:?} -> {to:?}: expected\n{expected}\nin\n{found}");
    }
}
