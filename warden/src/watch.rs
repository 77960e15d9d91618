//! Limits of a command and of all processes that it starts: time, memory and tasks. They are summed from /proc, because
//! a limit of the kernel (setrlimit) applies to one process or not to root, and not every host has control groups.

use crate::spawn;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::raw::c_int;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Exit code of a command that exceeded a limit. Its own programs may use the same code, so the message says why
const OVER: i32 = 124;
const NOT_FOUND: i32 = 127;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const WAIT_EVERY: Duration = Duration::from_millis(5);
/// Niceness of a command above this process: hundreds of busy processes must not delay the counting
const NICER: c_int = 10;
/// The kernel's limit of tasks as a multiple of the configured one: the watcher must end the command first, with a
/// message
const HARD_TASKS: u64 = 4;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

#[derive(Clone, Copy)]
pub struct Bounds {
    time: Duration,
    memory_bytes: u64,
    /// Processes and threads
    tasks: u64,
}

impl Bounds {
    /// Sets the limits that the kernel enforces. `others`: tasks that the kernel counts for the same user. The host's
    /// root may start any number.
    ///
    /// # Safety
    /// Only system calls, for a child between fork and exec.
    pub unsafe fn apply(&self, others: u64) {
        spawn::limit(libc::RLIMIT_NPROC, others + self.tasks.saturating_mul(HARD_TASKS));
        libc::nice(NICER);
    }
}

/// `--seconds N --memory-bytes N --tasks N -- WORDS…`
pub fn parse(arguments: &[OsString]) -> Result<(Bounds, &[OsString]), String> {
    let (seconds, memory_bytes, tasks, words) = match arguments {
        [a, seconds, b, memory, c, tasks, dashes, words @ ..]
            if a == "--seconds" && b == "--memory-bytes" && c == "--tasks" && dashes == "--" =>
        {
            (number(seconds)?, number(memory)?, number(tasks)?, words)
        }
        _ => return Err("bounds are --seconds N --memory-bytes N --tasks N --".to_string()),
    };
    let time = Duration::from_secs(seconds);
    let bounds = Bounds {
        time,
        memory_bytes,
        tasks,
    };
    Ok((bounds, words))
}

fn number(text: &OsString) -> Result<u64, String> {
    let parsed = text.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("{} is no number", text.to_string_lossy()))
}

/// `--limit BOUNDS -- PROGRAM ARGS…`: a program without confinement. The processes that it started end with it. Returns
/// only if it failed; otherwise this process exits as the program does.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    let (bounds, words) = parse(arguments)?;
    let (program, rest) = words.split_first().ok_or("--limit needs a program")?;
    let own = own_number()?;
    // SAFETY: changes this process only: orphans of the program become its children.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let others = tasks_of_user();
    let mut command = Command::new(program);
    // SAFETY: system calls between fork and exec. The program ends if this process is killed.
    let child = unsafe {
        command.args(rest).pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // so that one signal ends all processes that stay in the group
            libc::setpgid(0, 0);
            bounds.apply(others);
            Ok(())
        })
    };
    let child = match child.spawn() {
        Ok(child) => child.id(),
        Err(error) => {
            crate::sys::complain(format!("cannot run {}: {error}", program.to_string_lossy()));
            process::exit(NOT_FOUND);
        }
    };
    // SAFETY: the handlers only set a flag. The command is in another process group, so this process must end it
    unsafe {
        for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::signal(number, on_signal as extern "C" fn(c_int) as libc::sighandler_t);
        }
    }
    let code = wait(child as c_int, own, &bounds);
    // SAFETY: sends a signal to a child's process group, whose number is not reused while one of its processes lives.
    unsafe { libc::kill(-(child as c_int), libc::SIGKILL) };
    end_descendants(own);
    process::exit(code);
}

/// A signal asked this process to end the program
static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// This process's number in /proc, which may belong to another pid namespace
pub fn own_number() -> Result<u32, String> {
    let link = fs::read_link("/proc/self").map_err(|error| format!("/proc/self: {error}"))?;
    let number = link.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| "/proc/self is no number".to_string())
}

