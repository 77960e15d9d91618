//! `forkd-warden --inside ROOT`: runs a program in a tree that is being made into an image. The program has a user,
//! mount, pid, ipc, uts and network namespace of its own, the tree as its root, and no descriptor but the first three.
//! Users have the same numbers inside and outside, so that the program can give files of the tree to any of them.

use crate::confine;
use crate::filter;
use crate::spawn;
use crate::watch::{self, Bounds};
use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::io;
use std::os::raw::{c_char, c_int, c_ulong};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// The exit code if the program was not started. Programs may exit with any code, so the caller also looks for the
/// message
const NOT_STARTED: i32 = 125;
const NOT_FOUND: i32 = 127;

/// All except the user namespace, which must be made first
const NAMESPACES: c_int =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWNET;

/// Needed to install and set up programs: owners, modes, other users, capabilities of files, chroot
const KEPT_CAPABILITIES: [c_ulong; 10] = [
    0,  // chown
    1,  // dac_override
    3,  // fowner
    4,  // fsetid
    5,  // kill
    6,  // setgid
    7,  // setuid
    10, // net_bind_service
    18, // sys_chroot
    31, // setfcap
];

const ENVIRONMENT: [&CStr; 4] = [
    c("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\0"),
    c("HOME=/root\0"),
    c("LC_ALL=C.UTF-8\0"),
    c("DEBIAN_FRONTEND=noninteractive\0"),
];

const fn c(text: &str) -> &CStr {
    // SAFETY: the texts above end with their only NUL.
    unsafe { CStr::from_bytes_with_nul_unchecked(text.as_bytes()) }
}

type Step<T> = Result<T, String>;

/// `--inside ROOT BOUNDS -- PROGRAM ARGS…`; without a program it only tests whether the host allows it. Returns only if
/// the arguments are wrong; otherwise this process exits with the program's code.
pub fn run(arguments: &[OsString]) -> Step<()> {
    let (root, rest) = arguments.split_first().ok_or("--inside needs a folder")?;
    let (bounds, argv) = watch::parse(rest)?;
    let root = c_string(root)?;
    let argv = argv.iter().map(c_string).collect::<Step<Vec<_>>>()?;
    // SAFETY: this process has one thread, and no object of it owns an inherited descriptor.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    let own = watch::own_number()?;
    let code = match start(&root, &argv, &bounds) {
        Ok(child) => watch::wait(child, own, &bounds),
        Err(why) => {
            crate::sys::complain(format!("cannot confine it: {why}"));
            NOT_STARTED
        }
    };
    std::process::exit(code);
}

fn c_string(text: &OsString) -> Step<CString> {
    CString::new(text.as_bytes()).map_err(|_| "an argument holds a NUL".to_string())
}

/// The child makes the namespaces and then the process that runs in them. This process writes the user maps, because
/// the child may map only its own user.
fn start(root: &CStr, argv: &[CString], bounds: &Bounds) -> Step<c_int> {
    let maps = [identity("uid_map")?, identity("gid_map")?];
    let (mut ready, mut mapped) = ([0; 2], [0; 2]);
    // SAFETY: system calls on memory of this function; this process has one thread, so fork copies no held lock.
    unsafe {
        need(libc::pipe2(ready.as_mut_ptr(), libc::O_CLOEXEC) == 0, "pipe")?;
        need(libc::pipe2(mapped.as_mut_ptr(), libc::O_CLOEXEC) == 0, "pipe")?;
        let parent = libc::getpid();
        let child = libc::fork();
        need(child >= 0, "fork")?;
        if child == 0 {
            libc::close(ready[0]);
            libc::close(mapped[1]);
            end_with(parent);
            // set before the user namespace is made, so that the limit covers all its users together; root of the host
            // has no such limit
            bounds.apply(0);
            let code = match isolate(root, argv, ready[1], mapped[0]) {
                Ok(program) => wait(program),
                Err(why) => {
                    crate::sys::complain(format!("cannot confine it: {why}"));
                    NOT_STARTED
                }
            };
            libc::_exit(code);
        }
        libc::close(ready[1]);
        libc::close(mapped[0]);
        let mut number = [0u8; 32];
        let length = libc::read(ready[0], number.as_mut_ptr().cast(), number.len());
        if length > 0 {
            let number = String::from_utf8_lossy(&number[..length as usize]).into_owned();
            for (name, map) in ["uid_map", "gid_map"].iter().zip(&maps) {
                let path = format!("/proc/{number}/{name}");
                if let Err(error) = fs::write(&path, map) {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, ptr::null_mut(), 0);
                    return Err(format!("{path}: {error}"));
                }
            }
            libc::write(mapped[1], b"m".as_ptr().cast(), 1);
        }
        Ok(child)
    }
}

