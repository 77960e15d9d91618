//! Messages: `u32 length of rest | u8 op | u32 request id | payload`, little-endian.

use forkd_wire::{Reader, Writer};

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

    /// The next complete message; an error if the stream is malformed.
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

/// A complete message.
pub fn frame(op: u8, id: u32, payload: &Writer) -> Vec<u8> {
    let mut message = Vec::with_capacity(4 + HEAD + payload.0.len());
    message.extend_from_slice(&((HEAD + payload.0.len()) as u32).to_le_bytes());
    message.push(op);
    message.extend_from_slice(&id.to_le_bytes());
    message.extend_from_slice(&payload.0);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_stream_with_any_split() {
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
    fn refuses_impossible_lengths() {
        for length in [0u32, 4, MAX_MESSAGE as u32 + 1, u32::MAX] {
            let mut splitter = Splitter::default();
            splitter.push(&length.to_le_bytes());
            assert!(splitter.next().is_err());
        }
    }
}
