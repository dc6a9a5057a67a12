//! Compiles the programs in `bpf/`. Without a compiler for them the crate is built all the same, and says so when it is asked
//! for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const PROGRAMS: [&str; 4] = ["application", "interface", "throttle", "congestion"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    println!("cargo::rerun-if-changed={}", source.display());
    let object = |name: &str| out.join(name).with_extension("o");
    let lacks =
        PROGRAMS.iter().find_map(|name| compile(&source.join(name).with_extension("c"), &object(name)).err());
    if let Some(why) = &lacks {
        for name in PROGRAMS {
            fs::write(object(name), "").expect("cargo's folder for what is built can be written to");
        }
        // What is not there counts as changed: the next build tries again.
        println!("cargo::rerun-if-changed={}", out.join("never").display());
        println!("cargo::warning=the agent is built without its programs in the kernel: {why}");
    }
    println!("cargo::rustc-env=WEIR_BPF_LACKS={}", lacks.unwrap_or_default());
}

fn compile(from: &Path, to: &Path) -> Result<(), String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]);
    // Where Debian has the kernel's headers that differ between processors.
    clang.arg("-idirafter").arg(format!("/usr/include/{arch}-linux-gnu"));
    let output = clang.arg("-c").arg(from).arg("-o").arg(to).output();
    let output = output.map_err(|error| format!("clang cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().next().unwrap_or("clang failed without a word").to_owned())
}
