//! Frames of the agent protocol, version 2. The contract is spec/agent-protocol.md.

use std::borrow::Cow;
use std::ops::Range;

pub const VERSION: u32 = 2;
pub const MAX_PAYLOAD: usize = 65536;
pub const WINDOW: usize = 262_144;
/// Of connections that the agent opens: there may be many of them.
pub const DIAL_WINDOW: usize = 65536;
pub const HEADER: usize = 12;
pub const CREDIT_STEP: usize = 65536;
const MARK: u16 = 0x6b66;
const ATTACH_MAGIC: &[u8; 16] = b"forkd-attach/1\r\n";
const ATTACHED_MAGIC: &[u8; 16] = b"forkd-attached\r\n";
const NEEDLE: usize = 32;
const RECORD: usize = 48;
/// The most that is received at once; and a buffer that holds it several times, so that it is seldom moved.
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
    pub const CONNECT: u8 = 0x40;
    pub const OPENED: u8 = 0x41;
    pub const DIAL: u8 = 0x42;
    pub const RESOLVE: u8 = 0x43;
    pub const NETWORK: u8 = 0x44;
    pub const LISTENERS: u8 = 0x45;
    pub const MOUNT: u8 = 0x50;
    pub const UNMOUNT: u8 = 0x51;

    /// Whether a frame of the host is a request; an unknown one is taken for one.
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

/// The payload stays where it was received: bulk data is not copied once more.
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
    /// For as long as it is wanted.
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
    /// A host end attached, with this nonce; what was before is of another life.
    Attach([u8; 16]),
    Frame(Frame<'a>),
}

/// Turns received bytes into frames, and finds the attach record wherever it is, also inside a frame.
pub struct Decoder {
    needle: [u8; NEEDLE],
    /// Horspool's table: how far the search may jump, by the byte under the needle's end.
    skip: [u8; 256],
    buffer: Vec<u8>,
    /// How much of the buffer is received.
    filled: usize,
    /// Where the next frame begins.
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

    /// Takes bytes from `receive`, which fills as much of the room as it can and tells how much that was. `next` must have
    /// been called until it gave `None` before.
    pub fn fill(&mut self, receive: impl FnOnce(&mut [u8]) -> usize) {
        // consumed bytes stay while a record may still begin in them
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

    /// The bytes held, for tests of boundedness.
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

    /// The next frame that lies before `end`: type, stream and where its payload is.
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

/// A payload that ends before its fields do, or lies about a length.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(payload: &'a [u8]) -> Reader<'a> {
        Reader(payload)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        if length > self.0.len() {
            return Err(Malformed);
        }
        let (head, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(head)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(self.u64()? as i64)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub fn str(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)
    }

    pub fn list<T>(&mut self, read: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        // every item takes at least four bytes, so a larger count is a lie
        if count > self.0.len() / 4 {
            return Err(Malformed);
        }
        (0..count).map(|_| read(self)).collect()
    }

    pub fn map(&mut self) -> Result<Vec<(String, String)>, Malformed> {
        self.list(|r| Ok((r.str()?, r.str()?)))
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Builds a payload.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u8(mut self, value: u8) -> Writer {
        self.0.push(value);
        self
    }

    pub fn u32(mut self, value: u32) -> Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn i32(self, value: i32) -> Writer {
        self.u32(value as u32)
    }

    pub fn u64(mut self, value: u64) -> Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn i64(self, value: i64) -> Writer {
        self.u64(value as u64)
    }

    pub fn str(self, value: &str) -> Writer {
        self.bytes(value.as_bytes())
    }

    pub fn bytes(self, value: &[u8]) -> Writer {
        let mut out = self.u32(value.len() as u32);
        out.0.extend_from_slice(value);
        out
    }
}

#[cfg(test)]
mod tests;
