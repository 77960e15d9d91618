//! Requests about files that children of the agent handle while shares are mounted.

use super::{Agent, Stream};
use crate::child_task::{is_last, ChildTask, Frames};
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

    /// Lets a child handle a request and all later frames of its stream.
    pub(super) fn run_in_child(&mut self, frame: &Frame) -> Result<(), Failure> {
        let signals = self.signals.as_raw_fd();
        // an error means that the agent has ended
        let child = ChildTask::start(&[signals], |socket| drop(self.serve_in_child(frame, socket)))?;
        self.streams.insert(frame.stream, Stream::Child(child));
        Ok(())
    }

    /// Frames of a child that answers for the agent, or mounts.
    pub(super) fn child_ready(&mut self, number: u32) {
        let frames = match self.streams.get_mut(&number) {
            Some(Stream::Child(child) | Stream::Mounting(child, _)) => child.ready(&mut self.scratch),
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

    /// Runs in the child: an agent with one stream, whose host is the parent agent.
    fn serve_in_child(&mut self, frame: &Frame, socket: UnixStream) -> io::Result<()> {
        // must not drop the parent agent's streams, which would end their processes
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
