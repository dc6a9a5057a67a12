//! Tests that every document is reachable from `README.md`, and that every link leads to an existing file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap()
}

/// The local files that a document links to.
fn linked_files(document: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(document).unwrap();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter_map(|target| target.split('#').next()).filter(|file| !file.is_empty());
    files.filter(|file| !file.contains("://")).map(|file| document.parent().unwrap().join(file)).collect()
}

fn collect_documents(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_documents(&path, found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn every_document_is_reachable_from_the_readme() {
    let readme = root().join("README.md");
    let (mut found, mut pending) = (BTreeSet::new(), vec![readme]);
    while let Some(document) = pending.pop() {
        for link in linked_files(&document) {
            let file = fs::canonicalize(&link)
                .unwrap_or_else(|error| panic!("{}: {}: {error}", document.display(), link.display()));
            let is_document = file.extension().is_some_and(|extension| extension == "md");
            if found.insert(file.clone()) && is_document {
                pending.push(file);
            }
        }
    }
    let mut all = BTreeSet::new();
    collect_documents(&root().join("docs"), &mut all);
    assert!(all.len() >= 14, "{all:?}");
    let missing: Vec<&PathBuf> = all.difference(&found).collect();
    assert!(missing.is_empty(), "README.md does not lead to {missing:?}");
}
