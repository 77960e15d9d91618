//! File operations that are quick enough for the agent's loop. All others are tools.

mod download;
mod upload;

pub use download::Download;
pub use upload::Upload;

use crate::failure::Failure;
use crate::protocol::kind;
use crate::sys;
use crate::users::{self, Names, User};
use forkd_wire::{Malformed, Reader, Writer};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FOLLOW: u8 = 1;
const PARENTS: u8 = 1;
const OVERWRITE: u8 = 1;
pub const MODE_BITS: u32 = 0o7777;

type Work = Box<dyn FnOnce() -> io::Result<Vec<u8>>>;

/// Performs a quick operation; returns the payload of its RESULT.
pub fn quick(what: u8, payload: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut reader = Reader::new(payload);
    let work: Work = match what {
        kind::STAT => {
            let (path, flags) = (path(&mut reader)?, reader.u8()?);
            Box::new(move || stat(&path, flags & FOLLOW != 0))
        }
        kind::MKDIR => {
            let (path, mode, flags) = (path(&mut reader)?, reader.u32()?, reader.u8()?);
            Box::new(move || nothing(make_dir(&path, mode & MODE_BITS, flags & PARENTS != 0)))
        }
        kind::MOVE => {
            let (from, to, flags) = (path(&mut reader)?, path(&mut reader)?, reader.u8()?);
            Box::new(move || nothing(rename(&from, &to, flags & OVERWRITE != 0)))
        }
        kind::REMOVE => {
            let path = path(&mut reader)?;
            Box::new(move || nothing(remove(&path)))
        }
        kind::CHMOD => {
            let (path, mode) = (path(&mut reader)?, reader.u32()?);
            let mode = Permissions::from_mode(mode & MODE_BITS);
            Box::new(move || nothing(fs::set_permissions(&path, mode)))
        }
        kind::CHOWN => {
            let (path, owner, group) = (path(&mut reader)?, reader.str()?, reader.str()?);
            let (uid, gid) = users::ids(&owner, &group).map_err(Failure::NoUser)?;
            Box::new(move || nothing(sys::chown(&path, uid, gid)))
        }
        kind::SYMLINK => {
            let (target, path) = (path(&mut reader)?, path(&mut reader)?);
            Box::new(move || nothing(symlink(&target, &path)))
        }
        _ => return Err(Failure::Refused("unsupported", "unknown frame type")),
    };
    let user = user(&mut reader)?;
    Ok(as_user(&user, work)?)
}

fn nothing(result: io::Result<()>) -> io::Result<Vec<u8>> {
    result.map(|()| Vec::new())
}

pub fn path(reader: &mut Reader) -> Result<PathBuf, Malformed> {
    Ok(PathBuf::from(OsStr::from_bytes(reader.bytes()?)))
}

/// The user at the end of a payload; `None` is root.
pub fn user(reader: &mut Reader) -> Result<Option<User>, Failure> {
    let name = reader.str()?;
    if name.is_empty() {
        return Ok(None);
    }
    users::find(&name).map(Some).map_err(Failure::NoUser)
}

/// Runs `work` with that user's rights to files.
pub fn as_user<T>(user: &Option<User>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match user {
        Some(user) => sys::with_file_rights(user.uid, user.gid, &user.groups, work),
        None => work(),
    }
}

/// The letter of a file's type.
pub fn letter(found: &Metadata) -> u8 {
    let file_type = found.file_type();
    if file_type.is_file() {
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
    }
}

/// Appends a file's description; `path` is its path.
pub fn describe(out: Writer, path: &Path, found: &Metadata, names: &Names) -> Writer {
    // the link may have been removed meanwhile; its target is empty then
    let target = match found.file_type().is_symlink() {
        true => fs::read_link(path).unwrap_or_default(),
        false => PathBuf::new(),
    };
    out.u8(letter(found))
        .u32(found.mode() & MODE_BITS)
        .u32(found.uid())
        .u32(found.gid())
        .u64(found.size())
        .i64(found.mtime() * 1_000_000_000 + found.mtime_nsec())
        .str(names.user(found.uid()))
        .str(names.group(found.gid()))
        .bytes(target.as_os_str().as_bytes())
}

fn stat(path: &Path, follow: bool) -> io::Result<Vec<u8>> {
    let found = match follow {
        true => fs::metadata(path)?,
        false => fs::symlink_metadata(path)?,
    };
    Ok(describe(Writer::default(), path, &found, &Names::load()).0)
}

fn make_dir(path: &Path, mode: u32, parents: bool) -> io::Result<()> {
    if let (true, Some(above)) = (parents, path.parent()) {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(e) if parents && e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        // the umask removed bits
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        result => result,
    }
}

pub fn rename(from: &Path, to: &Path, overwrite: bool) -> io::Result<()> {
    if overwrite {
        return fs::rename(from, to);
    }
    match sys::rename_new(from, to) {
        // not every file system supports RENAME_NOREPLACE
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && fs::symlink_metadata(to).is_err() => fs::rename(from, to),
        result => result,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir(path),
        false => fs::remove_file(path),
    }
}
