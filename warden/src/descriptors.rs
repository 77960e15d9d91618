//! The open descriptors of a process that is to be copied: what the copy may share, what is made anew for it, and what
//! takes the place of the process's own files. A descriptor of an unknown kind is refused by its name.

use crate::error::{Context, Error, Outcome};
use crate::script::{Layout, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::mem;
use std::os::raw::c_int;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The log has the number of standard output
pub const LOG: u32 = 1;
/// The file that a process wrote before it began with the next one: its copy can only read it
pub const FROZEN: u32 = u32::MAX;
const SIGNAL_SET_BYTES: u64 = 8;
/// Time for a clone to put its files in place
const SETTLED_WITHIN: Duration = Duration::from_millis(100);
const SETTLED_POLL: Duration = Duration::from_micros(200);
/// Numbers of /dev/null, zero, random and urandom: all of major 1, and without a state that readers share
const PLAIN_DEVICES: [u32; 4] = [3, 5, 8, 9];

/// Files that a process of the warden was given and that belong to it alone, by the numbers at which it was given them
#[derive(Clone, Default)]
pub struct Own {
    pub log: PathBuf,
    pub listeners: Vec<(u32, PathBuf)>,
    pub written: Vec<(u32, PathBuf)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// Without a state that the two could disturb: a file that is only read, a plain device
    Shared,
    /// The place of a file of its own, by the number at which it was given it
    Own(u32),
    /// Nothing for the copy
    Closed,
    /// A client's connection to a socket of its own, by the number at which it was given that
    Connection(u32),
    Event {
        id: String,
        count: u64,
        flags: c_int,
    },
    Signals {
        mask: u64,
        flags: c_int,
    },
    Poll {
        flags: c_int,
        watched: Vec<Watched>,
    },
}

#[derive(Debug, PartialEq, Eq)]
struct Watched {
    fd: RawFd,
    events: u32,
    data: u64,
}

pub struct Descriptors {
    found: BTreeMap<RawFd, Kind>,
}

/// What a copy has in the place of a connection
pub enum Instead {
    /// A descriptor that it got
    Given(RawFd),
    /// The first connection to its own socket of that role, for which it waits
    Accepted,
}

/// A number of a process, and the file that it has there
#[derive(Clone, Copy)]
pub struct Place {
    pub fd: RawFd,
    pub file: FileId,
}

/// What is known of a process whose descriptors are listed
pub struct Known<'a> {
    pub own: &'a Own,
    /// Where files are that are replaced while the process runs, by their roles. Other numbers of the same file have
    /// another role: the process has opened it for that
    pub places: &'a BTreeMap<u32, Place>,
    /// Connections, by the roles of their sockets, which have no client
    pub silent: &'a BTreeMap<u32, Place>,
    /// Whether it may have other connections. They close as soon as the process has seen that the other end is gone
    pub is_connected: bool,
}

impl Own {
    /// The file that it writes for a role
    pub fn written(&self, role: u32) -> Outcome<&Path> {
        let found = self.written.iter().find(|(one, _)| *one == role);
        let missing = || Error::new("EINVAL", format!("the process was given no file {role} to write"));
        found.map(|(_, path)| path.as_path()).ok_or_else(missing)
    }

    pub fn set_written(&mut self, role: u32, path: PathBuf) {
        self.written.retain(|(one, _)| *one != role);
        self.written.push((role, path));
    }
}

