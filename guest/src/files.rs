//! File transfers: READ, WRITE and STAT.

use crate::channels::PIECE;
use crate::errno;
use crate::outbox::Outbox;
use crate::protocol::{channel, kind, Malformed, Reader, Writer, CREDIT_STEP, WINDOW};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const APPEND: u8 = 1;
const ATOMIC: u8 = 2;
const MAKE_PARENTS: u8 = 4;

/// Why a request failed.
pub enum Failure {
    Malformed,
    Io(io::Error),
    FlowControl,
    /// The guest kernel cannot do it.
    Unsupported(io::Error),
    /// A protocol error's code and text.
    Refused(&'static str, &'static str),
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Failure {
        Failure::Malformed
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

impl Failure {
    pub fn report(&self, stream: u32, outbox: &mut Outbox) {
        match self {
            Failure::Malformed => outbox.error(stream, "bad_request", "malformed payload"),
            Failure::Io(error) => outbox.error(stream, &errno::name(error), &errno::text(error)),
            Failure::Unsupported(error) => outbox.error(stream, "unsupported", &errno::text(error)),
            Failure::Refused(code, message) => outbox.error(stream, code, message),
            Failure::FlowControl => outbox.error(stream, "flow_control", "more data than the credit allows"),
        }
    }
}

/// A file on its way to the host.
pub struct Download {
    file: File,
    left: u64,
    sent: u64,
    credit: usize,
}

impl Download {
    pub fn open(payload: &[u8]) -> Result<Download, Failure> {
        let mut reader = Reader::new(payload);
        let (path, offset, left) = (reader.str()?, reader.u64()?, reader.u64()?);
        // non-blocking: a FIFO without a writer must not stop the agent
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR).into());
        }
        if offset > 0 {
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(Download {
            file,
            left,
            sent: 0,
            credit: WINDOW,
        })
    }

    pub fn credit(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_add(bytes).min(WINDOW);
    }

    /// Sends as much as credit and outbox allow; `true` when the stream has ended.
    pub fn pump(&mut self, stream: u32, outbox: &mut Outbox, scratch: &mut [u8]) -> bool {
        while self.credit > 0 && !outbox.is_full() {
            let most = PIECE.min(self.credit).min(scratch.len());
            let most = self.left.min(most as u64) as usize;
            match self.file.read(&mut scratch[..most]) {
                Ok(0) => {
                    let payload = Writer::default().u64(self.sent).0;
                    outbox.frame(kind::RESULT, stream, &payload);
                    return true;
                }
                Ok(count) => {
                    outbox.data(stream, channel::STDIN, &scratch[..count]);
                    self.credit -= count;
                    self.sent += count as u64;
                    if self.left != u64::MAX {
                        self.left -= count as u64;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    Failure::Io(e).report(stream, outbox);
                    return true;
                }
            }
        }
        false
    }
}

/// A file on its way from the host. Dropped before it is complete, it leaves nothing half-written behind.
pub struct Upload {
    file: File,
    /// Where the bytes go: the path itself, or a temporary neighbour.
    place: String,
    path: String,
    /// Whether to remove `place` when the upload is abandoned.
    remove: bool,
    written: u64,
    window: usize,
    consumed: usize,
}

impl Upload {
    pub fn open(payload: &[u8], unique: u64) -> Result<Upload, Failure> {
        let mut reader = Reader::new(payload);
        let (path, mode, flags) = (reader.str()?, reader.u32()?, reader.u8()?);
        let append = flags & APPEND != 0;
        if append && flags & ATOMIC != 0 {
            return Err(Failure::Malformed);
        }
        if let (true, Some(parent)) = (flags & MAKE_PARENTS != 0, Path::new(&path).parent()) {
            fs::create_dir_all(parent)?;
        }
        let place = if flags & ATOMIC != 0 {
            format!("{}.forkd-{}", path, unique)
        } else {
            path.clone()
        };
        let existed = append && Path::new(&place).exists();
        // non-blocking: a FIFO without a reader must not stop the agent
        let file = OpenOptions::new()
            .write(!append)
            .append(append)
            .create(true)
            .truncate(!append)
            .mode(mode & 0o7777)
            .custom_flags(libc::O_NONBLOCK)
            .open(&place)?;
        let regular = file.metadata()?.is_file();
        if regular && !existed {
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        Ok(Upload {
            file,
            place,
            path,
            remove: regular && !existed,
            written: 0,
            window: WINDOW,
            consumed: 0,
        })
    }

    pub fn data(&mut self, stream: u32, bytes: &[u8], outbox: &mut Outbox) -> Result<(), Failure> {
        if bytes.len() > self.window {
            return Err(Failure::FlowControl);
        }
        self.file.write_all(bytes)?;
        self.window -= bytes.len();
        self.consumed += bytes.len();
        self.written += bytes.len() as u64;
        if self.consumed >= CREDIT_STEP {
            outbox.credit(stream, channel::STDIN, self.consumed);
            self.window += self.consumed;
            self.consumed = 0;
        }
        Ok(())
    }

    /// All bytes are here.
    pub fn finish(mut self, stream: u32, outbox: &mut Outbox) -> Result<(), Failure> {
        if self.place != self.path {
            fs::rename(&self.place, &self.path)?;
        }
        self.remove = false;
        outbox.frame(kind::RESULT, stream, &Writer::default().u64(self.written).0);
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.remove {
            // nobody waits for an answer any more
            let _ = fs::remove_file(&self.place);
        }
    }
}

/// Answers STAT.
pub fn stat(stream: u32, payload: &[u8], outbox: &mut Outbox) -> Result<(), Failure> {
    let path = Reader::new(payload).str()?;
    let found = fs::symlink_metadata(path)?;
    let file_type = found.file_type();
    let letter = if file_type.is_file() {
        b'f'
    } else if file_type.is_dir() {
        b'd'
    } else if file_type.is_symlink() {
        b'l'
    } else if file_type.is_char_device() {
        b'c'
    } else if file_type.is_block_device() {
        b'b'
    } else if file_type.is_fifo() {
        b'p'
    } else {
        b's'
    };
    let payload = Writer::default()
        .u8(letter)
        .u32(found.mode() & 0o7777)
        .u32(found.uid())
        .u32(found.gid())
        .u64(found.size())
        .i64(found.mtime() * 1_000_000_000 + found.mtime_nsec());
    outbox.frame(kind::RESULT, stream, &payload.0);
    Ok(())
}
