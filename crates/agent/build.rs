//! Compiles the BPF programs in `bpf/`. Without clang the crate builds without them and reports that when they are needed.

mod clang;

use std::env;
use std::path::PathBuf;

const PROGRAMS: [&str; 5] = ["application", "interface", "lease", "throttle", "congestion"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let source = clang::source_folder();
    let objects = PROGRAMS.map(|name| out.join(name).with_extension("o"));
    let build_error = PROGRAMS
        .iter()
        .zip(&objects)
        .find_map(|(name, object)| clang::compile_bpf(&source.join(name).with_extension("c"), object).err());
    if let Some(reason) = &build_error {
        clang::build_without(&objects);
        println!("cargo::warning=the agent is built without its BPF programs: {reason}");
    }
    println!("cargo::rustc-env=WEIR_BPF_LACKS={}", build_error.unwrap_or_default());
}