impl Descriptors {
    /// `channel` is the warden's own way into the process, which the copy does not get.
    pub fn of(pid: i32, pidfd: &File, known: &Known, channel: RawFd) -> Outcome<Descriptors> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).during(|| "descriptors of the process")? {
            let name = entry.during(|| "descriptors of the process")?.file_name();
            if let Some(fd) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) {
                let kind = match fd == channel {
                    true => Kind::Closed,
                    false => kind_of(pid, pidfd, fd, known)?,
                };
                found.insert(fd, kind);
            }
        }
        Ok(Descriptors { found })
    }

    /// The numbers that the process gets next, when it opens something
    pub fn free(&self) -> impl Iterator<Item = RawFd> + '_ {
        (0..).filter(move |fd| !self.found.contains_key(fd))
    }

    /// The connections, with the roles of their sockets
    pub fn connections(&self) -> impl Iterator<Item = (RawFd, u32)> + '_ {
        self.found.iter().filter_map(|(fd, kind)| match kind {
            Kind::Connection(role) => Some((*fd, *role)),
            _ => None,
        })
    }

    /// Adds to the table of the copy what gives it descriptors of its own. `given` are what it got, with the role of each,
    /// `connections` what it has in the place of each connection, and `extra` what it must not keep.
    pub fn replace(
        &self,
        table: &mut Table,
        layout: &mut Layout,
        given: &[(u32, RawFd)],
        connections: &BTreeMap<RawFd, Instead>,
        extra: &[RawFd],
    ) {
        let mut used: BTreeSet<RawFd> = self.found.keys().copied().collect();
        let got = connections.values().filter_map(|instead| match instead {
            Instead::Given(fd) => Some(*fd),
            Instead::Accepted => None,
        });
        let unneeded: BTreeSet<RawFd> = given
            .iter()
            .map(|(_, fd)| *fd)
            .chain(got)
            .chain(extra.iter().copied())
            .collect();
        used.extend(&unneeded);
        for (fd, kind) in &self.found {
            match kind {
                Kind::Own(role) => {
                    if let Some((_, new)) = given.iter().find(|(one, _)| one == role) {
                        table.call(libc::SYS_dup3, &[*new as u64, *fd as u64, 0]);
                    }
                }
                Kind::Connection(_) => {
                    if let Some(Instead::Given(new)) = connections.get(fd) {
                        table.call(libc::SYS_dup3, &[*new as u64, *fd as u64, libc::O_CLOEXEC as u64]);
                    }
                }
                Kind::Closed => {
                    table.call(libc::SYS_close, &[*fd as u64]);
                }
                _ => {}
            }
        }
        for fd in unneeded {
            table.call(libc::SYS_close, &[fd as u64]);
            used.remove(&fd);
        }
        for (fd, kind) in &self.found {
            if matches!(kind, Kind::Closed) {
                used.remove(fd);
            }
        }
        let new = (0..).find(|fd| !used.contains(fd)).unwrap_or(0) as u64;
        let place = |table: &mut Table, fd: RawFd, flags: c_int| {
            let closes = (flags & libc::O_CLOEXEC) as u64;
            table.call(libc::SYS_dup3, &[new, fd as u64, closes]);
        };
        for (fd, kind) in &self.found {
            if let (Kind::Connection(role), Some(Instead::Accepted)) = (kind, connections.get(fd)) {
                let listener = self.found.iter().find(|(_, kind)| **kind == Kind::Own(*role));
                if let Some((listener, _)) = listener {
                    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                    table.call(libc::SYS_accept4, &[*listener as u64, 0, 0, flags as u64]);
                    place(table, *fd, libc::O_CLOEXEC);
                    table.call(libc::SYS_close, &[new]);
                }
            }
        }
        let mut made = BTreeSet::new();
        for kind in self.found.values() {
            if let Kind::Event { id, count, flags } = kind {
                if !made.insert(id) {
                    continue;
                }
                table.call(libc::SYS_eventfd2, &[*count, *flags as u64]);
                // one that has several numbers stays one
                for (fd, other) in &self.found {
                    if matches!(other, Kind::Event { id: same, .. } if same == id) {
                        place(table, *fd, *flags);
                    }
                }
                table.call(libc::SYS_close, &[new]);
            }
        }
        for (fd, kind) in &self.found {
            if let Kind::Signals { mask, flags } = kind {
                let set = layout.words(&[*mask]);
                table.call(libc::SYS_signalfd4, &[u64::MAX, set, SIGNAL_SET_BYTES, *flags as u64]);
                place(table, *fd, *flags);
                table.call(libc::SYS_close, &[new]);
            }
        }
        // last: what they watch must be there
        for (fd, kind) in &self.found {
            if let Kind::Poll { flags, watched } = kind {
                table.call(libc::SYS_epoll_create1, &[(*flags & libc::O_CLOEXEC) as u64]);
                place(table, *fd, *flags);
                table.call(libc::SYS_close, &[new]);
                for Watched { fd: one, events, data } in watched {
                    // an epoll_event is packed: 4 and 8 bytes
                    let mut event = events.to_le_bytes().to_vec();
                    event.extend_from_slice(&data.to_le_bytes());
                    let event = layout.put(&event, 16);
                    let add = libc::EPOLL_CTL_ADD as u64;
                    table.call(libc::SYS_epoll_ctl, &[*fd as u64, add, *one as u64, event]);
                }
            }
        }
    }

    /// The number of each file of its own that has only one
    pub fn places(&self) -> BTreeMap<u32, RawFd> {
        let mut places = BTreeMap::new();
        for role in self.roles() {
            let mut numbers = self.found.iter().filter(|(_, kind)| **kind == Kind::Own(role));
            if let (Some((fd, _)), None) = (numbers.next(), numbers.next()) {
                places.insert(role, *fd);
            }
        }
        places
    }

    /// What a copy must be given
    pub fn roles(&self) -> BTreeSet<u32> {
        let role = |kind: &Kind| match kind {
            Kind::Own(role) => Some(*role),
            _ => None,
        };
        self.found.values().filter_map(role).collect()
    }
}