/// A user map that keeps the number of every user of this namespace
fn identity(name: &str) -> Step<String> {
    let path = format!("/proc/self/{name}");
    let map = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = |line: &str| {
        let mut parts = line.split_whitespace();
        let (inside, _, count) = (parts.next()?, parts.next()?, parts.next()?);
        Some(format!("{inside} {inside} {count}\n"))
    };
    Ok(map.lines().filter_map(line).collect())
}

/// # Safety
/// To be called in a forked child that has one thread.
unsafe fn isolate(root: &CStr, argv: &[CString], ready: c_int, mapped: c_int) -> Step<c_int> {
    // this process's number in /proc, which may belong to another pid namespace
    let number = fs::read_link("/proc/self").map_err(|error| format!("/proc/self: {error}"))?;
    let number = number.as_os_str().as_bytes();
    need(libc::unshare(libc::CLONE_NEWUSER) == 0, "making a user namespace")?;
    // the kernel clears the parent-death signal when the credentials change
    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    let mut byte = 0u8;
    let written = libc::write(ready, number.as_ptr().cast(), number.len());
    need(written == number.len() as isize, "mapping users")?;
    need(
        libc::read(mapped, (&mut byte as *mut u8).cast(), 1) == 1,
        "mapping users",
    )?;
    need(libc::unshare(NAMESPACES) == 0, "making namespaces")?;
    let parent = libc::getpid();
    let program = libc::fork();
    need(program >= 0, "fork")?;
    if program == 0 {
        end_with(parent);
        match settle(root) {
            Ok(()) if argv.is_empty() => libc::_exit(0),
            Ok(()) => crate::sys::complain(format!("cannot run it: {}", execute(argv))),
            Err(why) => {
                crate::sys::complain(format!("cannot confine it: {why}"));
                libc::_exit(NOT_STARTED);
            }
        }
        libc::_exit(NOT_FOUND);
    }
    Ok(program)
}

