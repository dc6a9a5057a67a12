//! Tests that `docs/cli.md` matches the definitions of commands and options. `WEIR_WRITE_DOCS=1 cargo test -p
//! weir-cli --test all reference` writes the page.

use std::fs;
use std::path::Path;

use crate::common::TestDir;

#[test]
fn cli_reference_matches_the_command_definitions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let generated = TestDir::new().stdout_of("reference");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let current = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == generated,
        "docs/cli.md is stale; help: run `WEIR_WRITE_DOCS=1 cargo test -p weir-cli --test all reference`"
    );
}
