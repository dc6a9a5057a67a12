//! Functions of the build scripts that run clang. Without clang the crates build without their BPF programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The folder of the sources. A change in it runs the script again.
pub fn source_folder() -> PathBuf {
    // Not `env!`: the script may have been compiled in another checkout.
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let source = Path::new(&package).join("../../bpf");
    println!("cargo::rerun-if-changed={}", source.display());
    source
}

/// Compiles a BPF program.
pub fn compile_bpf(source: &Path, object: &Path) -> Result<(), String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]);
    // Debian installs the kernel headers that differ between processors here.
    clang.arg("-idirafter").arg(format!("/usr/include/{arch}-linux-gnu"));
    run(clang.arg("-c").arg(source).arg("-o").arg(object))
}

/// Runs clang. An error is the first line of its messages.
pub fn run(clang: &mut Command) -> Result<(), String> {
    let output = clang.output().map_err(|error| format!("clang cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(stderr.lines().next().unwrap_or("clang failed without a message").to_owned())
}

/// After a failure: writes empty files instead of the programs, and runs the script again once clang or libbpf's headers are installed:
/// the directories that would contain them change then. Paths that do not exist yet cannot be named, since cargo would run the script at
/// every build.
pub fn build_without(programs: &[PathBuf]) {
    for program in programs {
        fs::write(program, "").expect("cargo's output directory is writable");
    }
    println!("cargo::rerun-if-env-changed=PATH");
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain([PathBuf::from("/usr/include")]);
    for directory in directories.filter(|directory| directory.is_absolute() && directory.is_dir()) {
        println!("cargo::rerun-if-changed={}", directory.display());
    }
}
