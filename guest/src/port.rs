//! The virtio-serial port to the host, and the wait for a host connection.

use crate::sys::{self, Edge, PollFd};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

const NAME: &str = "forkd.agent.0";
const ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Without a host connection, poll on the port returns POLLHUP at once, every time. The driver wakes the port's waiters
/// when that changes, which an edge-triggered epoll reports as an event, so the agent polls the epoll descriptor
/// instead.
pub struct Port {
    file: File,
    edge: Edge,
    connected: bool,
}

impl Port {
    /// Finds and opens the port; the guest kernel may not have probed it yet.
    pub fn open() -> io::Result<Port> {
        for _ in 0..ATTEMPTS {
            if let Some(path) = find() {
                return Port::new(
                    OpenOptions::new()
                        .read(true)
                        .write(true)
                        .custom_flags(libc::O_NONBLOCK)
                        .open(path)?,
                );
            }
            thread::sleep(PAUSE);
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no virtio-serial port is named {}", NAME),
        ))
    }

    fn new(file: File) -> io::Result<Port> {
        let edge = Edge::new(file.as_raw_fd())?;
        Ok(Port {
            file,
            edge,
            connected: true,
        })
    }

    /// A port over a non-blocking socket.
    pub fn over(socket: UnixStream) -> io::Result<Port> {
        socket.set_nonblocking(true)?;
        Port::new(File::from(OwnedFd::from(socket)))
    }

    /// Whether a host is connected, as far as known.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// The descriptor and events to poll.
    pub fn interest(&self, read: bool, write: bool) -> PollFd {
        if !self.connected {
            return sys::poll_fd(self.edge.as_raw_fd(), sys::POLLIN);
        }
        let events = if read { sys::POLLIN } else { 0 } | if write { sys::POLLOUT } else { 0 };
        sys::poll_fd(self.file.as_raw_fd(), events)
    }

    /// Takes the result of poll; returns whether there may be something to read.
    pub fn ready(&mut self, events: i16) -> bool {
        if !self.connected {
            if events == 0 {
                return false;
            }
            // the next poll of the port itself shows what changed
            self.edge.clear();
            self.connected = true;
            return false;
        }
        if events & sys::POLLHUP != 0 {
            self.connected = false;
        }
        events & (sys::POLLIN | sys::POLLHUP) != 0
    }

    /// Reads all available bytes; returns 0 if there are none. The driver returns one page per read, so it is read
    /// until it is empty.
    pub fn receive(&mut self, scratch: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < scratch.len() {
            match self.file.read(&mut scratch[filled..]) {
                Ok(0) => {
                    self.connected = false;
                    break;
                }
                Ok(count) => filled += count,
                // empty for now, or a failed port, which has no host
                Err(_) => break,
            }
        }
        filled
    }
}

impl Write for Port {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn find() -> Option<String> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    for port in ports.flatten() {
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == NAME {
            let path = format!("/dev/{}", port.file_name().to_string_lossy());
            return fs::metadata(&path).is_ok().then_some(path);
        }
    }
    None
}
