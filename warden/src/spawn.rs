//! Starts a VMM process that dies with the warden.

use crate::children::start_time;
use crate::confine::{self, Cell, Confinement, Trouble, NAMESPACES};
use crate::fault::{Context, Fault, Outcome};
use crate::filter;
use crate::places::{self, Place, Source, FIRST_FREE_FD, LAST_FREE_FD};
use crate::sys;
use crate::wire::Reader;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::io::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::ptr;

/// Of the kernel's signal set, which is not libc's
const SIGNAL_SET_BYTES: usize = 8;
/// All the child does before exec is a few system calls
const STACK: usize = 64 * 1024;
/// Beyond this a confined VMM opens nothing more; the largest machines need some hundreds
const OPEN_FILES: u64 = 4096;

pub struct Spec {
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    log: PathBuf,
    files: Vec<(u32, CString, u8)>,
    /// `cgroup.procs` of the control group that it starts in
    group: Option<PathBuf>,
    confinement: Option<Confinement>,
}

impl Spec {
    pub fn read(reader: &mut Reader) -> Outcome<Spec> {
        let spec = Spec {
            argv: reader.list(c_string)?,
            env: reader.list(c_string)?,
            cwd: c_string(reader)?,
            log: reader.path()?,
            files: reader.list(|reader| Ok((reader.u32()?, c_string(reader)?, reader.u8()?)))?,
            group: reader.optional(Reader::path)?,
            confinement: reader.optional(Confinement::read)?,
        };
        if spec.argv.first().map(|program| program.as_bytes().first()) != Some(Some(&b'/')) {
            return Err(Fault::new("EINVAL", "argv[0] must be an absolute path"));
        }
        let mut targets: Vec<u32> = spec.files.iter().map(|(fd, ..)| *fd).collect();
        targets.sort_unstable();
        let allowed = FIRST_FREE_FD..=LAST_FREE_FD;
        if targets.iter().any(|fd| !allowed.contains(fd)) || targets.windows(2).any(|w| w[0] == w[1]) {
            return Err(Fault::new("EINVAL", "descriptors must be distinct, 3 to 255"));
        }
        Ok(spec)
    }

    fn places(&self) -> Outcome<Vec<Place>> {
        let log = Source::log(&self.log)?;
        let again = log.try_clone().during(|| self.log.display())?;
        let mut places = vec![
            Place::new(Source::null()?, 0),
            Place::new(Source::File(log), 1),
            Place::new(Source::File(again), 2),
        ];
        for (fd, path, mode) in &self.files {
            places.push(Place::new(Source::new(path, *mode)?, *fd as RawFd));
        }
        places.sort_unstable_by_key(Place::target);
        Ok(places)
    }
}

fn c_string(reader: &mut Reader) -> Outcome<CString> {
    CString::new(reader.bytes()?).map_err(|_| Fault::new("EINVAL", "a string holds a NUL"))
}

