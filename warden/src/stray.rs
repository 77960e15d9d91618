//! Ends a confined process that makes a system call which its filter does not allow. The kernel stops the call and
//! notifies the warden, which writes the name of the call into the log of the process. If the kernel killed the process
//! itself, the log would not say why.

use crate::calls;
use crate::filter::{self, Kind, Member, Start};
use crate::sys;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::raw::c_int;
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::{mem, ptr};

/// `SECCOMP_IOCTL_NOTIF_RECV`
const RECEIVE: libc::c_ulong = 0xc050_2100;
const FD_BYTES: usize = mem::size_of::<c_int>();

/// The filter of a child, laid out before it is made; the child only makes system calls.
pub struct Guard {
    telling: Vec<libc::sock_filter>,
    /// Used when installing `telling` fails: the kernel allows one listener among all filters of a process, and the
    /// warden may have inherited a filter with a listener, as from a container runtime
    killing: Vec<libc::sock_filter>,
    ours: UnixStream,
    childs: UnixStream,
    log: Option<File>,
}

impl Guard {
    /// `log`: where the warden writes why it ended the child; without it the kernel kills the child
    pub fn new(kind: Kind, start: Start, member: Option<Member>, log: Option<File>) -> io::Result<Guard> {
        let (ours, childs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok(Guard {
            telling: filter::program(kind, start, filter::TELL, member),
            killing: filter::program(kind, start, filter::KILL, member),
            ours,
            childs,
            log,
        })
    }

    /// The socket by which the child passes its listener to the warden
    pub fn channel(&self) -> RawFd {
        self.childs.as_raw_fd()
    }

    /// Installs the filter; false with errno set. Every call that the child makes after this must be allowed by every
    /// filter: the warden is suspended until the exec, so it cannot answer a notification.
    ///
    /// # Safety
    /// To be called in a child of vfork that gains no privileges.
    pub unsafe fn raise(&self, channel: RawFd) -> bool {
        if self.log.is_some() {
            let listener = filter::install(&self.telling, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
            if listener >= 0 {
                // the child's copy of the listener is close-on-exec
                return pass(channel, listener);
            }
        }
        filter::install(&self.killing, 0) == 0
    }

    /// None when the kernel kills the child itself, or when the child failed before it sent its listener
    pub fn watch(self) -> Option<Watched> {
        let log = self.log?;
        let listener = take(self.ours.as_raw_fd())?;
        Some(Watched { listener, log })
    }
}

/// A message with room for one descriptor; its one byte has no meaning, but a message must have data
fn with_message<T>(work: impl FnOnce(&mut libc::msghdr) -> T) -> T {
    let mut byte = 0u8;
    let mut part = libc::iovec {
        iov_base: (&mut byte as *mut u8).cast(),
        iov_len: 1,
    };
    // aligned as a header of control data must be
    let mut control = [0u64; 4];
    // SAFETY: all zeroes is a message without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes a length, which is 24.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(FD_BYTES as u32) } as usize;
    work(&mut message)
}

unsafe fn pass(channel: RawFd, fd: c_int) -> bool {
    with_message(|message| {
        let head = libc::CMSG_FIRSTHDR(message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(FD_BYTES as u32) as usize;
        ptr::write_unaligned(libc::CMSG_DATA(head).cast(), fd);
        libc::sendmsg(channel, message, libc::MSG_NOSIGNAL) == 1
    })
}

fn take(channel: RawFd) -> Option<File> {
    // SAFETY: the kernel fills the message, whose buffers outlive the call; a descriptor that it names is new, so this
    // function owns it.
    with_message(|message| unsafe {
        if libc::recvmsg(channel, message, libc::MSG_CMSG_CLOEXEC) != 1 {
            return None;
        }
        let head = libc::CMSG_FIRSTHDR(message);
        if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return None;
        }
        Some(File::from_raw_fd(ptr::read_unaligned(
            libc::CMSG_DATA(head).cast::<c_int>(),
        )))
    })
}

/// The listener of a child's filter, and the log of the child
pub struct Watched {
    listener: File,
    log: File,
}

/// The filters of which the warden gets calls, and the logs of the processes that have them: clones share the filter of their zygote
pub struct Strays {
    events: File,
    listeners: BTreeMap<u64, File>,
    /// Of the last one; no child event has a number above 0
    last: u64,
    logs: BTreeMap<i32, File>,
}

impl Strays {
    /// `events` are those of `sys::events`
    pub fn new(events: File) -> Strays {
        Strays {
            events,
            listeners: BTreeMap::new(),
            last: 0,
            logs: BTreeMap::new(),
        }
    }

    pub fn watch(&mut self, pid: i32, watched: Watched) -> io::Result<()> {
        self.last += 1;
        sys::add_event(&self.events, watched.listener.as_raw_fd(), self.last)?;
        self.listeners.insert(self.last, watched.listener);
        self.logs.insert(pid, watched.log);
        Ok(())
    }

    /// A process that has the filter of another one
    pub fn watch_clone(&mut self, pid: i32, log: File) {
        self.logs.insert(pid, log);
    }

    pub fn forget(&mut self, pid: i32) {
        self.logs.remove(&pid);
    }

    /// Kills the children of which the kernel has stopped a call. `ready` are the values of the events that have come.
    pub fn end(&mut self, ready: &[u64]) {
        for value in ready {
            let listener = match self.listeners.get(value) {
                Some(listener) => listener,
                None => continue,
            };
            if let Some((tid, number)) = held_call(listener) {
                self.end_one(tid, number);
            } else if is_unused(listener) {
                self.listeners.remove(value);
            }
        }
    }

    fn end_one(&mut self, tid: i32, number: i32) {
        // the call is held until the process has ended, so its numbers are not used again yet
        let pid = process_of(tid).unwrap_or(tid);
        let _ = sys::send_signal(pid, libc::SIGKILL);
        let call = calls::name_of(number);
        if let Some(log) = self.logs.get_mut(&pid) {
            let _ = writeln!(
                log,
                "forkd: ended, because it made the system call {call}, which its filter does not allow"
            );
        }
    }
}

/// No process has the filter any more
fn is_unused(listener: &File) -> bool {
    let mut fds = [sys::watch(listener.as_raw_fd(), libc::POLLIN)];
    let looked = sys::poll(&mut fds, Some(Duration::ZERO));
    looked.is_ok() && fds[0].revents & libc::POLLHUP != 0
}

/// The process of a thread
fn process_of(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The thread and the number of the call; None when the process has ended meanwhile
fn held_call(listener: &File) -> Option<(i32, i32)> {
    // SAFETY: all zeroes is what the kernel asks for.
    let mut held: libc::seccomp_notif = unsafe { mem::zeroed() };
    // SAFETY: the kernel fills one such structure.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &mut held) };
    (result == 0).then_some((held.pid as i32, held.data.nr))
}
