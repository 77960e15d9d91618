//! Starts a VMM process that ends with the warden.

use crate::children::start_time;
use crate::confine::{self, Cell, Confinement, Trouble, NAMESPACES};
use crate::descriptors::Own;
use crate::error::{Context, Error, Outcome};
use crate::family;
use crate::fds::{self, ChildFd, Source, FIRST_FREE_FD, LAST_FREE_FD};
use crate::filter::{self, Member};
use crate::stray::{Guard, Watched};
use crate::sys;
use forkd_wire::Reader;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::ptr;

/// Size of the kernel's signal set, which differs from libc's
const SIGNAL_SET_BYTES: usize = 8;
/// Before exec the child makes only a few system calls
const STACK: usize = 64 * 1024;
/// Of those that the founder of a family makes, on its own stack
const FOUNDED_STACK: usize = 32 * 1024;
/// Added to the warden's OOM score, in thousandths of the host's memory
const OOM_SCORE_ABOVE: i32 = 300;
const MAX_OOM_SCORE: i32 = 1000;
/// Limit of open files of a confined VMM; the largest machines need some hundreds
const OPEN_FILES: u64 = 4096;
/// Limit of threads of a confined VMM: QEMU has one for each CPU, up to 64 for its disks, and a few others.
pub const THREADS: u64 = 512;
/// Threads of all that are cloned from one VMM: they count in its user namespace, too
const FAMILY_THREADS: u64 = 32 * 1024;
const LISTEN: u8 = 3;

pub struct Spec {
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    /// File for its output; None: it inherits the warden's input and output
    log: Option<PathBuf>,
    files: Vec<(u32, CString, u8)>,
    /// `cgroup.procs` of the control group that it starts in
    group: Option<PathBuf>,
    confinement: Option<Confinement>,
    limits: Limits,
    copies: Copies,
}

/// What is to be made of a process later, for which it needs a family
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    None,
    /// Processes that run on
    Clones,
    /// Processes that only have its memory
    Frozen,
}

impl Copies {
    fn read(reader: &mut Reader) -> Outcome<Copies> {
        match reader.u8()? {
            0 => Ok(Copies::None),
            1 => Ok(Copies::Clones),
            2 => Ok(Copies::Frozen),
            other => Err(Error::new("EINVAL", format!("copies of kind {other}"))),
        }
    }
}

/// Limits of a confined program, besides those that all have
#[derive(Default)]
pub struct Limits {
    /// Of its address space
    pub memory_bytes: Option<u64>,
    /// Of processor time
    pub seconds: Option<u64>,
}

impl Spec {
    pub fn read(reader: &mut Reader) -> Outcome<Spec> {
        let spec = Spec {
            argv: reader.list(c_string)?,
            env: reader.list(c_string)?,
            cwd: c_string(reader)?,
            log: Some(reader.path()?),
            files: reader.list(|reader| -> Outcome<_> { Ok((reader.u32()?, c_string(reader)?, reader.u8()?)) })?,
            group: reader.optional(Reader::path)?,
            confinement: reader.optional(Confinement::read)?,
            limits: Limits::default(),
            copies: Copies::read(reader)?,
        };
        check_program(&spec.argv)?;
        if spec.copies != Copies::None && spec.confinement.is_none() {
            return Err(Error::new("EINVAL", "only a confined process can be copied"));
        }
        let mut targets: Vec<u32> = spec.files.iter().map(|(fd, ..)| *fd).collect();
        targets.sort_unstable();
        let allowed = FIRST_FREE_FD..=LAST_FREE_FD;
        if targets.iter().any(|fd| !allowed.contains(fd)) || targets.windows(2).any(|w| w[0] == w[1]) {
            return Err(Error::new("EINVAL", "descriptors must be distinct, 3 to 255"));
        }
        Ok(spec)
    }

    /// A confined program with the input and output of this process
    pub fn tool(
        argv: Vec<CString>,
        env: Vec<CString>,
        cwd: CString,
        confinement: Confinement,
        limits: Limits,
    ) -> Outcome<Spec> {
        check_program(&argv)?;
        Ok(Spec {
            argv,
            env,
            cwd,
            log: None,
            files: Vec::new(),
            group: None,
            confinement: Some(confinement),
            limits,
            copies: Copies::None,
        })
    }

