//! Starting a program: the steps of the child, and the report of a failure.

use super::check;
use std::ffi::CString;
use std::io;
use std::os::unix::io::RawFd;

const STACK: usize = 32 * 1024;

/// Everything that the child needs, prepared in advance because it must not allocate.
pub struct Launch {
    pub path: CString,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: CString,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Become descriptors 0, 1, 2 and, if given, 3; each must be above 3.
    pub fds: Vec<RawFd>,
    /// Descriptor 0 is a terminal that becomes the session's controlling terminal.
    pub terminal: bool,
}

/// The steps of the child in their order; an error names one.
pub const LAUNCH_STEPS: [&str; 4] = ["descriptors", "user", "cwd", "exec"];

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let mut all: Vec<_> = strings.iter().map(|s| s.as_ptr()).collect();
    all.push(std::ptr::null());
    all
}

/// Memory that both sides of a launch use.
struct Shared<'a> {
    launch: &'a Launch,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    /// The step that failed and its errno, written by the child.
    failure: Option<(usize, i32)>,
}

/// Starts a program in its own session; an error names the step (an index of `LAUNCH_STEPS`).
///
/// The child shares the agent's memory, and the agent is suspended, until the program runs or has failed: copying the
/// page tables and then each written page would take longer than all other steps.
pub fn launch(launch: &Launch) -> Result<i32, (usize, io::Error)> {
    let mut shared = Shared {
        launch,
        argv: pointers(&launch.argv),
        env: pointers(&launch.env),
        failure: None,
    };
    // the clone call pushes frames on the agent's stack, so the child needs another one; it grows downwards
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / 16);
    // SAFETY: the stack is aligned and larger than the few frames of the child; the agent, single-threaded, does not
    // run before the child has left the shared memory, and both sides see `shared` through this one pointer.
    let pid = check(unsafe {
        let top = stack.as_mut_ptr().add(STACK / 16);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(enter, top.cast(), flags, (&mut shared as *mut Shared).cast())
    })
    .map_err(|e| (0, e))?;
    match shared.failure {
        None => Ok(pid),
        Some((step, number)) => {
            // SAFETY: waitpid accepts a null status. The child has ended.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            Err((step, io::Error::from_raw_os_error(number)))
        }
    }
}

extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument is the `Shared` of the waiting parent; the arrays end with a null pointer and their strings
    // live until exec or exit.
    unsafe {
        let shared = &mut *argument.cast::<Shared>();
        let step = child(shared.launch, &shared.argv, &shared.env);
        shared.failure = Some((step, *libc::__errno_location()));
        libc::_exit(127)
    }
}

/// The child's side: returns only on failure, with the step; errno has the cause.
///
/// # Safety
/// Only in the child of `launch`, with null-terminated arrays of live strings.
unsafe fn child(launch: &Launch, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> usize {
    libc::setsid();
    let mut set: libc::sigset_t = std::mem::zeroed();
    libc::sigemptyset(&mut set);
    libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    // exec resets handlers, but not ignored signals, and Rust's runtime ignores SIGPIPE
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
    if launch.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
        return 0;
    }
    // direct system calls: the C library's functions would change all threads of the process that owns this memory
    let groups = &launch.groups;
    if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) < 0
        || libc::syscall(libc::SYS_setgid, launch.gid) < 0
        || libc::syscall(libc::SYS_setuid, launch.uid) < 0
    {
        return 1;
    }
    if libc::chdir(launch.cwd.as_ptr()) < 0 {
        return 2;
    }
    libc::execve(launch.path.as_ptr(), argv.as_ptr(), env.as_ptr());
    3
}
