//! The command line of the lab.

#[cfg(target_os = "linux")]
mod commands;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    commands::run()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("weir-lab needs Linux: it creates network namespaces");
    std::process::exit(2);
}
