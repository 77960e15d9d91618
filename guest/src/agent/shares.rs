//! The loop's handling of shares.

use super::{Agent, Stream};
use crate::failure::Failure;
use crate::protocol::kind;
use crate::share::Place;
use crate::shares::{self, Mount};
use crate::sys;
use forkd_wire::Reader;

impl Agent {
    pub(super) fn mount(&mut self, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader::new(payload);
        let (target, name) = (reader.str()?, reader.str()?);
        let place = Place { target, name };
        let there = self.shares.find(&place.target);
        if let Some(number) = there {
            if self.shares.get(number).map_or(false, |share| share.place == place) {
                self.serve_share(number, stream);
                return Ok(());
            }
            self.forget_share(number);
        }
        let mount = Mount::new(place, there.is_some())?;
        if self.shares.is_empty() {
            mount.perform()?;
            let number = self.shares.add(mount);
            self.serve_share(number, stream);
        } else {
            let child = mount.perform_in_child(stream)?;
            self.streams.insert(stream, Stream::Mounting(child, mount));
        }
        Ok(())
    }

    pub(super) fn serve_share(&mut self, number: u32, stream: u32) {
        if let Some(former) = self.shares.attach(number, stream, &mut self.outbox) {
            self.streams.remove(&former);
            let message = "another stream serves the share";
            self.outbox.error(former, "taken_over", message);
        }
        self.streams.insert(stream, Stream::Share(number));
    }

    pub(super) fn unmount(&mut self, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        let target = Reader::new(payload).str()?;
        let found = self.shares.find(&target);
        found.map(|number| self.forget_share(number));
        if found.is_none() || self.shares.is_empty() {
            found.map(|_| sys::unmount(&target));
            self.outbox.frame(kind::RESULT, stream, &[]);
        } else {
            self.streams
                .insert(stream, Stream::Child(shares::unmount_in_child(target, stream)?));
        }
        Ok(())
    }

    /// Removes a share whose stream the host has closed.
    pub(super) fn end_share(&mut self, number: u32) {
        if let Some(target) = self.forget_share(number) {
            // a program may have unmounted it; if no child can be started it stays mounted and returns errors
            let _ = match self.shares.is_empty() {
                true => sys::unmount(&target),
                false => sys::fork_child(&[], || drop(sys::unmount(&target))).map(drop),
            };
        }
    }

    pub(super) fn share_ready(&mut self, number: u32) {
        let result = match self.shares.get(number) {
            Some(share) => share.ready(&mut self.outbox, &mut self.scratch),
            None => return,
        };
        if let Err(gone) = result {
            self.drop_share(number, &gone.into());
        }
    }

    fn forget_share(&mut self, number: u32) -> Option<String> {
        self.streams
            .retain(|_, stream| !matches!(stream, Stream::Share(other) if *other == number));
        self.shares.remove(number)
    }

    /// Removes a share that a program has unmounted.
    fn drop_share(&mut self, number: u32, failure: &Failure) {
        self.shares.remove(number);
        let is_its = |stream: &Stream| matches!(stream, Stream::Share(other) if *other == number);
        let found = self.streams.iter().find(|(_, stream)| is_its(stream));
        if let Some(stream) = found.map(|(number, _)| *number) {
            self.streams.remove(&stream);
            failure.report(stream, &mut self.outbox);
        }
    }
}
