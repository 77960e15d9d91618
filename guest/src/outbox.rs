//! Bytes for the host. Bounded, because bulk data is only added while it is not full.

use crate::channels::PIECE;
use crate::protocol::{channel, header, kind, HEADER, MAX_PAYLOAD};
use crate::sys;
use forkd_wire::Writer;
use std::fs::File;
use std::io::{self, Write};

/// Above this, no more output of processes or files is read; small enough that answers do not wait long behind it.
const FULL: usize = 131_072;
/// Above this, no more requests are read: the host sends requests faster than it reads the answers.
const FLOODED: usize = 1 << 20;
const LONGEST_MESSAGE: usize = 1024;

#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() - self.sent >= FULL
    }

    pub fn is_flooded(&self) -> bool {
        self.bytes.len() - self.sent >= FLOODED
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn frame(&mut self, kind: u8, stream: u32, payload: &[u8]) {
        debug_assert!(payload.len() <= MAX_PAYLOAD);
        self.raw(&header(kind, stream, payload.len()));
        self.raw(payload);
    }

    pub fn data(&mut self, stream: u32, channel: u8, bytes: &[u8]) {
        self.raw(&header(kind::DATA, stream, bytes.len() + 1));
        self.bytes.push(channel);
        self.raw(bytes);
    }

    /// Sends DATA from one read of a file; returns the number of bytes, 0 at its end.
    pub fn data_from(&mut self, stream: u32, channel: u8, file: &File, most: usize) -> io::Result<&[u8]> {
        let start = self.bytes.len();
        self.data(stream, channel, &[]);
        let first = self.bytes.len();
        let count = sys::read_into(file, &mut self.bytes, most.min(PIECE)).map_err(|e| {
            self.bytes.truncate(start);
            e
        })?;
        if count == 0 {
            self.bytes.truncate(start);
            return Ok(&[]);
        }
        self.bytes[start..start + HEADER].copy_from_slice(&header(kind::DATA, stream, count + 1));
        Ok(&self.bytes[first..])
    }

    pub fn eof(&mut self, stream: u32, channel: u8) {
        debug_assert!(channel <= channel::CONTROL);
        self.frame(kind::EOF, stream, &[channel]);
    }

    pub fn credit(&mut self, stream: u32, channel: u8, bytes: usize) {
        let payload = Writer::default().u8(channel).u32(bytes as u32).0;
        self.frame(kind::CREDIT, stream, &payload);
    }

    pub fn error(&mut self, stream: u32, code: &str, message: &str) {
        let mut end = message.len().min(LONGEST_MESSAGE);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let payload = Writer::default().str(code).str(&message[..end]).0;
        self.frame(kind::ERROR, stream, &payload);
    }

    /// Sends as much as the port accepts.
    pub fn write_to(&mut self, port: &mut impl Write) -> io::Result<()> {
        while !self.is_empty() {
            match port.write(&self.bytes[self.sent..]) {
                Ok(0) => break,
                Ok(count) => self.sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if self.is_empty() {
            self.clear();
        } else if self.sent >= FULL {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}
