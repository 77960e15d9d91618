//! A folder's content, or one file, as a tar archive on stdout: GNU format, numeric owners, sparse files.

use super::walk::{walk, Entry, Next, Step};
use super::{check_stopped, problem_below, Outcome};
use crate::sys;
use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

const BLOCK: u64 = 512;
/// Bytes gathered before a write; longer than any name.
const PIECE: usize = 1 << 18;
const SPLICED: u64 = 1 << 16;
/// The name of an entry that contains the next entry's name.
const LONG_NAME: &[u8] = b"././@LongLink";

/// `plain`: only files, folders and links.
pub fn pack(start: &Path, plain: bool, output: File) -> Outcome {
    // a folder behind a link is packed as well
    let start = fs::canonicalize(start)?;
    let mut packer = Packer {
        output,
        buffer: vec![0; PIECE],
        used: 0,
        plain,
        links: HashMap::new(),
        single: start
            .file_name()
            .map(|name| name.as_bytes().to_vec())
            .unwrap_or_default(),
    };
    let mut at = Vec::new();
    walk(&start, b"", &mut |step| {
        check_stopped()?;
        at.clear();
        at.extend_from_slice(step.entry().path);
        match step {
            Step::Enter(entry) | Step::Leaf(entry) => packer.entry(&entry)?,
            Step::Leave(_) => {}
            Step::Closed(_, error) => return Err(error),
        }
        Ok(Next::Descend)
    })
    .map_err(|e| problem_below(&start, &at, &e))?;
    packer.zeros(2 * BLOCK)?;
    packer.flush()?;
    Ok(())
}

struct Packer {
    output: File,
    buffer: Vec<u8>,
    used: usize,
    plain: bool,
    /// Files with several names: the first one.
    links: HashMap<(u64, u64), Vec<u8>>,
    /// The name of a start that is not a folder.
    single: Vec<u8>,
}

