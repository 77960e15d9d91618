//! The descriptors that the loop polls.

use super::{Agent, Source, Stream};
use crate::sys;
use std::io;
use std::os::unix::io::AsRawFd;

impl Agent {
    pub(super) fn wait(&mut self, timeout: i32) -> io::Result<()> {
        let (fds, sources) = (&mut self.fds, &mut self.sources);
        fds.clear();
        sources.clear();
        let (read, write) = (!self.outbox.is_flooded(), !self.outbox.is_empty());
        fds.push(self.port.interest(read, write));
        fds.push(sys::poll_fd(self.signals.as_raw_fd(), sys::POLLIN));
        self.table.interests(&self.outbox, |id, part, fd, events| {
            fds.push(sys::poll_fd(fd, events));
            sources.push(Source::Process(id, part));
        });
        for (number, stream) in &self.streams {
            let interest = match stream {
                Stream::Socket(socket) => socket.interest(&self.outbox),
                Stream::Download(download) => download.interest(&self.outbox).map(|fd| (fd, sys::POLLIN)),
                Stream::Upload(upload) => upload.interest().map(|fd| (fd, sys::POLLOUT)),
                Stream::Child(child) | Stream::Mounting(child, _) => child.interest(&self.outbox),
                Stream::Process(_) | Stream::Starting(_) | Stream::Share(_) => None,
            };
            if let Some((fd, events)) = interest {
                fds.push(sys::poll_fd(fd, events));
                sources.push(Source::Stream(*number));
            }
        }
        if !self.outbox.is_full() {
            self.network.interests(|socket, fd| {
                fds.push(sys::poll_fd(fd, sys::POLLIN));
                sources.push(Source::EgressSocket(socket));
            });
        }
        for starting in self.starting.values() {
            let (fd, events) = starting.interest();
            fds.push(sys::poll_fd(fd, events));
            sources.push(Source::Starting);
        }
        self.shares.interests(&self.outbox, |number, fd, events| {
            fds.push(sys::poll_fd(fd, events));
            sources.push(Source::Share(number));
        });
        sys::poll(fds, timeout)
    }
}
