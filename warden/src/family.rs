//! Families: processes that share a pid namespace because one was cloned from another. A pid namespace ends with its first
//! process, so that is none of them but an empty one (`--init`), which the warden ends after the last member.

use crate::clone_spec::CloneSpec;
use crate::descriptors::{self, file_id, Known, Own, Place, FROZEN, LOG};
use crate::error::{Context, Error, Outcome};
use crate::frozen::{self, Area as FrozenArea, Ready};
use crate::passing;
use crate::sys;
use crate::zygote::{self, Area, Copy, Forked, Given, Readied, Zygote};
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::os::raw::{c_char, c_int};
use std::os::unix::io::RawFd;
use std::path::{Path, PathBuf};

const SELF: &[u8] = b"/proc/self/exe\0";
const INIT: &[u8] = b"--init\0";
const NAME: &[u8] = b"forkd-init\0";

struct Member {
    /// The first process of its pid namespace
    init: i32,
    own: Own,
    /// Where a file is that is replaced while the process runs, by the number at which it was given
    places: BTreeMap<u32, Place>,
    /// Where the script of a clone goes, if it was made ready for that
    area: Option<Area>,
    /// Connections without a client, by the roles of their sockets
    silent: BTreeMap<u32, Place>,
    /// Their other ends
    _others: Vec<File>,
    /// For the next copy of it while it runs
    readied: Option<(Readied, CloneSpec)>,
}

struct Family {
    secret: u64,
    members: usize,
}

/// A VMM of which frozen copies are made. No other VMM is in its family
struct Original {
    init: i32,
    area: Option<FrozenArea>,
    /// For its next copy
    ready: Option<Ready>,
}

impl Member {
    /// Its clones inherit the area, so it is made once in a family's line.
    fn area(&mut self, pid: i32) -> Outcome<Area> {
        let area = match self.area {
            Some(area) => area,
            None => zygote::prepare(pid)?,
        };
        self.area = Some(area);
        Ok(area)
    }

    /// Without its client
    fn known(&self) -> Known<'_> {
        Known {
            own: &self.own,
            places: &self.places,
            silent: &self.silent,
            is_connected: false,
        }
    }
}

#[derive(Default)]
pub struct Families {
    members: BTreeMap<i32, Member>,
    families: BTreeMap<i32, Family>,
    originals: BTreeMap<i32, Original>,
    /// Frozen copies, and the first processes of their families
    frozen: BTreeMap<i32, i32>,
    held: BTreeMap<i32, Zygote>,
    /// Clones of running members that no one else knows: they end with the client that made them
    passing: BTreeSet<i32>,
}

impl Families {
    /// The first member of a new family
    pub fn found(&mut self, pid: i32, init: i32, secret: u64, own: Own) {
        self.families.insert(init, Family { secret, members: 0 });
        let member = Member {
            init,
            own,
            places: BTreeMap::new(),
            area: None,
            silent: BTreeMap::new(),
            _others: Vec::new(),
            readied: None,
        };
        self.join(pid, member);
    }

    /// The first member of a new family, of which frozen copies are made
    pub fn found_original(&mut self, pid: i32, init: i32, secret: u64) {
        self.families.insert(init, Family { secret, members: 1 });
        let original = Original {
            init,
            area: None,
            ready: None,
        };
        self.originals.insert(pid, original);
    }

    /// Readies a running VMM for `freeze`.
    pub fn prepare_frozen(&mut self, pid: i32, ram: &Path, ram_bytes: u64) -> Outcome<()> {
        let original = self.originals.get_mut(&pid).ok_or_else(|| not_frozen(pid))?;
        let ready = frozen::prepare(pid, ram, ram_bytes, original.area).map_err(|error| unless_known(pid, error))?;
        original.area = Some(ready.area());
        original.ready = Some(ready);
        Ok(())
    }

    /// The pid of a frozen copy.
    pub fn freeze(&mut self, pid: i32) -> Outcome<i32> {
        let original = self.originals.get_mut(&pid).ok_or_else(|| not_frozen(pid))?;
        let unready = || Error::new("EINVAL", format!("process {pid} is not ready for it"));
        let ready = original.ready.take().ok_or_else(unready)?;
        let family = self.families.get_mut(&original.init).ok_or_else(|| not_frozen(pid))?;
        match frozen::freeze(pid, &ready, family.secret) {
            Ok(new) => {
                family.members += 1;
                self.frozen.insert(new, original.init);
                self.passing.insert(new);
                Ok(new)
            }
            Err(error) => Err(unless_known(pid, error)),
        }
    }

    fn join(&mut self, pid: i32, member: Member) {
        if let Some(family) = self.families.get_mut(&member.init) {
            family.members += 1;
        }
        self.members.insert(pid, member);
    }

    /// Stops a member for good, so that others can be cloned from it.
    pub fn hold(&mut self, pid: i32) -> Outcome<()> {
        let secret = self.secret_of(pid)?;
        let member = self.members.get_mut(&pid).ok_or_else(|| not_clonable(pid))?;
        if let Entry::Vacant(place) = self.held.entry(pid) {
            let area = member.area(pid)?;
            let zygote = Zygote::hold(pid, area, &member.known(), secret)?;
            zygote.expect_clones()?;
            place.insert(zygote);
        }
        Ok(())
    }

