//! `docs/cli.md` matches the definitions of commands and options. `WEIR_WRITE_DOCS=1 cargo test -p weir-cli
//! --test all reference` writes it.

use std::fs;
use std::path::Path;

use crate::common::Place;

#[test]
fn cli_reference_matches_the_command_definitions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let made = Place::new().print("reference");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "docs/cli.md is stale: WEIR_WRITE_DOCS=1 cargo test -p weir-cli --test all reference"
    );
}
