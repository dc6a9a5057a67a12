//! Tests that every test file in the repository belongs to a test binary.

use std::fs;
use std::path::{Path, PathBuf};

fn crate_dirs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// The `.rs` files in a folder and its subfolders.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

#[test]
fn every_test_file_is_a_module_of_its_binary() {
    let mut count = 0;
    for binary in
        crate_dirs().iter().flat_map(|path| ["all", "live"].map(|name| path.join("tests").join(name)))
    {
        let Ok(main) = fs::read_to_string(binary.join("main.rs")) else { continue };
        for file in fs::read_dir(&binary).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            if name != "main" {
                assert!(main.lines().any(|line| line == format!("mod {name};")), "{}", file.display());
                count += 1;
            }
        }
    }
    assert!(count > 80, "{count} files");
}

/// Cargo does not run the tests inside a target with `test = false`.
#[test]
fn targets_with_test_false_contain_no_tests() {
    let mut count = 0;
    for path in crate_dirs() {
        if fs::read_to_string(path.join("Cargo.toml")).unwrap().contains("\ntest = false\n") {
            count += 1;
            for file in rust_files(&path.join("src")) {
                assert!(!fs::read_to_string(&file).unwrap().contains("#[test]"), "{}", file.display());
            }
        }
    }
    assert_eq!(count, 5);
}