impl Packer {
    fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        let found = entry.found;
        let file_type = found.file_type();
        let mut path = match (entry.depth, file_type.is_dir()) {
            (0, true) => b".".to_vec(),
            (0, false) => self.single.clone(),
            _ => entry.path.to_vec(),
        };
        if file_type.is_dir() {
            path.push(b'/');
            return self.head(&path, found, EntryType::Directory, &[], None);
        }
        let is_plain = file_type.is_file() || file_type.is_symlink();
        if file_type.is_socket() || (self.plain && !is_plain) {
            // an archive cannot contain a socket, which is useless without its process
            return Ok(());
        }
        if found.nlink() > 1 {
            if let Some(first) = self.links.get(&(found.dev(), found.ino())) {
                let first = first.clone();
                return self.head(&path, found, EntryType::Link, &first, None);
            }
            self.links.insert((found.dev(), found.ino()), path.clone());
        }
        if file_type.is_file() {
            return self.file(&path, entry);
        }
        if file_type.is_symlink() {
            let target = fs::read_link(entry.name)?;
            return self.head(&path, found, EntryType::Symlink, target.as_os_str().as_bytes(), None);
        }
        let kind = if file_type.is_fifo() {
            EntryType::Fifo
        } else if file_type.is_char_device() {
            EntryType::Char
        } else {
            EntryType::Block
        };
        self.head(&path, found, kind, &[], None)
    }

    fn file(&mut self, path: &[u8], entry: &Entry) -> io::Result<()> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(entry.name);
        let mut file = match opened {
            // removed since it was listed
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(());
        }
        if found.blocks() * 512 >= found.size() {
            self.head(path, &found, EntryType::Regular, &[], None)?;
            self.content(&mut file, found.size())?;
            return self.pad(found.size());
        }
        let parts = parts(&file, found.size())?;
        self.head(path, &found, EntryType::GNUSparse, &[], Some(&parts))?;
        for (at, length) in &parts {
            file.seek(SeekFrom::Start(*at))?;
            self.content(&mut file, *length)?;
        }
        self.pad(parts.iter().map(|(_, length)| length).sum())
    }

    /// Writes exactly this many bytes of a file; a file that was shortened is padded, because the header already has
    /// its length.
    fn content(&mut self, file: &mut File, length: u64) -> io::Result<()> {
        let mut left = length;
        while left >= SPLICED {
            self.flush()?;
            match sys::splice(file, &self.output, left)? {
                0 => return self.zeros(left),
                count => left -= count,
            }
        }
        while left > 0 {
            if self.used == PIECE {
                self.flush()?;
            }
            let most = left.min((PIECE - self.used) as u64) as usize;
            match file.read(&mut self.buffer[self.used..self.used + most]) {
                Ok(0) => return self.zeros(left),
                Ok(count) => {
                    self.used += count;
                    left -= count as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn head(
        &mut self,
        path: &[u8],
        found: &Metadata,
        kind: EntryType,
        target: &[u8],
        parts: Option<&[(u64, u64)]>,
    ) -> io::Result<()> {
        self.long(b'K', target)?;
        self.long(b'L', path)?;
        let mut header = Header::new_gnu();
        header.set_metadata(found);
        header.set_entry_type(kind);
        header.set_mtime(found.mtime().max(0) as u64);
        put(&mut header.as_old_mut().name, path);
        put(&mut header.as_old_mut().linkname, target);
        if kind != EntryType::Regular {
            header.set_size(0);
        }
        if let (EntryType::Char | EntryType::Block, device) = (kind, found.rdev()) {
            header.set_device_major(sys::device_major(device))?;
            header.set_device_minor(sys::device_minor(device))?;
        }
        let mut further = &[][..];
        if let (Some(parts), Some(gnu)) = (parts, header.as_gnu_mut()) {
            let (first, rest) = parts.split_at(parts.len().min(gnu.sparse.len()));
            gnu.set_real_size(found.size());
            gnu.set_is_extended(!rest.is_empty());
            fill(&mut gnu.sparse, first);
            header.set_size(parts.iter().map(|(_, length)| length).sum());
            further = rest;
        }
        header.set_cksum();
        self.write(header.as_bytes())?;
        while !further.is_empty() {
            let mut more = GnuExtSparseHeader::new();
            let (now, rest) = further.split_at(further.len().min(more.sparse.len()));
            fill(&mut more.sparse, now);
            more.set_is_extended(!rest.is_empty());
            self.write(more.as_bytes())?;
            further = rest;
        }
        Ok(())
    }

    /// An entry for text that does not fit into a header.
    fn long(&mut self, kind: u8, text: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        if text.len() < header.as_old().name.len() {
            return Ok(());
        }
        put(&mut header.as_old_mut().name, LONG_NAME);
        header.set_entry_type(EntryType::new(kind));
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let size = text.len() as u64 + 1;
        header.set_size(size);
        header.set_cksum();
        self.write(header.as_bytes())?;
        self.write(text)?;
        self.zeros(1)?;
        self.pad(size)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        self.zeros((BLOCK - size % BLOCK) % BLOCK)
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            let most = left.min(BLOCK);
            self.write(&[0; BLOCK as usize][..most as usize])?;
            left -= most;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.used + bytes.len() > PIECE {
            self.flush()?;
        }
        self.buffer[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.write_all(&self.buffer[..self.used])?;
        self.used = 0;
        Ok(())
    }
}

/// The data of a file: pairs of offset and length, the last one at its end.
fn parts(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut parts = Vec::new();
    let mut at = sys::next_part(file, 0, size, true)?;
    while at < size {
        let end = sys::next_part(file, at, size, false)?;
        parts.push((at, end - at));
        at = sys::next_part(file, end, size, true)?;
    }
    if parts.last().map_or(true, |(at, length)| at + length < size) {
        parts.push((size, 0));
    }
    Ok(parts)
}

fn fill(headers: &mut [GnuSparseHeader], parts: &[(u64, u64)]) {
    for (header, (at, length)) in headers.iter_mut().zip(parts) {
        header.set_offset(*at);
        header.set_length(*length);
    }
}

fn put(field: &mut [u8], text: &[u8]) {
    let count = text.len().min(field.len());
    field[..count].copy_from_slice(&text[..count]);
}
