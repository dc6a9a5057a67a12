//! An agent that pushes what a test says.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept, bind, listen, recvmsg, send, socket_with,
};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A listening agent, and the program that is connected to it.
pub struct FakeAgent {
    pub path: PathBuf,
    program: OwnedFd,
    /// The messages that have arrived.
    messages: Arc<Mutex<Vec<String>>>,
}

/// A path of a socket that no other test uses.
pub fn socket_path() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("weir-fake-agent-{}-{number}", std::process::id()))
}

/// Listens, so that a program can connect.
pub fn bind_socket(path: &Path) -> OwnedFd {
    let _ = std::fs::remove_file(path);
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&listener, 8).unwrap();
    listener
}

impl FakeAgent {
    /// Accepts a program. Pushes `state` before it answers `open`: `pause 50`, `go 1000` and the like.
    pub fn accept(path: &Path, listener: &OwnedFd, state: &'static str) -> FakeAgent {
        let program = accept(listener).unwrap();
        let messages = Arc::new(Mutex::new(Vec::new()));
        let (socket, received) = (program.try_clone().unwrap(), Arc::clone(&messages));
        std::thread::spawn(move || {
            while let Some(text) = receive(&socket) {
                let words: Vec<&str> = text.split(' ').collect();
                if let ["open", coflow, flow, ..] = words[..] {
                    let (command, value) = state.split_once(' ').unwrap();
                    push(&socket, &format!("{command} {coflow} {flow} {value}"));
                }
                if matches!(words[0], "open" | "done") {
                    push(&socket, "ok");
                }
                received.lock().unwrap().push(text);
            }
        });
        FakeAgent { path: path.to_owned(), program, messages }
    }

    pub fn push(&self, text: &str) {
        push(&self.program, text);
    }

    pub fn count(&self, message: &str) -> usize {
        self.messages.lock().unwrap().iter().filter(|text| *text == message).count()
    }

    pub fn wait_for(&self, message: &str) {
        let start = Instant::now();
        while self.count(message) == 0 {
            assert!(start.elapsed() < TIMEOUT, "{message}: {:?}", self.messages.lock().unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.program, rustix::net::Shutdown::Both);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn push(socket: &OwnedFd, text: &str) {
    let _ = send(socket, text.as_bytes(), SendFlags::NOSIGNAL);
}

/// Reads a message, and closes the socket that comes with it.
fn receive(socket: &OwnedFd) -> Option<String> {
    let mut text = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message =
        recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    drop(ancillary);
    (message.bytes > 0).then(|| String::from_utf8_lossy(&text[..message.bytes]).into_owned())
}
