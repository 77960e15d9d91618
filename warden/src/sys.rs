//! System calls that std does not have, each behind a safe function.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::raw::c_void;
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::Duration;

pub const PAGE: usize = 4096;

fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// A memory mapping; read-only if it maps a file.
pub struct Mapping {
    at: *mut u8,
    length: usize,
    writable: bool,
}

// SAFETY: the memory belongs to this value alone and is reached only through its borrow rules.
unsafe impl Send for Mapping {}
// SAFETY: shared access only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `length` bytes of a file, which must be that long. With `populate` later reads cause no page faults.
    pub fn of_file(file: &File, length: usize, populate: bool) -> io::Result<Mapping> {
        let populate = if populate { libc::MAP_POPULATE } else { 0 };
        let flags = libc::MAP_SHARED | populate;
        Mapping::new(length, libc::PROT_READ, flags, file.as_raw_fd())
    }

    /// Zeroed memory, all of it present.
    pub fn buffer(length: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Mapping::new(length, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    fn new(length: usize, prot: i32, flags: i32, fd: RawFd) -> io::Result<Mapping> {
        let writable = prot & libc::PROT_WRITE != 0;
        if length == 0 {
            return Ok(Mapping {
                at: ptr::NonNull::dangling().as_ptr(),
                length,
                writable,
            });
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let at = unsafe { libc::mmap(ptr::null_mut(), length, prot, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping {
            at: at.cast(),
            length,
            writable,
        })
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped readable for `length` bytes until drop.
        unsafe { std::slice::from_raw_parts(self.at, self.length) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.writable, "a mapping of a file is read-only");
        // SAFETY: mapped writable for `length` bytes until drop, borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: this value made the mapping and nothing borrows it any more.
            unsafe { libc::munmap(self.at.cast(), self.length) };
        }
    }
}

/// A range of another process's memory. Has the layout of an iovec, but its address is not a pointer of this process
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Remote {
    pub address: usize,
    pub length: usize,
}

/// Reads ranges of another process into `local`, packed; an error unless all of it was read.
pub fn read_process(pid: i32, pieces: &[Remote], local: &mut [u8]) -> io::Result<()> {
    let into = libc::iovec {
        iov_base: local.as_mut_ptr().cast::<c_void>(),
        iov_len: local.len(),
    };
    let from = pieces.as_ptr().cast::<libc::iovec>();
    // SAFETY: writes only into `local`; `Remote` has the layout of an iovec, whose addresses the kernel checks in the
    // other process.
    let got = unsafe { libc::process_vm_readv(pid, &into, 1, from, pieces.len() as _, 0) };
    if check(got as i64)? as usize != local.len() {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    Ok(())
}

pub const PAGE_IS_FILE: u64 = 1 << 2;
pub const PAGE_IS_PRESENT: u64 = 1 << 3;
pub const PAGE_IS_SWAPPED: u64 = 1 << 4;
pub const PAGE_IS_SOFT_DIRTY: u64 = 1 << 7;
/// _IOWR('f', 16, struct pm_scan_arg)
const PAGEMAP_SCAN: u64 = 0xc060_6610;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PageRegion {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// One PAGEMAP_SCAN for private pages from `start`: the number of regions found, and where the walk stopped.
pub fn pagemap_scan(
    pagemap: &File,
    start: u64,
    end: u64,
    return_mask: u64,
    regions: &mut [PageRegion],
) -> io::Result<(usize, u64)> {
    let mut arg = ScanArg {
        size: std::mem::size_of::<ScanArg>() as u64,
        start,
        end,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        category_inverted: PAGE_IS_FILE,
        category_mask: PAGE_IS_FILE,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask,
        ..ScanArg::default()
    };
    // SAFETY: the kernel writes at most `vec_len` regions into `regions` and `walk_end` into `arg`.
    let found = check(unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &mut arg as *mut ScanArg) } as i64)?;
    Ok((found as usize, arg.walk_end))
}

pub fn seek_data(file: &File, from: u64) -> io::Result<Option<u64>> {
    seek(file, from, libc::SEEK_DATA)
}

pub fn seek_hole(file: &File, from: u64) -> io::Result<Option<u64>> {
    seek(file, from, libc::SEEK_HOLE)
}

fn seek(file: &File, from: u64, whence: i32) -> io::Result<Option<u64>> {
    // SAFETY: moves a file offset, nothing else.
    match check(unsafe { libc::lseek(file.as_raw_fd(), from as _, whence) } as i64) {
        Ok(at) => Ok(Some(at as u64)),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

pub fn reflink(from: &File, to: &File) -> io::Result<()> {
    // SAFETY: works on two open files, no memory.
    check(unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE as _, from.as_raw_fd()) } as _)?;
    Ok(())
}

pub fn punch_hole(file: &File, at: u64, length: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: works on an open file, no memory.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, at as _, length as _) } as _)?;
    Ok(())
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// A descriptor that is readable when a child has ended. Blocks SIGCHLD, so it must be called before any thread starts.
pub fn child_events() -> io::Result<File> {
    // SAFETY: a zeroed set is valid storage for sigemptyset, which initialises it.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    check(fd.into())?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// An epoll descriptor: readable when one of the added descriptors is.
pub fn events() -> io::Result<File> {
    // SAFETY: makes a descriptor, which has no other owner.
    unsafe {
        let fd = check(libc::epoll_create1(libc::EPOLL_CLOEXEC).into())?;
        Ok(File::from_raw_fd(fd as RawFd))
    }
}

/// `value` is reported when the descriptor is readable or at its end; closing the descriptor removes it.
pub fn add_event(events: &File, fd: RawFd, value: u64) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: value,
    };
    // SAFETY: the kernel reads one event.
    check(unsafe { libc::epoll_ctl(events.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) }.into())?;
    Ok(())
}