    /// What belongs to it alone
    fn own(&self) -> Own {
        let of = |wanted: fn(u8) -> bool| {
            let files = self.files.iter().filter(|(_, _, mode)| wanted(*mode));
            files.map(|(fd, path, _)| (*fd, path_of(path))).collect()
        };
        Own {
            log: self.log.clone().unwrap_or_default(),
            listeners: of(|mode| mode == LISTEN),
            written: of(|mode| matches!(mode, 1 | 2)),
        }
    }

    fn fds(&self) -> Outcome<Vec<ChildFd>> {
        let mut fds = match &self.log {
            Some(path) => {
                let log = Source::log(path)?;
                let again = log.try_clone().during(|| path.display())?;
                vec![
                    ChildFd::new(Source::null()?, 0),
                    ChildFd::new(Source::File(log), 1),
                    ChildFd::new(Source::File(again), 2),
                ]
            }
            None => (0..3)
                .map(|fd| Ok(ChildFd::new(Source::own(fd)?, fd)))
                .collect::<Outcome<Vec<_>>>()?,
        };
        for (fd, path, mode) in &self.files {
            let source = match (self.copies, *mode) {
                // its root is that of its clones, so it can write nothing there
                (Copies::Clones, 1 | 2) => Source::File(Source::open(&path_of(path), *mode)?),
                _ => Source::new(path, *mode)?,
            };
            fds.push(ChildFd::new(source, *fd as RawFd));
        }
        fds.sort_unstable_by_key(ChildFd::target);
        Ok(fds)
    }
}

fn path_of(path: &CString) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path.as_bytes()))
}

fn check_program(argv: &[CString]) -> Outcome<()> {
    if argv.first().map(|program| program.as_bytes().first()) != Some(Some(&b'/')) {
        return Err(Error::new("EINVAL", "argv[0] must be an absolute path"));
    }
    Ok(())
}

fn c_string(reader: &mut Reader) -> Outcome<CString> {
    CString::new(reader.bytes()?).map_err(|_| Error::new("EINVAL", "a string holds a NUL"))
}

pub struct Started {
    pub pid: i32,
    pub start_time: u64,
    /// Set for a confined child
    pub watched: Option<Watched>,
    /// Of one that can be copied
    pub founded: Option<Founded>,
}

/// A new family: its first process, and what the filter of its members lets pass
pub struct Founded {
    pub init: i32,
    pub secret: u64,
    pub copies: Copies,
    pub own: Own,
}

