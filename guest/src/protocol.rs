//! Frames of the agent protocol, version 2. The contract is spec/agent-protocol.md.

use std::borrow::Cow;
use std::ops::Range;

pub const VERSION: u32 = 2;
pub const MAX_PAYLOAD: usize = 65536;
pub const WINDOW: usize = 262_144;
/// Window of connections that the agent opens: there may be many.
pub const DIAL_WINDOW: usize = 65536;
pub const HEADER: usize = 12;
pub const CREDIT_STEP: usize = 65536;
const MARK: u16 = 0x6b66;
const ATTACH_MAGIC: &[u8; 16] = b"forkd-attach/1\r\n";
const ATTACHED_MAGIC: &[u8; 16] = b"forkd-attached\r\n";
const NEEDLE: usize = 32;
const RECORD: usize = 48;
/// Most bytes received at once; the buffer holds several times as much, so that it is seldom moved.
const ROOM: usize = 65536;
const BUFFER: usize = 4 * ROOM;

/// Frame types.
pub mod kind {
    pub const HELLO: u8 = 0x01;
    pub const PING: u8 = 0x02;
    pub const RESULT: u8 = 0x03;
    pub const ERROR: u8 = 0x04;
    pub const CREDIT: u8 = 0x05;
    pub const DATA: u8 = 0x06;
    pub const EOF: u8 = 0x07;
    pub const CANCEL: u8 = 0x08;
    pub const EXEC: u8 = 0x10;
    pub const STARTED: u8 = 0x11;
    pub const EXIT: u8 = 0x12;
    pub const SIGNAL: u8 = 0x13;
    pub const ATTACH: u8 = 0x14;
    pub const LIST: u8 = 0x15;
    pub const RESIZE: u8 = 0x16;
    pub const TOOL: u8 = 0x18;
    pub const READ: u8 = 0x20;
    pub const WRITE: u8 = 0x21;
    pub const STAT: u8 = 0x22;
    pub const MKDIR: u8 = 0x24;
    pub const MOVE: u8 = 0x25;
    pub const REMOVE: u8 = 0x26;
    pub const CHMOD: u8 = 0x27;
    pub const CHOWN: u8 = 0x28;
    pub const SYMLINK: u8 = 0x29;
    pub const RESYNC: u8 = 0x30;
    pub const CLOCK: u8 = 0x31;
    pub const POWEROFF: u8 = 0x32;
    pub const REGIONS: u8 = 0x33;
    pub const HOLD: u8 = 0x34;
    pub const METRICS: u8 = 0x35;
    pub const CONNECT: u8 = 0x40;
    pub const OPENED: u8 = 0x41;
    pub const DIAL: u8 = 0x42;
    pub const RESOLVE: u8 = 0x43;
    pub const NETWORK: u8 = 0x44;
    pub const LISTENERS: u8 = 0x45;
    pub const MOUNT: u8 = 0x50;
    pub const UNMOUNT: u8 = 0x51;

    /// Whether a frame of the host is a request; unknown types are.
    pub fn opens_a_stream(kind: u8) -> bool {
        !matches!(
            kind,
            RESULT | ERROR | CREDIT | DATA | EOF | CANCEL | SIGNAL | RESIZE | OPENED
        )
    }
}

/// Channels of a stream.
pub mod channel {
    pub const STDIN: u8 = 0;
    pub const STDOUT: u8 = 1;
    pub const STDERR: u8 = 2;
    pub const CONTROL: u8 = 3;
}

/// The payload stays in the receive buffer, so that bulk data is not copied again.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: u8,
    pub stream: u32,
    pub payload: Cow<'a, [u8]>,
}

pub fn header(kind: u8, stream: u32, payload: usize) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[0..4].copy_from_slice(&(payload as u32).to_le_bytes());
    out[4] = kind;
    out[6..8].copy_from_slice(&MARK.to_le_bytes());
    out[8..12].copy_from_slice(&stream.to_le_bytes());
    out
}

impl Frame<'_> {
    /// A copy that outlives the receive buffer.
    pub fn to_owned(&self) -> Frame<'static> {
        Frame {
            kind: self.kind,
            stream: self.stream,
            payload: Cow::Owned(self.payload.to_vec()),
        }
    }
}