fn kind_of(pid: i32, pidfd: &File, fd: RawFd, known: &Known) -> Outcome<Kind> {
    let place = format!("/proc/{pid}/fd/{fd}");
    let link = fs::read_link(&place).during(|| &place)?;
    let info = || fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).during(|| &place);
    let refuse = |why: &str| Error::new("refused", format!("descriptor {fd} ({}) {why}", link.display()));
    match link.to_str().unwrap_or("") {
        "anon_inode:[eventfd]" | "anon_inode:[signalfd]" | "anon_inode:[eventpoll]" => {
            let what = link.to_str().unwrap_or("");
            parse_kernel_object(what, &info()?).ok_or_else(|| refuse("is not as this version of forkd knows it"))
        }
        name if name.starts_with("socket:") => socket_kind(pidfd, fd, known),
        name if name.starts_with('/') => {
            let flags = parse_flags(&info()?).ok_or_else(|| refuse("has no flags"))?;
            file_kind(&place, fd, flags, known)?
                .ok_or_else(|| refuse("is a file that it may write and that has no copy"))
        }
        _ => Err(refuse("is of a kind that cannot be copied")),
    }
}

/// The numbers at which a process has a file
pub fn numbers_of(pid: i32, path: &Path) -> Outcome<Vec<RawFd>> {
    let wanted = fs::metadata(path).during(|| path.display())?;
    let folder = format!("/proc/{pid}/fd");
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&folder).during(|| "descriptors of the process")? {
        let name = entry.during(|| "descriptors of the process")?.file_name();
        let fd = name.to_str().and_then(|name| name.parse::<RawFd>().ok());
        // one that the process has closed meanwhile is not the file
        let found = fd.and_then(|fd| Some((fd, fs::metadata(format!("{folder}/{fd}")).ok()?)));
        numbers.extend(found.filter(|(_, found)| same_file(found, &wanted)).map(|(fd, _)| fd));
    }
    Ok(numbers)
}

/// Device and inode
pub type FileId = (u64, u64);

pub fn file_id(file: &File) -> io::Result<FileId> {
    file.metadata().map(|found| (found.dev(), found.ino()))
}

/// Whether a process has the file at the number, or, as a clone that has just been made, gets it within a moment
pub fn gets_file(pid: i32, fd: RawFd, file: FileId) -> bool {
    let deadline = Instant::now() + SETTLED_WITHIN;
    while !has_file(pid, fd, file) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(SETTLED_POLL);
    }
    true
}