/// Starts a child. Must be called on the main thread: the parent-death signal is bound to the thread that creates the
/// child.
pub fn spawn(spec: &Spec) -> Outcome<Started> {
    let group = match &spec.group {
        Some(path) => Some(File::options().write(true).open(path).during(|| path.display())?),
        None => None,
    };
    let cell = match &spec.confinement {
        Some(confinement) => Some(confinement.prepare(&spec.cwd)?),
        None => None,
    };
    let argv = pointers(&spec.argv);
    let env = pointers(&spec.env);
    let member = match spec.copies {
        Copies::None => None,
        copies => Some(Member {
            secret: sys::random_word().during(|| "random bytes")?,
            // no other VMM is in the family
            signals_itself: copies == Copies::Frozen,
        }),
    };
    let guard = match &spec.confinement {
        Some(confinement) => {
            let start = filter::Start {
                program: argv[0],
                argv: argv.as_ptr(),
            };
            let log = match &spec.log {
                Some(path) => Some(Source::log(path)?),
                None => None,
            };
            Some(Guard::new(confinement.filter, start, member, log).during(|| "preparing the filter of system calls")?)
        }
        None => None,
    };
    let mut plan = Plan {
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        cwd: spec.cwd.as_ptr(),
        fds: spec.fds()?,
        group: group.as_ref().map(File::as_raw_fd),
        cell,
        guard,
        oom_score: raised_oom_score(),
        file_bytes: spec
            .confinement
            .as_ref()
            .map_or(0, |confinement| confinement.file_bytes),
        limits: &spec.limits,
        counts_own_threads: counts_own_threads(),
        // SAFETY: reads this process's id.
        parent: unsafe { libc::getpid() },
        family: member.map(|_| Birth::default()),
        has_clones: spec.copies == Copies::Clones,
        failed: None,
    };
    let pid = start(&mut plan).map_err(|error| match spec.confinement {
        Some(_) => confine::refused(&error, "making namespaces"),
        None => Error::io(&error, "clone"),
    })?;
    match plan.failed {
        // it may have ended already, but only the warden's main loop reaps it
        None => match start_time(pid) {
            Ok(start_time) => Ok(Started {
                pid,
                start_time,
                watched: plan.guard.take().and_then(Guard::watch),
                founded: plan.family.take().zip(member).map(|(born, member)| Founded {
                    init: born.init,
                    secret: member.secret,
                    copies: spec.copies,
                    own: spec.own(),
                }),
            }),
            Err(error) => {
                let _ = sys::send_signal(pid, libc::SIGKILL);
                reap_failed(pid);
                plan.end_family();
                Err(error)
            }
        },
        Some((step, number)) => {
            reap_failed(pid);
            plan.end_family();
            Err(plan.error(spec, step, &io::Error::from_raw_os_error(number)))
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let ends = std::iter::once(ptr::null());
    strings.iter().map(|string| string.as_ptr()).chain(ends).collect()
}

#[derive(Clone, Copy)]
enum Step {
    Prepare,
    Group,
    Confine(Trouble),
    Open(usize),
    Chdir,
    Exec,
}

struct Plan<'a> {
    argv: *const *const c_char,
    env: *const *const c_char,
    cwd: *const c_char,
    /// Sorted by target
    fds: Vec<ChildFd>,
    group: Option<RawFd>,
    cell: Option<Cell>,
    guard: Option<Guard>,
    /// None: the same as the warden's
    oom_score: Option<Vec<u8>>,
    file_bytes: u64,
    limits: &'a Limits,
    counts_own_threads: bool,
    parent: i32,
    /// Of one that can be copied
    family: Option<Birth>,
    has_clones: bool,
    failed: Option<(Step, i32)>,
}

/// How a family begins
#[derive(Default)]
struct Birth {
    init: i32,
    vmm: i32,
}

impl Plan<'_> {
    /// Of a process that was not started
    fn end_family(&self) {
        if let Some(Birth { init, .. }) = self.family {
            if init > 0 {
                let _ = sys::send_signal(init, libc::SIGKILL);
                reap_failed(init);
            }
        }
    }

    fn error(&self, spec: &Spec, step: Step, error: &io::Error) -> Error {
        let what = match (step, &self.cell) {
            (Step::Confine(Trouble::Host(what)), _) => return confine::refused(error, what),
            (Step::Confine(Trouble::Path(index)), Some(cell)) if confine::is_refusal(error) => {
                return confine::refused(error, &cell.path(index))
            }
            (Step::Confine(Trouble::Path(index)), Some(cell)) => cell.path(index),
            (Step::Prepare | Step::Confine(_), _) => "preparing the process".to_string(),
            (Step::Group, _) => "entering the control group".to_string(),
            (Step::Open(index), _) => self.fds[index].name(),
            (Step::Chdir, _) => format!("working folder {}", spec.cwd.to_string_lossy()),
            (Step::Exec, _) => spec.argv[0].to_string_lossy().into_owned(),
        };
        Error::io(error, what)
    }
}

