//! A child that runs the agent's code as a tool, without exec.

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

/// Runs `work` in a child with these standard streams and no other descriptor of the agent. The child exits with the
/// code that `work` returns. Returns the child's pid.
pub fn fork_tool(streams: [OwnedFd; 3], work: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the agent has one thread, so all locks are free in the child, which may allocate.
    let pid = check(unsafe { libc::fork() })?;
    if pid > 0 {
        return Ok(pid);
    }
    // the agent's panic hook would power off the machine
    std::panic::set_hook(Box::new(|panic| {
        eprint!("EIO\0{}", panic);
        // SAFETY: ends the child at once, in any state.
        unsafe { libc::_exit(1) };
    }));
    let code = if furnish(&streams).is_ok() { work() } else { 1 };
    // SAFETY: ends the child without running the agent's exit handlers.
    unsafe { libc::_exit(code) }
}

/// A standard stream of such a child, unbuffered.
pub fn standard_stream(number: RawFd) -> File {
    // SAFETY: it is open, and the child takes each only once.
    File::from(unsafe { OwnedFd::from_raw_fd(number) })
}

fn furnish(streams: &[OwnedFd; 3]) -> io::Result<()> {
    // SAFETY: integers, a set that is initialised before use, a handler that only stores a flag, and descriptors that
    // the child does not use: it never drops the agent's objects.
    unsafe {
        libc::setsid();
        // batch scheduling: the tool does not preempt the agent, so both move larger pieces at a time. A failure only
        // costs speed
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
        let mut action: libc::sigaction = std::mem::zeroed();
        // without SA_RESTART, so that a blocked call returns and the caller checks the flag
        action.sa_sigaction = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
        check(libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut()))?;
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        check(libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()))?;
        for (target, fd) in streams.iter().enumerate() {
            check(libc::dup2(fd.as_raw_fd(), target as libc::c_int))?;
        }
        // a copy of another process's pipe would keep that pipe from reaching its end
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