fn has_file(pid: i32, fd: RawFd, file: FileId) -> bool {
    fs::metadata(format!("/proc/{pid}/fd/{fd}")).map_or(false, |found| (found.dev(), found.ino()) == file)
}

fn same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn file_kind(place: &str, fd: RawFd, flags: c_int, known: &Known) -> Outcome<Option<Kind>> {
    let Known { own, places, .. } = known;
    let found = fs::metadata(place).during(|| place)?;
    let at = (found.dev(), found.ino());
    let placed = places.iter().find(|(_, place)| place.fd == fd && place.file == at);
    if let Some((role, _)) = placed {
        return Ok(Some(Kind::Own(*role)));
    }
    let is = |path: &Path| fs::metadata(path).map_or(false, |other| same_file(&other, &found));
    if found.file_type().is_char_device() {
        let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
        return Ok((major == 1 && PLAIN_DEVICES.contains(&minor)).then_some(Kind::Shared));
    }
    if is(&own.log) {
        return Ok(Some(Kind::Own(LOG)));
    }
    let mut written = own.written.iter().filter(|(role, _)| !places.contains_key(role));
    if let Some((role, _)) = written.find(|(_, path)| is(path)) {
        return Ok(Some(Kind::Own(*role)));
    }
    let is_read_only = found.is_file() && flags & libc::O_ACCMODE == libc::O_RDONLY;
    Ok(is_read_only.then_some(Kind::Shared))
}

fn socket_kind(pidfd: &File, fd: RawFd, known: &Known) -> Outcome<Kind> {
    let socket = take(pidfd, fd).during(|| format!("descriptor {fd}"))?;
    let id = file_id(&socket).during(|| format!("descriptor {fd}"))?;
    let silent = known
        .silent
        .iter()
        .find(|(_, place)| place.fd == fd && place.file == id);
    if let Some((role, _)) = silent {
        return Ok(Kind::Connection(*role));
    }
    let path = path_of(&socket);
    let role = known
        .own
        .listeners
        .iter()
        .find(|(_, own)| Some(own) == path.as_ref())
        .map(|(role, _)| *role);
    match role {
        Some(role) if listens(&socket) => Ok(Kind::Own(role)),
        Some(role) if known.is_connected => Ok(Kind::Connection(role)),
        Some(_) => Err(Error::new(
            "EAGAIN",
            format!("descriptor {fd} is a connection that is still open"),
        )),
        None => Err(Error::new(
            "refused",
            format!("descriptor {fd} is a socket of unknown use"),
        )),
    }
}

/// A copy of another process's descriptor
pub fn take(pidfd: &File, fd: RawFd) -> io::Result<File> {
    // SAFETY: makes a descriptor, which nothing else owns.
    let got = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { File::from_raw_fd(got as RawFd) })
}

pub fn open_pid(pid: i32) -> io::Result<File> {
    // SAFETY: makes a descriptor, which nothing else owns.
    let got = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { File::from_raw_fd(got as RawFd) })
}

/// The process of a pidfd, as this process numbers it
pub fn pid_of(pidfd: &File) -> Outcome<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).during(|| "pidfd")?;
    let pid = info
        .lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    pid.filter(|pid| *pid > 0)
        .ok_or_else(|| Error::new("ESRCH", "the new process has ended"))
}

fn listens(socket: &File) -> bool {
    let (mut value, mut length) = (0 as c_int, mem::size_of::<c_int>() as libc::socklen_t);
    let into = (&mut value as *mut c_int).cast();
    // SAFETY: the kernel writes one int.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            into,
            &mut length,
        )
    };
    result == 0 && value == 1
}

