//! Sets `cfg(has_steady_costs)` if the costs of steady connections have been measured: the page of Django then uses them.

use std::path::Path;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(has_steady_costs)");
    println!("cargo:rerun-if-changed=build.rs");
    // A file that does not exist would run this script at every build; the folder always exists.
    let folder = Path::new("../../examples/incast");
    println!("cargo:rerun-if-changed={}", folder.display());
    if folder.join("steady-marks.csv").exists() {
        println!("cargo:rustc-cfg=has_steady_costs");
    }
}
