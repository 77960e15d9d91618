//! The connection to a client: queues its replies, and undoes its unfinished work when it disconnects.

use crate::children::Ended;
use crate::error::{Error, Outcome};
use crate::sys::{self, Wake};
use crate::temp_files::{TempFile, TempFiles};
use crate::wire::{frame, ERROR, EXIT, RESULT};
use forkd_wire::Writer;
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes queued for a client that does not read; several times the longest message
const MAX_QUEUED: usize = 4 << 20;

/// Shared with the threads that work for the client; their replies are dropped after it has disconnected.
pub struct Link {
    out: Mutex<Out>,
    files: Arc<TempFiles>,
}

enum Out {
    /// Blocks: a starter that does not read harms only itself
    Stdout,
    /// Never blocks: the VMMs must not depend on a client
    Socket(Queue),
    Closed,
}

struct Queue {
    socket: Arc<UnixStream>,
    wake: Arc<Wake>,
    waiting: VecDeque<Waiting>,
    unsent: usize,
    broken: bool,
}

struct Waiting {
    bytes: Vec<u8>,
    sent: usize,
    stake: Stake,
}

/// State to undo if a message is not delivered
enum Stake {
    Nothing,
    /// The file is removed
    File(PathBuf),
    /// The next client gets these exits
    Ends(Vec<Ended>),
}

impl Link {
    pub fn stdout() -> Arc<Link> {
        Link::new(Out::Stdout)
    }

    /// The socket is non-blocking; `wake` is rung when there is something to flush.
    pub fn socket(socket: Arc<UnixStream>, wake: Arc<Wake>) -> Arc<Link> {
        Link::new(Out::Socket(Queue {
            socket,
            wake,
            waiting: VecDeque::new(),
            unsent: 0,
            broken: false,
        }))
    }

    fn new(out: Out) -> Arc<Link> {
        Arc::new(Link {
            out: Mutex::new(out),
            files: Arc::default(),
        })
    }

    pub fn files(&self) -> &Arc<TempFiles> {
        &self.files
    }

    pub fn reply(&self, id: u32, outcome: Outcome<Writer>) {
        self.out.lock().unwrap().reply(id, outcome, Stake::Nothing);
    }

    /// The file is kept only if the reply is queued.
    pub fn reply_with_file(&self, id: u32, outcome: Outcome<(Writer, TempFile)>) {
        let (payload, file) = match outcome {
            Ok(done) => done,
            Err(error) => return self.reply(id, Err(error)),
        };
        // one lock for both: if the client disconnected between them, the file would be left behind
        let mut out = self.out.lock().unwrap();
        if matches!(*out, Out::Closed) {
            return;
        }
        match file.finish() {
            Ok(path) => out.reply(id, Ok(payload), Stake::File(path)),
            Err(error) => out.reply(id, Err(error), Stake::Nothing),
        }
    }

    pub fn reply_with_ends(&self, id: u32, payload: Writer, ends: Vec<Ended>) {
        self.out.lock().unwrap().reply(id, Ok(payload), Stake::Ends(ends));
    }

    pub fn tell_end(&self, ended: Ended) {
        let payload = Writer::default().u32(ended.pid as u32);
        let message = frame(EXIT, 0, &payload.i32(ended.code).u32(ended.signal as u32));
        self.out.lock().unwrap().put(message, Stake::Ends(vec![ended]));
    }

    pub fn is_closed(&self) -> bool {
        matches!(*self.out.lock().unwrap(), Out::Closed)
    }

    /// The connection is unusable and should be closed.
    pub fn is_broken(&self) -> bool {
        matches!(&*self.out.lock().unwrap(), Out::Socket(queue) if queue.broken)
    }

    pub fn has_waiting(&self) -> bool {
        matches!(&*self.out.lock().unwrap(), Out::Socket(queue) if !queue.waiting.is_empty())
    }

    pub fn flush(&self) {
        if let Out::Socket(queue) = &mut *self.out.lock().unwrap() {
            queue.flush();
        }
    }

    /// Gives the client some time to receive the queued messages.
    pub fn drain(&self, within: Duration) {
        let deadline = Instant::now() + within;
        if let Out::Socket(queue) = &mut *self.out.lock().unwrap() {
            queue.drain(deadline);
        }
    }

    /// The client has disconnected: its unfinished files are removed, later replies are dropped. Returns the exits that
    /// it did not receive.
    pub fn close(&self) -> Vec<Ended> {
        let out = std::mem::replace(&mut *self.out.lock().unwrap(), Out::Closed);
        self.files.abandon();
        match out {
            Out::Socket(queue) => queue.take_back(),
            Out::Stdout | Out::Closed => Vec::new(),
        }
    }
}

impl Out {
    fn reply(&mut self, id: u32, outcome: Outcome<Writer>, stake: Stake) {
        let message = match outcome {
            Ok(payload) => frame(RESULT, id, &payload),
            Err(Error { code, message }) => frame(ERROR, id, &Writer::default().str(&code).str(&message)),
        };
        self.put(message, stake);
    }

    fn put(&mut self, message: Vec<u8>, stake: Stake) {
        match self {
            // a starter that has ended has closed stdin too, and that ends the warden
            Out::Stdout => {
                let _ = sys::write_stdout(&message);
            }
            Out::Socket(queue) => queue.put(message, stake),
            Out::Closed => {}
        }
    }
}

