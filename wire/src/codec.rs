//! Fields of a payload: little-endian integers, byte strings with a length of 32 bits, lists with a count of 32 bits.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The payload ends before its fields do, or a field has a value that it cannot have.
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

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub fn str(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)
    }

    /// A path that a system call can take: not empty, and without NUL.
    pub fn path(&mut self) -> Result<PathBuf, Malformed> {
        let bytes = self.bytes()?;
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(Malformed);
        }
        Ok(PathBuf::from(OsString::from_vec(bytes.to_vec())))
    }

    /// An item after a byte 1; nothing after a byte 0.
    pub fn optional<T, E: From<Malformed>>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(Malformed.into()),
        }
    }

    pub fn list<T, E: From<Malformed>>(
        &mut self,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let count = self.u32()?;
        // no memory is reserved for the count: the sender may have put any number there
        (0..count).map(|_| read(self)).collect()
    }

    pub fn map(&mut self) -> Result<Vec<(String, String)>, Malformed> {
        self.list(|reader| Ok((reader.str()?, reader.str()?)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
mod tests {
    use super::*;

    fn read<'a, T>(writer: &'a Writer, read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>) -> Option<T> {
        read(&mut Reader::new(&writer.0)).ok()
    }

    #[test]
    fn written_values_are_read_back() {
        let payload = Writer::default()
            .u8(1)
            .u32(2)
            .i32(-3)
            .u64(4)
            .i64(-5)
            .str("six")
            .bytes(&[7]);
        let mut reader = Reader::new(&payload.0);
        assert_eq!(
            (reader.u8(), reader.u32(), reader.u32()),
            (Ok(1), Ok(2), Ok(-3i32 as u32))
        );
        assert_eq!((reader.u64(), reader.i64()), (Ok(4), Ok(-5)));
        assert_eq!((reader.str().as_deref(), reader.bytes()), (Ok("six"), Ok(&[7u8][..])));
        assert!(reader.is_empty());
        assert_eq!(reader.u8(), Err(Malformed));
    }

    #[test]
    fn a_length_or_count_beyond_the_payload_is_refused() {
        let too_many = Writer::default().u32(u32::MAX).u8(0);
        assert_eq!(read(&too_many, Reader::bytes), None);
        assert_eq!(read(&too_many, |reader| reader.list(Reader::u8)), None);
        assert_eq!(read(&too_many, Reader::map), None);
    }

    #[test]
    fn a_path_is_valid_for_a_system_call() {
        assert_eq!(
            read(&Writer::default().str("/a"), Reader::path),
            Some(PathBuf::from("/a"))
        );
        assert_eq!(read(&Writer::default().str(""), Reader::path), None);
        assert_eq!(read(&Writer::default().str("/a\0b"), Reader::path), None);
    }

    #[test]
    fn an_optional_item_may_be_missing() {
        let one = |reader: &mut Reader| reader.optional(Reader::u8);
        assert_eq!(Reader::new(&[0]).optional(Reader::u8), Ok(None));
        assert_eq!(one(&mut Reader::new(&[1, 9])), Ok(Some(9)));
        assert_eq!(one(&mut Reader::new(&[2, 9])), Err(Malformed));
    }
}