/// Works like vfork: a warden with hundreds of megabytes of captures starts a child as fast as an empty one.
fn start(plan: &mut Plan) -> io::Result<i32> {
    let mut stack = vec![0u128; STACK / 16];
    let (namespaces, work): (c_int, extern "C" fn(*mut c_void) -> c_int) = match (&plan.cell, &plan.family) {
        (None, _) => (0, child),
        (Some(_), None) => (NAMESPACES, child),
        // its pid namespace has another first process
        (Some(_), Some(_)) => (NAMESPACES & !libc::CLONE_NEWPID, founder),
    };
    // SAFETY: CLONE_VFORK suspends this thread until the child has called exec or _exit, so the stack and the plan
    // outlive the child's use of them; the child has its own stack and makes only async-signal-safe calls.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | namespaces;
        libc::clone(work, top, flags, (plan as *mut Plan).cast())
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    match &plan.family {
        Some(born) => {
            let vmm = born.vmm;
            reap_failed(pid);
            // without one the founder has said why
            Ok(if vmm > 0 { vmm } else { pid })
        }
        None => Ok(pid),
    }
}

extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes its plan and is suspended while this runs.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    // SAFETY: only system calls that are safe between vfork and exec.
    unsafe {
        if let Err(step) = become_vmm(plan) {
            plan.failed = Some((step, *libc::__errno_location()));
        }
        libc::_exit(127)
    }
}

/// Makes the namespaces of a family, its first process and the VMM, both as children of the warden, and ends.
extern "C" fn founder(plan: *mut c_void) -> c_int {
    let plan = plan.cast::<Plan>();
    // SAFETY: as in `child`; the two processes that this one makes share its memory one after the other, until their exec.
    unsafe {
        if let Err(step) = found_family(plan) {
            (*plan).failed = Some((step, *libc::__errno_location()));
        }
        libc::_exit(0)
    }
}

/// By the pointer: the VMM that is made here has it, too, and changes the plan
unsafe fn found_family(plan: *mut Plan) -> Result<(), Step> {
    let mut stack = [0u128; FOUNDED_STACK / 16];
    if let Some(cell) = &(*plan).cell {
        cell.settle().map_err(Step::Confine)?;
    }
    let refused = Step::Confine(Trouble::Host("making a pid namespace"));
    need(libc::unshare(libc::CLONE_NEWPID) == 0, refused)?;
    let init = family::sibling(&mut stack, init, ptr::null_mut());
    need(init > 0, refused)?;
    (*plan).family = Some(Birth { init, vmm: 0 });
    let vmm = family::sibling(&mut stack, child, plan.cast());
    need(vmm > 0, refused)?;
    (*plan).family = Some(Birth { init, vmm });
    Ok(())
}

extern "C" fn init(_: *mut c_void) -> c_int {
    // SAFETY: system calls in a child of vfork.
    unsafe {
        family::become_init();
        libc::_exit(127)
    }
}

/// Returns only when a step failed, with errno set.
///
/// # Safety
/// To be called in a child of vfork.
unsafe fn become_vmm(plan: &mut Plan) -> Result<(), Step> {
    libc::setsid();
    need(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0, Step::Prepare)?;
    need(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, Step::Prepare)?;
    // the warden may have ended before the parent-death signal was set
    let is_ours = match plan.cell {
        Some(_) => confine::has_parent(plan.parent),
        None => libc::getppid() == plan.parent,
    };
    if !is_ours {
        libc::_exit(127);
    }
    if let Some(group) = plan.group {
        // 0 means the writing process
        need(libc::write(group, b"0".as_ptr().cast(), 1) == 1, Step::Group)?;
    }
    limit(libc::RLIMIT_CORE, 0);
    if let Some(score) = &plan.oom_score {
        // a kernel without the file has no OOM scores
        confine::put(b"/proc/self/oom_score_adj\0", score);
    }
    let channel = match &plan.guard {
        Some(guard) => {
            let kept = libc::fcntl(guard.channel(), libc::F_DUPFD_CLOEXEC, LAST_FREE_FD as c_int + 1);
            need(kept >= 0, Step::Prepare)?;
            Some(kept)
        }
        None => None,
    };
    open(&mut plan.fds, ChildFd::is_socket)?;
    if let Some(cell) = &mut plan.cell {
        if plan.family.is_none() {
            cell.settle().map_err(Step::Confine)?;
        }
        cell.enter().map_err(Step::Confine)?;
    }
    open(&mut plan.fds, |fd| !fd.is_socket())?;
    need(plan.fds.iter().all(|fd| fd.fill()), Step::Prepare)?;
    fds::close_others(&plan.fds, channel);
    reset_signals();
    need(libc::chdir(plan.cwd) == 0, Step::Chdir)?;
    if let (Some(guard), Some(channel)) = (&plan.guard, channel) {
        limit(libc::RLIMIT_NOFILE, OPEN_FILES);
        limit(libc::RLIMIT_FSIZE, plan.file_bytes);
        if let Some(bytes) = plan.limits.memory_bytes {
            limit(libc::RLIMIT_AS, bytes);
        }
        if let Some(seconds) = plan.limits.seconds {
            limit(libc::RLIMIT_CPU, seconds);
        }
        if plan.counts_own_threads {
            // in a family's user namespace all members count, so one that is held to be cloned has the higher limit
            let most = if plan.has_clones { FAMILY_THREADS } else { THREADS };
            limit_to(libc::RLIMIT_NPROC, THREADS, most);
        }
        confine::drop_capabilities();
        let refused = Step::Confine(Trouble::Host("the filter of system calls"));
        need(guard.raise(channel), refused)?;
    }
    libc::execve(*plan.argv, plan.argv, plan.env);
    Err(Step::Exec)
}

