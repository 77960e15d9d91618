//! Starting a program: fork, the few steps of the child, and how a failure comes back.

use super::{check, pipe};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::io::{AsRawFd, RawFd};

/// All that the child side of a fork needs, made before the fork: after it, nothing may allocate.
pub struct Launch {
    pub path: CString,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: CString,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// What becomes descriptors 0, 1, 2 and, if given, 3; each must be above 3.
    pub fds: Vec<RawFd>,
}

/// The step of starting a program that failed, in the order the child does them.
pub const LAUNCH_STEPS: [&str; 4] = ["descriptors", "user", "cwd", "exec"];

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let mut all: Vec<_> = strings.iter().map(|s| s.as_ptr()).collect();
    all.push(std::ptr::null());
    all
}

/// Starts a program in a session of its own; an error names the step (an index of `LAUNCH_STEPS`).
pub fn launch(launch: &Launch) -> Result<i32, (usize, io::Error)> {
    let (failure_in, failure_out) = pipe().map_err(|e| (0, e))?;
    let (argv, env) = (pointers(&launch.argv), pointers(&launch.env));
    // SAFETY: the process is single-threaded, and the child only makes async-signal-safe calls on data made before.
    let pid = check(unsafe { libc::fork() }).map_err(|e| (0, e))?;
    if pid == 0 {
        // SAFETY: we are the child; the arrays end with a null pointer and their strings live until exec or exit.
        unsafe {
            let step = child(launch, &argv, &env);
            let failure = [step as i32, *libc::__errno_location()];
            libc::write(failure_out.as_raw_fd(), failure.as_ptr().cast(), 8);
            libc::_exit(127);
        }
    }
    drop(failure_out);
    let mut failure = [0u8; 8];
    match io::Read::read_exact(&mut File::from(failure_in), &mut failure) {
        Err(_) => Ok(pid), // closed by exec
        Ok(()) => {
            // SAFETY: waitpid accepts a null status. The child is on its way to _exit.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            let number =
                |at: usize| i32::from_ne_bytes([failure[at], failure[at + 1], failure[at + 2], failure[at + 3]]);
            Err((number(0) as usize, io::Error::from_raw_os_error(number(4))))
        }
    }
}

/// The child side: returns only on failure, with the step; errno says why.
///
/// # Safety
/// Only in a child right after fork, with null-terminated arrays of live strings.
unsafe fn child(launch: &Launch, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> usize {
    libc::setsid();
    let mut set: libc::sigset_t = std::mem::zeroed();
    libc::sigemptyset(&mut set);
    libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    // exec resets handlers, but not what is ignored, and Rust's runtime ignores SIGPIPE
    libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    let limit = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1 << 20,
    };
    libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    for (target, fd) in launch.fds.iter().enumerate() {
        if libc::dup2(*fd, target as libc::c_int) < 0 {
            return 0;
        }
    }
    let groups = &launch.groups;
    if libc::setgroups(groups.len(), groups.as_ptr()) < 0
        || libc::setgid(launch.gid) < 0
        || libc::setuid(launch.uid) < 0
    {
        return 1;
    }
    if libc::chdir(launch.cwd.as_ptr()) < 0 {
        return 2;
    }
    libc::execve(launch.path.as_ptr(), argv.as_ptr(), env.as_ptr());
    3
}
