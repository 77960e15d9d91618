//! A child that goes on with the agent's own code, without a program.

use super::check;
use std::fs::File;
use std::io;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether the child was asked to end.
pub fn is_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

extern "C" fn stop(_signal: libc::c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Runs `work` in a child whose standard streams are these, and which has no other descriptor of ours. The child ends
/// with the code that `work` returns. Gives the child's pid.
pub fn branch(streams: [OwnedFd; 3], work: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the agent has one thread, so the child finds every lock free and may allocate.
    let pid = check(unsafe { libc::fork() })?;
    if pid > 0 {
        return Ok(pid);
    }
    // the agent's own hook would end the machine
    std::panic::set_hook(Box::new(|panic| {
        eprint!("EIO\0{}", panic);
        // SAFETY: ends the child at once, whatever state it is in.
        unsafe { libc::_exit(1) };
    }));
    let code = if furnish(&streams).is_ok() { work() } else { 1 };
    // SAFETY: ends the child without running what the agent has registered.
    unsafe { libc::_exit(code) }
}

/// A standard stream of such a child, unbuffered.
pub fn standard_stream(number: RawFd) -> File {
    // SAFETY: it is open, and the child takes each only once.
    File::from(unsafe { OwnedFd::from_raw_fd(number) })
}

fn furnish(streams: &[OwnedFd; 3]) -> io::Result<()> {
    // SAFETY: integers, a set that is initialised before use, a handler that only stores a flag, and descriptors that
    // nothing in the child uses any more: it never drops what the agent owns.
    unsafe {
        libc::setsid();
        // it never interrupts the agent: both then move larger pieces at a time. Without it, it is only slower
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
        let mut action: libc::sigaction = std::mem::zeroed();
        // without SA_RESTART: whoever waits has to look at the flag
        action.sa_sigaction = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
        check(libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut()))?;
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        check(libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()))?;
        for (target, fd) in streams.iter().enumerate() {
            check(libc::dup2(fd.as_raw_fd(), target as libc::c_int))?;
        }
        // a pipe of another process that stayed open here would never end there
        if libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) < 0 {
            let mut limit: libc::rlimit = std::mem::zeroed();
            check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
            for fd in 3..limit.rlim_cur as libc::c_int {
                libc::close(fd);
            }
        }
    }
    Ok(())
}