/// The values of some descriptors that are readable now.
pub fn ready_events(events: &File) -> Vec<u64> {
    // SAFETY: zeroes are valid events, and the kernel fills at most as many as there are.
    unsafe {
        let mut ready: [libc::epoll_event; 64] = std::mem::zeroed();
        let count = libc::epoll_wait(events.as_raw_fd(), ready.as_mut_ptr(), ready.len() as i32, 0);
        let count = usize::try_from(count).unwrap_or(0);
        ready[..count].iter().map(|event| event.u64).collect()
    }
}

/// Own session, no inherited descriptors, private files, signals of the terminal ignored.
pub fn settle() {
    // SAFETY: process-wide settings made before any other thread exists; descriptors above 2 have no owner yet.
    unsafe {
        libc::setsid();
        libc::umask(0o077);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32);
    }
}

pub fn watch(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Waits for an event on one of the descriptors; `revents` has it.
pub fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    // rounded up: a caller that waits for a deadline must not spin just before it
    let millis = timeout.map_or(-1, |time| time.as_millis().saturating_add(1).min(1 << 30) as i32);
    // SAFETY: `fds` is an array of that length.
    match check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, millis) }.into()) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

pub fn read_stdin(buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: writes at most `buffer.len()` bytes into `buffer`.
    Ok(check(unsafe { libc::read(0, buffer.as_mut_ptr().cast(), buffer.len()) } as _)? as usize)
}

pub fn write_stdout(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: reads at most `bytes.len()` bytes of `bytes`.
        match check(unsafe { libc::write(1, bytes.as_ptr().cast(), bytes.len()) } as _) {
            Ok(written) => bytes = &bytes[written as usize..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => poll(&mut [watch(1, libc::POLLOUT)], None)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub fn send_signal(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is involved; the caller names only its own unreaped children.
    check(unsafe { libc::kill(pid, signal) }.into())?;
    Ok(())
}

/// One ended child, as (pid, exit code or -1, signal or 0); None when none is ready, or none is left.
pub fn reap(block: bool) -> Option<(i32, i32, i32)> {
    let mut status = 0;
    loop {
        let options = if block { 0 } else { libc::WNOHANG };
        // SAFETY: writes one int.
        let pid = unsafe { libc::waitpid(-1, &mut status, options) };
        // a stop of a traced process is no end
        if pid > 0 && libc::WIFSTOPPED(status) {
            continue;
        }
        if pid > 0 {
            let (code, signal) = if libc::WIFSIGNALED(status) {
                (-1, libc::WTERMSIG(status))
            } else {
                (libc::WEXITSTATUS(status), 0)
            };
            return Some((pid, code, signal));
        }
        let interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if pid == 0 || !interrupted {
            return None;
        }
    }
}

/// Wakes the main loop: readable after it was rung.
pub struct Wake {
    event: File,
}

impl Wake {
    pub fn new() -> io::Result<Wake> {
        // SAFETY: makes a descriptor, no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        check(fd.into())?;
        // SAFETY: the descriptor is new and has no other owner.
        let event = unsafe { File::from_raw_fd(fd) };
        Ok(Wake { event })
    }

    pub fn ring(&self) {
        // fails only if the counter is at its maximum, and the descriptor is readable then
        let _ = (&self.event).write(&1u64.to_ne_bytes());
    }

    pub fn hush(&self) {
        // fails only when it was not rung
        let _ = (&self.event).read(&mut [0; 8]);
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

/// The user of the process at the other end of a socket, at the time of its connect.
pub fn peer_uid(socket: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `peer`.
    let result = unsafe {
        let into = (&mut peer as *mut libc::ucred).cast::<c_void>();
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            into,
            &mut length,
        )
    };
    check(result.into())?;
    Ok(peer.uid)
}

/// Unpredictable
pub fn random_word() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most eight bytes.
    let got = check(unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } as i64)?;
    if got as usize != bytes.len() {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    Ok(u64::from_ne_bytes(bytes))
}

pub fn own_uid() -> u32 {
    // SAFETY: reads this process's user.
    unsafe { libc::geteuid() }
}

/// Takes an exclusive lock on an open file or folder, held until it is closed; false if another process has it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: works on an open file, no memory.
    match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }.into()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the starter's pipes and folder. Stderr stays, for messages.
pub fn leave_starter() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for fd in [0, 1] {
        // SAFETY: stdin and stdout are std's, which only uses them by number.
        check(unsafe { libc::dup2(null.as_raw_fd(), fd) }.into())?;
    }
    std::env::set_current_dir("/")
}

/// Writes to stderr. It may be a broken pipe, on which eprintln would panic and end the warden and all VMs.
pub fn complain(why: impl Display) {
    let _ = writeln!(io::stderr(), "forkd-warden: {why}");
}

/// Before something counts as a hang in a test: as in tests/helpers/patience.ts
#[cfg(test)]
pub fn patience() -> std::time::Duration {
    let measured = std::env::var("FORKD_TEST_REFERENCE_MS").ok();
    let reference_ms = measured.and_then(|text| text.parse().ok()).unwrap_or(10_000);
    std::time::Duration::from_millis(20 * reference_ms)
}