/// Tasks of this process's user on the whole host
fn tasks_of_user() -> u64 {
    let own = crate::sys::own_uid();
    let is_own = |number: &u32| fs::metadata(format!("/proc/{number}")).map_or(false, |found| found.uid() == own);
    let threads = |number: u32| parse_stat(number, &stat_of(number)).map_or(0, |task| task.threads);
    numbers().filter(is_own).map(threads).sum()
}

fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Empty if the process has ended
fn stat_of(number: u32) -> Vec<u8> {
    fs::read(format!("/proc/{number}/stat")).unwrap_or_default()
}

/// The exit code of a child. The child is killed if it and all descendants of `root`, a number in /proc, exceed a
/// limit. Other children of this process are reaped, too.
pub fn wait(child: c_int, root: u32, bounds: &Bounds) -> i32 {
    be_first();
    let end = Instant::now().checked_add(bounds.time);
    let mut looked = Instant::now();
    loop {
        if let Some(code) = reap(child) {
            return code;
        }
        let late = end.map_or(false, |end| Instant::now() >= end);
        let over = if STOPPED.load(Ordering::Relaxed) {
            Some("its starter asked it to end".to_string())
        } else if late {
            Some(format!("it did not end within {} s", bounds.time.as_secs()))
        } else if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            excess(root, bounds)
        } else {
            None
        };
        if let Some(why) = over {
            // SAFETY: the child was not reaped yet, so its pid is not reused.
            unsafe { libc::kill(child, libc::SIGKILL) };
            crate::sys::complain(why);
            while reap(child).is_none() {
                std::thread::sleep(WAIT_EVERY);
            }
            return OVER;
        }
        std::thread::sleep(WAIT_EVERY);
    }
}

/// Real-time priority if this process may have it: the kernel does not limit the number of root's processes
fn be_first() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: changes this process only.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &lowest) };
}

/// Reaps all children that have ended; returns the code of this one
fn reap(child: c_int) -> Option<i32> {
    let mut code = None;
    loop {
        let mut status = 0;
        // SAFETY: writes one int.
        let ended = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
        if ended <= 0 {
            return code;
        }
        if ended == child {
            code = Some(code_of(status));
        }
    }
}

pub fn code_of(status: c_int) -> i32 {
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}

/// The exceeded limit
fn excess(root: u32, bounds: &Bounds) -> Option<String> {
    let found = descendants(root);
    let tasks: u64 = found.iter().map(|task| task.threads).sum();
    if tasks > bounds.tasks {
        return Some(format!("it has more than {} processes and threads", bounds.tasks));
    }
    let resident: u64 = found.iter().map(|task| resident_bytes(task.number)).sum();
    if resident <= bounds.memory_bytes {
        return None;
    }
    // pages that a fork shares were counted for each process; the exact sum takes longer
    let exact: u64 = found.iter().map(|task| own_bytes(task.number)).sum();
    let is_over = exact > bounds.memory_bytes;
    is_over.then(|| format!("it takes more than {} MiB of memory", bounds.memory_bytes / MIB))
}

struct Task {
    number: u32,
    parent: u32,
    threads: u64,
}

/// All descendants of a process, in any order
fn descendants(root: u32) -> Vec<Task> {
    let mut by_parent: BTreeMap<u32, Vec<Task>> = BTreeMap::new();
    for number in numbers() {
        if let Some(task) = parse_stat(number, &stat_of(number)) {
            by_parent.entry(task.parent).or_default().push(task);
        }
    }
    let mut found: Vec<Task> = by_parent.remove(&root).unwrap_or_default();
    let mut at = 0;
    while at < found.len() {
        let children = by_parent.remove(&found[at].number).unwrap_or_default();
        found.extend(children);
        at += 1;
    }
    found
}

