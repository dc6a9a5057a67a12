//! Names of options of the command line as keyword arguments, for messages that both have.

/// The options that messages name and that are keyword arguments, without their hyphens.
const OPTIONS: [&str; 20] = [
    "all",
    "bandwidth-seed",
    "buffer",
    "columns",
    "decide-over",
    "fabric",
    "incast",
    "incast-degree",
    "incast-load",
    "incast-size",
    "interval",
    "keep-arrivals",
    "load",
    "local-flows",
    "max-flows",
    "path-seed",
    "per-stage",
    "policies",
    "port-rate",
    "trace-unit",
];

/// The keyword argument of an option or of a policy's parameter, which is without hyphens at its start.
pub fn keyword(option: &str) -> String {
    match option {
        "trace-unit" => "unit".to_owned(),
        other => other.replace('-', "_"),
    }
}

/// A message of the command line with keyword arguments in place of options: `--path-seed` and `--fabric FILE` become `path_seed` and
/// `fabric`, in quotation marks.
pub fn with_keywords(message: &str) -> String {
    // Commands have the option alone, since Python has no command there.
    let message = message.replace("`weir trace convert --", "`--");
    let mut text = String::with_capacity(message.len());
    let mut rest = message.as_str();
    while let Some((before, after)) = rest.split_once("--") {
        text += before;
        let end = after.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(after.len());
        let (name, tail) = after.split_at(end);
        let is_start = text.chars().next_back().is_none_or(|c| c.is_whitespace() || "(`".contains(c));
        let is_end =
            tail.chars().next().is_none_or(|c| !c.is_alphanumeric() && !"_/.".contains(c) || tail == ".");
        rest = match is_start && is_end && OPTIONS.contains(&name) {
            true if text.ends_with('`') => {
                text += &keyword(name);
                tail
            }
            true => {
                text += &format!("`{}`", keyword(name));
                without_placeholder(tail)
            }
            false => {
                text += "--";
                after
            }
        };
    }
    text + rest
}

/// A text without the placeholder of an option's value, such as `FILE`, at its start.
fn without_placeholder(text: &str) -> &str {
    let Some(after) = text.strip_prefix(' ') else { return text };
    let end = after.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(after.len());
    if end > 1 { &after[end..] } else { text }
}