    /// Readies a running member for `fork`. The copy has the namespaces of its source, whose state it has as well.
    pub fn prepare(&mut self, pid: i32, copy: Copy, wanted: CloneSpec) -> Outcome<()> {
        if self.held.contains_key(&pid) {
            return Err(Error::new("EINVAL", format!("process {pid} is held")));
        }
        let mut copy = Copy {
            confined: false,
            threads: None,
            ..copy
        };
        let secret = self.secret_of(pid)?;
        let member = self.members.get_mut(&pid).ok_or_else(|| not_clonable(pid))?;
        if let Some((role, _)) = wanted.next {
            let path = member.own.written(role)?;
            let file = File::open(path).during(|| path.display())?;
            copy.given.push(Given { role: FROZEN, file });
        }
        member.area(pid)?;
        member.readied = Some((zygote::ready(pid, secret, copy)?, wanted));
        Ok(())
    }

    /// The pid of a new member, a copy of one that runs on, and its log.
    pub fn fork(&mut self, pid: i32) -> Outcome<(i32, File)> {
        let secret = self.secret_of(pid)?;
        let member = self.members.get_mut(&pid).ok_or_else(|| not_clonable(pid))?;
        let unready = || Error::new("EINVAL", format!("process {pid} is not ready for it"));
        let area = member.area.ok_or_else(unready)?;
        let (readied, CloneSpec { own, next, .. }) = member.readied.take().ok_or_else(unready)?;
        let log = readied
            .copy
            .given
            .iter()
            .find(|one| one.role == LOG)
            .ok_or_else(unready)?;
        let log = log.file.try_clone().during(|| own.log.display())?;
        let (mut source, mut places) = (member.own.clone(), member.places.clone());
        if let Some((role, path)) = next {
            let frozen = source.written(role)?.to_path_buf();
            source.set_written(role, path);
            source.set_written(FROZEN, frozen);
            // what is there was frozen
            places.remove(&role);
        }
        let known = Known {
            own: &source,
            places: &places,
            silent: &member.silent,
            is_connected: true,
        };
        match zygote::fork(pid, area, &known, secret, readied) {
            Ok(forked) => {
                let new = forked.pid;
                self.join_copy(pid, own, forked);
                self.passing.insert(new);
                Ok((new, log))
            }
            Err(error) => {
                if error.code == "EIO" {
                    let _ = sys::send_signal(pid, libc::SIGKILL);
                }
                Err(error)
            }
        }
    }

    /// The pid of a new member. A zygote of which a clone failed is ended: nothing is known of its state.
    pub fn clone(&mut self, pid: i32, copy: Copy, own: Own) -> Outcome<i32> {
        let zygote = self
            .held
            .get(&pid)
            .ok_or_else(|| Error::new("EINVAL", format!("process {pid} is not held")))?;
        match zygote.clone(&copy) {
            Ok(new) => {
                let forked = Forked {
                    pid: new,
                    numbers: zygote.places(),
                    silent: BTreeMap::new(),
                    copy,
                };
                self.join_copy(pid, own, forked);
                Ok(new)
            }
            Err(error) => {
                let _ = sys::send_signal(pid, libc::SIGKILL);
                Err(error)
            }
        }
    }

    fn join_copy(&mut self, original: i32, own: Own, forked: Forked) {
        let given = &forked.copy.given;
        let file_of = |role: u32| given.iter().find(|one| one.role == role).map(|one| &one.file);
        let place = |(role, fd): (u32, RawFd)| {
            Some((
                role,
                Place {
                    fd,
                    file: file_id(file_of(role)?).ok()?,
                },
            ))
        };
        let numbers = forked.numbers.into_iter().filter(|(role, _)| *role != FROZEN);
        let places = numbers.filter_map(place).collect();
        let mut others = Vec::new();
        let mut silent = BTreeMap::new();
        for (role, (place, other)) in forked.silent {
            silent.insert(role, place);
            others.push(other);
        }
        if let Some(Member { init, area, .. }) = self.members.get(&original) {
            let member = Member {
                init: *init,
                own,
                places,
                area: *area,
                silent,
                _others: others,
                readied: None,
            };
            self.join(forked.pid, member);
        }
    }

    /// The files of a member's own
    pub fn own(&self, pid: i32) -> Outcome<&Own> {
        self.members
            .get(&pid)
            .map(|member| &member.own)
            .ok_or_else(|| not_clonable(pid))
    }

