//! Starts a VMM process that dies with the warden.

use crate::children::start_time;
use crate::fault::{Context, Fault, Outcome};
use crate::sys;
use crate::wire::Reader;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::ptr;

const FIRST_FREE_FD: u32 = 3;
const LAST_FREE_FD: u32 = 255;
/// Of the kernel's signal set, which is not libc's
const SIGNAL_SET_BYTES: usize = 8;
/// All the child does before exec is a few system calls
const STACK: usize = 64 * 1024;

pub struct Spec {
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    log: PathBuf,
    files: Vec<FileSpec>,
}

struct FileSpec {
    fd: u32,
    path: PathBuf,
    mode: u8,
}

impl Spec {
    pub fn read(reader: &mut Reader) -> Outcome<Spec> {
        let spec = Spec {
            argv: reader.list(c_string)?,
            env: reader.list(c_string)?,
            cwd: c_string(reader)?,
            log: reader.path()?,
            files: reader.list(|reader| {
                Ok(FileSpec {
                    fd: reader.u32()?,
                    path: reader.path()?,
                    mode: reader.u8()?,
                })
            })?,
        };
        if spec.argv.first().map(|program| program.as_bytes().first()) != Some(Some(&b'/')) {
            return Err(Fault::new("EINVAL", "argv[0] must be an absolute path"));
        }
        let mut targets: Vec<u32> = spec.files.iter().map(|file| file.fd).collect();
        targets.sort_unstable();
        let allowed = FIRST_FREE_FD..=LAST_FREE_FD;
        if targets.iter().any(|fd| !allowed.contains(fd)) || targets.windows(2).any(|w| w[0] == w[1]) {
            return Err(Fault::new("EINVAL", "descriptors must be distinct, 3 to 255"));
        }
        Ok(spec)
    }
}

fn c_string(reader: &mut Reader) -> Outcome<CString> {
    CString::new(reader.bytes()?).map_err(|_| Fault::new("EINVAL", "a string holds a NUL"))
}

/// A running child and its start time.
/// Must be called on the main thread: the death signal is bound to the thread that creates the child.
pub fn spawn(spec: &Spec) -> Outcome<(i32, u64)> {
    let files = spec
        .files
        .iter()
        .map(|file| Ok((open(file)?, file.fd as RawFd)))
        .collect::<Outcome<Vec<_>>>()?;
    let null = above_targets(&File::open("/dev/null").during(|| "/dev/null")?)?;
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&spec.log)
        .during(|| spec.log.display())?;
    let log = above_targets(&log)?;

    let mut places = vec![(null.as_raw_fd(), 0), (log.as_raw_fd(), 1), (log.as_raw_fd(), 2)];
    places.extend(files.iter().map(|(file, target)| (file.as_raw_fd(), *target)));
    places.sort_unstable_by_key(|(_, target)| *target);

    let argv = pointers(&spec.argv);
    let env = pointers(&spec.env);
    let mut plan = Plan {
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        cwd: spec.cwd.as_ptr(),
        places: &places,
        // SAFETY: reads this process's id.
        parent: unsafe { libc::getpid() },
        failed: None,
    };
    let pid = start(&mut plan).during(|| "clone")?;
    match plan.failed {
        // it may have ended already, but nobody else reaps it
        None => match start_time(pid) {
            Ok(start_time) => Ok((pid, start_time)),
            Err(fault) => {
                let _ = sys::send_signal(pid, libc::SIGKILL);
                reap_failed(pid);
                Err(fault)
            }
        },
        Some((step, number)) => {
            reap_failed(pid);
            let what = match step {
                Step::Prepare => "preparing the process".to_string(),
                Step::Chdir => format!("working folder {}", spec.cwd.to_string_lossy()),
                Step::Exec => spec.argv[0].to_string_lossy().into_owned(),
            };
            Err(Fault::io(&io::Error::from_raw_os_error(number), what))
        }
    }
}

fn open(file: &FileSpec) -> Outcome<File> {
    let mut options = OpenOptions::new();
    match file.mode {
        0 => options.read(true),
        1 => options.read(true).write(true),
        2 => options.write(true).create(true).truncate(true).mode(0o600),
        3 => return above_targets(&listen(&file.path)?),
        other => return Err(Fault::new("EINVAL", format!("file mode {other}"))),
    };
    above_targets(&options.open(&file.path).during(|| shown(&file.path))?)
}

