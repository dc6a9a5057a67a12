//! Compiles the BPF programs in `bpf/`. Without clang the crate builds without them and reports that when they are needed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const PROGRAMS: [&str; 5] = ["application", "interface", "lease", "throttle", "congestion"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Not `env!`: the script may have been compiled in another checkout.
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let source = Path::new(&package).join("../../bpf");
    println!("cargo::rerun-if-changed={}", source.display());
    let object = |name: &str| out.join(name).with_extension("o");
    let build_error =
        PROGRAMS.iter().find_map(|name| compile(&source.join(name).with_extension("c"), &object(name)).err());
    if let Some(reason) = &build_error {
        for name in PROGRAMS {
            fs::write(object(name), "").expect("cargo's output directory is writable");
        }
        watch_for_compiler();
        println!("cargo::warning=the agent is built without its BPF programs: {reason}");
    }
    println!("cargo::rustc-env=WEIR_BPF_LACKS={}", build_error.unwrap_or_default());
}

/// Runs this script again once clang or libbpf's headers are installed: the directories that would contain them change
/// then. Paths that do not exist yet cannot be named, since cargo would run the script at every build.
fn watch_for_compiler() {
    println!("cargo::rerun-if-env-changed=PATH");
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain([PathBuf::from("/usr/include")]);
    for directory in directories.filter(|directory| directory.is_absolute() && directory.is_dir()) {
        println!("cargo::rerun-if-changed={}", directory.display());
    }
}

fn compile(source: &Path, object: &Path) -> Result<(), String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]);
    // Debian installs the kernel headers that differ between processors here.
    clang.arg("-idirafter").arg(format!("/usr/include/{arch}-linux-gnu"));
    let output = clang.arg("-c").arg(source).arg("-o").arg(object).output();
    let output = output.map_err(|error| format!("clang cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(stderr.lines().next().unwrap_or("clang failed without a message").to_owned())
}
