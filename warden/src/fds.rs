//! Descriptors that a child inherits: their sources, and the steps that put each at its number.

use crate::error::{Context, Error, Outcome};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem;
use std::os::raw::c_int;
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;

pub const FIRST_FREE_FD: u32 = 3;
pub const LAST_FREE_FD: u32 = 255;
/// Connections that may wait for accept
pub const BACKLOG: c_int = 128;

pub enum Source {
    /// A file that is already open
    File(File),
    /// Opened by the child, below the root that the child has then
    Path { path: CString, flags: c_int },
    /// A Unix socket at a path of the host, to which clients can connect before the VMM has started. The child makes
    /// it, so that it belongs to the child's network namespace
    Socket { path: CString, address: libc::sockaddr_un },
}

pub struct ChildFd {
    source: Source,
    target: RawFd,
    /// The child's own number of it until `fill`
    held: RawFd,
}

impl Source {
    /// From the mode in the protocol
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
            other => return Err(Error::new("EINVAL", format!("file mode {other}"))),
        };
        let path = path.to_owned();
        Ok(Source::Path { path, flags })
    }

    pub fn null() -> Outcome<Source> {
        Ok(Source::File(File::open("/dev/null").during(|| "/dev/null")?))
    }

    /// A copy of a descriptor of this process
    pub fn own(fd: RawFd) -> Outcome<Source> {
        // SAFETY: makes a new descriptor, which only this function has.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, FIRST_FREE_FD as c_int) };
        if copy < 0 {
            return Err(Error::io(&io::Error::last_os_error(), "standard input and output"));
        }
        // SAFETY: as above.
        Ok(Source::File(unsafe { File::from_raw_fd(copy) }))
    }

    /// A file that this process opens, with the wire's mode 0, 1 or 2
    pub fn open(path: &Path, mode: u8) -> Outcome<File> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = File::options();
        match mode {
            0 => options.read(true),
            1 => options.read(true).write(true),
            2 => options.write(true).create(true).truncate(true).mode(0o600),
            other => return Err(Error::new("EINVAL", format!("file mode {other}"))),
        };
        // a VMM has written there before: what it left must not lead elsewhere
        options.custom_flags(libc::O_NOFOLLOW);
        options.open(path).during(|| path.display())
    }

    pub fn log(path: &Path) -> Outcome<File> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = File::options();
        options.append(true).create(true).mode(0o600);
        options.open(path).during(|| path.display())
    }
}

pub fn address_of(path: &CStr) -> Outcome<libc::sockaddr_un> {
    // SAFETY: all zeroes is a valid address without a path.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    let bytes = path.to_bytes_with_nul();
    if bytes.len() > address.sun_path.len() {
        let message = format!("{}: the path of a socket is too long", path.to_string_lossy());
        return Err(Error::new("ENAMETOOLONG", message));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as _;
    }
    Ok(address)
}

impl ChildFd {
    pub fn new(source: Source, target: RawFd) -> ChildFd {
        ChildFd {
            source,
            target,
            held: -1,
        }
    }

    pub fn target(&self) -> RawFd {
        self.target
    }

    /// For the error message if it cannot be opened
    pub fn name(&self) -> String {
        match &self.source {
            Source::File(_) => "a descriptor".to_string(),
            Source::Path { path, .. } | Source::Socket { path, .. } => path.to_string_lossy().into_owned(),
        }
    }

    pub fn is_socket(&self) -> bool {
        matches!(self.source, Source::Socket { .. })
    }

    /// Opens it at a number above all targets, so that no `fill` can overwrite it; false with errno set.
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
    /// To be called in a child of vfork, after every descriptor is open.
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

/// Closes all descriptors except the targets and `kept`, which has a higher number than any target and closes on exec.
/// All descriptors of the warden are close-on-exec; this does not rely on it on kernels with close_range.
///
/// # Safety
/// To be called in a child of vfork; `fds` is sorted by target.
pub unsafe fn close_others(fds: &[ChildFd], kept: Option<RawFd>) {
    let mut next = 0u32;
    for target in fds.iter().map(|fd| fd.target).chain(kept) {
        let target = target as u32;
        if target > next {
            libc::syscall(libc::SYS_close_range, next, target - 1, 0u32);
        }
        next = target + 1;
    }
    libc::syscall(libc::SYS_close_range, next, u32::MAX, 0u32);
}
