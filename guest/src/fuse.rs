//! The wire format of FUSE 7.31, which guest kernels from 5.4 on support: requests of the guest kernel, and answers in
//! its layout.

pub const ROOT: u64 = 1;
/// The guest kernel refuses reads into a smaller buffer.
pub const SMALLEST_BUFFER: usize = 8192;
const READ_ONLY: u32 = 0;
const ACCESS_MODE: u32 = 3;

const REQUEST_HEADER: usize = 40;
const ANSWER_HEADER: usize = 16;
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Seconds for which the guest kernel caches names and attributes.
const VALID_SECS: u64 = 1;
const LONGEST_NAME: u32 = 255;
const BLOCK: u32 = 4096;

/// Flags of INIT: parallel reads, cached pages while size and time are unchanged, folders read with the attributes of
/// their entries, parallel operations in one folder, large reads.
const ASYNC_READ: u32 = 1 << 0;
const AUTO_INVAL_DATA: u32 = 1 << 12;
const DO_READDIRPLUS: u32 = 1 << 13;
const PARALLEL_DIROPS: u32 = 1 << 18;
const MAX_PAGES: u32 = 1 << 22;
const FLAGS: u32 = ASYNC_READ | AUTO_INVAL_DATA | DO_READDIRPLUS | PARALLEL_DIROPS | MAX_PAGES;
/// The largest read, and the read-ahead of the guest kernel.
const READ_PAGES: u16 = 64;
pub const LARGEST_READ: u32 = READ_PAGES as u32 * BLOCK;
const READS_AT_ONCE: u16 = 12;
const CONGESTED: u16 = 9;

/// Operations.
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const SETXATTR: u32 = 21;
    pub const REMOVEXATTR: u32 = 24;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
}

/// Whether the operation would change something.
pub fn is_change(opcode: u32) -> bool {
    matches!(
        opcode,
        op::SETATTR
            | op::SYMLINK
            | op::MKNOD
            | op::MKDIR
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::LINK
            | op::WRITE
            | op::SETXATTR
            | op::REMOVEXATTR
            | op::CREATE
            | op::FALLOCATE
            | op::RENAME2
            | op::COPY_FILE_RANGE
            | op::TMPFILE
    )
}

/// A request of the guest kernel.
pub struct Request<'a> {
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let request = Request {
            opcode: u32_at(bytes, 4)?,
            unique: u64_at(bytes, 8)?,
            node: u64_at(bytes, 16)?,
            body: bytes.get(REQUEST_HEADER..)?,
        };
        (u32_at(bytes, 0)? as usize == bytes.len()).then_some(request)
    }

    /// The name of a LOOKUP.
    pub fn name(&self) -> Option<&'a [u8]> {
        self.body.split(|byte| *byte == 0).next()
    }

    /// Whether OPEN wants to write.
    pub fn wants_to_write(&self) -> bool {
        u32_at(self.body, 0).unwrap_or(READ_ONLY) & ACCESS_MODE != READ_ONLY
    }

    /// Handle, offset and size of READ and READDIR.
    pub fn range(&self) -> Option<(u64, u64, u32)> {
        Some((u64_at(self.body, 0)?, u64_at(self.body, 8)?, u32_at(self.body, 16)?))
    }

    /// The handle of RELEASEDIR, the count of FORGET, the request that INTERRUPT refers to.
    pub fn number(&self) -> Option<u64> {
        u64_at(self.body, 0)
    }

    /// Nodes and counts of BATCH_FORGET.
    pub fn forgets(&self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let count = u32_at(self.body, 0).unwrap_or(0) as usize;
        let all = self.body.get(8..).unwrap_or_default().chunks_exact(16).take(count);
        all.filter_map(|one| Some((u64_at(one, 0)?, u64_at(one, 8)?)))
    }

    /// The answer to INIT: version, accepted flags, sizes.
    pub fn init(&self) -> Option<Vec<u8>> {
        let (major, minor) = (u32_at(self.body, 0)?, u32_at(self.body, 4)?);
        let offered = u32_at(self.body, 12)?;
        if major != MAJOR || minor < MINOR {
            return None;
        }
        let mut out = Out::default();
        out.u32(MAJOR).u32(MINOR).u32(LARGEST_READ).u32(FLAGS & offered);
        out.u16(READS_AT_ONCE).u16(CONGESTED);
        // writes never happen; times have nanoseconds
        out.u32(BLOCK).u32(1).u16(READ_PAGES).u16(0);
        out.0.resize(64, 0);
        Some(out.0)
    }
}

/// Attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub inode: u64,
    pub size: u64,
    pub blocks: u64,
    /// Access, change of content, change of attributes, in ns.
    pub times: [i64; 3],
    /// With the file type.
    pub mode: u32,
    pub links: u32,
}

impl Attributes {
    pub fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// Everything belongs to root: ids of the host have no meaning in the guest.
    fn write(&self, out: &mut Out) {
        out.u64(self.inode).u64(self.size).u64(self.blocks);
        for time in self.times {
            out.u64(time.div_euclid(1_000_000_000) as u64);
        }
        for time in self.times {
            out.u32(time.rem_euclid(1_000_000_000) as u32);
        }
        out.u32(self.mode).u32(self.links).u32(0).u32(0);
        out.u32(0).u32(BLOCK).u32(0);
    }
}

/// The header before a body of this length, or a whole error answer.
pub fn answer_head(unique: u64, body: Result<usize, i32>) -> [u8; ANSWER_HEADER] {
    let (errno, length) = match body {
        Ok(length) => (0, length),
        Err(errno) => (errno, 0),
    };
    let mut head = [0; ANSWER_HEADER];
    head[0..4].copy_from_slice(&((ANSWER_HEADER + length) as u32).to_le_bytes());
    head[4..8].copy_from_slice(&(-errno).to_le_bytes());
    head[8..16].copy_from_slice(&unique.to_le_bytes());
    head
}

/// Answer to LOOKUP; without a node the guest kernel caches that the name does not exist.
pub fn entry(found: Option<(u64, &Attributes)>) -> Vec<u8> {
    let mut out = Out::default();
    write_entry(&mut out, found);
    out.0
}

fn write_entry(out: &mut Out, found: Option<(u64, &Attributes)>) {
    let end = out.0.len() + 128;
    out.u64(found.map_or(0, |(node, _)| node)).u64(0);
    out.u64(VALID_SECS).u64(VALID_SECS).u32(0).u32(0);
    if let Some((_, attributes)) = found {
        attributes.write(out);
    }
    out.0.resize(end, 0);
}

/// Answer to GETATTR.
pub fn attributes(attributes: &Attributes) -> Vec<u8> {
    let mut out = Out::default();
    out.u64(VALID_SECS).u32(0).u32(0);
    attributes.write(&mut out);
    out.0
}

/// Answer to OPENDIR.
pub fn opened(handle: u64) -> Vec<u8> {
    let mut out = Out::default();
    out.u64(handle).u32(0).u32(0);
    out.0
}

/// Answer to STATFS: the size of the host's disk is not disclosed.
pub fn statistics() -> Vec<u8> {
    let mut out = Out::default();
    for _ in 0..5 {
        out.u64(0);
    }
    out.u32(BLOCK).u32(LONGEST_NAME).u32(BLOCK);
    out.0.resize(80, 0);
    out.0
}

/// The answer to READDIR or READDIRPLUS, filled up to a size.
pub struct Folder {
    out: Out,
    size: usize,
    plus: bool,
}

impl Folder {
    pub fn new(size: u32, plus: bool) -> Folder {
        Folder {
            out: Out::default(),
            size: size as usize,
            plus,
        }
    }

    /// Whether one more entry of this name fits.
    pub fn fits(&self, name: &[u8]) -> bool {
        let head = if self.plus { 128 + 24 } else { 24 };
        self.out.0.len() + head + padded(name.len()) <= self.size
    }

    /// Adds an entry that fits; `next` is the offset after it. Without a node only the name is added.
    pub fn add(&mut self, next: u64, name: &[u8], inode: u64, kind: u32, found: Option<(u64, &Attributes)>) {
        let out = &mut self.out;
        if self.plus {
            write_entry(out, found);
        }
        out.u64(inode).u64(next).u32(name.len() as u32).u32(kind >> 12);
        out.0.extend_from_slice(name);
        out.0.resize(padded(out.0.len()), 0);
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.out.0
    }
}

fn padded(length: usize) -> usize {
    (length + 7) & !7
}

/// Fields in wire order.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u16(&mut self, value: u16) -> &mut Out {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Out {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Out {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes([field[0], field[1], field[2], field[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32_at(bytes, at)?) | u64::from(u32_at(bytes, at + 4)?) << 32)
}

#[cfg(test)]
mod tests;
