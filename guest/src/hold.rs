//! Freezes every process except the agent, from before a snapshot until a fork has its own clock and randomness: a
//! process that ran earlier would draw the same random numbers in every fork, and see the time of the snapshot.

use crate::sys;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::os::unix::io::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The control group that held processes are moved into.
const GROUP: &str = "forkd";
/// Processes start others while they are being moved; HOLD fails after this many rounds.
const ROUNDS: usize = 100;
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES: u32 = 5000;

pub struct Hold {
    /// The guest's control groups. They are not mounted at a path, so they do not interfere with programs that mount
    /// them.
    groups: Option<File>,
    /// Files that thaw the held groups; opened before the snapshot, because each system call costs time after a fork.
    switches: Vec<File>,
    /// The agent has real-time priority.
    first: bool,
    /// The next RESYNC is a rehearsal: it leaves the processes held.
    stays: bool,
}

impl Hold {
    /// Called at boot: a later mount would reset the options of one that a program has made.
    pub fn new() -> Hold {
        Hold {
            // without control groups HOLD fails with an error
            groups: sys::mount_control_groups().ok().map(File::from),
            switches: Vec::new(),
            first: false,
            stays: false,
        }
    }

    /// Freezes every process and returns their pids. If one cannot be frozen, none is.
    pub fn begin(&mut self) -> io::Result<Vec<i32>> {
        let held = self.hold_all();
        if held.is_err() {
            self.end()?;
        }
        held
    }

    fn hold_all(&mut self) -> io::Result<Vec<i32>> {
        let groups = self.groups.as_ref().ok_or(ErrorKind::Unsupported)?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", groups.as_raw_fd()));
        let own = root.join(GROUP);
        match fs::create_dir(&own) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            result => result?,
        }
        // a program may have moved the agent into its own group, which is frozen below. 0 means the writing process
        fs::write(root.join("cgroup.procs"), "0")?;
        for _ in 0..ROUNDS {
            // a group is frozen before processes are moved into it, so that they cannot start others there
            if self.freeze_groups(&root)? | move_processes(&root, &own)? {
                continue;
            }
            for group in folders(&root)? {
                await_frozen(&group)?;
            }
            // before it was frozen, a process could make a group, or move another process out of a frozen one
            if self.freeze_groups(&root)? | move_processes(&root, &own)? {
                continue;
            }
            let mut pids = Vec::new();
            for group in folders(&root)? {
                pids_below(&group, &mut pids)?;
            }
            return Ok(pids);
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Freezes the groups that are not frozen; returns whether there were any.
    fn freeze_groups(&mut self, root: &Path) -> io::Result<bool> {
        let mut found = false;
        for group in folders(root)? {
            let path = group.join("cgroup.freeze");
            match fs::read_to_string(&path) {
                // also a group that its user has frozen, which stays frozen
                Ok(state) if state.trim() == "1" => continue,
                // the group was removed meanwhile
                Err(e) if is_gone(&e) => continue,
                result => result?,
            };
            let switch = OpenOptions::new().write(true).open(path)?;
            switch.write_all_at(b"1", 0)?;
            self.switches.push(switch);
            found = true;
        }
        Ok(found)
    }

    /// Thaws every process and returns the agent to normal priority; returns whether processes were held.
    pub fn end(&mut self) -> io::Result<bool> {
        let was_held = !self.switches.is_empty();
        let mut result = Ok(was_held);
        // all of them, also after a failure: a skipped group would stay frozen
        for switch in self.switches.drain(..) {
            match switch.write_all_at(b"0", 0) {
                Err(e) if !is_gone(&e) => result = Err(e),
                _ => {}
            }
        }
        if self.first {
            self.first = false;
            sys::run_as_one_of_many()?;
        }
        result
    }

    /// Processes stay held over the next RESYNC; an error where none is held.
    pub fn stay(&mut self) -> io::Result<()> {
        if self.switches.is_empty() {
            return Err(ErrorKind::Unsupported.into());
        }
        self.stays = true;
        Ok(())
    }

    /// Lets one process run. The next `begin` holds it again.
    pub fn let_go(&self, pid: i32) -> io::Result<()> {
        let groups = self.groups.as_ref().ok_or(ErrorKind::Unsupported)?;
        fs::write(
            format!("/proc/self/fd/{}/cgroup.procs", groups.as_raw_fd()),
            pid.to_string(),
        )
    }

    /// As `end`, unless the processes were to stay held, which is so for one time.
    pub fn end_unless_staying(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.stays) {
            return Ok(true);
        }
        self.end()
    }

    /// From here on the agent runs before every other process that is ready on its CPU.
    pub fn be_first(&mut self) -> io::Result<()> {
        sys::run_before_others()?;
        self.first = true;
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ESRCH))
}

fn folders(of: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(of)?.flatten();
    Ok(entries
        .filter(|entry| entry.file_type().map_or(false, |kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect())
}

fn pids_in(group: &Path) -> io::Result<Vec<i32>> {
    // a threaded group has no list: its processes are in the group above it
    let text = match fs::read_to_string(group.join("cgroup.procs")) {
        Err(e) if is_gone(&e) || e.raw_os_error() == Some(libc::EOPNOTSUPP) => String::new(),
        result => result?,
    };
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn pids_below(group: &Path, pids: &mut Vec<i32>) -> io::Result<()> {
    pids.extend(pids_in(group)?);
    for folder in folders(group)? {
        pids_below(&folder, pids)?;
    }
    Ok(())
}

/// Moves processes of the root group, which cannot be frozen, into `own`; returns whether there were any.
fn move_processes(root: &Path, own: &Path) -> io::Result<bool> {
    let mut found = false;
    for pid in pids_in(root)? {
        // a guest kernel thread has no executable, and must not be held
        if pid <= 1 || fs::read_link(format!("/proc/{}/exe", pid)).is_err() {
            continue;
        }
        match fs::write(own.join("cgroup.procs"), pid.to_string()) {
            Err(e) if is_gone(&e) => {}
            result => result?,
        }
        found = true;
    }
    Ok(found)
}

fn await_frozen(group: &Path) -> io::Result<()> {
    for _ in 0..PAUSES {
        match fs::read_to_string(group.join("cgroup.events")) {
            Ok(events) if events.lines().any(|line| line == "frozen 1") => return Ok(()),
            Err(e) if is_gone(&e) => return Ok(()),
            result => result?,
        };
        thread::sleep(PAUSE);
    }
    Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Folder;

    #[test]
    fn every_group_continues_although_one_fails() {
        let folder = Folder::new("hold");
        for name in ["a", "b"] {
            fs::write(folder.path(name), "1").unwrap();
        }
        let mut hold = Hold {
            groups: None,
            // the first one is not open for writing
            switches: vec![
                File::open(folder.path("a")).unwrap(),
                OpenOptions::new().write(true).open(folder.path("b")).unwrap(),
            ],
            first: false,
            stays: false,
        };
        hold.stay().unwrap();
        assert!(hold.end_unless_staying().unwrap());
        assert_eq!(
            fs::read_to_string(folder.path("b")).unwrap(),
            "1",
            "a rehearsal leaves it held"
        );
        assert!(hold.end_unless_staying().is_err());
        assert_eq!(fs::read_to_string(folder.path("b")).unwrap(), "0");
        assert!(!hold.end().unwrap());
        assert!(hold.stay().is_err(), "nothing is held");
    }
}
