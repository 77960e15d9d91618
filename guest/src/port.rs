//! The virtio-serial port to the host, and how to wait for it while no host end is connected.

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

/// Without a host end, poll on the port says POLLHUP at once and for ever. The driver wakes the port's waiters when that
/// changes, which an edge-triggered epoll turns into an event of its own: so it is waited for instead of the port.
pub struct Port {
    file: File,
    edge: Edge,
    connected: bool,
}

impl Port {
    /// Finds and opens the port; the guest kernel may still be looking for it.
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

    /// The same over a socket that does not block.
    pub fn over(socket: UnixStream) -> io::Result<Port> {
        socket.set_nonblocking(true)?;
        Port::new(File::from(OwnedFd::from(socket)))
    }

    /// Whether there is a host end, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// What to wait for.
    pub fn interest(&self, read: bool, write: bool) -> PollFd {
        if !self.connected {
            return sys::poll_fd(self.edge.as_raw_fd(), sys::POLLIN);
        }
        let events = if read { sys::POLLIN } else { 0 } | if write { sys::POLLOUT } else { 0 };
        sys::poll_fd(self.file.as_raw_fd(), events)
    }

    /// Takes what poll said about the interest; whether there may be something to read.
    pub fn ready(&mut self, events: i16) -> bool {
        if !self.connected {
            if events == 0 {
                return false;
            }
            // the next poll of the port itself tells what the change was
            self.edge.clear();
            self.connected = true;
            return false;
        }
        if events & sys::POLLHUP != 0 {
            self.connected = false;
        }
        events & (sys::POLLIN | sys::POLLHUP) != 0
    }

    /// Reads what is there; 0 when that is nothing. The driver gives a page at a time, so it is asked until it has no more.
    pub fn receive(&mut self, scratch: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < scratch.len() {
            match self.file.read(&mut scratch[filled..]) {
                Ok(0) => {
                    self.connected = false;
                    break;
                }
                Ok(count) => filled += count,
                // nothing more for now; a port that fails has no host
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
