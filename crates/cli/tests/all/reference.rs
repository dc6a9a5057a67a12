//! Tests that `docs/cli.md` matches the definitions of commands and options, and their examples. `WEIR_WRITE_DOCS=1 cargo test -p
//! weir-cli --test all reference` writes the page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{TestDir, assert_known_command};

#[test]
fn cli_reference_matches_the_command_definitions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let generated = TestDir::new().stdout_of("reference");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let current = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == generated,
        "docs/cli.md is stale; help: run `WEIR_WRITE_DOCS=1 cargo test -p weir-cli --test all reference`"
    );
}

#[test]
fn every_command_has_three_examples_with_known_options() {
    let page = TestDir::new().stdout_of("reference");
    let mut commands = BTreeSet::new();
    for section in page.split("\n#").skip(1) {
        let title = section.lines().next().unwrap().trim_start_matches('#').trim();
        let examples =
            section.split("\nExamples:\n").nth(1).unwrap_or_default().split("\n```").next().unwrap();
        let examples: Vec<&str> = examples.lines().collect();
        assert!(examples.len() >= 3, "{title}: {examples:?}; expected three examples");
        // Other programs are before `weir` or after it.
        for example in examples {
            let words: Vec<&str> =
                example.split_whitespace().skip_while(|word| *word != "weir").skip(1).collect();
            let end = words.iter().position(|word| matches!(*word, "|" | ">" | "&&" | "--" | "check'"));
            let words = &words[..end.unwrap_or(words.len())];
            if !words.is_empty() {
                commands.insert(words.join(" "));
            }
        }
    }
    assert!(commands.len() > 120, "{commands:#?}");
    for command in commands {
        assert_known_command(&command.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn help_lists_every_command_once_under_its_purpose() {
    let dir = TestDir::new();
    let help = dir.stdout_of("--help");
    let page = dir.stdout_of("reference");
    let mut expected: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## weir ")).collect();
    let lists = help.split("\nSimulate:\n").nth(1).unwrap().split("\nOptions:\n").next().unwrap();
    let mut commands: Vec<&str> =
        lines_with_indent(lists).map(|line| line.split_whitespace().next().unwrap()).collect();
    expected.sort_unstable();
    commands.sort_unstable();
    assert_eq!(commands, expected);
    for title in ["Prepare", "Live", "Reproduce", "Shell"] {
        assert!(lists.contains(&format!("\n\n{title}:\n  ")), "{title}: {lists}");
    }
}

fn lines_with_indent(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with("  "))
}

#[test]
fn version_shows_the_commit_that_was_checked_out() {
    let output = |program: &str, args: &[&str]| {
        let output =
            Command::new(program).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.git");
    let commit = output("git", &["rev-parse", "HEAD"]);
    let (Some(commit), true) = (commit, Path::new(top).exists()) else {
        return eprintln!("skipped: these sources have no repository, or git is missing");
    };
    let version = output(env!("CARGO_BIN_EXE_weir"), &["--version"]).unwrap();
    assert_eq!(version, format!("weir {} ({})\n", env!("CARGO_PKG_VERSION"), &commit[..12]));
}
