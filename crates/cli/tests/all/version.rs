//! Tests that `weir --version` shows the commit after any build, with a package that has Weir's build script and main function, and nothing
//! else to compile.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::TestDir;

const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"));

/// A library in place of Weir's, whose program prints the commit only.
const LIBRARY: &str = "\
use std::sync::OnceLock;
static COMMIT: OnceLock<&str> = OnceLock::new();
pub fn set_commit(commit: &'static str) { COMMIT.set(commit).unwrap(); }
pub fn run(_: Vec<()>) -> std::process::ExitCode {
    print!(\"{}\", COMMIT.get().unwrap_or(&\"none\"));
    std::process::ExitCode::SUCCESS
}
";

const MANIFEST: &str =
    "[package]\nname = \"weir-cli\"\nedition = \"2024\"\nbuild = \"build.rs\"\n[workspace]\n";

/// Runs a program in a folder of `dir`, which must succeed, and returns its output and its messages.
#[track_caller]
fn run(dir: &TestDir, folder: &str, program: &str, line: &str) -> (String, String) {
    let mut command = Command::new(program);
    command.args(line.split_whitespace()).current_dir(dir.path(folder));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GIT_") || name == "WEIR_COMMIT") {
        command.env_remove(name);
    }
    command.env("CARGO_TARGET_DIR", dir.path("target")).env("CARGO_INCREMENTAL", "0");
    let output = command.output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{program} {line}: {stderr}");
    (stdout, stderr)
}

fn git(dir: &TestDir, line: &str) -> String {
    let options = "-c user.name=Test -c user.email=test@example.org -c commit.gpgsign=false";
    run(dir, "weir", "git", &format!("{options} {line}")).0
}

/// The first digits of the commit that is checked out.
fn head(dir: &TestDir) -> String {
    git(dir, "rev-parse HEAD")[..12].to_owned()
}

/// Builds the program twice, and returns the commit that it shows.
#[track_caller]
fn built_commit(dir: &TestDir, folder: &str) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    run(dir, folder, &cargo, "build --offline");
    let (_, messages) = run(dir, folder, &cargo, "build --offline");
    assert!(!messages.contains("Compiling"), "the second build: {messages}");
    run(dir, folder, &cargo, "run --offline --quiet").0
}

/// A folder `weir` with the package at the path that it has in Weir's repository.
fn copied_package() -> TestDir {
    let dir = TestDir::new();
    let package = dir.path("weir/crates/cli");
    fs::create_dir_all(package.join("src")).unwrap();
    for file in ["build.rs", "src/main.rs"] {
        fs::copy(Path::new(PACKAGE).join(file), package.join(file)).unwrap();
    }
    fs::write(package.join("Cargo.toml"), MANIFEST).unwrap();
    fs::write(package.join("src/lib.rs"), LIBRARY).unwrap();
    dir
}

fn has_git() -> bool {
    let has_git = Command::new("git").arg("--version").output().is_ok();
    if !has_git {
        eprintln!("skipped: needs git");
    }
    has_git
}

#[test]
fn version_shows_the_commit_after_any_change_of_the_repository() {
    if !has_git() {
        return;
    }
    let dir = copied_package();
    let commit = |name: &str| git(&dir, &format!("commit --quiet --allow-empty --message {name}"));
    assert_eq!(built_commit(&dir, "weir/crates/cli"), "none");
    // A build notices a new repository when it runs its script again.
    git(&dir, "init --quiet");
    commit("first");
    fs::remove_dir_all(dir.path("target")).unwrap();
    assert_eq!(built_commit(&dir, "weir/crates/cli"), head(&dir));
    commit("second");
    assert_eq!(built_commit(&dir, "weir/crates/cli"), head(&dir));
    // Without the log, and with branches in one file.
    fs::remove_dir_all(dir.path("weir/.git/logs")).unwrap();
    assert_eq!(built_commit(&dir, "weir/crates/cli"), head(&dir));
    git(&dir, "-c core.logAllRefUpdates=false pack-refs --all");
    assert_eq!(built_commit(&dir, "weir/crates/cli"), head(&dir));
    git(&dir, "-c core.logAllRefUpdates=false commit --quiet --allow-empty --message third");
    assert!(!dir.path("weir/.git/logs/HEAD").exists());
    assert_eq!(built_commit(&dir, "weir/crates/cli"), head(&dir));
    git(&dir, "-c core.logAllRefUpdates=false checkout --quiet --detach HEAD^");
    assert_eq!(built_commit(&dir, "weir/crates/cli"), head(&dir));
    // Git makes a new log.
    commit("fourth");
    assert!(dir.path("weir/.git/logs/HEAD").exists());
    assert_eq!(built_commit(&dir, "weir/crates/cli"), head(&dir));
    fs::remove_dir_all(dir.path("weir/.git")).unwrap();
    assert_eq!(built_commit(&dir, "weir/crates/cli"), "none");
}

#[test]
fn version_shows_the_commit_of_a_linked_worktree() {
    if !has_git() {
        return;
    }
    let dir = copied_package();
    git(&dir, "init --quiet");
    git(&dir, "add .");
    git(&dir, "commit --quiet --message first");
    git(&dir, "worktree add --quiet ../linked");
    git(&dir, "-C ../linked commit --quiet --allow-empty --message second");
    let second = || git(&dir, "-C ../linked rev-parse HEAD")[..12].to_owned();
    assert_ne!(second(), head(&dir));
    assert_eq!(built_commit(&dir, "linked/crates/cli"), second());
    fs::remove_dir_all(dir.path("weir/.git/worktrees/linked/logs")).unwrap();
    assert_eq!(built_commit(&dir, "linked/crates/cli"), second());
    git(&dir, "-C ../linked -c core.logAllRefUpdates=false commit --quiet --allow-empty --message third");
    assert_eq!(built_commit(&dir, "linked/crates/cli"), second());
}
