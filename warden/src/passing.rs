//! Files that the warden passes to a process it traces: by a pair of sockets that only the two have.

use crate::descriptors;
use crate::error::{Context, Outcome};
use crate::script::Layout;
use crate::tracee::{Thread, Tracee};
use std::fs::File;
use std::io;
use std::mem;
use std::os::raw::c_int;
use std::os::unix::io::{AsRawFd, RawFd};
use std::ptr;

/// At most this many descriptors go with one message
const MAX_GIVEN: usize = 16;
/// Below the stack pointer: code may use 128 bytes there without moving it, and the rest is enough for one message
const BELOW_STACK: u64 = 1024;
/// A header of control data, before the numbers
const CONTROL_HEADER: u64 = 16;

/// Puts a file at numbers of a running process, in place of what is there. Only its main thread stops for it.
pub fn replace(pid: i32, places: &[RawFd], file: &File, secret: u64) -> Outcome<()> {
    let tracee = Tracee::seize_main(pid)?;
    let main = &tracee.main_thread()?;
    let pidfd = descriptors::open_pid(pid).during(|| "pidfd")?;
    let at = (main.registers.rsp - BELOW_STACK) & !15;
    let call = |number: i64, arguments: [u64; 6]| tracee.call(main, number, arguments);
    let (channel, theirs) = make_channel(&tracee, main, &pidfd, at, secret)?;
    let close = |fd: RawFd| call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
    let receive = || {
        let mut layout = Layout::new(at);
        let (message, control) = message(&mut layout, 1);
        tracee.write(at, layout.bytes())?;
        send(&channel, &[file]).during(|| "passing a descriptor")?;
        call(libc::SYS_recvmsg, [theirs as u64, message, 0, 0, 0, 0])?;
        let new = tracee.read_u32(control + CONTROL_HEADER)? as RawFd;
        let placed = places
            .iter()
            .try_for_each(|place| call(libc::SYS_dup3, [new as u64, *place as u64, 0, 0, 0, 0]).map(|_| ()));
        placed.and(close(new))
    };
    let received = receive();
    close(theirs)?;
    received.map(|_| ())
}

/// For recvmsg of `count` descriptors: the addresses of the message, and of its control data
pub fn message(layout: &mut Layout, count: usize) -> (u64, u64) {
    let byte = layout.words(&[0]);
    let part = layout.words(&[byte, 1]);
    // SAFETY: computes a length.
    let length = unsafe { libc::CMSG_SPACE((count * mem::size_of::<c_int>()) as u32) } as u64;
    let control = layout.words(&vec![0; length as usize / 8]);
    (layout.words(&[0, 0, part, 1, control, length, 0]), control)
}

/// A pair of sockets: the warden's end, and the number of the process's own. `at` is memory of the process for two words.
pub fn make_channel(tracee: &Tracee, main: &Thread, pidfd: &File, at: u64, secret: u64) -> Outcome<(File, RawFd)> {
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
    tracee.call(
        main,
        libc::SYS_socketpair,
        [libc::AF_UNIX as u64, kind, 0, at, 0, secret],
    )?;
    let theirs = tracee.read_u32(at)? as RawFd;
    let ours = tracee.read_u32(at + 4)? as RawFd;
    let taken = descriptors::take(pidfd, ours).during(|| "channel to the process");
    tracee.call(main, libc::SYS_close, [ours as u64, 0, 0, 0, 0, 0])?;
    Ok((taken?, theirs))
}

pub fn send(channel: &File, files: &[&File]) -> io::Result<()> {
    assert!(files.len() <= MAX_GIVEN);
    let mut byte = 0u8;
    let mut part = libc::iovec {
        iov_base: ptr::addr_of_mut!(byte).cast(),
        iov_len: 1,
    };
    let numbers: Vec<c_int> = files.iter().map(|file| file.as_raw_fd()).collect();
    let length = mem::size_of_val(numbers.as_slice()) as u32;
    // aligned as a header of control data must be
    let mut control = [0u64; 2 + MAX_GIVEN];
    // SAFETY: the message's buffers outlive the call, and the control data has room for all numbers.
    let sent = unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(length) as _;
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(length) as _;
        ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), libc::CMSG_DATA(head), length as usize);
        libc::sendmsg(channel.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    match sent {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