/// A running child and its start time.
/// Must be called on the main thread: the death signal is bound to the thread that creates the child.
pub fn spawn(spec: &Spec) -> Outcome<(i32, u64)> {
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
    let mut plan = Plan {
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        cwd: spec.cwd.as_ptr(),
        places: spec.places()?,
        group: group.as_ref().map(File::as_raw_fd),
        cell,
        filter: filter::program(),
        file_bytes: spec
            .confinement
            .as_ref()
            .map_or(0, |confinement| confinement.file_bytes),
        // SAFETY: reads this process's id.
        parent: unsafe { libc::getpid() },
        failed: None,
    };
    let pid = start(&mut plan).map_err(|error| match spec.confinement {
        Some(_) => confine::refused(&error, "making namespaces"),
        None => Fault::io(&error, "clone"),
    })?;
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
            Err(plan.fault(spec, step, &io::Error::from_raw_os_error(number)))
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

struct Plan {
    argv: *const *const c_char,
    env: *const *const c_char,
    cwd: *const c_char,
    /// Sorted by their targets
    places: Vec<Place>,
    group: Option<RawFd>,
    cell: Option<Cell>,
    filter: Vec<libc::sock_filter>,
    file_bytes: u64,
    parent: i32,
    failed: Option<(Step, i32)>,
}

impl Plan {
    fn fault(&self, spec: &Spec, step: Step, error: &io::Error) -> Fault {
        let what = match (step, &self.cell) {
            (Step::Confine(Trouble::Host(what)), _) => return confine::refused(error, what),
            (Step::Confine(Trouble::Path(index)), Some(cell)) if confine::is_refusal(error) => {
                return confine::refused(error, &cell.path(index))
            }
            (Step::Confine(Trouble::Path(index)), Some(cell)) => cell.path(index),
            (Step::Prepare | Step::Confine(_), _) => "preparing the process".to_string(),
            (Step::Group, _) => "entering the control group".to_string(),
            (Step::Open(index), _) => self.places[index].name(),
            (Step::Chdir, _) => format!("working folder {}", spec.cwd.to_string_lossy()),
            (Step::Exec, _) => spec.argv[0].to_string_lossy().into_owned(),
        };
        Fault::io(error, what)
    }
}

/// vfork, in effect: a warden that holds hundreds of megabytes of captures starts a child as fast as an empty one.
fn start(plan: &mut Plan) -> io::Result<i32> {
    let mut stack = vec![0u128; STACK / 16];
    let namespaces = if plan.cell.is_some() { NAMESPACES } else { 0 };
    // SAFETY: CLONE_VFORK suspends this thread until the child has called exec or _exit, so the stack and the plan
    // outlive the child's use of them; the child has its own stack and makes only async-signal-safe calls.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | namespaces;
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
        if let Err(step) = become_vmm(plan) {
            plan.failed = Some((step, *libc::__errno_location()));
        }
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
    // the warden may have died before the death signal was asked for
    let is_ours = match plan.cell {
        Some(_) => confine::has_parent(plan.parent),
        None => libc::getppid() == plan.parent,
    };
    if !is_ours {
        libc::_exit(127);
    }
    if let Some(group) = plan.group {
        // 0 is whoever writes it
        need(libc::write(group, b"0".as_ptr().cast(), 1) == 1, Step::Group)?;
    }
    limit(libc::RLIMIT_CORE, 0);
    open(&mut plan.places, Place::is_socket)?;
    if let Some(cell) = &mut plan.cell {
        cell.settle().and_then(|()| cell.enter()).map_err(Step::Confine)?;
    }
    open(&mut plan.places, |place| !place.is_socket())?;
    need(plan.places.iter().all(|place| place.fill()), Step::Prepare)?;
    places::close_others(&plan.places);
    reset_signals();
    need(libc::chdir(plan.cwd) == 0, Step::Chdir)?;
    if plan.cell.is_some() {
        limit(libc::RLIMIT_NOFILE, OPEN_FILES);
        limit(libc::RLIMIT_FSIZE, plan.file_bytes);
        confine::drop_capabilities();
        let refused = Step::Confine(Trouble::Host("the filter of system calls"));
        need(filter::install(&plan.filter) == 0, refused)?;
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

unsafe fn open(places: &mut [Place], wanted: impl Fn(&Place) -> bool) -> Result<(), Step> {
    for (index, place) in places.iter_mut().enumerate() {
        if wanted(place) {
            need(place.open(), Step::Open(index))?;
        }
    }
    Ok(())
}

/// Never raises what the warden itself was given
unsafe fn limit(resource: libc::__rlimit_resource_t, most: u64) {
    let mut now: libc::rlimit = std::mem::zeroed();
    libc::getrlimit(resource, &mut now);
    let most = most.min(now.rlim_max);
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    libc::setrlimit(resource, &limit);
}

unsafe fn reset_signals() {
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
}

fn reap_failed(pid: i32) {
    // SAFETY: waits for a child that has called _exit or was killed, and that nobody else knows of.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
}
