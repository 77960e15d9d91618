//! `forkd-warden --try-clone`: whether this host lets a process be cloned with its threads. Ends with an error that says why not.

use crate::descriptors::{Known, Own};
use crate::zygote::{self, Connections, Copy, Zygote};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub const WAIT: &str = "--wait-in-two-threads";
/// The process needs a moment until both threads wait
const WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);

pub fn run() -> Result<(), String> {
    let mut command = Command::new("/proc/self/exe");
    let null = Stdio::null;
    command.arg(WAIT).stdin(null()).stdout(null()).stderr(null());
    // SAFETY: system calls between fork and exec: it ends with this process, and has no descriptor of the starter's.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let tried = try_clone(&child);
    let _ = child.kill();
    let _ = child.wait();
    tried
}

fn try_clone(child: &Child) -> Result<(), String> {
    let own = Own {
        log: PathBuf::new(),
        listeners: Vec::new(),
        written: Vec::new(),
    };
    let known = Known {
        own: &own,
        places: &BTreeMap::new(),
        silent: &BTreeMap::new(),
        is_connected: false,
    };
    let area = zygote::prepare(child.id() as i32).map_err(|error| error.message)?;
    let deadline = Instant::now() + WITHIN;
    let zygote = loop {
        match Zygote::hold(child.id() as i32, area, &known, 0) {
            Ok(zygote) if zygote.has_threads() => break zygote,
            Err(error) if error.code != "EAGAIN" || Instant::now() > deadline => return Err(error.message),
            // dropped: it runs on
            _ => thread::sleep(POLL),
        }
    };
    let copy = Copy {
        given: Vec::new(),
        listeners: Vec::new(),
        group: None,
        confined: false,
        threads: None,
        connections: Connections::Accepted,
    };
    let pid = zygote.clone(&copy).map_err(|error| error.message)?;
    // SAFETY: the clone is a child of this process, which nothing else waits for.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
    }
    Ok(())
}

/// The process that is cloned
pub fn wait() -> ! {
    thread::spawn(|| loop {
        thread::park();
    });
    loop {
        thread::park();
    }
}
