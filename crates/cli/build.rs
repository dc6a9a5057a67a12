//! Finds Git's list of the commits that were checked out, of which `src/main.rs` shows the last one in `weir --version`.
//!
//! The compiler reads the list, not this script: Cargo runs the script once, and a new commit compiles and links only `src/main.rs`.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(has_commit_list)");
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets this variable");
    let Some(git) = git_folder(Path::new(&package)) else { return };
    let commits = git.join("logs/HEAD");
    if !commits.is_file() {
        return;
    }
    // Both never change. If they disappear with the repository, the next build shows no commit.
    for file in ["commondir", "description"].map(|name| git.join(name)) {
        if file.is_file() {
            println!("cargo:rerun-if-changed={}", file.display());
        }
    }
    println!("cargo:rustc-cfg=has_commit_list");
    println!("cargo:rustc-env=WEIR_COMMIT_LIST={}", commits.display());
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
