//! The descriptors that a child finds open: where each comes from, and how the child puts it into its place.

use crate::fault::{Context, Fault, Outcome};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::mem;
use std::os::raw::c_int;
use std::os::unix::io::{AsRawFd, RawFd};
use std::path::Path;

pub const FIRST_FREE_FD: u32 = 3;
pub const LAST_FREE_FD: u32 = 255;
/// Clients that may wait to be accepted
const BACKLOG: c_int = 128;

pub enum Source {
    /// Open already
    File(File),
    /// Opened by the child, in whatever root it has then
    Path { path: CString, flags: c_int },
    /// A Unix socket that can be connected to before the VMM has started, at a path of the host. The child makes it, so that it
    /// belongs to the child's network namespace
    Socket { path: CString, address: libc::sockaddr_un },
}

pub struct Place {
    source: Source,
    target: RawFd,
    /// Where the child has it until it is in its place
    held: RawFd,
}

impl Source {
    /// From the wire's mode
    pub fn new(path: &CStr, mode: u8) -> Outcome<Source> {
        let flags = match mode {
            0 => libc::O_RDONLY,
            1 => libc::O_RDWR,
            2 => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
            3 => {
                let address = address_of(path)?;
                let path = path.to_owned();
                return Ok(Source::Socket { path, address });
            }
            other => return Err(Fault::new("EINVAL", format!("file mode {other}"))),
        };
        let path = path.to_owned();
        Ok(Source::Path { path, flags })
    }

    pub fn null() -> Outcome<Source> {
        Ok(Source::File(File::open("/dev/null").during(|| "/dev/null")?))
    }

    pub fn log(path: &Path) -> Outcome<File> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = File::options();
        options.append(true).create(true).mode(0o600);
        options.open(path).during(|| path.display())
    }
}

fn address_of(path: &CStr) -> Outcome<libc::sockaddr_un> {
    // SAFETY: all zeroes is a valid address without a path.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    let bytes = path.to_bytes_with_nul();
    if bytes.len() > address.sun_path.len() {
        let message = format!("{}: the path of a socket is too long", path.to_string_lossy());
        return Err(Fault::new("ENAMETOOLONG", message));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as _;
    }
    Ok(address)
}

impl Place {
    pub fn new(source: Source, target: RawFd) -> Place {
        Place {
            source,
            target,
            held: -1,
        }
    }

    pub fn target(&self) -> RawFd {
        self.target
    }

    /// For the error when it cannot be opened
    pub fn name(&self) -> String {
        match &self.source {
            Source::File(_) => "a descriptor".to_string(),
            Source::Path { path, .. } | Source::Socket { path, .. } => path.to_string_lossy().into_owned(),
        }
    }

    pub fn is_socket(&self) -> bool {
        matches!(self.source, Source::Socket { .. })
    }

    /// Opens it, at a number that no place can overwrite; false with errno set.
    ///
    /// # Safety
    /// To be called in a child of vfork.
    pub unsafe fn open(&mut self) -> bool {
        let opened = match &self.source {
            Source::File(file) => file.as_raw_fd(),
            Source::Path { path, flags } => libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600),
            Source::Socket { address, .. } => listen(address),
        };
        if opened < 0 {
            return false;
        }
        self.held = libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, LAST_FREE_FD as c_int + 1);
        self.held >= 0
    }

    /// # Safety
    /// To be called in a child of vfork, when every place is open.
    pub unsafe fn fill(&self) -> bool {
        libc::dup2(self.held, self.target) >= 0
    }
}

unsafe fn listen(address: &libc::sockaddr_un) -> c_int {
    let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
    let length = mem::size_of::<libc::sockaddr_un>() as libc::socklen_t;
    let at = (address as *const libc::sockaddr_un).cast();
    if socket < 0 || libc::bind(socket, at, length) != 0 || libc::listen(socket, BACKLOG) != 0 {
        return -1;
    }
    socket
}

/// Leaves only what is in its place. Every descriptor of the warden closes on exec by itself; this does not rely on it where the
/// kernel can help.
///
/// # Safety
/// To be called in a child of vfork; the places are sorted by their targets.
pub unsafe fn close_others(places: &[Place]) {
    let mut next = 0u32;
    for place in places {
        let target = place.target as u32;
        if target > next {
            libc::syscall(libc::SYS_close_range, next, target - 1, 0u32);
        }
        next = target + 1;
    }
    libc::syscall(libc::SYS_close_range, next, u32::MAX, 0u32);
}
