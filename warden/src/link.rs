//! A client as the rest of the warden sees it: where its replies go, and what is undone when it is gone.

use crate::children::Ended;
use crate::fault::{Fault, Outcome};
use crate::sys::{self, Wake};
use crate::unfinished::{Files, Unfinished};
use crate::wire::{frame, Writer, ERROR, EXIT, RESULT};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What waits for a client that does not read; several times the longest message
const MAX_QUEUED: usize = 4 << 20;

/// Shared with the threads that work for the client; what they say after it has left goes nowhere.
pub struct Link {
    out: Mutex<Out>,
    files: Arc<Files>,
}

enum Out {
    /// Blocks: a starter that does not read harms only itself
    Stdout,
    /// Never blocks: the children must not depend on a client that can be replaced
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

/// What nobody knows of when a message is not delivered
enum Stake {
    Nothing,
    /// To be removed
    File(PathBuf),
    /// To be told to the next client
    Ends(Vec<Ended>),
}

impl Link {
    pub fn stdout() -> Arc<Link> {
        Link::new(Out::Stdout)
    }

    /// The socket does not block; `wake` is rung when there is something to flush.
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

    pub fn files(&self) -> &Arc<Files> {
        &self.files
    }

    pub fn reply(&self, id: u32, outcome: Outcome<Writer>) {
        self.out.lock().unwrap().reply(id, outcome, Stake::Nothing);
    }

    /// The file stays only if the client is told so.
    pub fn reply_with_file(&self, id: u32, outcome: Outcome<(Writer, Unfinished)>) {
        let (payload, file) = match outcome {
            Ok(done) => done,
            Err(fault) => return self.reply(id, Err(fault)),
        };
        // one lock over both: a client that leaves between them would leave the file behind
        let mut out = self.out.lock().unwrap();
        if matches!(*out, Out::Closed) {
            return;
        }
        match file.finish() {
            Ok(path) => out.reply(id, Ok(payload), Stake::File(path)),
            Err(fault) => out.reply(id, Err(fault), Stake::Nothing),
        }
    }

    pub fn reply_with_ends(&self, id: u32, payload: Writer, ends: Vec<Ended>) {
        self.out.lock().unwrap().reply(id, Ok(payload), Stake::Ends(ends));
    }

    pub fn tell_end(&self, ended: Ended) {
        let payload = Writer::new().u32(ended.pid as u32);
        let message = frame(EXIT, 0, &payload.i32(ended.code).u32(ended.signal as u32));
        self.out.lock().unwrap().put(message, Stake::Ends(vec![ended]));
    }

    pub fn is_closed(&self) -> bool {
        matches!(*self.out.lock().unwrap(), Out::Closed)
    }

    /// The client cannot be talked to any more and should be closed.
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

    /// Gives the client some time to take what waits for it.
    pub fn drain(&self, within: Duration) {
        let deadline = Instant::now() + within;
        if let Out::Socket(queue) = &mut *self.out.lock().unwrap() {
            queue.drain(deadline);
        }
    }

    /// The client is gone: its unfinished files go too, replies that come later are dropped.
    /// Returns the ends of children that it has not been told.
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
            Err(Fault { code, message }) => frame(ERROR, id, &Writer::new().str(&code).str(&message)),
        };
        self.put(message, stake);
    }

    fn put(&mut self, message: Vec<u8>, stake: Stake) {
        match self {
            // a reader that is gone has closed stdin too, and that ends the warden
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

    /// The main loop sees the socket's end and closes the link.
    fn break_off(&mut self) {
        self.broken = true;
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// A message that was sent only in part is none.
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

    /// Until the kernel takes no more
    fn fill(link: &Link) {
        while !link.has_waiting() {
            link.reply(1, Ok(Writer::new().str(&"x".repeat(10_000))));
        }
    }

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("forkd-link-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        path
    }

    fn make(link: &Link, path: &Path) -> Outcome<(Writer, Unfinished)> {
        Ok((Writer::new(), link.files().create(path)?))
    }

    #[test]
    fn what_the_client_was_told_of_stays() {
        let folder = folder("told");
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
    fn nothing_is_said_and_nothing_stays_after_the_client_has_left() {
        let folder = folder("left");
        let (link, mut theirs) = pair();
        let done = make(&link, &folder.join("done"));
        link.close();
        // the name is free for the next client, whose file is not touched
        std::fs::write(folder.join("done"), "another's").unwrap();
        link.reply_with_file(3, done);
        link.reply(4, Ok(Writer::new()));
        assert_eq!(make(&link, &folder.join("more")).err().unwrap().code, "ESHUTDOWN");
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert!(got.is_empty());
        assert_eq!(std::fs::read(folder.join("done")).unwrap(), b"another's");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_not_delivered_is_taken_back() {
        let folder = folder("undelivered");
        let (link, _theirs) = pair();
        link.tell_end(ended(1));
        fill(&link);
        link.tell_end(ended(2));
        let done = make(&link, &folder.join("done"));
        link.reply_with_file(3, done);
        link.reply_with_ends(4, Writer::new(), vec![ended(3), ended(4)]);
        assert!(folder.join("done").exists());
        assert_eq!(link.close(), [ended(2), ended(3), ended(4)]);
        assert!(!folder.join("done").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_client_that_does_not_read_is_broken_off() {
        let (link, _theirs) = pair();
        for _ in 0..MAX_QUEUED / 10_000 {
            link.reply(1, Ok(Writer::new().str(&"x".repeat(10_000))));
        }
        assert!(link.has_waiting() && !link.is_broken());
        fill(&link);
        for _ in 0..100 {
            link.reply(1, Ok(Writer::new().str(&"x".repeat(10_000))));
        }
        assert!(link.is_broken());
    }

    #[test]
    fn a_client_that_reads_late_gets_it_all_in_order() {
        let (link, mut theirs) = pair();
        fill(&link);
        link.reply(2, Ok(Writer::new()));
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        link.drain(Duration::from_secs(60));
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