impl Queue {
    fn put(&mut self, bytes: Vec<u8>, stake: Stake) {
        self.unsent += bytes.len();
        self.waiting.push_back(Waiting { bytes, sent: 0, stake });
        self.flush();
        if self.unsent > MAX_QUEUED && !self.broken {
            sys::complain("a client that does not read is dropped");
            self.break_off();
        }
        if !self.waiting.is_empty() {
            self.wake.ring();
        }
    }

    fn flush(&mut self) {
        while let (false, Some(first)) = (self.broken, self.waiting.front_mut()) {
            match (&*self.socket).write(&first.bytes[first.sent..]) {
                Ok(count) => {
                    first.sent += count;
                    self.unsent -= count;
                    if first.sent == first.bytes.len() {
                        self.waiting.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.break_off(),
            }
        }
    }

    fn drain(&mut self, deadline: Instant) {
        self.flush();
        while !self.broken && !self.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [sys::watch(self.socket.as_raw_fd(), libc::POLLOUT)];
            if left.is_zero() || sys::poll(&mut fds, Some(left)).is_err() {
                return;
            }
            self.flush();
        }
    }

    /// The main loop sees the end of the socket and closes the link.
    fn break_off(&mut self) {
        self.broken = true;
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// A message that was sent only in part counts as not sent.
    fn take_back(self) -> Vec<Ended> {
        let mut ends = Vec::new();
        for message in self.waiting {
            match message.stake {
                Stake::Nothing => {}
                Stake::File(path) => {
                    let _ = std::fs::remove_file(path);
                }
                Stake::Ends(more) => ends.extend(more),
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::patience;
    use crate::wire::Splitter;
    use std::io::Read;
    use std::path::Path;

    fn pair() -> (Arc<Link>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let link = Link::socket(Arc::new(ours), Arc::new(Wake::new().unwrap()));
        (link, theirs)
    }

    fn ended(pid: i32) -> Ended {
        Ended {
            pid,
            start_time: 1,
            code: 0,
            signal: 0,
        }
    }

    /// Queues messages until the kernel accepts no more
    fn fill(link: &Link) {
        while !link.has_waiting() {
            link.reply(1, Ok(Writer::default().str(&"x".repeat(10_000))));
        }
    }

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("forkd-link-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        path
    }

    fn make(link: &Link, path: &Path) -> Outcome<(Writer, TempFile)> {
        Ok((Writer::default(), link.files().create(path)?))
    }

    #[test]
    fn acknowledged_files_stay() {
        let folder = folder("reported");
        let (link, mut theirs) = pair();
        let done = make(&link, &folder.join("done"));
        link.reply_with_file(3, done);
        let _begun = make(&link, &folder.join("begun")).unwrap();
        assert!(link.close().is_empty());
        assert!(folder.join("done").exists() && !folder.join("begun").exists());
        drop(link);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert_eq!(got, [5, 0, 0, 0, RESULT, 3, 0, 0, 0]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_disconnected_client_gets_no_messages_and_leaves_no_files() {
        let folder = folder("left");
        let (link, mut theirs) = pair();
        let done = make(&link, &folder.join("done"));
        link.close();
        // the name is free again; the next client's file there is not touched
        std::fs::write(folder.join("done"), "another's").unwrap();
        link.reply_with_file(3, done);
        link.reply(4, Ok(Writer::default()));
        assert_eq!(make(&link, &folder.join("more")).err().unwrap().code, "ESHUTDOWN");
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert!(got.is_empty());
        assert_eq!(std::fs::read(folder.join("done")).unwrap(), b"another's");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn undelivered_replies_are_returned() {
        let folder = folder("undelivered");
        let (link, _theirs) = pair();
        link.tell_end(ended(1));
        fill(&link);
        link.tell_end(ended(2));
        let done = make(&link, &folder.join("done"));
        link.reply_with_file(3, done);
        link.reply_with_ends(4, Writer::default(), vec![ended(3), ended(4)]);
        assert!(folder.join("done").exists());
        assert_eq!(link.close(), [ended(2), ended(3), ended(4)]);
        assert!(!folder.join("done").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_client_that_does_not_read_is_disconnected() {
        let (link, _theirs) = pair();
        for _ in 0..MAX_QUEUED / 10_000 {
            link.reply(1, Ok(Writer::default().str(&"x".repeat(10_000))));
        }
        assert!(link.has_waiting() && !link.is_broken());
        fill(&link);
        for _ in 0..100 {
            link.reply(1, Ok(Writer::default().str(&"x".repeat(10_000))));
        }
        assert!(link.is_broken());
    }

    #[test]
    fn a_client_that_reads_late_gets_all_messages_in_order() {
        let (link, mut theirs) = pair();
        fill(&link);
        link.reply(2, Ok(Writer::default()));
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        link.drain(patience());
        assert!(!link.has_waiting() && !link.is_broken());
        link.close();
        let mut splitter = Splitter::default();
        splitter.push(&reader.join().unwrap());
        let mut last = None;
        while let Some(message) = splitter.next().unwrap() {
            last = Some(message.id);
        }
        assert_eq!(last, Some(2));
    }
}
