//! Checks the options of `weir relay run`, and describes them.

use std::net::SocketAddr;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};
use weir_console::failure::Failure;
use weir_console::table::format_bytes;
use weir_core::units::Bytes;
use weir_relay::io::ServerError;

use crate::args;
use crate::metrics_endpoint::listen_message;

/// The minimum memory. One half of it holds the data of one flow that ends at the relay.
const MIN_MEMORY_BYTES: f64 = (1 << 20) as f64;

/// Checks the options of a relay whose address for other relays is `relays`.
pub fn check(args: &args::RelayRun, relays: SocketAddr) -> Result<(), Failure> {
    check_plain_text(args, relays)?;
    check_distinct_addresses(args, relays)?;
    check_memory(args.memory)?;
    args.congestion_control.as_deref().map_or(Ok(()), check_congestion_control)
}

/// Without certificates, only programs on this host may reach the relay.
fn check_plain_text(args: &args::RelayRun, relays: SocketAddr) -> Result<(), Failure> {
    let addresses = [("--relays", relays), ("--programs", args.programs)];
    let remote = addresses.into_iter().find(|(_, address)| !address.ip().is_loopback());
    match remote {
        Some((option, address)) if args.credentials.certificate.is_none() && !args.insecure => {
            Err(Failure::input(format_args!(
                "{option}: {address} can be reached from other hosts over plain text; expected a loopback address, \
                 --certificate with --key and --authority, or --insecure"
            )))
        }
        _ => Ok(()),
    }
}

/// Each address needs its own port. Port 0 selects a free one.
fn check_distinct_addresses(args: &args::RelayRun, relays: SocketAddr) -> Result<(), Failure> {
    let addresses =
        [("--relays", Some(relays)), ("--programs", Some(args.programs)), ("--metrics", args.metrics)];
    let addresses: Vec<_> = addresses
        .into_iter()
        .filter_map(|(option, address)| Some((option, address.filter(|address| address.port() != 0)?)))
        .collect();
    let overlap = |a: SocketAddr, b: SocketAddr| {
        let is_any = a.ip().is_unspecified() || b.ip().is_unspecified();
        a.port() == b.port() && a.is_ipv4() == b.is_ipv4() && (is_any || a.ip() == b.ip())
    };
    for (index, &(option, address)) in addresses.iter().enumerate() {
        if let Some((other, taken)) = addresses[..index].iter().find(|(_, taken)| overlap(*taken, address)) {
            return Err(Failure::input(format_args!(
                "{option}: {address} is also the address of {other} ({taken}); expected another port or IP address"
            )));
        }
    }
    Ok(())
}

fn check_memory(memory: Bytes) -> Result<(), Failure> {
    if memory.get() < MIN_MEMORY_BYTES {
        return Err(Failure::input(format_args!(
            "--memory: {memory} is too little; expected at least 1MiB, since each flow needs 512 KiB of one half"
        )));
    }
    Ok(())
}

/// Checks that the kernel has a congestion control, and permits it to this process.
fn check_congestion_control(name: &str) -> Result<(), Failure> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|error| Failure::runtime(format_args!("--congestion-control: no socket: {error}")))?;
    let refused = |problem: &str, help: &str| {
        Failure::input(format_args!(
            "--congestion-control: {problem} (`{name}`); expected a name such as cubic or bbr; help: {help}"
        ))
    };
    match setsockopt(&socket, sockopt::TcpCongestion, &name.into()) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => Err(refused(
            "this process may not use the congestion control",
            "add the name to net.ipv4.tcp_allowed_congestion_control",
        )),
        Err(_) => Err(refused(
            "the kernel has no such congestion control",
            &format!("load its module (`modprobe tcp_{name}`), or omit the option"),
        )),
    }
}

/// A size in the largest binary unit of which it is a multiple, or rounded in a decimal unit.
pub fn format_memory(memory: Bytes) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let bytes = memory.get() as u64;
    let unit = units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format_bytes(memory.get()), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// The failure to listen, with the option that sets the address.
pub fn listen_failure(args: &args::RelayRun, error: ServerError) -> Failure {
    let ServerError::Listen { address, error } = error else { return Failure::runtime(error) };
    let (option, origin) = match &args.overlay {
        _ if address == args.programs => ("--programs", String::new()),
        Some(file) if args.relays.is_none() => ("--relays", format!(" (from {})", file.display())),
        _ => ("--relays", String::new()),
    };
    Failure::runtime(listen_message(option, address, &origin, &error))
}
