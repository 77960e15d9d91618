//! What the loop has its children do while shares are mounted: requests about files.

use super::{Agent, Stream};
use crate::aside::{is_last, Aside, Frames};
use crate::failure::Failure;
use crate::port::Port;
use crate::protocol::{kind, Frame};
use std::io;
use std::mem;
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;

impl Agent {
    /// Whether a request takes a path that may lead into a share.
    pub(super) fn is_for_a_child(&self, kind: u8) -> bool {
        let takes_path = matches!(
            kind,
            kind::READ
                | kind::WRITE
                | kind::STAT
                | kind::MKDIR
                | kind::MOVE
                | kind::REMOVE
                | kind::CHMOD
                | kind::CHOWN
                | kind::SYMLINK
        );
        takes_path && !self.shares.is_empty()
    }

    /// Has a child answer a request, and all that follows on its stream.
    pub(super) fn set_aside(&mut self, frame: &Frame) -> Result<(), Failure> {
        let signals = self.signals.as_raw_fd();
        // without an agent there is nobody to tell
        let aside = Aside::start(&[signals], |socket| drop(self.serve_aside(frame, socket)))?;
        self.streams.insert(frame.stream, Stream::Aside(aside));
        Ok(())
    }

    /// Frames of a child that answers in our place, or mounts for us.
    pub(super) fn aside_ready(&mut self, number: u32) {
        let frames = match self.streams.get_mut(&number) {
            Some(Stream::Aside(aside) | Stream::Mounting(aside, _)) => aside.ready(&mut self.scratch),
            _ => return,
        };
        for frame in frames {
            let over = frame.as_ref().map_or(true, is_last);
            let stream = if over { self.streams.remove(&number) } else { None };
            match (stream, frame) {
                (Some(Stream::Mounting(_, mount)), Some(frame)) if frame.kind == kind::RESULT => {
                    let share = self.shares.add(mount);
                    self.serve_share(share, number);
                }
                (_, Some(frame)) => self.outbox.frame(frame.kind, number, &frame.payload),
                (Some(_), None) => self.outbox.error(number, "EIO", "the agent's child ended early"),
                (None, None) => {}
            }
        }
    }

    /// In the child: an agent of one stream, whose host is the agent.
    fn serve_aside(&mut self, frame: &Frame, socket: UnixStream) -> io::Result<()> {
        // what is the agent's is not ours to end
        mem::forget(mem::take(&mut self.streams));
        mem::forget(mem::take(&mut self.table));
        mem::forget(mem::take(&mut self.shares));
        mem::forget(mem::take(&mut self.network));
        mem::forget(mem::replace(&mut self.port, Port::over(socket)?));
        mem::forget(mem::take(&mut self.starting));
        self.outbox.clear();
        self.frame(frame);
        let mut frames = Frames::default();
        loop {
            let more = self.send();
            if self.streams.is_empty() && self.outbox.is_empty() {
                return Ok(());
            }
            self.wait(if more { 0 } else { -1 })?;
            if self.port.ready(self.fds[0].revents) {
                let count = self.port.receive(&mut self.scratch);
                frames.push(&self.scratch[..count]);
                while let Some(frame) = frames.next() {
                    self.frame(&frame);
                }
                if !self.port.is_connected() {
                    return Ok(());
                }
            }
            self.sources_ready();
        }
    }
}
