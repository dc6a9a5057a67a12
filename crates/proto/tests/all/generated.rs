//! Tests that the code in `src/generated` matches `proto/weir`. The code is part of the repository, so that builds need no
//! protobuf compiler. `WEIR_WRITE_DOCS=1 cargo test -p weir-proto generated` writes it.

use std::fs;
use std::path::Path;

#[test]
fn generated_code_matches_the_protocol_description() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let described = protox::compile(["weir/agent.proto", "weir/relay.proto"], [root.join("proto")]).unwrap();
    let out = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .out_dir(out.path())
        .compile_fds(described)
        .unwrap();
    for file in ["weir.agent.rs", "weir.relay.rs"] {
        let generated = fs::read_to_string(out.path().join(file)).unwrap();
        let committed = root.join("src/generated").join(file);
        if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
            fs::write(&committed, &generated).unwrap();
        }
        assert!(
            fs::read_to_string(&committed).unwrap_or_default() == generated,
            "{} is out of date: run `make docs`",
            committed.display()
        );
    }
}
