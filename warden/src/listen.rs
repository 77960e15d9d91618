//! Serves clients at a socket, one at a time; the VMMs outlive their client.

use crate::link::Link;
use crate::server::Server;
use crate::socket::ListenSocket;
use crate::sys::{self, Wake};
use crate::wire::Splitter;
use std::io::{self, ErrorKind, Read};
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const READ_BYTES: usize = 64 * 1024;

/// Time for which the warden stays without a client and without a child
pub struct Patience {
    pub first_client: Duration,
    pub next_client: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            first_client: Duration::from_secs(30),
            next_client: Duration::from_secs(10),
        }
    }
}

struct Client {
    socket: Arc<UnixStream>,
    link: Arc<Link>,
    incoming: Splitter,
}

struct Listening {
    socket: ListenSocket,
    server: Server,
    wake: Arc<Wake>,
    client: Option<Client>,
    patience: Patience,
    /// Start of the time without a client and without a child
    idle_since: Option<Instant>,
    had_client: bool,
    buffer: Vec<u8>,
}

/// The ready descriptors
struct Ready {
    socket: bool,
    child: bool,
    client_sends: bool,
    client_takes: bool,
}

/// Serves until a client requests the end, or until there has been no client and no child for a while.
pub fn serve(path: &Path, patience: Patience) -> Result<(), String> {
    if !path.is_absolute() {
        return Err(format!("the socket's path {} is not absolute", path.display()));
    }
    let socket = ListenSocket::open(path)?;
    let mut listening = Listening::start(socket, patience).map_err(|error| error.to_string())?;
    // the starter may have ended; a failed write has no consequence
    let _ = sys::write_stdout(b"ready\n");
    let result = sys::leave_starter().and_then(|()| listening.run());
    listening.server.end_all();
    // before the answer: its receiver may start another warden at this path
    listening.socket.remove();
    listening.server.answer_end();
    result.map_err(|error| error.to_string())
}

impl Listening {
    fn start(socket: ListenSocket, patience: Patience) -> io::Result<Listening> {
        Ok(Listening {
            socket,
            server: Server::start()?,
            wake: Arc::new(Wake::new()?),
            client: None,
            patience,
            idle_since: None,
            had_client: false,
            buffer: vec![0; READ_BYTES],
        })
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            if ready.child {
                self.server.reap();
            }
            if ready.client_takes {
                self.flush();
            }
            if ready.client_sends {
                self.read();
            }
            if self.server.end_is_asked() {
                return Ok(());
            }
            // accepted before the warden ends as well, so that an accepted client is served. A client that connects
            // later loses the connection and finds no socket, or another warden's, when it tries again.
            if ready.socket || self.is_unneeded() {
                self.admit();
            }
            if self.is_unneeded() {
                return Ok(());
            }
        }
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let mut fds = vec![
            sys::watch(self.socket.as_raw_fd(), libc::POLLIN),
            sys::watch(self.server.child_events(), libc::POLLIN),
            sys::watch(self.wake.as_raw_fd(), libc::POLLIN),
        ];
        if let Some(client) = &self.client {
            let takes = if client.link.has_waiting() { libc::POLLOUT } else { 0 };
            fds.push(sys::watch(client.socket.as_raw_fd(), libc::POLLIN | takes));
        }
        sys::poll(&mut fds, self.idle_left())?;
        if fds[2].revents != 0 {
            self.wake.hush();
        }
        let client = fds.get(3).map_or(0, |client| client.revents);
        Ok(Ready {
            socket: fds[0].revents != 0,
            child: fds[1].revents != 0,
            client_sends: client & !libc::POLLOUT != 0,
            client_takes: client & libc::POLLOUT != 0,
        })
    }

    fn flush(&self) {
        if let Some(client) = &self.client {
            client.link.flush();
        }
    }

    fn read(&mut self) {
        let client = match &mut self.client {
            Some(client) => client,
            None => return,
        };
        match (&*client.socket).read(&mut self.buffer) {
            Ok(0) => return self.part(),
            Ok(length) => client.incoming.push(&self.buffer[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return self.part(),
        }
        if let Err(why) = self.server.receive(&mut client.incoming) {
            sys::complain(format!("a client is dropped: {why}"));
            return self.part();
        }
        if client.link.is_broken() {
            self.part();
        }
    }

    fn part(&mut self) {
        self.server.part();
        self.client = None;
    }

    /// A new client replaces the present one.
    fn admit(&mut self) {
        if let Some(socket) = self.socket.admit() {
            let socket = Arc::new(socket);
            let link = Link::socket(Arc::clone(&socket), Arc::clone(&self.wake));
            self.server.welcome(Arc::clone(&link));
            self.client = Some(Client {
                socket,
                link,
                incoming: Splitter::default(),
            });
            self.had_client = true;
        }
    }

    /// None while there is a client or a child
    fn idle_left(&mut self) -> Option<Duration> {
        if self.client.is_some() || self.server.has_children() {
            self.idle_since = None;
            return None;
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        let patience = if self.had_client {
            self.patience.next_client
        } else {
            self.patience.first_client
        };
        Some(patience.saturating_sub(since.elapsed()))
    }

    fn is_unneeded(&mut self) -> bool {
        self.idle_left().map_or(false, |left| left.is_zero())
    }
}
