//! A host folder mounted in the guest: the guest kernel queries the agent (FUSE), the agent queries the host.
//!
//! The agent keeps the guest kernel's nodes and pending requests; the host keeps no state. So a share continues to work
//! when another host attaches, after a fork and after a restart of the daemon.

#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod listing;
mod nodes;
mod record;

use crate::failure::Failure;
use crate::fuse::{self, op, Request};
use crate::outbox::Outbox;
use crate::protocol::{channel, kind, CREDIT_STEP, WINDOW};
use crate::sys;
use forkd_wire::{Malformed, Reader};
#[cfg(any(test, feature = "fuzz"))]
pub use fuzz::fuzz;
use listing::{Listing, Reading};
use nodes::Nodes;
use record::{Answers, Op, Question};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::io::{AsRawFd, RawFd};

/// Above this, requests wait in the guest kernel.
const MOST_PENDING: usize = 1024;
/// Bytes of a folder requested from the host at a time.
const LIST_BYTES: u32 = 32768;

/// The guest kernel's request behind a query.
enum Purpose {
    Lookup { parent: u64, name: Vec<u8> },
    Attributes(u64),
    Content,
    Folder(Reading),
}

struct Pending {
    purpose: Purpose,
    /// The query as sent, for a host that has not seen it yet.
    record: Vec<u8>,
}

/// The stream to the host.
struct Link {
    stream: u32,
    credit: usize,
    consumed: usize,
    answers: Answers,
}

/// The mount point and the share's name. Another name at the same path is another share.
#[derive(PartialEq, Eq)]
pub struct Place {
    pub target: String,
    pub name: String,
}

pub struct Share {
    pub place: Place,
    fuse: File,
    nodes: Nodes,
    listings: BTreeMap<u64, Listing>,
    last_handle: u64,
    pending: BTreeMap<u64, Pending>,
    unsent: VecDeque<u64>,
    link: Option<Link>,
}

impl Share {
    /// Serves the mount at `place`, whose requests come from this descriptor.
    pub fn new(place: Place, fuse: File) -> Share {
        Share {
            place,
            fuse,
            nodes: Nodes::default(),
            listings: BTreeMap::new(),
            last_handle: 0,
            pending: BTreeMap::new(),
            unsent: VecDeque::new(),
            link: None,
        }
    }

    /// From now on this stream answers; unanswered queries are sent again. Returns the previous stream.
    pub fn attach(&mut self, stream: u32) -> Option<u32> {
        let former = self.detach();
        self.link = Some(Link {
            stream,
            credit: WINDOW,
            consumed: 0,
            answers: Answers::default(),
        });
        former
    }

    /// The host has detached: requests wait for the next host.
    pub fn detach(&mut self) -> Option<u32> {
        self.unsent = self.pending.keys().copied().collect();
        self.link.take().map(|link| link.stream)
    }

    /// A program in the guest has unmounted it.
    pub fn is_unmounted(&self) -> bool {
        let mut fd = [sys::poll_fd(self.fuse.as_raw_fd(), 0)];
        sys::poll(&mut fd, 0).is_err() || fd[0].revents & sys::POLLERR != 0
    }

    fn credit(&mut self, bytes: usize) {
        if let Some(link) = &mut self.link {
            link.credit = link.credit.saturating_add(bytes).min(WINDOW);
        }
    }

    /// The descriptor to poll.
    pub fn interest(&self, outbox: &Outbox) -> Option<(RawFd, i16)> {
        self.may_read(outbox).then(|| (self.fuse.as_raw_fd(), sys::POLLIN))
    }

    fn may_read(&self, outbox: &Outbox) -> bool {
        match self.link {
            Some(_) => self.unsent.is_empty() && !outbox.is_full(),
            // so that an interrupted process need not wait although no host answers
            None => self.pending.len() < MOST_PENDING,
        }
    }

