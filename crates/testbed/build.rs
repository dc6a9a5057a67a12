//! Compiles `bpf/dctcp.c` and the program that loads it. Without clang or libbpf the crate builds without them and reports that when they
//! are needed.

#[path = "../agent/clang.rs"]
mod clang;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (source, loader) = (clang::source_folder(), out.join("load_dctcp"));
    let build_error = build(&source, &out.join("dctcp.o"), &loader).err();
    if let Some(reason) = &build_error {
        clang::build_without(&[loader]);
        println!("cargo::warning=the testbed is built without DCTCP: {reason}");
    }
    println!("cargo::rustc-env=WEIR_DCTCP_LACKS={}", build_error.unwrap_or_default());
}

/// The loader contains the object. It uses the shared libbpf: the testbed mostly runs where it was built, `weir` stays small, and no static
/// libraries are needed.
fn build(source: &Path, object: &Path, loader: &Path) -> Result<(), String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    if arch != env::consts::ARCH {
        return Err(format!("clang builds the loader for {}, not for {arch}", env::consts::ARCH));
    }
    clang::compile_bpf(&source.join("dctcp.c"), object)?;
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-Wall", "-Werror"]).arg(format!("-DDCTCP_OBJECT=\"{}\"", object.display()));
    clang::run(clang.arg(source.join("load_dctcp.c")).arg("-lbpf").arg("-o").arg(loader))
}
