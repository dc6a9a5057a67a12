//! Finds the commit that is checked out, which `src/main.rs` shows in `weir --version`.
//!
//! If Git logs the commits that were checked out, the compiler reads the log, not this script: Cargo runs the script once, and a new commit
//! compiles and links only `src/main.rs`. Without a log, the script reads the commit. Then Cargo runs the script again after a commit, and
//! compiles the whole package.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(has_commit_log)");
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets this variable");
    let Some(git) = git_folder(Path::new(&package)) else { return };
    if has_commits(&git.join("logs/HEAD")) {
        // The files never change. If the repository disappears, or only the folder of the log, the next build runs this script again.
        watch(["commondir", "description"].map(|name| git.join("logs/..").join(name)));
        println!("cargo:rustc-cfg=has_commit_log");
        println!("cargo:rustc-env=WEIR_COMMIT_LOG={}", git.join("logs/HEAD").display());
        return;
    }
    let common = common_folder(&git);
    watch([git.join("HEAD"), common.join("refs/heads"), common.join("packed-refs")]);
    if let Some(commit) = read_commit(&git, &common) {
        println!("cargo:rustc-env=WEIR_CHECKED_OUT={commit}");
    }
}

/// Lets Cargo run this script again if one of the files changes. Cargo would run it at every build for a file that does not exist.
fn watch<const N: usize>(files: [PathBuf; N]) {
    for file in files.iter().filter(|file| file.exists()) {
        println!("cargo:rerun-if-changed={}", file.display());
    }
}

/// The folder of Git's data, which is elsewhere in a linked worktree. `None` if the sources are not in their repository.
fn git_folder(package: &Path) -> Option<PathBuf> {
    let top = package.parent()?.parent()?;
    let git = top.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    Some(top.join(fs::read_to_string(git).ok()?.strip_prefix("gitdir:")?.trim()))
}

/// The folder of the branches, which all worktrees of a repository share.
fn common_folder(git: &Path) -> PathBuf {
    let common = fs::read_to_string(git.join("commondir"));
    common.map_or_else(|_| git.to_path_buf(), |common| git.join(common.trim()))
}

/// Whether a log contains a commit. Git removes old entries, and keeps the empty log.
fn has_commits(log: &Path) -> bool {
    fs::metadata(log).is_ok_and(|log| log.is_file() && log.len() > 0)
}

/// The commit that is checked out: that of a branch, or one without a branch.
fn read_commit(git: &Path, common: &Path) -> Option<String> {
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else { return Some(head.trim().to_owned()) };
    if let Ok(commit) = fs::read_to_string(common.join(branch)) {
        return Some(commit.trim().to_owned());
    }
    let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
    let commit_of = |line: &str| line.strip_suffix(branch)?.strip_suffix(' ').map(str::to_owned);
    packed.lines().find_map(commit_of)
}