    /// The guest kernel has requests; an error if it will have no more, because the share was unmounted.
    pub fn ready(&mut self, outbox: &mut Outbox, scratch: &mut [u8]) -> io::Result<()> {
        debug_assert!(scratch.len() >= fuse::SMALLEST_BUFFER);
        while self.may_read(outbox) {
            match self.fuse.read(scratch) {
                Ok(count) => {
                    if let Some(request) = Request::parse(&scratch[..count]) {
                        self.request(&request);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // ENOENT: the request was withdrawn while it was read
                Err(e) if e.kind() == io::ErrorKind::Interrupted || e.raw_os_error() == Some(libc::ENOENT) => {}
                Err(e) => return Err(e),
            }
            self.pump(outbox);
        }
        Ok(())
    }

    /// Sends unsent queries as far as credit allows.
    pub fn pump(&mut self, outbox: &mut Outbox) {
        let link = match &mut self.link {
            Some(link) => link,
            None => return,
        };
        while let Some(unique) = self.unsent.front() {
            if let Some(pending) = self.pending.get(unique) {
                if pending.record.len() > link.credit || outbox.is_full() {
                    return;
                }
                outbox.data(link.stream, channel::STDIN, &pending.record);
                link.credit -= pending.record.len();
            }
            self.unsent.pop_front();
        }
    }

    /// A frame of the host.
    pub fn frame(&mut self, kind: u8, reader: &mut Reader, outbox: &mut Outbox) -> Result<(), Failure> {
        match kind {
            kind::CREDIT => {
                self.credit(reader.u32()? as usize);
                self.pump(outbox);
                Ok(())
            }
            kind::DATA => self.data(reader.rest(), outbox),
            _ => Err(Failure::Malformed),
        }
    }

    /// Answers of the host.
    fn data(&mut self, bytes: &[u8], outbox: &mut Outbox) -> Result<(), Failure> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => return Ok(()),
        };
        link.consumed += bytes.len();
        link.answers.push(bytes);
        let result = loop {
            match link.answers.next() {
                Ok(Some(answer)) => self.answered(answer.id, answer.body),
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed),
            }
        };
        if link.consumed >= CREDIT_STEP {
            outbox.credit(link.stream, channel::STDIN, link.consumed);
            link.consumed = 0;
        }
        self.link = Some(link);
        result?;
        self.pump(outbox);
        Ok(())
    }

    fn request(&mut self, request: &Request) {
        let done = match request.opcode {
            op::FORGET => {
                self.nodes.forget(request.node, request.number().unwrap_or(0));
                return;
            }
            op::BATCH_FORGET => {
                for (node, times) in request.forgets() {
                    self.nodes.forget(node, times);
                }
                return;
            }
            op::INTERRUPT => return self.interrupt(request.number().unwrap_or(0)),
            op::INIT => request.init().ok_or(libc::EPROTO).map(Some),
            op::OPEN if request.wants_to_write() => Err(libc::EROFS),
            // an open file has no state besides its node; after this answer the guest kernel opens files without asking
            op::OPEN => Err(libc::ENOSYS),
            op::OPENDIR => self.open_folder(),
            op::RELEASEDIR => {
                self.listings.remove(&request.number().unwrap_or(0));
                Ok(Some(Vec::new()))
            }
            op::RELEASE | op::DESTROY => Ok(Some(Vec::new())),
            op::STATFS => Ok(Some(fuse::statistics())),
            op::LOOKUP => self.look_up(request),
            op::GETATTR => self.ask(request, Op::Stat, (0, 0), Purpose::Attributes(request.node)),
            op::READLINK => self.ask(request, Op::Link, (0, 0), Purpose::Content),
            op::READ => match request.range() {
                Some((_, offset, size)) => self.ask(request, Op::Read, (offset, size), Purpose::Content),
                None => Err(libc::EINVAL),
            },
            op::READDIR | op::READDIRPLUS => self.read_folder(request),
            opcode if fuse::is_change(opcode) => Err(libc::EROFS),
            _ => Err(libc::ENOSYS),
        };
        match done {
            Ok(Some(body)) => self.answer(request.unique, Ok(&body)),
            Ok(None) => {}
            Err(errno) => self.answer(request.unique, Err(errno)),
        }
    }

    /// The guest kernel may have dropped the request or the whole share; that is detected elsewhere.
    fn answer(&mut self, unique: u64, body: Result<&[u8], i32>) {
        let head = fuse::answer_head(unique, body.map(<[u8]>::len));
        let parts = [IoSlice::new(&head), IoSlice::new(body.unwrap_or_default())];
        match self.fuse.write_vectored(&parts) {
            // after an invalid answer the request must still end, or its process would hang
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                let _ = self.fuse.write(&fuse::answer_head(unique, Err(libc::EIO)));
            }
            _ => {}
        }
    }

    /// While a host is attached, its answer is awaited: programs do not expect a file read to be interrupted.
    fn interrupt(&mut self, unique: u64) {
        if self.link.is_none() && self.pending.remove(&unique).is_some() {
            self.unsent.retain(|other| *other != unique);
            self.answer(unique, Err(libc::EINTR));
        }
    }

    fn open_folder(&mut self) -> Result<Option<Vec<u8>>, i32> {
        self.last_handle += 1;
        self.listings.insert(self.last_handle, Listing::default());
        Ok(Some(fuse::opened(self.last_handle)))
    }

    fn look_up(&mut self, request: &Request) -> Result<Option<Vec<u8>>, i32> {
        let name = request.name().ok_or(libc::EINVAL)?;
        let path = self.nodes.path_of(request.node, name)?;
        let question = Question {
            op: Op::Stat,
            inode: 0,
            offset: 0,
            size: 0,
            path: &path,
        };
        let (parent, name) = (request.node, name.to_vec());
        self.send(request.unique, &question, Purpose::Lookup { parent, name });
        Ok(None)
    }

    /// Queries the host about a node.
    fn ask(
        &mut self,
        request: &Request,
        op: Op,
        (offset, size): (u64, u32),
        purpose: Purpose,
    ) -> Result<Option<Vec<u8>>, i32> {
        let (path, inode) = self.nodes.path(request.node)?;
        let question = Question {
            op,
            inode,
            offset,
            size,
            path: &path,
        };
        self.send(request.unique, &question, purpose);
        Ok(None)
    }

    fn send(&mut self, unique: u64, question: &Question, purpose: Purpose) {
        let record = question.record(unique);
        self.pending.insert(unique, Pending { purpose, record });
        self.unsent.push_back(unique);
    }

    fn answered(&mut self, unique: u64, body: Result<&[u8], i32>) {
        let pending = match self.pending.remove(&unique) {
            Some(pending) => pending,
            None => return,
        };
        let body = match body {
            Ok(body) => body,
            Err(libc::ENOENT) if matches!(pending.purpose, Purpose::Lookup { .. }) => {
                return self.answer(unique, Ok(&fuse::entry(None)));
            }
            Err(errno) => return self.answer(unique, Err(errno)),
        };
        match self.understood(pending.purpose, body) {
            Ok(Ok(made)) => self.answer(unique, Ok(made.as_deref().unwrap_or(body))),
            Ok(Err(errno)) => self.answer(unique, Err(errno)),
            Err(Malformed) => self.answer(unique, Err(libc::EIO)),
        }
    }

    /// The answer for the guest kernel; `None`: the host's body unchanged.
    fn understood(&mut self, purpose: Purpose, body: &[u8]) -> Result<Result<Option<Vec<u8>>, i32>, Malformed> {
        Ok(match purpose {
            Purpose::Content => Ok(None),
            Purpose::Lookup { parent, name } => {
                let found = record::attributes(&mut Reader::new(body))?;
                let node = self.nodes.tell(parent, &name, &found);
                Ok(Some(fuse::entry(Some((node, &found)))))
            }
            Purpose::Attributes(node) => {
                let found = record::attributes(&mut Reader::new(body))?;
                match self.nodes.is_same(node, &found) {
                    true => Ok(Some(fuse::attributes(&found))),
                    false => Err(libc::ESTALE),
                }
            }
            Purpose::Folder(reading) => {
                let mut listing = Listing::new(record::entries(body)?, reading.offset);
                let filled = listing.fill(&reading, &mut self.nodes);
                self.listings.insert(reading.handle, listing);
                Ok(Some(filled))
            }
        })
    }

    fn read_folder(&mut self, request: &Request) -> Result<Option<Vec<u8>>, i32> {
        let (handle, offset, size) = request.range().ok_or(libc::EINVAL)?;
        let reading = Reading {
            node: request.node,
            handle,
            offset,
            size,
            plus: request.opcode == op::READDIRPLUS,
        };
        let listing = self.listings.get_mut(&handle).ok_or(libc::EBADF)?;
        if listing.has(offset) {
            return Ok(Some(listing.fill(&reading, &mut self.nodes)));
        }
        self.ask(
            request,
            Op::List,
            (reading.place(), LIST_BYTES),
            Purpose::Folder(reading),
        )
    }
}

#[cfg(test)]
mod tests;