fn need(holds: bool, step: Step) -> Result<(), Step> {
    if holds {
        Ok(())
    } else {
        Err(step)
    }
}

unsafe fn open(fds: &mut [ChildFd], wanted: impl Fn(&ChildFd) -> bool) -> Result<(), Step> {
    for (index, fd) in fds.iter_mut().enumerate() {
        if wanted(fd) {
            need(fd.open(), Step::Open(index))?;
        }
    }
    Ok(())
}

/// If memory runs out, the kernel must kill a VMM before the warden and the daemon: that ends one VM, not all. Raising
/// one's own score needs no privilege.
fn raised_oom_score() -> Option<Vec<u8>> {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").ok()?;
    let own: i32 = own.trim().parse().ok()?;
    Some((own + OOM_SCORE_ABOVE).min(MAX_OOM_SCORE).to_string().into_bytes())
}

/// The kernel's version.
fn kernel_release() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/osrelease").ok()
}

pub fn counts_own_threads() -> bool {
    kernel_release().map_or(false, |release| counts_by_namespace(&release))
}

/// Whether the limit of processes counts those of a user namespace. Older kernels count all of the user, whose other VMMs
/// would then keep QEMU from starting a thread.
fn counts_by_namespace(release: &str) -> bool {
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.trim().parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 14)
}

/// Lowers a limit; never raises one that this process inherited.
///
/// # Safety
/// Only system calls, which are safe between vfork and exec.
pub unsafe fn limit(resource: libc::__rlimit_resource_t, most: u64) {
    limit_to(resource, most, most);
}

/// Lowers a limit, and the highest value to which the process itself may raise it.
///
/// # Safety
/// As `limit`.
unsafe fn limit_to(resource: libc::__rlimit_resource_t, value: u64, most: u64) {
    let mut now: libc::rlimit = std::mem::zeroed();
    libc::getrlimit(resource, &mut now);
    let most = most.min(now.rlim_max);
    let limit = libc::rlimit {
        rlim_cur: value.min(most),
        rlim_max: most,
    };
    libc::setrlimit(resource, &limit);
}

unsafe fn reset_signals() {
    // not through libc, which reserves 32 and 33: the warden's starter may have left them ignored
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
}

fn reap_failed(pid: i32) {
    // SAFETY: waits for a child that has called _exit or was killed; its pid is known only here.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
}

#[cfg(test)]
mod tests {
    use super::counts_by_namespace;

    #[test]
    fn threads_are_limited_on_kernels_that_count_per_namespace() {
        for release in ["5.14.0", "5.15.0-91-generic\n", "6.1.0-18-amd64", "10.0"] {
            assert!(counts_by_namespace(release), "{release}");
        }
        for release in ["5.13.19", "5.4.0-150-generic", "4.19.0", "5", "", "unknown"] {
            assert!(!counts_by_namespace(release), "{release}");
        }
    }
}
