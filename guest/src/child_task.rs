//! Requests that a child of the agent handles: while a share is mounted, any path may lead into it, and the agent would
//! block on a share that it serves itself.

use crate::channels::PIECE;
use crate::outbox::Outbox;
use crate::protocol::{header, kind, Frame, HEADER};
use crate::sys;
use std::borrow::Cow;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::io::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// The agent's end of such a child: frames go in, frames come out. Dropping it early ends the child.
pub struct ChildTask {
    pub socket: UnixStream,
    child: sys::Child,
    incoming: Frames,
    outgoing: Vec<u8>,
    over: bool,
}

impl ChildTask {
    /// Starts a child with the other end of a socket; of the agent's descriptors the child keeps only `keep`.
    pub fn start(keep: &[RawFd], work: impl FnOnce(UnixStream)) -> io::Result<ChildTask> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut kept = vec![theirs.as_raw_fd()];
        kept.extend_from_slice(keep);
        let child = sys::fork_child(&kept, || {
            // a copy: dropping the agent's own descriptor here would close it twice
            if let Ok(socket) = theirs.try_clone() {
                work(socket);
            }
        })?;
        Ok(ChildTask {
            socket: ours,
            child,
            incoming: Frames::default(),
            outgoing: Vec::new(),
            over: false,
        })
    }

    pub fn interest(&self, outbox: &Outbox) -> Option<(RawFd, i16)> {
        let mut events = 0;
        if !outbox.is_full() {
            events |= sys::POLLIN;
        }
        if !self.outgoing.is_empty() {
            events |= sys::POLLOUT;
        }
        (events != 0).then(|| (self.socket.as_raw_fd(), events))
    }

    /// Forwards a frame of the host.
    pub fn frame(&mut self, frame: &Frame) {
        let head = header(frame.kind, frame.stream, frame.payload.len());
        self.outgoing.extend_from_slice(&head);
        self.outgoing.extend_from_slice(&frame.payload);
        self.flush();
    }

    /// The socket is ready: the child's frames in order. `None` means that the child ended without a last frame.
    pub fn ready(&mut self, scratch: &mut [u8]) -> Vec<Option<Frame<'static>>> {
        self.flush();
        let mut found = Vec::new();
        match self.socket.read(&mut scratch[..PIECE]) {
            Ok(count) if count > 0 => {
                self.incoming.push(&scratch[..count]);
                while let Some(frame) = self.incoming.next() {
                    self.over |= is_last(&frame);
                    found.push(Some(frame));
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => {}
            _ => {
                self.over = true;
                found.push(None);
            }
        }
        found
    }

    fn flush(&mut self) {
        while !self.outgoing.is_empty() {
            match self.socket.write(&self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // the child has sent its last frame, which is still to be read
                Err(_) => self.outgoing.clear(),
            }
        }
    }
}

impl Drop for ChildTask {
    fn drop(&mut self) {
        if !self.over {
            self.child.kill();
        }
    }
}

/// Whether this frame ends the stream.
pub fn is_last(frame: &Frame) -> bool {
    matches!(frame.kind, kind::RESULT | kind::ERROR)
}

/// Cuts a byte stream into frames.
#[derive(Default)]
pub struct Frames(Vec<u8>);

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn next(&mut self) -> Option<Frame<'static>> {
        let head = self.0.get(..HEADER)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let frame = Frame {
            kind: head[4],
            stream: u32::from_le_bytes([head[8], head[9], head[10], head[11]]),
            payload: Cow::Owned(self.0.get(HEADER..HEADER + length)?.to_vec()),
        };
        self.0.drain(..HEADER + length);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_may_be_split_anywhere() {
        let mut bytes = Vec::new();
        for (stream, payload) in [(1, &b"payload"[..]), (2, b""), (3, b"x")] {
            bytes.extend_from_slice(&header(kind::DATA, stream, payload.len()));
            bytes.extend_from_slice(payload);
        }
        for size in 1..bytes.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                frames.push(piece);
                while let Some(frame) = frames.next() {
                    assert_eq!(frame.kind, kind::DATA);
                    found.push((frame.stream, frame.payload.to_vec()));
                }
            }
            let all = [(1, b"payload".to_vec()), (2, Vec::new()), (3, b"x".to_vec())];
            assert_eq!(found, all);
        }
    }
}
