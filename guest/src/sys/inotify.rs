//! Changes of files, reported by inotify.

use super::check;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;

const HEADER: usize = 16;

/// One change; `name` is empty if it concerns the watched file itself.
pub struct Change {
    pub watch: i32,
    pub mask: u32,
    /// The same for both sides of a move.
    pub cookie: u32,
    pub name: Vec<u8>,
}

pub struct Inotify(File);

impl Inotify {
    pub fn new() -> io::Result<Inotify> {
        // SAFETY: integers only; the new descriptor is ours alone.
        unsafe {
            let fd = check(libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK))?;
            Ok(Inotify(File::from_raw_fd(fd)))
        }
    }

    pub fn watch(&self, path: &Path, mask: u32) -> io::Result<i32> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: an open descriptor and a NUL-terminated string that outlives the call.
        check(unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), path.as_ptr(), mask) })
    }

    pub fn forget(&self, watch: i32) {
        // SAFETY: integers only. Fails if the watch no longer exists.
        unsafe { libc::inotify_rm_watch(self.0.as_raw_fd(), watch) };
    }

    /// The changes available now; `false` if there are none.
    pub fn changes(&mut self, buffer: &mut [u8], mut each: impl FnMut(Change)) -> io::Result<bool> {
        let count = match self.0.read(buffer) {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => 0,
            Err(e) => return Err(e),
        };
        let mut rest = &buffer[..count];
        while rest.len() >= HEADER {
            let number = |at: usize| u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
            let end = (HEADER + number(12) as usize).min(rest.len());
            let name = rest[HEADER..end].split(|byte| *byte == 0).next().unwrap_or_default();
            each(Change {
                watch: number(0) as i32,
                mask: number(4),
                cookie: number(8),
                name: name.to_vec(),
            });
            rest = &rest[end..];
        }
        Ok(count > 0)
    }
}

impl AsRawFd for Inotify {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