/// `pid (name) state parent …`; the number of threads is field 20; the name may contain any bytes
fn parse_stat(number: u32, stat: &[u8]) -> Option<Task> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Task {
        number,
        parent: fields.get(1)?.parse().ok()?,
        // a zombie has no threads, but still a pid
        threads: fields.get(17)?.parse::<u64>().ok()?.max(1),
    })
}

/// Without file pages, which the kernel can drop
fn resident_bytes(number: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    sum(&status, &["RssAnon:", "RssShmem:", "VmSwap:"])
}

/// The same, with each shared page divided by the number of processes that share it
fn own_bytes(number: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{number}/smaps_rollup")).unwrap_or_default();
    sum(&rollup, &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"])
}

/// Sum of the fields with these names, in KiB
fn sum(text: &str, names: &[&str]) -> u64 {
    let value = |line: &str| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    text.lines().filter_map(value).sum::<u64>() * KIB
}

/// The descendants are stopped first, until no new ones appear: otherwise a process could fork while its siblings are
/// killed.
fn end_descendants(root: u32) {
    let mut stopped: Vec<u32> = Vec::new();
    loop {
        let found = descendants(root);
        let new: Vec<u32> = found
            .iter()
            .map(|task| task.number)
            .filter(|number| !stopped.contains(number))
            .collect();
        if new.is_empty() {
            break;
        }
        new.iter().for_each(|number| signal(*number, libc::SIGSTOP));
        stopped.extend(new);
    }
    stopped.iter().for_each(|number| signal(*number, libc::SIGKILL));
}

fn signal(number: u32, signal: c_int) {
    let here = pids_of("self").len();
    if let Some(pid) = here
        .checked_sub(1)
        .and_then(|at| pids_of(&number.to_string()).get(at).copied())
    {
        // SAFETY: sends a signal; the process descends from this one, which reaps none meanwhile.
        unsafe { libc::kill(pid, signal) };
    }
}

/// The pids of a process in each pid namespace from that of /proc to its own; /proc may belong to an outer one
fn pids_of(name: &str) -> Vec<c_int> {
    let status = fs::read_to_string(format!("/proc/{name}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let pids = line.unwrap_or("").split_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let given = words("--seconds 5 --memory-bytes 1000 --tasks 7 -- sh -c x");
        let (bounds, rest) = parse(&given).unwrap();
        assert_eq!(
            (bounds.time, bounds.memory_bytes, bounds.tasks),
            (Duration::from_secs(5), 1000, 7)
        );
        assert_eq!(rest.len(), 3);
        for wrong in [
            "",
            "--seconds 5",
            "--seconds 5 --memory-bytes 1000 --tasks x --",
            "--seconds 5 --tasks 1 --memory-bytes 1 --",
        ] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_task_with_any_name_is_parsed() {
        let stat = b"12 (a) b) c) S 345 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 3 22 23";
        let task = parse_stat(12, stat).unwrap();
        assert_eq!((task.number, task.parent, task.threads), (12, 345, 3));
        for wrong in ["", "12 (a", "12 (a) S", "12 (a) S x 1"] {
            assert!(parse_stat(12, wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn fields_are_added_by_their_names() {
        let status = "Name:\tRssAnon:\nRssAnon:\t  10 kB\nRssFile:\t 99 kB\nRssShmem:\t 2 kB\n";
        assert_eq!(sum(status, &["RssAnon:", "RssShmem:", "VmSwap:"]), 12 * KIB);
    }

    #[test]
    fn descendants_of_any_depth_are_found() {
        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'sleep 60; :'; :"])
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let own = own_number().unwrap();
        let below = || descendants(child.id()).len();
        while below() < 2 && Instant::now() < end {
            std::thread::sleep(WAIT_EVERY);
        }
        assert_eq!(below(), 2);
        assert!(descendants(own).iter().any(|task| task.number == child.id()));
        for task in descendants(child.id()) {
            signal(task.number, libc::SIGKILL);
        }
        child.wait().unwrap();
    }
}
