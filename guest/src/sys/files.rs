//! System calls for files that std does not have.

use super::check;
use crate::shutdown;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::AsRawFd;
use std::path::{Path, PathBuf};

/// The kernel's limit for the names of all attributes of a file.
const LARGEST_NAMES: usize = 65536;

fn c_path(path: &Path) -> io::Result<CString> {
    c_name(path.as_os_str().as_bytes())
}

fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Runs `work` with another user's rights to files; new files belong to that user. The guest kernel drops root's file
/// capabilities while the file system user is not root, and restores them afterwards.
pub fn with_file_rights<T>(uid: u32, gid: u32, groups: &[u32], work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    set_groups(groups)?;
    // SAFETY: integers only. Both calls return the former id and cannot fail for root.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
    let result = work();
    // SAFETY: as above; an invalid id changes nothing and returns the current one.
    let is_root = unsafe {
        libc::setfsuid(0);
        libc::setfsgid(0);
        libc::setfsuid(u32::MAX) == 0 && libc::setfsgid(u32::MAX) == 0
    };
    if !is_root || set_groups(&[]).is_err() {
        shutdown::fatal("agent: cannot become root again");
    }
    result
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of the slice.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }).map(|_| ())
}

/// Becomes another user permanently.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    set_groups(groups)?;
    // SAFETY: integers only.
    check(unsafe { libc::setgid(gid) })?;
    check(unsafe { libc::setuid(uid) }).map(|_| ())
}

/// `u32::MAX` leaves an id as it is. Follows links.
pub fn chown(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: a NUL-terminated string that outlives the call.
    check(unsafe { libc::chown(path.as_ptr(), uid, gid) }).map(|_| ())
}

/// The same for a link itself.
pub fn chown_link(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: a NUL-terminated string that outlives the call.
    check(unsafe { libc::lchown(path.as_ptr(), uid, gid) }).map(|_| ())
}

/// The same for an open file.
pub fn chown_file(file: &File, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: an open descriptor and integers.
    check(unsafe { libc::fchown(file.as_raw_fd(), uid, gid) }).map(|_| ())
}

pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Renames; fails with EEXIST if the new path exists.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (c_path(from)?, c_path(to)?);
    let here = libc::AT_FDCWD;
    // SAFETY: two NUL-terminated strings that outlive the call.
    check(unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), libc::RENAME_NOREPLACE) }).map(|_| ())
}

/// A hard link to a file of another folder. Does not follow a symbolic link.
pub fn link(from_folder: &File, from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (c_path(from)?, c_path(to)?);
    // SAFETY: an open descriptor and two NUL-terminated strings that outlive the call.
    check(unsafe { libc::linkat(from_folder.as_raw_fd(), from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), 0) }).map(|_| ())
}

/// Makes a pipe, a socket or a device; `mode` contains the type.
pub fn make_node(path: &Path, mode: u32, device: u64) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: a NUL-terminated string that outlives the call.
    check(unsafe { libc::mknod(path.as_ptr(), mode, device) }).map(|_| ())
}

pub fn device_major(device: u64) -> u32 {
    libc::major(device)
}

pub fn device_minor(device: u64) -> u32 {
    libc::minor(device)
}

pub fn device(major: u32, minor: u32) -> u64 {
    libc::makedev(major, minor)
}

/// Sets the modification time, of a link itself; seconds and nanoseconds.
pub fn set_mtime(path: &Path, seconds: i64, nanoseconds: i64) -> io::Result<()> {
    let path = c_path(path)?;
    let times = times(seconds, nanoseconds);
    // SAFETY: a NUL-terminated string, and two timespecs as the call wants them.
    check(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) })
        .map(|_| ())
}

/// The same for an open file.
pub fn set_file_mtime(file: &File, seconds: i64, nanoseconds: i64) -> io::Result<()> {
    // SAFETY: an open descriptor, and two timespecs as the call wants them.
    check(unsafe { libc::futimens(file.as_raw_fd(), times(seconds, nanoseconds).as_ptr()) }).map(|_| ())
}

fn times(seconds: i64, nanoseconds: i64) -> [libc::timespec; 2] {
    let unchanged = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_OMIT,
    };
    let mtime = libc::timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    [unchanged, mtime]
}

/// Changes the working folder.
pub fn go_to(folder: &File) -> io::Result<()> {
    // SAFETY: an open descriptor.
    check(unsafe { libc::fchdir(folder.as_raw_fd()) }).map(|_| ())
}

/// Moves bytes from a file to a pipe without copying them; returns their number.
pub fn splice(file: &File, pipe: &File, most: u64) -> io::Result<u64> {
    let most = most.min(1 << 30) as usize;
    let (from, to) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: two open descriptors; without offsets the call touches no memory of ours.
    let count = unsafe { libc::splice(file.as_raw_fd(), from, pipe.as_raw_fd(), to, most, 0) };
    match count {
        count if count >= 0 => Ok(count as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The start of the next data, or of the next hole, of a file; its size if there is none.
pub fn next_part(file: &File, from: u64, size: u64, data: bool) -> io::Result<u64> {
    let whence = if data { libc::SEEK_DATA } else { libc::SEEK_HOLE };
    // SAFETY: an open descriptor and integers.
    match unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) } {
        at if at >= 0 => Ok((at as u64).min(size)),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENXIO) => Ok(size),
            e => Err(e),
        },
    }
}

/// Names of extended attributes, each with a terminating NUL. Follows links, as the next three do.
pub fn attribute_names(path: &Path) -> io::Result<Vec<u8>> {
    let path = c_path(path)?;
    let mut names = vec![0; LARGEST_NAMES];
    // SAFETY: a NUL-terminated string that outlives the call, and a buffer of the given length.
    let length = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    truncated(names, length)
}

/// The value of an attribute; fails with ERANGE if it is longer than `most`.
pub fn attribute(path: &Path, name: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let (path, name) = (c_path(path)?, c_name(name)?);
    let mut value = vec![0; most];
    // SAFETY: two NUL-terminated strings that outlive the call, and a buffer of the given length.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    truncated(value, length)
}

pub fn set_attribute(path: &Path, name: &[u8], value: &[u8]) -> io::Result<()> {
    let (path, name) = (c_path(path)?, c_name(name)?);
    // SAFETY: two NUL-terminated strings that outlive the call, and the pointer and the length of a slice.
    check(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) }).map(|_| ())
}

pub fn remove_attribute(path: &Path, name: &[u8]) -> io::Result<()> {
    let (path, name) = (c_path(path)?, c_name(name)?);
    // SAFETY: two NUL-terminated strings that outlive the call.
    check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }).map(|_| ())
}

fn truncated(mut bytes: Vec<u8>, length: libc::ssize_t) -> io::Result<Vec<u8>> {
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(length as usize);
    Ok(bytes)
}

/// The size of the file system of a path, and the bytes in use.
pub fn disk_usage(path: &Path) -> io::Result<(u64, u64)> {
    let path = c_path(path)?;
    // SAFETY: all zeroes is a valid structure, which the kernel fills.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string with a NUL at its end, and a structure that outlives the call.
    check(unsafe { libc::statvfs(path.as_ptr(), &mut found) })?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok((
        bytes(found.f_blocks),
        bytes(found.f_blocks.saturating_sub(found.f_bfree)),
    ))
}

/// A random name in the same folder for an incomplete file, which is renamed when it is complete.
pub fn neighbour(path: &Path) -> io::Result<PathBuf> {
    let random = u64::from_le_bytes(super::random_bytes()?[..8].try_into().unwrap_or_default());
    Ok(path.with_file_name(format!(".forkd-{:016x}", random)))
}
