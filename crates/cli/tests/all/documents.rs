//! Tests that every document is reachable from `README.md` and is in the table of contents, that every link leads to an existing file and
//! heading, and that every command and every cited test exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::assert_known_command;

fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap()
}

/// The lines of a document outside of fenced code blocks.
fn prose(text: &str) -> String {
    let mut is_fenced = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The local targets of a document's links: the file, which is empty for the document itself, and the heading's anchor, which is empty for
/// the whole file.
fn local_links(text: &str) -> Vec<(String, String)> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace));
    local
        .map(|target| {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            (file.to_owned(), anchor.to_owned())
        })
        .collect()
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text).lines() {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor: String = title.trim().to_lowercase().chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// The local files that a document links to.
fn linked_files(document: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(document).unwrap();
    let files = local_links(&text).into_iter().filter(|(file, _)| !file.is_empty());
    files.map(|(file, _)| document.parent().unwrap().join(file)).collect()
}

fn collect_files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, found);
        } else {
            found.insert(path);
        }
    }
}

/// Whether a file is a page or a notebook, whose texts are Markdown too.
fn is_document(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md" || extension == "ipynb")
}

/// All pages, notebooks and images of `docs`.
fn all_files_of_docs() -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    collect_files(&root().join("docs"), &mut all);
    all
}

/// All pages and notebooks of `docs`, and the documents next to it that they belong to.
fn all_documents() -> BTreeSet<PathBuf> {
    let mut all = all_files_of_docs();
    all.retain(|file| is_document(file));
    assert!(all.len() >= 14, "{all:?}");
    all.extend(
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bpf/README.md"].map(|name| root().join(name)),
    );
    all
}

#[test]
fn every_document_and_image_is_reachable_from_the_readme() {
    let readme = root().join("README.md");
    let (mut found, mut pending) = (BTreeSet::from([readme.clone()]), vec![readme]);
    while let Some(document) = pending.pop() {
        for link in linked_files(&document) {
            let file = fs::canonicalize(&link)
                .unwrap_or_else(|error| panic!("{}: {}: {error}", document.display(), link.display()));
            if found.insert(file.clone()) && is_document(&file) {
                pending.push(file);
            }
        }
    }
    let all: BTreeSet<PathBuf> = all_documents().into_iter().chain(all_files_of_docs()).collect();
    let missing: Vec<&PathBuf> = all.difference(&found).collect();
    assert!(missing.is_empty(), "README.md does not lead to {missing:?}");
}

#[test]
fn table_of_contents_lists_every_document_once() {
    let contents = root().join("docs/SUMMARY.md");
    let mut listed: Vec<PathBuf> =
        linked_files(&contents).iter().map(|file| fs::canonicalize(file).unwrap()).collect();
    listed.sort();
    let mut expected: Vec<PathBuf> = all_documents().into_iter().filter(|file| *file != contents).collect();
    expected.sort();
    assert_eq!(listed, expected);
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut failures = Vec::new();
    for document in all_documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (file, anchor) in local_links(&text) {
            let target =
                if file.is_empty() { document.clone() } else { document.parent().unwrap().join(&file) };
            if !target.exists() {
                failures.push(format!("{}: no file {file}", document.display()));
            } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&target).unwrap()).contains(&anchor)
            {
                failures.push(format!("{}: {file} has no heading #{anchor}", document.display()));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The commands in code blocks that run `weir`, with continuation lines joined and without variables.
fn weir_commands(text: &str) -> Vec<String> {
    let (mut commands, mut block) = (Vec::new(), None);
    for line in text.replace("\\\n", " ").lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = if block.is_some() { None } else { Some(language.to_owned()) };
            continue;
        }
        let command = match block.as_deref() {
            Some("sh") => Some(line),
            // Other blocks have output, and commands after a prompt.
            Some(_) => line.trim_start().strip_prefix("$ "),
            None => line.strip_prefix("    ").map(|line| line.trim_start().trim_start_matches("$ ")),
        };
        // A command ends at a comment, or where another program begins.
        let words = command.unwrap_or_default().split_whitespace();
        let words = words.take_while(|word| !matches!(*word, "|" | ">" | "2>" | "&&" | "&" | "#" | "--"));
        let words: Vec<&str> = words.filter(|word| !word.starts_with('$')).collect();
        // Messages begin with `weir: `.
        if words.len() > 1 && words[0] == "weir" && !words.iter().any(|word| word.ends_with(':')) {
            commands.push(words[1..].join(" "));
        }
    }
    commands
}

