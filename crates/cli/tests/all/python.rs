//! Runs the tests of the Python module. They skip with a message without Python.

use std::path::Path;
use std::process::Command;

#[test]
fn python_module_passes_its_tests() {
    let version_check = ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"];
    let probe = Command::new("python3").args(version_check).output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("python_module_passes_its_tests skips, since Python 3.10 is missing: {probe:?}");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let output = Command::new("timeout")
        .args(["120", "python3", "-B", "-W", "error", "-m", "unittest", "discover", "-s", "tests", "-t", "."])
        .current_dir(folder)
        .env("WEIR", env!("CARGO_BIN_EXE_weir"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    // The output names skipped tests.
    eprintln!("{stderr}");
}
