//! Finds the name that a misspelled one probably means.

/// The hint for a misspelled name: `; help: did you mean ...?`, or an empty text if no candidate is similar.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |found| format!("; help: did you mean `{found}`?"))
}

/// The candidate with the fewest edits from `name`, if at most a third of its characters differ. Exact matches are no suggestion.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const MAX_LENGTH: usize = 64;
    if name.len() > MAX_LENGTH {
        return None;
    }
    let similar = candidates.into_iter().filter_map(|candidate| {
        let max_edits = candidate.chars().count().max(name.chars().count()) / 3;
        let edits = count_edits(name, candidate);
        (edits > 0 && edits <= max_edits && candidate.len() <= MAX_LENGTH).then_some((edits, candidate))
    });
    similar.min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

/// The number of inserted, removed and replaced characters, and of swapped neighbors, that turn `a` into `b`. O(length of a x length
/// of b).
fn count_edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut edits = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                edits = edits.min(rows[i - 2][j - 2] + 1);
            }
            row.push(edits);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested_and_others_are_not() {
        let names = ["fair", "saath", "varys", "aalo", "max-detoured"];
        for (name, expected) in [
            ("sath", Some("saath")),
            ("saaht", Some("saath")),
            ("max-detour", Some("max-detoured")),
            ("fiar", Some("fair")),
            ("saath", None),
            ("nope", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names), expected, "{name}");
        }
        assert_eq!(did_you_mean("vary", names), "; help: did you mean `varys`?");
        assert_eq!(did_you_mean("tcp", names), "");
    }
}
