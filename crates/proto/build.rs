//! Makes Rust of the protocol's description, with a compiler of its own: `protoc` is not needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let described = protox::compile(["weir/agent.proto"], ["proto"])?;
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_fds(described)?;
    Ok(())
}
