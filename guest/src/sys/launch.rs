//! Starting a program: the few steps of the child, and how a failure comes back.

use super::check;
use std::ffi::CString;
use std::io;
use std::os::unix::io::RawFd;

const STACK: usize = 32 * 1024;

/// All that the child side needs, made before: there, nothing may allocate.
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
    /// Descriptor 0 is a terminal that the session gets as its own.
    pub terminal: bool,
}

/// The step of starting a program that failed, in the order the child does them.
pub const LAUNCH_STEPS: [&str; 4] = ["descriptors", "user", "cwd", "exec"];

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let mut all: Vec<_> = strings.iter().map(|s| s.as_ptr()).collect();
    all.push(std::ptr::null());
    all
}

/// What the two sides of a launch share.
struct Shared<'a> {
    launch: &'a Launch,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    /// The step that failed and its errno, written by the child.
    failure: Option<(usize, i32)>,
}

/// Starts a program in a session of its own; an error names the step (an index of `LAUNCH_STEPS`).
///
/// The child borrows the agent's memory, and the agent waits, until the program runs or has failed: copying the page
/// tables and then each page that is written would take longer than all the rest.
pub fn launch(launch: &Launch) -> Result<i32, (usize, io::Error)> {
    let mut shared = Shared {
        launch,
        argv: pointers(&launch.argv),
        env: pointers(&launch.env),
        failure: None,
    };
    // the call pushes its own frames on the agent's stack, so the child has another one; it grows downwards
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / 16);
    // SAFETY: the stack is aligned and larger than the few frames of the child; the agent, single-threaded, does not run
    // before the child has left the shared memory, and both sides see `shared` through this one pointer.
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

/// The child side: returns only on failure, with the step; errno says why.
///
/// # Safety
/// Only in the child of `launch`, with null-terminated arrays of live strings.
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
    if launch.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
        return 0;
    }
    // the calls themselves: those of the C library would change the threads of whoever owns this memory
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