/// # Safety
/// To be called in the first process of its namespaces.
unsafe fn settle(root: &CStr) -> Step<()> {
    let nothing = ptr::null();
    let private = libc::MS_REC | libc::MS_PRIVATE;
    need(
        libc::mount(nothing, c("/\0").as_ptr(), nothing, private, ptr::null()) == 0,
        "taking the mounts",
    )?;
    // pivot_root needs a mount point. Recursive, because the kernel refuses to copy a tree without those of its mounts
    // that came from another namespace
    let bind = libc::MS_BIND | libc::MS_REC;
    need(
        libc::mount(root.as_ptr(), root.as_ptr(), nothing, bind, ptr::null()) == 0,
        "showing the tree",
    )?;
    need(libc::chdir(root.as_ptr()) == 0, "entering the tree")?;
    // neither mount shows settings of the host. The kernel refuses a new /proc where parts of the host's /proc are
    // covered; it is empty then
    let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    if is_folder(c("proc\0")) && mount(c("proc\0"), c("proc\0"), quiet, c("subset=pid\0")).is_err() {
        mount(c("tmpfs\0"), c("proc\0"), quiet | libc::MS_RDONLY, c("size=4k\0"))?;
    }
    if is_folder(c("sys\0")) {
        mount(c("tmpfs\0"), c("sys\0"), quiet | libc::MS_RDONLY, c("size=4k\0"))?;
    }
    let here = c(".\0").as_ptr();
    need(
        libc::syscall(libc::SYS_pivot_root, here, here) == 0,
        "leaving the old root",
    )?;
    need(libc::umount2(here, libc::MNT_DETACH) == 0, "leaving the old root")?;
    need(libc::chdir(c("/\0").as_ptr()) == 0, "entering the tree")?;
    libc::sethostname(b"localhost".as_ptr().cast(), 9);
    raise_loopback();
    spawn::limit(libc::RLIMIT_CORE, 0);
    libc::umask(0o022);
    for capability in 0..=confine::MAX_CAPABILITY {
        if !KEPT_CAPABILITIES.contains(&capability) {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
    }
    need(
        filter::install(&filter::for_builds(), 0) == 0,
        "the filter of system calls",
    )
}

/// Returns only if it failed.
unsafe fn execute(argv: &[CString]) -> String {
    let arguments = pointers(argv.iter().map(CString::as_c_str));
    let environment = pointers(ENVIRONMENT.iter().copied());
    // execvpe searches the PATH of this process
    std::env::set_var("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    libc::execvpe(arguments[0], arguments.as_ptr(), environment.as_ptr());
    format!("{}: {}", argv[0].to_string_lossy(), io::Error::last_os_error())
}

fn pointers<'a>(texts: impl Iterator<Item = &'a CStr>) -> Vec<*const c_char> {
    texts.map(CStr::as_ptr).chain(std::iter::once(ptr::null())).collect()
}

unsafe fn mount(kind: &CStr, at: &CStr, flags: c_ulong, options: &CStr) -> Step<()> {
    let mounted = libc::mount(
        kind.as_ptr(),
        at.as_ptr(),
        kind.as_ptr(),
        flags,
        options.as_ptr().cast(),
    );
    need(mounted == 0, &format!("covering /{}", at.to_string_lossy()))
}

unsafe fn is_folder(path: &CStr) -> bool {
    let mut found: libc::stat = std::mem::zeroed();
    libc::lstat(path.as_ptr(), &mut found) == 0 && found.st_mode & libc::S_IFMT == libc::S_IFDIR
}

/// Programs may connect to a server that they started themselves
unsafe fn raise_loopback() {
    let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
    let mut request: libc::ifreq = std::mem::zeroed();
    request.ifr_name[0] = b'l' as _;
    request.ifr_name[1] = b'o' as _;
    request.ifr_ifru.ifru_flags = libc::IFF_UP as _;
    libc::ioctl(socket, libc::SIOCSIFFLAGS, &request);
    libc::close(socket);
}

/// The kernel kills this process when its parent ends, also when the parent is killed.
unsafe fn end_with(parent: c_int) {
    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    // 0 means that the parent is in another pid namespace, so it cannot be compared
    let now = libc::getppid();
    if now != parent && now != 0 {
        libc::_exit(NOT_STARTED);
    }
}

/// The exit code of a child. The end of the first process of a pid namespace ends all others in it.
fn wait(child: c_int) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    while unsafe { libc::waitpid(child, &mut status, 0) } != child {}
    watch::code_of(status)
}

fn need(holds: bool, what: &str) -> Step<()> {
    if holds {
        return Ok(());
    }
    Err(format!("{what}: {}", io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_ids_are_mapped_to_themselves() {
        let map = identity("uid_map").unwrap();
        for line in map.lines() {
            let parts: Vec<_> = line.split(' ').collect();
            assert_eq!(parts.len(), 3, "{line}");
            assert_eq!(parts[0], parts[1], "{line}");
        }
        assert!(map.ends_with('\n'));
    }

    #[test]
    fn arguments_are_checked() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for wrong in [
            "/",
            "/ --seconds",
            "/ --seconds 1 -- true",
            "/ --seconds 1 --memory-bytes 1 --tasks x -- true",
        ] {
            assert!(run(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
