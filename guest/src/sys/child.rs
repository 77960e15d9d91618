//! A child that runs the agent's code, and descriptors that it sends to the agent.

use super::check;
use std::fs::File;
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

const MOST_FDS: usize = 8;
const SPACE: usize = 64;

/// A child of `fork_child`.
pub struct Child(Option<OwnedFd>);

impl Child {
    /// Kills it if it has not ended; through a pidfd, because its pid may be reused by then.
    pub fn kill(&self) {
        if let Some(fd) = &self.0 {
            let none = std::ptr::null::<libc::siginfo_t>();
            // SAFETY: an open descriptor, integers, and a null pointer, which is allowed.
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), libc::SIGKILL, none, 0) };
        }
    }
}

/// Forks; `work` runs in the child, which keeps only the standard descriptors and `keep`, and exits afterwards.
pub fn fork_child(keep: &[RawFd], work: impl FnOnce()) -> io::Result<Child> {
    // SAFETY: the agent has one thread, so all locks are free in the child, which may allocate.
    let pid = check(unsafe { libc::fork() })?;
    if pid > 0 {
        // SAFETY: integers only; the new descriptor has no other owner. The child is reaped only by the agent's loop.
        return Ok(Child(unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as RawFd;
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
        }));
    }
    // the agent's panic hook would power off the machine
    std::panic::set_hook(Box::new(|_| {
        // SAFETY: ends the child at once, in any state.
        unsafe { libc::_exit(1) }
    }));
    close_others(keep);
    work();
    // SAFETY: ends the child without running the agent's exit handlers.
    unsafe { libc::_exit(0) }
}

/// A copy of another process's pipe would keep that pipe from reaching its end.
fn close_others(keep: &[RawFd]) {
    let mut keep = keep.to_vec();
    keep.sort_unstable();
    let mut from = 4;
    for fd in keep.into_iter().chain([RawFd::MAX]) {
        if fd > from {
            // SAFETY: the child does not use them, and never drops the agent's objects. A guest kernel without this
            // call leaves them open until the child ends.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}

/// Sends bytes with descriptors.
pub fn send_with_fds(socket: &UnixStream, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    debug_assert!(fds.len() <= MOST_FDS);
    let mut control = [0u64; SPACE / 8];
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr() as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    let data = size_of_val(fds) as u32;
    // SAFETY: the message points to live memory of the sizes given; the control buffer is aligned and has room for one
    // header and MOST_FDS descriptors.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if !fds.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(data) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(data) as _;
            std::ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(header).cast(), fds.len());
        }
        match libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) {
            sent if sent == bytes.len() as isize => Ok(()),
            -1 => Err(io::Error::last_os_error()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// Receives bytes and the descriptors that came with them.
pub fn receive_with_fds(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<File>)> {
    let mut control = [0u64; SPACE / 8];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut files = Vec::new();
    // SAFETY: as above; every descriptor that the guest kernel reports is new and ours alone.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = SPACE as _;
        let count = libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC);
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let length = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            for at in 0..length / size_of::<RawFd>() {
                let fd = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast::<RawFd>().add(at));
                files.push(File::from(OwnedFd::from_raw_fd(fd)));
            }
        }
        Ok((count as usize, files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn descriptors_come_with_the_bytes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (read, write) = crate::sys::pipe().unwrap();
        send_with_fds(&theirs, b"two", &[read.as_raw_fd(), write.as_raw_fd()]).unwrap();
        let mut bytes = [0; 16];
        let (count, mut files) = receive_with_fds(&ours, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], files.len()), (&b"two"[..], 2));
        files[1].write_all(b"x").unwrap();
        let mut got = [0; 1];
        files[0].read_exact(&mut got).unwrap();
        assert_eq!(&got, b"x");
        send_with_fds(&theirs, b"none", &[]).unwrap();
        let (count, files) = receive_with_fds(&ours, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], files.len()), (&b"none"[..], 0));
        drop(theirs);
        assert_eq!(receive_with_fds(&ours, &mut bytes).unwrap().0, 0);
    }
}
