//! System calls that std does not have. All `unsafe` code of the agent is here.

mod bpf;
mod child;
mod control_groups;
mod files;
mod inotify;
mod launch;
mod net;
mod tcp;
mod terminal;
mod tool_process;

pub use bpf::{attach_socket_lookup, socket_map};
pub use child::{fork_child, receive_with_fds, send_with_fds, Child};
pub use control_groups::mount_control_groups;
pub use files::{
    attribute, attribute_names, become_user, chown, chown_file, chown_link, device, device_major, device_minor,
    disk_usage, go_to, is_root, link, make_node, neighbour, next_part, remove_attribute, rename_new, set_attribute,
    set_file_mtime, set_mtime, splice, with_file_rights,
};
pub use inotify::{Change, Inotify};
pub use launch::{launch, Launch, LAUNCH_STEPS};
pub use net::{netlink, receive, reply, transparent_datagrams, transparent_listener, Route};
pub use tcp::{acknowledge, reset_on_close, tcp_connect};
pub use terminal::{end_of_input, open_terminal, resize};
pub use tool_process::{fork_tool, is_stopped, standard_stream};

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub const POLLIN: i16 = libc::POLLIN;
pub const POLLOUT: i16 = libc::POLLOUT;
pub const POLLERR: i16 = libc::POLLERR;
pub const POLLHUP: i16 = libc::POLLHUP;

const RNDADDENTROPY: u64 = 0x4008_5203;
const RNDRESEEDCRNG: u64 = 0x5207;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// One descriptor to wait for.
pub type PollFd = libc::pollfd;

pub fn poll_fd(fd: RawFd, events: i16) -> PollFd {
    PollFd { fd, events, revents: 0 }
}

/// Waits for any of the descriptors; a negative timeout means no limit.
pub fn poll(fds: &mut [PollFd], timeout_ms: i32) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of one live slice.
    match check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) }) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other.map(|_| ()),
    }
}

pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors; both are new and have no other owner.
    unsafe {
        check(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// Enlarges a pipe's buffer, so that its two sides wait for each other less often.
pub fn widen_pipe(fd: &impl AsRawFd, bytes: usize) {
    // SAFETY: fcntl with integer arguments on an open descriptor. A pipe that stays small is only slower.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes as libc::c_int) };
}

/// Reads once, to the end of a buffer.
pub fn read_into(file: &File, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    buffer.reserve(most);
    let room = buffer.spare_capacity_mut();
    // SAFETY: the room has at least `most` bytes, of which the kernel fills as many as it says.
    unsafe {
        let count = libc::read(file.as_raw_fd(), room.as_mut_ptr().cast(), most);
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        buffer.set_len(buffer.len() + count as usize);
        Ok(count as usize)
    }
}

pub fn set_nonblocking(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: fcntl with integer arguments on an open descriptor touches no memory.
    unsafe {
        let flags = check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK))?;
    }
    Ok(())
}

/// Number of bytes ready to be read.
pub fn waiting(fd: RawFd) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int to the given address.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &mut count) };
    if result < 0 {
        0
    } else {
        count.max(0) as u64
    }
}

/// Occupies descriptors 0 to 3, so that no pipe gets a number that a child replaces.
pub fn reserve_low_fds() -> io::Result<()> {
    loop {
        let fd = File::options().read(true).write(true).open("/dev/null")?;
        if fd.as_raw_fd() > 3 {
            return Ok(());
        }
        std::mem::forget(fd);
    }
}

/// Makes the console the agent's stdout and stderr.
pub fn use_console(console: &File) -> io::Result<()> {
    for fd in 1..=2 {
        // SAFETY: dup2 touches no memory, and descriptors 1 and 2 belong to no File of ours.
        check(unsafe { libc::dup2(console.as_raw_fd(), fd) })?;
    }
    Ok(())
}

/// Blocks SIGCHLD and returns a descriptor that is readable when a child has changed state.
pub fn child_signals() -> io::Result<File> {
    // SAFETY: the set is initialised by sigemptyset before use; the new descriptor is ours alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        check(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()))?;
        let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(File::from_raw_fd(fd))
    }
}

/// A child that has ended: (pid, exit code or -1, signal or 0). `None`: no more for now.
pub fn reap() -> Option<(i32, i32, u32)> {
    let mut status = 0;
    // SAFETY: waitpid writes one int to the given address.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    if libc::WIFSIGNALED(status) {
        Some((pid, -1, libc::WTERMSIG(status) as u32))
    } else {
        Some((pid, libc::WEXITSTATUS(status), 0))
    }
}

/// Reaps an ended child, if there is one; `false` if there are no children.
pub fn has_children() -> bool {
    // SAFETY: waitpid accepts a null status.
    unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) >= 0 }
}

pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill touches no memory.
    check(unsafe { libc::kill(pid, signal) }).map(|_| ())
}

