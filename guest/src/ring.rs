//! The last bytes of a process's output, addressed by their offset since its start.

use crate::protocol::WINDOW;

#[derive(Default)]
pub struct Ring {
    bytes: Vec<u8>,
    /// Index of the oldest byte; zero until the ring is full.
    head: usize,
    end: u64,
}

impl Ring {
    /// Offset behind the newest byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Offset of the oldest byte kept.
    pub fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(WINDOW)..];
        let (fill, mut rest) = bytes.split_at(bytes.len().min(WINDOW - self.bytes.len()));
        self.bytes.extend_from_slice(fill);
        while !rest.is_empty() {
            let count = rest.len().min(WINDOW - self.head);
            self.bytes[self.head..self.head + count].copy_from_slice(&rest[..count]);
            self.head = (self.head + count) % WINDOW;
            rest = &rest[count..];
        }
    }

    /// Counts bytes that no stream will ask for.
    pub fn pass(&mut self, count: usize) {
        debug_assert!(self.bytes.is_empty());
        self.end += count as u64;
    }

    /// Bytes from `offset` on, at most `most`, up to the end of the ring's memory; `offset` must be kept.
    pub fn read(&self, offset: u64, most: usize) -> &[u8] {
        let back = (self.end - offset) as usize;
        let length = self.bytes.len();
        if back == 0 {
            return &[];
        }
        let from = (self.head + length - back) % length;
        let count = back.min(most).min(length - from);
        &self.bytes[from..from + count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_bytes_at_their_offsets() {
        let all: Vec<u8> = (0..3 * WINDOW + 777).map(|i| (i * 7 % 251) as u8).collect();
        let mut ring = Ring::default();
        let mut fed = 0;
        for step in [1, 100, WINDOW - 50, 3, WINDOW, 65536, 11, 4096].iter().cycle() {
            let next = (fed + step).min(all.len());
            ring.push(&all[fed..next]);
            fed = next;
            assert_eq!(ring.end(), fed as u64);
            assert_eq!(ring.start(), fed.saturating_sub(WINDOW) as u64);
            let mut at = ring.start();
            while at < ring.end() {
                let piece = ring.read(at, 60_000);
                assert_eq!(piece, &all[at as usize..at as usize + piece.len()]);
                at += piece.len() as u64;
            }
            if fed == all.len() {
                break;
            }
        }
    }
}
