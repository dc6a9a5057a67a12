//! Compiles the programs in `bpf/`. Without a compiler for them the crate is built all the same, and says so when it is asked
//! for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let mut lacks = String::new();
    for name in ["application", "interface"] {
        let (from, to) = (source.join(format!("{name}.c")), out.join(format!("{name}.o")));
        println!("cargo::rerun-if-changed={}", from.display());
        if let Err(why) = compile(&from, &to) {
            fs::write(&to, "").expect("cargo's folder for what is built can be written to");
            // What is not there counts as changed: the next build tries again.
            println!("cargo::rerun-if-changed={}", out.join("never").display());
            println!(
                "cargo::warning=the agent is built without the programs that find and mark traffic: {why}"
            );
            lacks = why;
        }
    }
    println!("cargo::rustc-env=WEIR_BPF_LACKS={lacks}");
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
    Err(format!("clang: {}", said.lines().next().unwrap_or("it failed without a word")))
}