/// The answer to an attach record.
pub fn attached_record(nonce: &[u8; 16]) -> [u8; 32] {
    let mut out = [0; 32];
    out[..16].copy_from_slice(ATTACHED_MAGIC);
    out[16..].copy_from_slice(nonce);
    out
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A host attached with this nonce; earlier frames belong to another connection.
    Attach([u8; 16]),
    Frame(Frame<'a>),
}

/// Turns received bytes into frames, and finds the attach record at any position, also inside a frame.
pub struct Decoder {
    needle: [u8; NEEDLE],
    /// Horspool's table: how far the search may skip, by the byte under the needle's end.
    skip: [u8; 256],
    buffer: Vec<u8>,
    /// Received bytes in the buffer.
    filled: usize,
    /// Start of the next frame.
    at: usize,
    /// No record begins before this position.
    searched: usize,
    found: Option<usize>,
    synchronised: bool,
}

impl Decoder {
    pub fn new(key: &[u8; 16]) -> Decoder {
        let mut needle = [0; NEEDLE];
        needle[..16].copy_from_slice(ATTACH_MAGIC);
        needle[16..].copy_from_slice(key);
        let mut skip = [NEEDLE as u8; 256];
        for (at, byte) in needle[..NEEDLE - 1].iter().enumerate() {
            skip[*byte as usize] = (NEEDLE - 1 - at) as u8;
        }
        Decoder {
            needle,
            skip,
            buffer: vec![0; BUFFER],
            filled: 0,
            at: 0,
            searched: 0,
            found: None,
            synchronised: false,
        }
    }

    /// Receives bytes: `receive` fills as much of the room as it can and returns the number of bytes. `next` must have
    /// returned `None` before.
    pub fn fill(&mut self, receive: impl FnOnce(&mut [u8]) -> usize) {
        // consumed bytes stay while an attach record may still begin in them
        let done = self.at.min(self.searched);
        if done > 0 && (done + NEEDLE > self.filled || self.buffer.len() - self.filled < ROOM) {
            self.buffer.copy_within(done..self.filled, 0);
            self.filled -= done;
            self.at -= done;
            self.searched -= done;
            self.found = self.found.map(|at| at - done);
        }
        let room = self.filled + ROOM.min(self.buffer.len() - self.filled);
        self.filled += receive(&mut self.buffer[self.filled..room]);
    }

    pub fn next(&mut self) -> Option<Event<'_>> {
        if self.found.is_none() {
            self.search();
        }
        let end = self.found.unwrap_or(self.filled);
        if let Some((kind, stream, payload)) = self.frame(end) {
            let payload = Cow::Borrowed(&self.buffer[payload]);
            return Some(Event::Frame(Frame { kind, stream, payload }));
        }
        let record = self.found?;
        let nonce = self.buffer[..self.filled].get(record + NEEDLE..record + RECORD)?;
        let mut copy = [0; 16];
        copy.copy_from_slice(nonce);
        self.at = record + RECORD;
        self.searched = self.at;
        self.found = None;
        self.synchronised = true;
        Some(Event::Attach(copy))
    }

    /// Number of buffered bytes, for tests of the bound.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.filled - self.at.min(self.searched)
    }

    fn search(&mut self) {
        while self.searched + NEEDLE <= self.filled {
            let window = &self.buffer[self.searched..self.searched + NEEDLE];
            if window == self.needle {
                self.found = Some(self.searched);
                return;
            }
            self.searched += self.skip[window[NEEDLE - 1] as usize] as usize;
        }
    }

    /// The next frame before `end`: type, stream and the range of its payload.
    fn frame(&mut self, end: usize) -> Option<(u8, u32, Range<usize>)> {
        if !self.synchronised {
            self.at = end.max(self.at);
            return None;
        }
        let head = self.buffer.get(self.at..end)?;
        if head.len() < HEADER {
            return None;
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let mark = u16::from_le_bytes([head[6], head[7]]);
        if length > MAX_PAYLOAD || head[5] != 0 || mark != MARK {
            self.synchronised = false;
            self.at = end;
            return None;
        }
        head.get(HEADER..HEADER + length)?;
        let (kind, stream) = (head[4], u32::from_le_bytes([head[8], head[9], head[10], head[11]]));
        let payload = self.at + HEADER..self.at + HEADER + length;
        self.at = payload.end;
        Some((kind, stream, payload))
    }
}

#[cfg(test)]
mod tests;