/// A socket that can be connected to before the VMM has started.
fn listen(path: &Path) -> Outcome<File> {
    let socket = UnixListener::bind(path).during(|| shown(path))?;
    // SAFETY: the descriptor changes hands, it still has one owner.
    Ok(unsafe { File::from_raw_fd(socket.into_raw_fd()) })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The same file at a descriptor that no dup2 in the child can overwrite.
fn above_targets(file: &File) -> Outcome<File> {
    let lowest = LAST_FREE_FD as c_int + 1;
    // SAFETY: makes a new descriptor; this function is its only owner.
    unsafe {
        let fd = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest);
        if fd < 0 {
            return Err(Fault::io(&io::Error::last_os_error(), "dup"));
        }
        Ok(File::from_raw_fd(fd))
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let ends = std::iter::once(ptr::null());
    strings.iter().map(|string| string.as_ptr()).chain(ends).collect()
}

#[derive(Clone, Copy)]
enum Step {
    Prepare,
    Chdir,
    Exec,
}

struct Plan<'a> {
    argv: *const *const c_char,
    env: *const *const c_char,
    cwd: *const c_char,
    /// (open descriptor, where the child wants it), sorted by the latter
    places: &'a [(RawFd, RawFd)],
    parent: i32,
    failed: Option<(Step, i32)>,
}

/// vfork, in effect: a warden that holds hundreds of megabytes of captures starts a child as fast as an empty one.
fn start(plan: &mut Plan) -> io::Result<i32> {
    let mut stack = vec![0u128; STACK / 16];
    // SAFETY: CLONE_VFORK suspends this thread until the child has called exec or _exit, so the stack and the plan
    // outlive the child's use of them; the child has its own stack and makes only async-signal-safe calls.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(child, top, flags, (plan as *mut Plan).cast())
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(pid)
}

extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes its plan and is suspended while this runs.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    // SAFETY: only system calls that are safe between vfork and exec.
    unsafe {
        let step = become_vmm(plan);
        plan.failed = Some((step, *libc::__errno_location()));
        libc::_exit(127)
    }
}

/// Returns only when a step failed, with errno set.
///
/// # Safety
/// To be called in a child of vfork.
unsafe fn become_vmm(plan: &Plan) -> Step {
    libc::setsid();
    if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
        || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
    {
        return Step::Prepare;
    }
    // the warden may have died before the death signal was asked for
    if libc::getppid() != plan.parent {
        libc::_exit(127);
    }
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    libc::setrlimit(libc::RLIMIT_CORE, &no_core);
    for (from, to) in plan.places {
        if libc::dup2(*from, *to) < 0 {
            return Step::Prepare;
        }
    }
    close_between(plan.places);
    // not by libc, which keeps 32 and 33 to itself: whoever started us may have left them ignored
    let by_default = [0u64; 4];
    for signal in 1..=64 {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            by_default.as_ptr(),
            ptr::null_mut::<c_void>(),
            SIGNAL_SET_BYTES,
        );
    }
    let mut none: libc::sigset_t = std::mem::zeroed();
    libc::sigemptyset(&mut none);
    libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    if libc::chdir(plan.cwd) != 0 {
        return Step::Chdir;
    }
    libc::execve(*plan.argv, plan.argv, plan.env);
    Step::Exec
}

/// Every descriptor of the warden closes on exec by itself; this does not rely on it where the kernel can help.
///
/// # Safety
/// To be called in a child of vfork.
unsafe fn close_between(places: &[(RawFd, RawFd)]) {
    let mut next = 0u32;
    for (_, target) in places {
        let target = *target as u32;
        if target > next {
            libc::syscall(libc::SYS_close_range, next, target - 1, 0u32);
        }
        next = target + 1;
    }
    libc::syscall(libc::SYS_close_range, next, u32::MAX, 0u32);
}

fn reap_failed(pid: i32) {
    // SAFETY: waits for a child that has called _exit or was killed, and that nobody else knows of.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
}
