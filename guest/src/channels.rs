//! The two directions of a process's channels: memory and flow control of output, queue and flow control of input.

use crate::outbox::Outbox;
use crate::protocol::{CREDIT_STEP, WINDOW};
use crate::ring::Ring;
use crate::sys;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::io::AsRawFd;

/// The most that is read or sent at once, so that no process starves the others.
pub const PIECE: usize = 61440;
/// More than a terminal can hold between its program and us.
const TERMINAL_HOLDS: u64 = 65536;
/// Control bytes that were accepted from former streams add up; beyond this a further host end is refused.
const MOST_INPUT: usize = 4 * WINDOW;

/// stdout or stderr.
pub struct Output {
    pub channel: u8,
    pub pipe: Option<File>,
    pub ring: Ring,
    /// Offset up to which the attached stream has got it.
    pub sent: u64,
    pub credit: usize,
    /// After the end of the process: the offset at which its output ends.
    pub last: Option<u64>,
    /// Whether somebody may attach later and want what was written before.
    pub keeps: bool,
}

impl Output {
    pub fn new(channel: u8, pipe: Option<File>) -> Output {
        Output {
            channel,
            pipe,
            ring: Ring::default(),
            sent: 0,
            credit: 0,
            last: None,
            keeps: true,
        }
    }

    /// The offset behind what the process has written so far.
    pub fn written(&self) -> u64 {
        let waiting = self.pipe.as_ref().map_or(0, |p| sys::waiting(p.as_raw_fd()));
        self.ring.end() + waiting
    }

    /// The process has ended: what it has written until now still belongs to it, nothing later does.
    pub fn finish(&mut self, terminal: bool) {
        // what a terminal still holds cannot be asked for: it is read until it gives nothing
        let last = if terminal {
            self.ring.end() + TERMINAL_HOLDS
        } else {
            self.written()
        };
        self.last = Some(last);
        if last == self.ring.end() {
            self.pipe = None;
        }
    }

    pub fn caught_up(&self) -> bool {
        self.sent >= self.ring.end()
    }

    pub fn may_read(&self, attached: bool, outbox: &Outbox) -> bool {
        self.pipe.is_some() && (!attached || (self.caught_up() && self.credit > 0 && !outbox.is_full()))
    }

    /// Reads once from the pipe; for an attached stream right into the outbox.
    pub fn read(&mut self, stream: Option<u32>, outbox: &mut Outbox, scratch: &mut [u8]) {
        let mut most = scratch.len();
        if stream.is_some() {
            most = most.min(self.credit);
        }
        if let Some(last) = self.last {
            most = most.min((last - self.ring.end()) as usize);
        }
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            None => return,
        };
        let result = match stream {
            Some(stream) => outbox.data_from(stream, self.channel, pipe, most),
            None => pipe.read(&mut scratch[..most]).map(|count| &scratch[..count]),
        };
        match result {
            Ok(bytes) if !bytes.is_empty() => {
                match self.keeps {
                    true => self.ring.push(bytes),
                    false => self.ring.pass(bytes.len()),
                }
                if stream.is_some() {
                    self.credit -= bytes.len();
                    self.sent = self.ring.end();
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock && self.last.is_none() => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            _ => self.pipe = None,
        }
        if self.last == Some(self.ring.end()) {
            self.pipe = None;
        }
    }

    /// Sends what is kept and not yet sent, as far as credit goes.
    pub fn send(&mut self, stream: u32, outbox: &mut Outbox) {
        while !self.caught_up() && self.credit > 0 && !outbox.is_full() {
            let piece = self.ring.read(self.sent, self.credit.min(PIECE));
            outbox.data(stream, self.channel, piece);
            self.credit -= piece.len();
            self.sent += piece.len() as u64;
        }
    }
}

/// Bytes for stdin or the control channel.
#[derive(Default)]
pub struct Input {
    pub queue: VecDeque<u8>,
    /// Of the queue, what came from former streams: no credit is given back for it.
    foreign: usize,
    /// What the host may still send.
    window: usize,
    /// What it may have on its way.
    whole: usize,
    consumed: usize,
    pub closing: bool,
}

impl Input {
    /// `false`: more than the host may send. What the receiver takes at once never gets into the queue.
    pub fn accept(&mut self, bytes: &[u8], sink: Option<&mut impl Write>) -> bool {
        if bytes.len() > self.window || self.queue.len() + bytes.len() > MOST_INPUT {
            return false;
        }
        self.window -= bytes.len();
        if self.closing {
            self.consumed += bytes.len();
            return true;
        }
        let mut rest = bytes;
        if let (true, Some(sink)) = (self.queue.is_empty(), sink) {
            // whatever it fails with is met again by flush
            while let Ok(count @ 1..) = sink.write(rest) {
                rest = &rest[count..];
            }
        }
        self.consumed += bytes.len() - rest.len();
        self.queue.extend(rest);
        true
    }

    fn used(&mut self, count: usize) {
        let foreign = count.min(self.foreign);
        self.foreign -= foreign;
        self.consumed += count - foreign;
        self.queue.drain(..count);
    }

    /// Writes what the receiver takes now; `false` when it will never take any more.
    pub fn flush(&mut self, sink: Option<&mut impl Write>) -> bool {
        if let Some(sink) = sink {
            while !self.queue.is_empty() {
                match sink.write(self.queue.as_slices().0) {
                    Ok(count) => self.used(count),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        self.used(self.queue.len());
                        return false;
                    }
                }
            }
            return true;
        }
        self.used(self.queue.len());
        false
    }

    pub fn give_credit(&mut self, stream: Option<u32>, channel: u8, outbox: &mut Outbox) {
        if let (Some(stream), true) = (stream, self.consumed >= CREDIT_STEP.min(self.whole / 2)) {
            outbox.credit(stream, channel, self.consumed);
            self.window += self.consumed;
            self.consumed = 0;
        }
    }

    /// A stream begins with the whole window, whatever the one before has left here.
    pub fn attach(&mut self) {
        self.open(WINDOW);
    }

    /// Takes so many bytes from a new stream before it gives credit.
    pub fn open(&mut self, window: usize) {
        self.foreign = self.queue.len();
        self.window = window;
        self.whole = window;
        self.consumed = 0;
    }

    /// A stream begins with the room that is left, so that it never adds up; how much that is.
    pub fn resume(&mut self) -> usize {
        self.window = WINDOW.saturating_sub(self.queue.len());
        self.whole = WINDOW;
        self.consumed = 0;
        self.window
    }

    /// Takes more at a time from now on; the credit to give for that.
    pub fn widen(&mut self, window: usize) -> usize {
        let more = window - self.whole;
        self.window += more;
        self.whole = window;
        more
    }
}

#[cfg(test)]
mod tests;