/// An epoll instance that watches one descriptor edge-triggered.
pub struct Edge(OwnedFd);

impl Edge {
    pub fn new(fd: RawFd) -> io::Result<Edge> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32,
            u64: 0,
        };
        // SAFETY: the new descriptor is ours alone; epoll_ctl reads one event.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?);
            check(libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event))?;
            Ok(Edge(epoll))
        }
    }

    /// Clears the edges seen so far.
    pub fn clear(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event is given and one is asked for.
        unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut event, 1, 0) };
    }
}

impl AsRawFd for Edge {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn clock(id: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

pub fn wall_clock_ns() -> i64 {
    clock(libc::CLOCK_REALTIME)
}

pub fn monotonic_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC) as u64
}

pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

pub fn set_wall_clock_ns(ns: i64) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    };
    // SAFETY: clock_settime reads one timespec.
    check(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &time) }).map(|_| ())
}

/// Adds the bytes to the guest kernel's pool, credited in full, and reseeds its generator from it.
pub fn add_entropy(random: &File, bytes: &[u8]) -> io::Result<()> {
    // struct rand_pool_info: bit count, byte count, then the bytes
    let mut info = Vec::with_capacity(8 + bytes.len());
    info.extend_from_slice(&(bytes.len() as i32 * 8).to_ne_bytes());
    info.extend_from_slice(&(bytes.len() as i32).to_ne_bytes());
    info.extend_from_slice(bytes);
    // SAFETY: the kernel reads eight bytes and as many more as they say, all inside `info`; it copies bytewise,
    // so alignment does not matter. The second call takes no argument.
    unsafe {
        check(libc::ioctl(random.as_raw_fd(), RNDADDENTROPY as _, info.as_ptr()))?;
        check(libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG as _))?;
    }
    Ok(())
}

pub fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0u8; 16];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &mut bytes[at..];
        // SAFETY: the pointer and the length are those of the slice.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match got {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            got => at += got as usize,
        }
    }
    Ok(())
}

/// Real-time priority for the caller, not for its children.
pub fn run_before_others() -> io::Result<()> {
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)
}

pub fn run_as_one_of_many() -> io::Result<()> {
    schedule(libc::SCHED_OTHER, 0)
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: sched_param is plain data for which zero is valid; the call reads it.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = priority;
        check(libc::sched_setscheduler(0, policy, &parameters)).map(|_| ())
    }
}

pub fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of the string.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(|_| ())
}

pub fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong, options: &str) -> io::Result<()> {
    let (source, target) = (c_string(source)?, c_string(target)?);
    let (kind, options) = (c_string(kind)?, c_string(options)?);
    // SAFETY: all four are NUL-terminated strings that outlive the call.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    })
    .map(|_| ())
}

/// Detaches a mount from its path at once; the guest kernel removes it when no process uses it.
pub fn unmount(target: &str) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) }).map(|_| ())
}

pub fn chroot(path: &str) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: a NUL-terminated string that outlives the call.
    check(unsafe { libc::chroot(path.as_ptr()) }).map(|_| ())
}

/// Loads a guest kernel module from an open file.
pub fn load_module(file: &File, compressed: bool) -> io::Result<()> {
    const MODULE_INIT_COMPRESSED_FILE: libc::c_int = 4;
    let parameters: &CStr = Default::default();
    let flags = if compressed { MODULE_INIT_COMPRESSED_FILE } else { 0 };
    // SAFETY: an open descriptor, a NUL-terminated string and an integer.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), flags) };
    check(result as libc::c_int).map(|_| ())
}

/// Brings the loopback interface up.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: the socket is new and ours alone; ifreq is plain data for which zero is valid, its name is
    // NUL-terminated because only two bytes of it are set, and only the member that the request uses is touched.
    unsafe {
        let socket = OwnedFd::from_raw_fd(check(libc::socket(
            libc::AF_INET,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
            0,
        ))?);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request))?;
    }
    Ok(())
}

/// Raises the agent's limit of open files; children get the usual limit back.
pub fn raise_file_limit() {
    let limit = libc::rlimit {
        rlim_cur: 1 << 20,
        rlim_max: 1 << 20,
    };
    // SAFETY: setrlimit reads one rlimit. A failure leaves the smaller limit, which only means EMFILE sooner.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
}

pub fn set_umask(mask: u32) {
    // SAFETY: umask touches no memory and cannot fail.
    unsafe { libc::umask(mask) };
}

pub fn sync() {
    // SAFETY: sync takes no arguments and cannot fail.
    unsafe { libc::sync() };
}

/// Powers off; does not return for PID 1.
pub fn power_off() -> ! {
    // SAFETY: an integer argument only; without the privilege it fails and the agent exits instead.
    unsafe { libc::reboot(libc::LINUX_REBOOT_CMD_POWER_OFF) };
    std::process::exit(1)
}
