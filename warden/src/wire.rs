//! Messages: `u32 length of rest | u8 op | u32 request id | payload`, little-endian.

use crate::fault::{Fault, Outcome};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

pub const MAX_MESSAGE: usize = 1 << 20;
/// op and request id
const HEAD: usize = 5;

pub const RESULT: u8 = 0x80;
pub const ERROR: u8 = 0x81;
pub const EXIT: u8 = 0x82;

pub struct Message {
    pub op: u8,
    pub id: u32,
    pub payload: Vec<u8>,
}

/// Cuts a byte stream into messages.
#[derive(Default)]
pub struct Splitter {
    pending: Vec<u8>,
}

impl Splitter {
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole message; an error when the stream cannot be one of messages.
    pub fn next(&mut self) -> Result<Option<Message>, String> {
        let mut reader = Reader::new(&self.pending);
        let length = match reader.u32() {
            Ok(length) => length as usize,
            Err(_) => return Ok(None),
        };
        if !(HEAD..=MAX_MESSAGE).contains(&length) {
            return Err(format!("message of {length} bytes"));
        }
        if self.pending.len() < 4 + length {
            return Ok(None);
        }
        let body = &self.pending[4..4 + length];
        let message = Message {
            op: body[0],
            id: u32::from_le_bytes([body[1], body[2], body[3], body[4]]),
            payload: body[HEAD..].to_vec(),
        };
        self.pending.drain(..4 + length);
        Ok(Some(message))
    }
}

pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader { rest }
    }

    fn take(&mut self, length: usize) -> Outcome<&'a [u8]> {
        if length > self.rest.len() {
            return Err(Fault::new("EINVAL", "payload ends before its fields do"));
        }
        let (field, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(field)
    }

    pub fn u8(&mut self) -> Outcome<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> Outcome<u32> {
        let field = self.take(4)?;
        Ok(u32::from_le_bytes([field[0], field[1], field[2], field[3]]))
    }

    pub fn u64(&mut self) -> Outcome<u64> {
        let low = u64::from(self.u32()?);
        let high = u64::from(self.u32()?);
        Ok(high << 32 | low)
    }

    pub fn bytes(&mut self) -> Outcome<Vec<u8>> {
        let length = self.u32()? as usize;
        Ok(self.take(length)?.to_vec())
    }

    pub fn path(&mut self) -> Outcome<PathBuf> {
        let bytes = self.bytes()?;
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(Fault::new("EINVAL", "a path is empty or holds a NUL"));
        }
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }

    /// A byte that says whether it follows
    pub fn optional<T>(&mut self, item: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<Option<T>> {
        match self.u8()? {
            0 => Ok(None),
            1 => item(self).map(Some),
            other => Err(Fault::new("EINVAL", format!("{other} where 0 or 1 is expected"))),
        }
    }

    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Outcome<T>) -> Outcome<Vec<T>> {
        let count = self.u32()?;
        // not reserved ahead: the count is only a claim
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }
}

#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    pub fn u8(mut self, value: u8) -> Writer {
        self.bytes.push(value);
        self
    }

    pub fn u32(mut self, value: u32) -> Writer {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn i32(mut self, value: i32) -> Writer {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Writer {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn str(self, value: &str) -> Writer {
        let mut writer = self.u32(value.len() as u32);
        writer.bytes.extend_from_slice(value.as_bytes());
        writer
    }

    #[cfg(test)]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A whole message, as it goes over the wire.
pub fn frame(op: u8, id: u32, payload: &Writer) -> Vec<u8> {
    let mut message = Vec::with_capacity(4 + HEAD + payload.bytes.len());
    message.extend_from_slice(&((HEAD + payload.bytes.len()) as u32).to_le_bytes());
    message.push(op);
    message.extend_from_slice(&id.to_le_bytes());
    message.extend_from_slice(&payload.bytes);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_stream_at_any_cut() {
        let stream = [9u8, 0, 0, 0, 3, 7, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 8, 9, 0, 0, 0];
        let mut splitter = Splitter::default();
        let mut seen = Vec::new();
        for byte in stream {
            splitter.push(&[byte]);
            while let Some(message) = splitter.next().unwrap() {
                seen.push((message.op, message.id, message.payload));
            }
        }
        assert_eq!(seen, [(3, 7, vec![1, 2, 3, 4]), (8, 9, vec![])]);
    }

    #[test]
    fn refuses_lengths_that_cannot_be() {
        for length in [0u32, 4, MAX_MESSAGE as u32 + 1, u32::MAX] {
            let mut splitter = Splitter::default();
            splitter.push(&length.to_le_bytes());
            assert!(splitter.next().is_err());
        }
    }

    #[test]
    fn a_lying_list_is_an_error() {
        let bytes = u32::MAX.to_le_bytes();
        assert!(Reader::new(&bytes).list(|reader| reader.u8()).is_err());
    }
}