    /// Puts a file at the place of one that a running member was given.
    pub fn give(&mut self, pid: i32, role: u32, path: PathBuf, file: &File) -> Outcome<()> {
        let secret = self.secret_of(pid)?;
        let member = self.members.get_mut(&pid).ok_or_else(|| not_clonable(pid))?;
        let unknown = || Error::new("EINVAL", format!("the place of file {role} is not known"));
        let fd = match member.places.get(&role) {
            // the process may have closed it, and use the number for another file
            Some(place) if descriptors::gets_file(pid, place.fd, place.file) => place.fd,
            Some(_) => return Err(unknown()),
            // the first time: no other descriptor has the file
            None => match descriptors::numbers_of(pid, member.own.written(role)?)?.as_slice() {
                [one] => *one,
                _ => return Err(unknown()),
            },
        };
        let id = file_id(file).during(|| path.display())?;
        passing::replace(pid, &[fd], file, secret)?;
        member.places.insert(role, Place { fd, file: id });
        member.own.set_written(role, path);
        Ok(())
    }

    /// The member writes another file for the role from now on, and can only read the one it wrote before.
    pub fn seal(&mut self, pid: i32, role: u32, next: PathBuf) -> Outcome<()> {
        let secret = self.secret_of(pid)?;
        let member = self.members.get_mut(&pid).ok_or_else(|| not_clonable(pid))?;
        let before = member.own.written(role)?;
        if before == next {
            return Ok(());
        }
        let file = File::open(before).during(|| before.display())?;
        let places = descriptors::numbers_of(pid, before)?;
        if places.is_empty() {
            // the process has put another file in its place, and would read that one instead
            return Err(Error::new(
                "EIO",
                format!("process {pid} no longer has {} open", before.display()),
            ));
        }
        passing::replace(pid, &places, &file, secret)?;
        // the next file has another number
        member.places.remove(&role);
        member.own.set_written(role, next);
        Ok(())
    }

    fn secret_of(&self, pid: i32) -> Outcome<u64> {
        let member = self.members.get(&pid).ok_or_else(|| not_clonable(pid))?;
        let family = self.families.get(&member.init).ok_or_else(|| not_clonable(pid))?;
        Ok(family.secret)
    }

    /// The client that would clone them is gone: ends what is held, and what only that client knows. Clones run on.
    pub fn client_left(&mut self) {
        for member in self.members.values_mut() {
            member.readied = None;
        }
        for original in self.originals.values_mut() {
            original.ready = None;
        }
        for pid in self.held.keys().chain(&self.passing) {
            let _ = sys::send_signal(*pid, libc::SIGKILL);
        }
    }

    /// A process was reaped; with the last member of a family its first process ends.
    pub fn ended(&mut self, pid: i32) {
        self.held.remove(&pid);
        self.passing.remove(&pid);
        let member = self.members.remove(&pid).map(|member| member.init);
        let original = self.originals.remove(&pid).map(|original| original.init);
        let init = match member.or(original).or_else(|| self.frozen.remove(&pid)) {
            Some(init) => init,
            None => return,
        };
        if let Some(family) = self.families.get_mut(&init) {
            family.members -= 1;
            if family.members == 0 {
                self.families.remove(&init);
                let _ = sys::send_signal(init, libc::SIGKILL);
            }
        }
    }

    /// The first processes of the families, which are no one's VMM
    pub fn inits(&self) -> impl Iterator<Item = i32> + '_ {
        self.families.keys().copied()
    }
}

/// Ends a VMM whose state is not known after the error.
fn unless_known(pid: i32, error: Error) -> Error {
    if error.code == "EIO" {
        let _ = sys::send_signal(pid, libc::SIGKILL);
    }
    error
}

fn not_frozen(pid: i32) -> Error {
    Error::new("EINVAL", format!("process {pid} was not started for frozen copies"))
}

fn not_clonable(pid: i32) -> Error {
    Error::new("EINVAL", format!("process {pid} was not started to be cloned"))
}

/// `--init`: the first process of a family's pid namespace. Its members are children of the warden, so it has nothing to reap.
pub fn idle() -> ! {
    loop {
        // SAFETY: waits for a signal; those without a handler do not reach the first process of a pid namespace from inside.
        unsafe { libc::pause() };
    }
}

/// Becomes the first process of the family; returns only when that failed.
///
/// # Safety
/// To be called in a child of vfork, which has only system calls to make.
pub unsafe fn become_init() {
    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    libc::setsid();
    crate::confine::drop_capabilities();
    libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32);
    let argv: [*const c_char; 3] = [NAME.as_ptr().cast(), INIT.as_ptr().cast(), std::ptr::null()];
    let env: [*const c_char; 1] = [std::ptr::null()];
    libc::execve(
        CStr::from_bytes_with_nul_unchecked(SELF).as_ptr(),
        argv.as_ptr(),
        env.as_ptr(),
    );
}

/// Makes a child of this process's own parent, which runs on the given stack in the memory of this process until it execs.
///
/// # Safety
/// To be called in a child of vfork; `work` and its argument outlive it, because this process waits for its exec.
pub unsafe fn sibling(
    stack: &mut [u128],
    work: extern "C" fn(*mut libc::c_void) -> c_int,
    argument: *mut libc::c_void,
) -> c_int {
    let top = stack.as_mut_ptr().add(stack.len()).cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::SIGCHLD;
    libc::clone(work, top, flags, argument)
}
