//! Why traffic cannot be observed, marked or paced.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::batch::BatchError;
use crate::lease;

/// Why traffic cannot be observed, marked or paced.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The BPF programs were not built.
    #[error(
        "Weir was built without its BPF programs ({0}), which applications, throttling and ECN marks need; help: install clang and the headers \
         of libbpf and Linux, and build Weir again"
    )]
    NotBuilt(&'static str),
    /// No cgroups of version 2 are mounted.
    #[error(
        "cgroups of version 2 are not mounted; expected a line with `cgroup2` in /proc/self/mountinfo; help: `ip netns exec` hides the mount, \
         so use `nsenter --net=/run/netns/NAME`"
    )]
    NoCgroups,
    /// Another agent runs in this network namespace.
    #[error("another agent runs in this network namespace; help: stop it first")]
    Busy,
    /// Two applications have the same name, port or cgroup.
    #[error("applications {0} and {1} overlap; expected different names, ports and cgroups")]
    Overlap(String, String),
    /// The interface has no Ethernet headers.
    #[error(
        "{interface} has the link type `{kind}`; expected an interface with Ethernet headers (`ether` or `loopback`)"
    )]
    NotEthernet {
        /// The interface.
        interface: String,
        /// Its link type, as `ip` prints it.
        kind: String,
    },
    /// The lease of a pacing rate is out of range.
    #[error("lease {0:?} is out of range; expected more than 0 s, and at most {max:?}", max = lease::MAX_LEASE)]
    InvalidLease(Duration),
    /// `ip` failed.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A file or folder could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The kernel refused a program, a map or an entry of a map.
    #[error("{object}: {message}")]
    Kernel {
        /// The cgroup, interface, program or map.
        object: String,
        /// The kernel's message; of a long one, the first and the last lines.
        message: String,
    },
}

impl TrafficError {
    pub(super) fn file(path: &Path, error: io::Error) -> TrafficError {
        TrafficError::File { path: path.display().to_string(), error }
    }

    pub(crate) fn kernel(object: &str, error: &dyn Error) -> TrafficError {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let cause = error.to_string();
            if !message.ends_with(&cause) {
                message.push_str(": ");
                message.push_str(&cause);
            }
            source = error.source();
        }
        // For a program that it refuses, the kernel prints each step of the verifier. The reason is at the end.
        let lines: Vec<&str> = message.lines().collect();
        if let [first, _, .., _, _, _, _] = lines[..] {
            message = format!("{first} ... {}", lines[lines.len() - 4..].join("; "));
        }
        TrafficError::Kernel { object: object.to_owned(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifier_messages_keep_the_first_and_last_lines() {
        let text = "refused: 0\n1\n2\n3\n4\n5";
        let TrafficError::Kernel { message, .. } = TrafficError::kernel("x", &io::Error::other(text)) else {
            panic!("an error of the kernel is `TrafficError::Kernel`")
        };
        assert_eq!(message, "refused: 0 ... 2; 3; 4; 5");
    }
}
