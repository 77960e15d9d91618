//! WRITE: a file transfer from the host.

use super::{as_user, path, user, MODE_BITS};
use crate::failure::Failure;
use crate::outbox::Outbox;
use crate::protocol::{channel, kind, CREDIT_STEP, WINDOW};
use crate::sys;
use crate::users::User;
use forkd_wire::{Reader, Writer};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::io::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

const APPEND: u8 = 1;
const ATOMIC: u8 = 2;
const MAKE_PARENTS: u8 = 4;
const AT_OFFSET: u8 = 8;

/// Dropped before it is complete, it removes the incomplete file.
pub struct Upload {
    file: File,
    user: Option<User>,
    /// The temporary file that receives the bytes, and its final path.
    temporary: Option<(PathBuf, PathBuf)>,
    /// The file to remove if the upload is abandoned.
    half_made: Option<PathBuf>,
    /// Bytes that a pipe or a device has not accepted yet.
    waiting: VecDeque<u8>,
    closing: bool,
    /// Whether a new file has got the owner that the host named.
    owned: bool,
    written: u64,
    window: usize,
    consumed: usize,
}

struct Opened {
    file: File,
    owned: bool,
    temporary: Option<(PathBuf, PathBuf)>,
    half_made: Option<PathBuf>,
}

impl Upload {
    pub fn open(payload: &[u8]) -> Result<Upload, Failure> {
        let mut reader = Reader::new(payload);
        let (path, mode, flags) = (path(&mut reader)?, reader.u32()? & MODE_BITS, reader.u8()?);
        let offset = reader.u64()?;
        let user = user(&mut reader)?;
        // an older host does not send these fields
        let owner = match reader.is_empty() {
            true => None,
            false => Some((reader.u32()?, reader.u32()?)),
        };
        if (flags & (APPEND | ATOMIC | AT_OFFSET)).count_ones() > 1 {
            return Err(Failure::Malformed);
        }
        let Opened {
            file,
            owned,
            temporary,
            half_made,
        } = as_user(&user, || open(&path, mode, flags, offset, owner))?;
        Ok(Upload {
            file,
            user,
            temporary,
            half_made,
            waiting: VecDeque::new(),
            closing: false,
            owned,
            written: 0,
            window: WINDOW,
            consumed: 0,
        })
    }

    pub fn data(&mut self, stream: u32, bytes: &[u8], outbox: &mut Outbox) -> Result<(), Failure> {
        if bytes.len() > self.window || self.closing {
            return Err(Failure::FlowControl);
        }
        self.window -= bytes.len();
        let mut taken = 0;
        if self.waiting.is_empty() {
            taken = write_some(&mut self.file, bytes)?;
        }
        self.waiting.extend(&bytes[taken..]);
        self.took(stream, taken, outbox);
        Ok(())
    }

    /// The descriptor to poll before more can be written.
    pub fn interest(&self) -> Option<RawFd> {
        (!self.waiting.is_empty()).then(|| self.file.as_raw_fd())
    }

    /// The file accepts more; `true` if the upload is complete.
    pub fn ready(&mut self, stream: u32, outbox: &mut Outbox) -> Result<bool, Failure> {
        let taken = write_some(&mut self.file, self.waiting.as_slices().0)?;
        self.waiting.drain(..taken);
        self.took(stream, taken, outbox);
        self.end_if_complete(stream, outbox)
    }

    /// All bytes have arrived; `true` if they are also written.
    pub fn eof(&mut self, stream: u32, outbox: &mut Outbox) -> Result<bool, Failure> {
        self.closing = true;
        self.end_if_complete(stream, outbox)
    }

    fn took(&mut self, stream: u32, count: usize, outbox: &mut Outbox) {
        self.written += count as u64;
        self.consumed += count;
        if self.consumed >= CREDIT_STEP {
            outbox.credit(stream, channel::STDIN, self.consumed);
            self.window += self.consumed;
            self.consumed = 0;
        }
    }

    fn end_if_complete(&mut self, stream: u32, outbox: &mut Outbox) -> Result<bool, Failure> {
        if !self.closing || !self.waiting.is_empty() {
            return Ok(false);
        }
        if let Some((from, to)) = &self.temporary {
            as_user(&self.user, || fs::rename(from, to))?;
        }
        self.half_made = None;
        outbox.frame(
            kind::RESULT,
            stream,
            &Writer::default().u64(self.written).u8(self.owned as u8).0,
        );
        Ok(true)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(path) = &self.half_made {
            // the host has cancelled the upload, so there is no answer
            let _ = as_user(&self.user, || fs::remove_file(path));
        }
    }
}

fn open(path: &Path, mode: u32, flags: u8, offset: u64, owner: Option<(u32, u32)>) -> io::Result<Opened> {
    if let (true, Some(parent)) = (flags & MAKE_PARENTS != 0, path.parent()) {
        fs::create_dir_all(parent)?;
    }
    let found = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        result => Some(result?),
    };
    if found.as_ref().map_or(false, |found| found.is_dir()) {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    let special = found.as_ref().map_or(false, |found| !found.is_file());
    if flags & ATOMIC != 0 && !special {
        // follows a link, as other programs do
        let target = match found {
            Some(_) => fs::canonicalize(path)?,
            None => path.to_path_buf(),
        };
        let temporary = sys::neighbour(&target)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        let half_made = Some(temporary.clone());
        let opened = Opened {
            file,
            owned: false,
            temporary: Some((temporary, target)),
            half_made,
        };
        opened.file.set_permissions(Permissions::from_mode(mode))?;
        return Ok(opened);
    }
    let keeps = flags & (APPEND | AT_OFFSET) != 0;
    // non-blocking: a FIFO without a reader must not block the agent
    let mut file = OpenOptions::new()
        .write(true)
        .append(flags & APPEND != 0)
        .create(true)
        .truncate(!keeps && !special)
        .mode(mode)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    // watches report each change of attributes: make no more than needed, and before the content
    let is_new = found.is_none();
    if (is_new && file.metadata()?.permissions().mode() & MODE_BITS != mode) || (!is_new && !keeps && !special) {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    if let (true, Some((uid, gid))) = (is_new, owner) {
        sys::chown_file(&file, uid, gid)?;
    }
    if offset > 0 && flags & AT_OFFSET != 0 {
        file.seek(SeekFrom::Start(offset))?;
    }
    let half_made = (is_new || (!keeps && !special)).then(|| path.to_path_buf());
    Ok(Opened {
        file,
        owned: is_new && owner.is_some(),
        temporary: None,
        half_made,
    })
}

/// Writes as much as is accepted at once; only pipes and devices accept less than all.
fn write_some(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        match file.write(&bytes[taken..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => taken += count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(taken)
}
