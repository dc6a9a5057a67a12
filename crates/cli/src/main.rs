//! The program `weir`.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_cli::run(Vec::new())
}
