//! The channels of a process: buffer and flow control of output, queue and flow control of input.

use crate::outbox::Outbox;
use crate::protocol::{CREDIT_STEP, WINDOW};
use crate::ring::Ring;
use crate::sys;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::io::AsRawFd;

/// Most bytes read or sent at once, so that no process starves the others.
pub const PIECE: usize = 61440;
/// More than a terminal buffers between its program and the agent.
const TERMINAL_HOLDS: u64 = 65536;
/// Control bytes accepted from previous streams add up; beyond this, attaching is refused.
const MOST_INPUT: usize = 4 * WINDOW;

/// stdout or stderr.
pub struct Output {
    pub channel: u8,
    pub pipe: Option<File>,
    pub ring: Ring,
    /// Offset up to which the attached stream has received it.
    pub sent: u64,
    pub credit: usize,
    /// After the end of the process: the offset at which its output ends.
    pub last: Option<u64>,
    /// Whether a later stream may ask for earlier output.
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

    /// The offset behind the last byte that the process has written.
    pub fn written(&self) -> u64 {
        let waiting = self.pipe.as_ref().map_or(0, |p| sys::waiting(p.as_raw_fd()));
        self.ring.end() + waiting
    }

    /// The process has ended: the output until now belongs to it, later output does not.
    pub fn finish(&mut self, terminal: bool) {
        // the amount that a terminal still buffers is unknown: it is read until it returns nothing
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

    /// Reads once from the pipe; for an attached stream directly into the outbox.
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

    /// Sends buffered output as far as credit allows.
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
    /// Bytes in the queue from previous streams: no credit is returned for them.
    foreign: usize,
    /// Bytes that the host may still send.
    window: usize,
    /// Bytes that the host may have in transit.
    whole: usize,
    consumed: usize,
    pub closing: bool,
}

impl Input {
    /// `false`: more than the credit. Bytes that the receiver accepts at once never enter the queue.
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
            // flush meets the same error again
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

    /// Writes what the receiver accepts now; `false` if it will never accept more.
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

    /// A stream begins with the whole window, regardless of bytes left by the previous one.
    pub fn attach(&mut self) {
        self.open(WINDOW);
    }

    /// The window of a new stream.
    pub fn open(&mut self, window: usize) {
        self.foreign = self.queue.len();
        self.window = window;
        self.whole = window;
        self.consumed = 0;
    }

    /// A stream begins with the room that is left, so that queued bytes never add up; returns that room.
    pub fn resume(&mut self) -> usize {
        self.window = WINDOW.saturating_sub(self.queue.len());
        self.whole = WINDOW;
        self.consumed = 0;
        self.window
    }

    /// Enlarges the window; returns the credit to send for it.
    pub fn widen(&mut self, window: usize) -> usize {
        let more = window - self.whole;
        self.window += more;
        self.whole = window;
        more
    }
}

#[cfg(test)]
mod tests;
