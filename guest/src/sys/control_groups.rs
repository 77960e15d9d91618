//! The guest's control groups, without a mount point.

use super::check;
use std::io;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// The root folder of the control groups (version 2), on a mount that is reachable only through this descriptor.
pub fn mount_control_groups() -> io::Result<OwnedFd> {
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: a NUL-terminated string, integers, and null pointers where the command takes no key and no value; each
    // new descriptor is ours alone.
    unsafe {
        let kind = b"cgroup2\0".as_ptr();
        let context = check(libc::syscall(libc::SYS_fsopen, kind, FSOPEN_CLOEXEC) as RawFd)?;
        let context = OwnedFd::from_raw_fd(context);
        let fd = context.as_raw_fd();
        check(libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) as RawFd)?;
        let mount = check(libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, 0) as RawFd)?;
        Ok(OwnedFd::from_raw_fd(mount))
    }
}