#[test]
fn weir_commands_of_all_documents_exist() {
    let mut commands = BTreeSet::new();
    for document in all_documents() {
        // The command line's page is made from the definitions, and an older release may have had other commands.
        if !document.ends_with("docs/cli.md") && !document.ends_with("CHANGELOG.md") {
            commands.extend(weir_commands(&fs::read_to_string(&document).unwrap()));
        }
    }
    assert!(commands.len() > 60, "{commands:#?}");
    for command in commands {
        assert_known_command(&command.split(' ').collect::<Vec<_>>());
    }
}

/// Names of tests have at least four words, and those of metrics begin with `weir_`.
#[test]
fn tests_that_the_page_about_failures_cites_exist() {
    let page = fs::read_to_string(root().join("docs/failures.md")).unwrap();
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_test = |code: &&str| {
        code.chars().all(is_part) && !code.starts_with("weir_") && code.matches('_').count() >= 3
    };
    let cited: BTreeSet<&str> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(cited.len() > 100, "{cited:?}");
    let mut sources = BTreeSet::new();
    collect_files(&root().join("crates"), &mut sources);
    sources.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    let texts: Vec<String> = sources.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let functions = texts.iter().flat_map(|text| text.split("fn ").skip(1));
    let functions: BTreeSet<&str> =
        functions.filter_map(|rest| rest.split(|c: char| !is_part(c)).next()).collect();
    let missing: Vec<&&str> = cited.difference(&functions).collect();
    assert!(missing.is_empty(), "docs/failures.md cites tests that do not exist: {missing:?}");
}

#[test]
fn result_pages_of_papers_open_with_a_summary() {
    let pages = [
        "saath",
        "saba",
        "netshare",
        "siphon",
        "siphon-live",
        "django",
        "django-live",
        "live",
        "composition",
        "fabrics",
        "weir",
    ];
    for page in pages {
        let text = fs::read_to_string(root().join(format!("docs/results/{page}.md"))).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut headings = (0..lines.len()).filter(|&line| lines[line].starts_with("## "));
        let (first, second) = (headings.next().unwrap(), headings.next().unwrap());
        assert_eq!(lines[first], "## Summary", "{page}");
        assert!(second <= 25, "{page}: the second section begins at line {}", second + 1);
    }
}

/// The crates of the workspace that a crate depends on, without those of its tests.
fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
    let mut is_dependency = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_dependency =
                line.ends_with("dependencies]") && !line.contains("dev-") && !line.contains("build-");
        } else if let (true, Some(rest)) = (is_dependency, line.strip_prefix("weir-")) {
            found.insert(rest.split(['.', ' ', '=']).next().unwrap().to_owned());
        }
    }
    found
}

/// The README's table of papers quotes the results pages: each link's text is in the page, whose figures are computed.
#[test]
fn readme_quotes_the_results_pages() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let table = readme.split("## What is implemented").nth(1).unwrap().split("\n\n").nth(1).unwrap();
    let quotes = table.lines().filter_map(|row| {
        let cell = row.split(" | ").last()?;
        let (text, rest) = cell.split_once("](docs/results/")?;
        Some((text.rsplit('[').next()?, rest.split(')').next()?))
    });
    let quotes: Vec<(&str, &str)> = quotes.filter(|(_, page)| *page != "weir.md").collect();
    assert_eq!(quotes.len(), 5, "{quotes:?}");
    for (text, page) in quotes {
        let page = fs::read_to_string(root().join("docs/results").join(page)).unwrap();
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn diagram_of_crates_has_their_dependencies() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let diagram = page.split("```mermaid\n").nth(1).unwrap().split("```").next().unwrap();
    let name = |end: &str| end.trim().split('[').next().unwrap().to_owned();
    let mut drawn: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in diagram.lines() {
        if let Some((from, to)) = line.split_once("-->") {
            drawn.entry(name(from)).or_default().insert(name(to));
            drawn.entry(name(to)).or_default();
        } else if let Some((end, _)) = line.split_once('[').filter(|_| !line.contains("subgraph")) {
            drawn.entry(end.trim().to_owned()).or_default();
        }
    }
    // An arrow from the box of programs stands for many.
    for name in ["programs", "simulation", "hosts", "cli", "experiment", "python", "papers", "lab"] {
        drawn.remove(name);
    }
    let crates: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            !matches!(name.as_str(), "cli" | "console" | "experiment" | "python" | "papers" | "lab")
        })
        .collect();
    let expected: BTreeMap<String, BTreeSet<String>> =
        crates.into_iter().map(|name| (name.clone(), dependencies(&name))).collect();
    assert_eq!(drawn, expected);
}