/// The path of a Unix socket; an accepted one has that of its listener
fn path_of(socket: &File) -> Option<PathBuf> {
    // SAFETY: all zeroes is an address without a path, which the kernel fills.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    let mut length = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockname(
            socket.as_raw_fd(),
            (&mut address as *mut libc::sockaddr_un).cast(),
            &mut length,
        )
    };
    if result != 0 || address.sun_family != libc::AF_UNIX as libc::sa_family_t {
        return None;
    }
    let bytes: Vec<u8> = address
        .sun_path
        .iter()
        .map(|byte| *byte as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    (!bytes.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&bytes)))
}

fn parse_flags(info: &str) -> Option<c_int> {
    let text = field(info, "flags:")?;
    c_int::from_str_radix(text, 8).ok()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// From fdinfo; None when it lacks something
fn parse_kernel_object(what: &str, info: &str) -> Option<Kind> {
    let flags = parse_flags(info)?;
    match what {
        "anon_inode:[eventfd]" => {
            // a semaphore counts in another way; QEMU has none
            if field(info, "eventfd-semaphore:").map_or(false, |value| value != "0") {
                return None;
            }
            Some(Kind::Event {
                // an event counter that has several numbers is found by its id; Linux before 5.2 has none
                id: field(info, "eventfd-id:")?.to_string(),
                count: u64::from_str_radix(field(info, "eventfd-count:")?, 16).ok()?,
                flags: flags & (libc::O_CLOEXEC | libc::O_NONBLOCK),
            })
        }
        "anon_inode:[signalfd]" => Some(Kind::Signals {
            mask: u64::from_str_radix(field(info, "sigmask:")?, 16).ok()?,
            flags: flags & (libc::O_CLOEXEC | libc::O_NONBLOCK),
        }),
        _ => {
            let lines = info.lines().filter(|line| line.starts_with("tfd:"));
            Some(Kind::Poll {
                flags: flags & libc::O_CLOEXEC,
                watched: lines.map(parse_watched).collect::<Option<_>>()?,
            })
        }
    }
}

/// `tfd: 5 events: 19 data: 5 …`; events and data are hexadecimal
fn parse_watched(line: &str) -> Option<Watched> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |name: &str| {
        words
            .iter()
            .position(|word| *word == name)
            .and_then(|at| words.get(at + 1))
    };
    Some(Watched {
        fd: after("tfd:")?.parse().ok()?,
        events: u32::from_str_radix(after("events:")?, 16).ok()?,
        data: u64::from_str_radix(after("data:")?, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_objects_are_read_as_the_kernel_writes_them() {
        let event = "pos:\t0\nflags:\t02004002\nmnt_id:\t15\nino:\t8\neventfd-count:               1f\neventfd-id: 12\neventfd-semaphore: 0\n";
        let expected = Kind::Event {
            id: "12".to_string(),
            count: 31,
            flags: libc::O_CLOEXEC | libc::O_NONBLOCK,
        };
        assert_eq!(parse_kernel_object("anon_inode:[eventfd]", event), Some(expected));
        let semaphore = event.replace("semaphore: 0", "semaphore: 1");
        assert_eq!(parse_kernel_object("anon_inode:[eventfd]", &semaphore), None);
        let signals = "pos:\t0\nflags:\t02004002\nsigmask:\t0000000000004a02\n";
        let expected = Kind::Signals {
            mask: 0x4a02,
            flags: libc::O_CLOEXEC | libc::O_NONBLOCK,
        };
        assert_eq!(parse_kernel_object("anon_inode:[signalfd]", signals), Some(expected));
        let poll = "flags:\t02000002\ntfd:        5 events:       19 data:       7f05  pos:0 ino:1 sdev:2\n";
        let watched = vec![Watched {
            fd: 5,
            events: 0x19,
            data: 0x7f05,
        }];
        let expected = Kind::Poll {
            flags: libc::O_CLOEXEC,
            watched,
        };
        assert_eq!(parse_kernel_object("anon_inode:[eventpoll]", poll), Some(expected));
        assert_eq!(
            parse_kernel_object("anon_inode:[eventpoll]", "flags:\t02\ntfd: x\n"),
            None
        );
    }
}
