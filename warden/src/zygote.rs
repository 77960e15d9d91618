//! A stopped process from which others are cloned: each clone is a copy with the same threads and memory, and with
//! descriptors of its own. The process stays stopped for as long as it lives (`hold`), or only for one clone (`fork`).

use crate::confine::INSIDE_ID;
use crate::descriptors::{self, Descriptors, Instead, Known, Place};
use crate::error::{Context, Error, Outcome};
use crate::passing;
use crate::script::{self, Layout, Table};
use crate::sys::PAGE;
use crate::tracee::{self, Thread, Tracee};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::mem;
use std::os::raw::c_int;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// Where in the thread's own data a C library keeps the number of the thread: below this offset
const SEARCHED: u64 = 2048;
/// Calls that a thread can make again after it was interrupted in them, without a trace of the first attempt. A thread that
/// sleeps, as QEMU's for RCU does, sleeps anew.
const WAITS: [i64; 18] = [
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_futex,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_pause,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_futex_waitv,
];
/// A thread's frame with its vector registers, and its table
const BYTES_PER_THREAD: usize = 8 * 1024;
const OTHER_BYTES: usize = 64 * 1024;
/// Threads that a process may start after its area was made: QEMU's workers come and go
const MORE_THREADS: usize = 72;
/// A process that has just stopped its work is idle within this time, on a busy host too; it runs meanwhile
const IDLE_WITHIN: Duration = Duration::from_millis(if cfg!(test) { IN_TESTS_MS } else { 100 });
/// Other tests take all processors at the same time
const IN_TESTS_MS: u64 = 3000;
/// A process whose client has just left closes the connection within this time; the client asks again after that
const SETTLED_WITHIN: Duration = Duration::from_millis(3);
const IDLE_POLL: Duration = Duration::from_micros(100);
const CAPABILITY_VERSION: u64 = 0x2008_0522;

/// For a clone that is a machine of its own; all but the pid namespace, which is that of its family, and the mounts and
/// the network, of which there is nothing to separate: no file can be written by its name and no socket be made
const NAMESPACES: u64 = (libc::CLONE_NEWUSER | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;

const THREAD_FLAGS: c_int = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_SETTID
    | libc::CLONE_CHILD_CLEARTID;

/// A file of a clone's own, in place of the one that the zygote has for the same role
pub struct Given {
    pub role: u32,
    pub file: File,
}

/// A socket that a clone listens at
pub struct Listener {
    pub role: u32,
    pub address: libc::sockaddr_un,
}

pub struct Copy {
    pub given: Vec<Given>,
    pub listeners: Vec<Listener>,
    /// Folder of its control group
    pub group: Option<File>,
    /// Namespaces of its own; not for a test, whose process has no right to make them
    pub confined: bool,
    /// At most this many threads, counted in its user namespace
    pub threads: Option<u64>,
    pub connections: Connections,
}

/// What a copy has in the places of connections
pub enum Connections {
    /// New ones: it waits until a client is connected to its own sockets
    Accepted,
    /// Those to sockets of these roles stay open, but nothing comes and nothing goes; the others have ended
    Silent(Vec<u32>),
}

/// A copy of a process
pub struct Forked {
    pub pid: i32,
    /// Where the original has its files
    pub numbers: BTreeMap<u32, RawFd>,
    /// The silent connections of the copy by their roles, and the other ends, which must stay open
    pub silent: BTreeMap<u32, (Place, File)>,
    /// As which it was made
    pub copy: Copy,
}

pub struct Zygote {
    tracee: Tracee,
    threads: Vec<Thread>,
    descriptors: Descriptors,
    pidfd: File,
    /// By which it gets descriptors: the warden's end, and its own
    channel: File,
    channel_fd: RawFd,
    area: Area,
    tid_offset: u64,
    /// What the filter of the process lets pass
    secret: u64,
}

/// What a clone gets and does not keep, apart from the files that take the places of others
struct Extra {
    connections: BTreeMap<RawFd, Instead>,
    proc: Option<RawFd>,
    group: Option<RawFd>,
}

impl Extra {
    fn all(&self) -> impl Iterator<Item = RawFd> + '_ {
        let given = self.connections.values().filter_map(|instead| match instead {
            Instead::Given(fd) => Some(*fd),
            Instead::Accepted => None,
        });
        given.chain(self.proc).chain(self.group)
    }
}

/// Memory of the process in which the script is: code, the table of the process itself, and all else. A clone has it at the
/// same place.
#[derive(Clone, Copy)]
pub struct Area {
    base: u64,
    bytes: u64,
    /// As `Tracee::gadget`
    gadget: u64,
}

impl Area {
    fn code(self) -> u64 {
        self.base
    }

    /// Empty in a clone: it has the secret
    fn table(self) -> u64 {
        self.base + PAGE as u64
    }

    fn data(self) -> u64 {
        self.base + 2 * PAGE as u64
    }
}

/// Readies a running process for clones: memory for the script, and nothing that is left out of a copy. This takes as long
/// as the process has pages, so it is not done while the process is stopped.
pub fn prepare(pid: i32) -> Outcome<Area> {
    let mappings = Mappings::of(pid)?;
    let threads = tracee::tasks_of(pid)?.len() + MORE_THREADS;
    let tracee = Tracee::seize_main(pid)?;
    let stopped = tracee.threads()?;
    let main = stopped.first().ok_or_else(|| Error::new("ESRCH", "no threads"))?;
    let area = make_area(
        &tracee,
        main,
        (2 * PAGE + threads * BYTES_PER_THREAD + OTHER_BYTES) as u64,
    )?;
    let advise = |ranges: &[(u64, u64)], advice: c_int| {
        ranges.iter().try_for_each(|(start, length)| {
            let arguments = [*start, *length, advice as u64, 0, 0, 0];
            tracee.call(main, libc::SYS_madvise, arguments).map(|_| ())
        })
    };
    let advised =
        advise(&mappings.not_copied, libc::MADV_DOFORK).and_then(|()| advise(&mappings.huge, libc::MADV_NOHUGEPAGE));
    advised.map(|()| area).map_err(|error| {
        let _ = tracee.call(main, libc::SYS_munmap, [area.base, area.bytes, 0, 0, 0, 0]);
        error
    })
}

/// What is made for a copy while its source still runs, so that the source is stopped for less time
pub struct Readied {
    pub copy: Copy,
    /// By roles: what the copy has, and the other ends
    silent: BTreeMap<u32, (File, File)>,
    ended: File,
}

/// All that `fork` needs besides the process itself.
pub fn ready(pid: i32, secret: u64, mut copy: Copy) -> Outcome<Readied> {
    check_shared(pid)?;
    let roles = match &copy.connections {
        Connections::Silent(roles) => roles.as_slice(),
        Connections::Accepted => &[],
    };
    let silent = roles
        .iter()
        .map(|role| Ok((*role, silent_connection().during(|| "a connection")?)))
        .collect::<Outcome<BTreeMap<u32, (File, File)>>>()?;
    let ended = ended_connection().during(|| "a connection")?;
    let tracee = Tracee::seize_main(pid)?;
    let main = &tracee.main_thread()?;
    let pidfd = descriptors::open_pid(pid).during(|| "pidfd")?;
    for Listener { role, address } in mem::take(&mut copy.listeners) {
        let (fd, file) = make_listener(&tracee, main, &pidfd, secret, &address)?;
        tracee.call(main, libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])?;
        copy.given.push(Given { role, file: file? });
    }
    Ok(Readied { copy, silent, ended })
}

/// A clone of a process that runs on. After an error with the code EIO its state is not known.
pub fn fork(pid: i32, area: Area, known: &Known, secret: u64, readied: Readied) -> Outcome<Forked> {
    let Readied { copy, silent, ended } = readied;
    let source = Zygote::stop_when_idle(pid, area, known, secret, IDLE_WITHIN)?;
    let mut connections = BTreeMap::new();
    let mut places = BTreeMap::new();
    for (fd, role) in source.descriptors.connections() {
        let own = silent.get(&role).map_or(&ended, |(own, _)| own);
        connections.insert(fd, own);
        let file = descriptors::file_id(own).during(|| "a connection")?;
        places.insert(role, Place { fd, file });
    }
    let cloned = source.clone_connected(&copy, &connections);
    let closed = source.close_channel();
    let (pid, numbers) = (cloned?, source.places());
    closed?;
    // it runs on from here
    drop(source);
    let others = silent.into_iter().filter_map(|(role, (_, other))| {
        let place = places.get(&role)?;
        Some((role, (*place, other)))
    });
    Ok(Forked {
        pid,
        numbers,
        silent: others.collect(),
        copy,
    })
}

impl Zygote {
    /// Stops the process for good. With an error it runs on.
    pub fn hold(pid: i32, area: Area, known: &Known, secret: u64) -> Outcome<Zygote> {
        check_shared(pid)?;
        Zygote::stop_when_idle(pid, area, known, secret, SETTLED_WITHIN)
    }

    fn stop_when_idle(pid: i32, area: Area, known: &Known, secret: u64, within: Duration) -> Outcome<Zygote> {
        let deadline = Instant::now() + within;
        let mut earlier = Vec::new();
        loop {
            match Zygote::stop(pid, area, known, secret, &mut earlier) {
                Err(error) if error.code == "EAGAIN" && Instant::now() < deadline => thread::sleep(IDLE_POLL),
                stopped => return stopped,
            }
        }
    }

    /// Of a process whose mappings were checked. `earlier` are its threads at the last attempt; after an error, at this one
    fn stop(pid: i32, area: Area, known: &Known, secret: u64, earlier: &mut Vec<Thread>) -> Outcome<Zygote> {
        let tracee = Tracee::seize(pid, area.gadget)?;
        // the script has the secret, so it must not run in other code than ours
        let mut found = vec![0; script::stub().len()];
        if tracee.read(area.code(), &mut found).is_err() || found != script::stub() {
            return Err(Error::new("refused", "the process has changed the code of the warden"));
        }
        let mut threads = tracee.threads()?;
        for thread in &mut threads {
            thread.waits_since(earlier);
        }
        if let Err(error) = check_threads(&threads) {
            *earlier = threads;
            return Err(error);
        }
        let tid_offset = find_tid(&tracee, &threads)?;
        let pidfd = descriptors::open_pid(pid).during(|| "pidfd")?;
        let main = &threads[0];
        let (channel, channel_fd) = passing::make_channel(&tracee, main, &pidfd, area.data(), secret)?;
        match Descriptors::of(pid, &pidfd, known, channel_fd) {
            Ok(descriptors) => Ok(Zygote {
                tracee,
                descriptors,
                pidfd,
                channel,
                channel_fd,
                area,
                tid_offset,
                secret,
                threads,
            }),
            Err(error) => {
                let _ = tracee.call(main, libc::SYS_close, [channel_fd as u64, 0, 0, 0, 0, 0]);
                *earlier = threads;
                Err(error)
            }
        }
    }

    /// Its clones count among its own threads, of which it may have more from now on.
    pub fn expect_clones(&self) -> Outcome<()> {
        let at = self.area.data();
        let limits = |new: u64, old: u64| {
            let arguments = [0, libc::RLIMIT_NPROC as u64, new, old, 0, 0];
            self.tracee.call(&self.threads[0], libc::SYS_prlimit64, arguments)
        };
        limits(0, at)?;
        let most = self.tracee.read_u64(at + 8)?;
        self.tracee.write(at, &most.to_le_bytes())?;
        limits(at, 0).map(|_| ())
    }

    fn close_channel(&self) -> Outcome<()> {
        self.close(self.channel_fd)
    }

    fn close(&self, fd: RawFd) -> Outcome<()> {
        let arguments = [fd as u64, 0, 0, 0, 0, 0];
        self.tracee
            .call(&self.threads[0], libc::SYS_close, arguments)
            .map(|_| ())
    }

    #[cfg(test)]
    pub fn pid(&self) -> i32 {
        self.tracee.pid
    }

    /// The numbers at which it has what it was given, for what has one number only
    pub fn places(&self) -> BTreeMap<u32, RawFd> {
        self.descriptors.places()
    }

    /// More than one
    pub fn has_threads(&self) -> bool {
        self.threads.len() > 1
    }

    /// The pid of a new process. After an error the zygote must not be used again.
    pub fn clone(&self, copy: &Copy) -> Outcome<i32> {
        self.clone_connected(copy, &BTreeMap::new())
    }

    /// `connections` are what the clone has in the places of connections; others are accepted.
    fn clone_connected(&self, copy: &Copy, connections: &BTreeMap<RawFd, &File>) -> Outcome<i32> {
        let roles = self.descriptors.roles();
        let given = copy.given.iter().map(|one| one.role);
        let has: BTreeSet<u32> = given.chain(copy.listeners.iter().map(|one| one.role)).collect();
        if let Some(missing) = roles.difference(&has).next() {
            return Err(Error::new(
                "EINVAL",
                format!("the clone needs a file {missing} of its own"),
            ));
        }
        let sockets = self.make_listeners(&copy.listeners)?;
        self.clone_with(copy, &sockets, connections).map_err(|error| {
            // some may be closed already
            for (_, fd) in &sockets {
                let _ = self.close(*fd);
            }
            error
        })
    }

    fn clone_with(&self, copy: &Copy, sockets: &[(u32, RawFd)], connections: &BTreeMap<RawFd, &File>) -> Outcome<i32> {
        let mut free = self
            .descriptors
            .free()
            .filter(|fd| !sockets.iter().any(|(_, one)| one == fd));
        let proc = match copy.confined {
            true => Some(proc_folder().during(|| "/proc")?),
            false => None,
        };
        let files: Vec<&File> = copy
            .given
            .iter()
            .map(|one| &one.file)
            .chain(connections.values().copied())
            .chain(&proc)
            .chain(&copy.group)
            .collect();
        let received: Vec<RawFd> = free.by_ref().take(files.len()).collect();
        let mut given: Vec<(u32, RawFd)> = copy
            .given
            .iter()
            .map(|one| one.role)
            .zip(received.iter().copied())
            .collect();
        let mut others = received.iter().copied().skip(given.len());
        given.extend(sockets.iter().copied());
        let mut instead = BTreeMap::new();
        for (fd, _) in self.descriptors.connections() {
            let new = connections.get(&fd).and_then(|_| others.next());
            instead.insert(fd, new.map_or(Instead::Accepted, Instead::Given));
        }
        let extra = Extra {
            connections: instead,
            proc: proc.as_ref().and_then(|_| others.next()),
            group: copy.group.as_ref().and_then(|_| others.next()),
        };
        let pidfd = free.next().unwrap_or(-1);
        drop(free);

        let mut layout = Layout::new(self.area.data());
        let (sp, child) = self.child_table(&mut layout, &given, &extra, copy)?;
        let mut table = Table::default();
        let message = passing::message(&mut layout, files.len()).0;
        if !files.is_empty() {
            table.call(libc::SYS_recvmsg, &[self.channel_fd as u64, message, 0]);
        }
        let pidfd_at = layout.words(&[0]);
        let arguments = self.clone_arguments(&mut layout, sp, pidfd_at, extra.group, copy);
        let size = mem::size_of::<libc::clone_args>() as u64;
        let split_at = table.len();
        table.split(libc::SYS_clone3, &[arguments, size, 0, 0, 0, self.secret], child);
        table.trap();
        let rest = table.len();
        for fd in given.iter().map(|(_, fd)| *fd).chain(extra.all()).chain([pidfd]) {
            table.try_call(libc::SYS_close, &[fd as u64]);
        }
        table.trap();

        if layout.bytes().len() as u64 > self.area.bytes - 2 * PAGE as u64 || table.len() > PAGE {
            return Err(Error::new("E2BIG", "the process has too many threads or descriptors"));
        }
        if !files.is_empty() {
            passing::send(&self.channel, &files).during(|| "passing descriptors")?;
        }
        self.tracee.write(self.area.data(), layout.bytes())?;
        self.tracee.write(self.area.table(), &table.bytes())?;
        let cloned = self.run(self.area.table(), rest - 80).and_then(|()| {
            let result = self.tracee.read_u64(self.area.table() + Table::result_of(split_at))?;
            let number = self.tracee.read_u32(pidfd_at)? as RawFd;
            if result as i64 <= 0 || number != pidfd {
                return Err(Error::new("EIO", "the clone is not where it is expected"));
            }
            descriptors::take(&self.pidfd, pidfd)
                .during(|| "pidfd of the clone")
                .and_then(|file| descriptors::pid_of(&file))
        });
        let closed = self.run(self.area.table() + rest as u64, table.len() - 80 - rest);
        // the secret stays in no memory
        self.tracee.write(self.area.table(), &vec![0; PAGE])?;
        let pid = cloned?;
        closed?;
        Ok(pid)
    }

    /// Runs a table to its end, which is at an offset from its start.
    fn run(&self, table: u64, end: usize) -> Outcome<()> {
        let after = self.tracee.run(&self.threads[0], self.area.code(), table)?;
        if after.rbx == table + end as u64 {
            return Ok(());
        }
        let number = self.tracee.read_u64(after.rbx)? as i32;
        let result = self.tracee.read_u64(after.rbx + Table::result_of(0))? as i64;
        let error = io::Error::from_raw_os_error(-result as i32);
        Err(Error::io(
            &error,
            format!("{} in the zygote", crate::calls::name_of(number)),
        ))
    }

    /// Sockets of the process's own network namespace, bound at paths that it does not see
    fn make_listeners(&self, listeners: &[Listener]) -> Outcome<Vec<(u32, RawFd)>> {
        let mut made = Vec::new();
        let mut make = || {
            for Listener { role, address } in listeners {
                let (fd, socket) = make_listener(&self.tracee, &self.threads[0], &self.pidfd, self.secret, address)?;
                made.push((*role, fd));
                socket?;
            }
            Ok(())
        };
        let done = make();
        if done.is_err() {
            for (_, fd) in &made {
                self.close(*fd)?;
            }
        }
        done.map(|()| made)
    }

    /// The stack pointer and the table with which the main thread of the clone begins
    fn child_table(
        &self,
        layout: &mut Layout,
        given: &[(u32, RawFd)],
        extra: &Extra,
        copy: &Copy,
    ) -> Outcome<(u64, u64)> {
        let mut table = Table::default();
        // first: it may wait for a connection
        table.call(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64]);
        if let Some(proc) = extra.proc {
            let used: Vec<RawFd> = given.iter().map(|(_, fd)| *fd).chain(extra.all()).collect();
            let free = self.descriptors.free().find(|fd| !used.contains(fd)).unwrap_or(-1);
            map_user(&mut table, layout, proc, free);
        }
        let unneeded: Vec<RawFd> = extra.proc.into_iter().chain(extra.group).collect();
        self.descriptors
            .replace(&mut table, layout, given, &extra.connections, &unneeded);
        if copy.confined {
            let header = layout.words(&[CAPABILITY_VERSION]);
            let none = layout.words(&[0; 3]);
            table.call(libc::SYS_capset, &[header, none]);
        }
        if let Some(threads) = copy.threads {
            let limit = layout.words(&[threads, threads]);
            table.try_call(libc::SYS_prlimit64, &[0, libc::RLIMIT_NPROC as u64, limit, 0]);
        }
        let (main, others) = self
            .threads
            .split_first()
            .ok_or_else(|| Error::new("EIO", "no threads"))?;
        let (head, length) = main.robust_list;
        if head != 0 {
            table.call(libc::SYS_set_robust_list, &[head, length]);
        }
        for thread in others {
            let (sp, child) = thread_table(layout, thread)?;
            let tid = thread.registers.fs_base + self.tid_offset;
            let arguments = [THREAD_FLAGS as u64, sp, tid, tid, thread.registers.fs_base];
            table.split(libc::SYS_clone, &arguments, child);
        }
        table.call(libc::SYS_rt_sigreturn, &[]);
        let sp = frame_of(layout, main)?;
        let at = layout.put(&table.bytes(), 16);
        Ok((sp, at))
    }

    fn clone_arguments(&self, layout: &mut Layout, sp: u64, pidfd: u64, group: Option<RawFd>, copy: &Copy) -> u64 {
        let main = &self.threads[0];
        let common = libc::CLONE_PARENT
            | libc::CLONE_CHILD_SETTID
            | libc::CLONE_CHILD_CLEARTID
            | libc::CLONE_UNTRACED
            | libc::CLONE_PIDFD;
        let mut flags = common as u64;
        if copy.confined {
            flags |= NAMESPACES;
        }
        if group.is_some() {
            flags |= libc::CLONE_INTO_CGROUP as u64;
        }
        // the stack of clone3 is a range, of which only the end matters here
        let (stack, stack_bytes) = (sp - 64, 64);
        let tid = main.registers.fs_base + self.tid_offset;
        let group = group.map_or(0, |fd| fd as u64);
        layout.words(&[flags, pidfd, tid, 0, 0, stack, stack_bytes, 0, 0, 0, group])
    }
}

/// Maps the user in a new user namespace to the same one outside, where it is the only one: a clone whose user has no number
/// could have no clones with a user namespace of their own. `free` is the number that the next file gets.
fn map_user(table: &mut Table, layout: &mut Layout, proc: RawFd, free: RawFd) {
    let ids = format!("{INSIDE_ID} {INSIDE_ID} 1\n");
    let files: [(&[u8], &str); 3] = [
        // without this it may not map a group
        (b"self/setgroups\0", "deny"),
        (b"self/uid_map\0", &ids),
        (b"self/gid_map\0", &ids),
    ];
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as u64;
    for (path, text) in files {
        let at = layout.put(path, 1);
        // a host may forbid it: then only clones of the clone cannot be made
        table.try_call(libc::SYS_openat, &[proc as u64, at, flags, 0]);
        let at = layout.put(text.as_bytes(), 1);
        table.try_call(libc::SYS_write, &[free as u64, at, text.len() as u64]);
        table.try_call(libc::SYS_close, &[free as u64]);
    }
}

fn proc_folder() -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
    options.open("/proc")
}

/// One end of a connection whose other end is gone: who reads from it finds its end
fn ended_connection() -> io::Result<File> {
    let (one, _) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    // SAFETY: the descriptor has no other owner.
    Ok(unsafe { File::from_raw_fd(one.into_raw_fd()) })
}

/// A connection on which nothing comes and nothing goes: the other end sends and reads nothing, and what can be sent to it has
/// been sent. A process that waits until it can send continues to wait.
fn silent_connection() -> io::Result<(File, File)> {
    let (mut own, other) = UnixStream::pair()?;
    own.set_nonblocking(true)?;
    let room: c_int = 1;
    // SAFETY: the kernel reads one int.
    unsafe {
        let length = mem::size_of::<c_int>() as libc::socklen_t;
        let value = (&room as *const c_int).cast();
        libc::setsockopt(own.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, value, length);
    }
    loop {
        match own.write(&[0; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    // SAFETY: the descriptors have no other owners.
    unsafe {
        Ok((
            File::from_raw_fd(own.into_raw_fd()),
            File::from_raw_fd(other.into_raw_fd()),
        ))
    }
}

fn frame_of(layout: &mut Layout, thread: &Thread) -> Outcome<u64> {
    script::signal_frame(layout, thread).ok_or_else(|| Error::new("refused", "a thread uses the processor's tiles"))
}

fn thread_table(layout: &mut Layout, thread: &Thread) -> Outcome<(u64, u64)> {
    let sp = frame_of(layout, thread)?;
    let mut table = Table::default();
    let (head, length) = thread.robust_list;
    if head != 0 {
        table.call(libc::SYS_set_robust_list, &[head, length]);
    }
    if let Some(rseq) = thread.rseq {
        let arguments = [
            rseq.address,
            rseq.length.into(),
            rseq.flags.into(),
            rseq.signature.into(),
        ];
        table.call(libc::SYS_rseq, &arguments);
    }
    let mut name = thread.name.clone();
    name.truncate(name.len().saturating_sub(1));
    name.push(0);
    let name = layout.put(&name, 16);
    table.try_call(libc::SYS_prctl, &[libc::PR_SET_NAME as u64, name]);
    table.call(libc::SYS_rt_sigreturn, &[]);
    let at = layout.put(&table.bytes(), 16);
    Ok((sp, at))
}

/// Each thread waits in a call that it can make again; others are between two steps of which only one would be copied.
fn check_threads(threads: &[Thread]) -> Outcome<()> {
    let names = tracee::names(threads);
    for thread in threads {
        let registers = &thread.registers;
        if waits_for_mutex(thread.call, registers.rsi, registers.rdx) {
            return Err(Error::new(
                "EAGAIN",
                format!("thread {} waits for a mutex", names[&thread.tid]),
            ));
        }
        // A thread between two calls, or in one that does not wait (a read of what is there, a futex wake), may hold a
        // recursive mutex. Its owner is the thread's number, which is another one in the clone: QEMU could not unlock it, and
        // would abort.
        if !thread.is_blocked || !thread.call.map_or(false, |call| WAITS.contains(&call)) {
            let what = thread
                .call
                .map_or_else(|| "its own code".to_string(), |call| crate::calls::name_of(call as i32));
            // it may wait a moment later
            return Err(Error::new(
                "EAGAIN",
                format!("thread {} is in {what}", names[&thread.tid]),
            ));
        }
    }
    Ok(())
}

/// Whether a thread is in the C library's wait for a mutex, by the arguments of the call: another thread holds the mutex, even
/// if that one is blocked. Waits for conditions have another operation (FUTEX_WAIT_BITSET), those for QEMU's events another
/// value and no private flag. So it is in glibc 2.36 and 2.41; musl waits for conditions with these arguments, too, so a QEMU
/// with musl is refused.
fn waits_for_mutex(call: Option<i64>, operation: u64, value: u64) -> bool {
    const CONTENDED: u64 = 2;
    let wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    // the kernel and the library use the lower half of both registers
    call == Some(libc::SYS_futex) && operation & 0xffff_ffff == wait && value & 0xffff_ffff == CONTENDED
}

/// The offset from a thread's own data at which each has its number
fn find_tid(tracee: &Tracee, threads: &[Thread]) -> Outcome<u64> {
    let mut candidates: Vec<u64> = (0..SEARCHED / 4).map(|at| at * 4).collect();
    for thread in threads {
        let mut bytes = vec![0; SEARCHED as usize];
        tracee.read(thread.registers.fs_base, &mut bytes)?;
        let number = thread.inner_tid.to_le_bytes();
        candidates.retain(|at| bytes[*at as usize..*at as usize + 4] == number);
    }
    match candidates.as_slice() {
        [one] => Ok(*one),
        _ => Err(Error::new(
            "refused",
            "the C library keeps the numbers of threads at an unknown place",
        )),
    }
}

#[derive(Debug, Default)]
struct Mappings {
    /// Start and length of what the process has asked not to be copied
    not_copied: Vec<(u64, u64)>,
    /// And of what has huge pages: where a clone writes for the first time, it would get 2 MiB for some bytes
    huge: Vec<(u64, u64)>,
}

impl Mappings {
    fn of(pid: i32) -> Outcome<Mappings> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps")).during(|| "mappings of the process")?;
        Mappings::parse(&text)
    }

    fn parse(text: &str) -> Outcome<Mappings> {
        let mut found = Mappings::default();
        let mut current = None;
        for line in text.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags:") {
                let (start, length, name) = current
                    .take()
                    .ok_or_else(|| Error::new("EIO", "mappings of the process"))?;
                let has = |flag: &str| flags.split_whitespace().any(|one| one == flag);
                if has("sh") && has("mw") {
                    return Err(Error::new(
                        "refused",
                        format!("mapping {name} is shared and can be written"),
                    ));
                }
                if has("dc") && has("io") {
                    return Err(Error::new("refused", format!("mapping {name} belongs to a device")));
                }
                if has("dc") {
                    found.not_copied.push((start, length));
                }
                if has("hg") {
                    found.huge.push((start, length));
                }
            } else if let Some(area) = parse_area(line) {
                current = Some(area);
            }
        }
        Ok(found)
    }
}

/// Memory that both would write; maps, unlike smaps, costs little where the process has many pages
fn check_shared(pid: i32) -> Outcome<()> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).during(|| "mappings of the process")?;
    match shared_mapping(&text) {
        Some(name) => Err(Error::new(
            "refused",
            format!("mapping {name} is shared and can be written"),
        )),
        None => Ok(()),
    }
}

fn shared_mapping(maps: &str) -> Option<&str> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let permissions = words.nth(1)?;
        let is_shared = permissions.contains('w') && permissions.ends_with('s');
        is_shared.then(|| words.nth(3).unwrap_or("without a name"))
    })
}

/// `start-end perms offset device inode name` of smaps; its other lines begin with a word and a colon
fn parse_area(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    Some((start, end - start, words.nth(4).unwrap_or("without a name")))
}

/// Code that can be executed and not be written, a table that no clone gets, and data
fn make_area(tracee: &Tracee, main: &Thread, bytes: u64) -> Outcome<Area> {
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let readable = libc::PROT_READ as u64;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let nothing = u64::MAX;
    let base = tracee.call(main, libc::SYS_mmap, [0, bytes, writable, anonymous, nothing, 0])?;
    let area = Area {
        base,
        bytes,
        gadget: tracee.gadget(),
    };
    let page = PAGE as u64;
    let executable = readable | libc::PROT_EXEC as u64;
    let protected = tracee.call(main, libc::SYS_mprotect, [area.code(), page, executable, 0, 0, 0]);
    let wiped = protected.and_then(|_| {
        let advice = libc::MADV_WIPEONFORK as u64;
        tracee.call(main, libc::SYS_madvise, [area.table(), page, advice, 0, 0, 0])
    });
    // the warden may write where the process may not
    match wiped.and_then(|_| tracee.write(area.code(), script::stub())) {
        Ok(()) => Ok(area),
        Err(error) => {
            let _ = tracee.call(main, libc::SYS_munmap, [base, bytes, 0, 0, 0, 0]);
            Err(error)
        }
    }
}

/// A socket of the process's own network namespace: its number there, and the socket itself unless it cannot listen
fn make_listener(
    tracee: &Tracee,
    main: &Thread,
    pidfd: &File,
    secret: u64,
    address: &libc::sockaddr_un,
) -> Outcome<(RawFd, Outcome<File>)> {
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
    let fd = tracee.call(main, libc::SYS_socket, [libc::AF_UNIX as u64, kind, 0, 0, 0, secret])? as RawFd;
    let taken = descriptors::take(pidfd, fd).during(|| "a new socket");
    let listening = taken.and_then(|socket| listen(&socket, address).during(|| "listening").map(|()| socket));
    Ok((fd, listening))
}

fn listen(socket: &File, address: &libc::sockaddr_un) -> io::Result<()> {
    let length = mem::size_of::<libc::sockaddr_un>() as libc::socklen_t;
    let at = (address as *const libc::sockaddr_un).cast();
    // SAFETY: the kernel reads one address.
    let result = unsafe {
        match libc::bind(socket.as_raw_fd(), at, length) {
            0 => libc::listen(socket.as_raw_fd(), crate::fds::BACKLOG),
            failed => failed,
        }
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::Own;
    use crate::sys::{self, patience};
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{mpsc, Arc};

    const LISTENER: u32 = 3;
    const WRITTEN: u32 = 6;
    const KILLED: u64 = 25;
    const UNKNOWN: &str = "FORKD_TEST_UNKNOWN";
    const MUTEX: &str = "FORKD_TEST_MUTEX";
    const POLLS: &str = "FORKD_TEST_POLLS";
    const POLLING: u32 = 200;
    const VICTIM: &str = "FORKD_TEST_VICTIM";

    /// Not a test: the process that others clone. A thread that waits for an event counter adds what it reads, a second one
    /// waits for messages; the main thread of the program serves a socket.
    #[test]
    #[ignore = "it is a program that the tests start"]
    fn victim() {
        if std::env::var_os(VICTIM).is_none() {
            return;
        }
        // SAFETY: descriptors that the starter has placed there, and a new one.
        let (listener, event) = unsafe {
            let event = File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC));
            (UnixListener::from_raw_fd(LISTENER as RawFd), event)
        };
        if std::env::var_os(UNKNOWN).is_some() {
            mem::forget(std::os::unix::net::UnixDatagram::unbound().unwrap());
        }
        if std::env::var_os(MUTEX).is_some() {
            static mut HELD: libc::pthread_mutex_t = libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
            // SAFETY: a mutex that lives as long as the process.
            let lock = || unsafe { libc::pthread_mutex_lock(std::ptr::addr_of_mut!(HELD)) };
            lock();
            thread::spawn(lock);
        }
        if std::env::var_os(POLLS).is_some() {
            // SAFETY: as above.
            let empty = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) };
            thread::spawn(move || loop {
                // fails at once: there is nothing to read
                let _ = (&empty).read_exact(&mut [0; 8]);
            });
        }
        let sum = Arc::new(AtomicU64::new(0));
        let reader = (Arc::clone(&sum), event.try_clone().unwrap());
        thread::spawn(move || loop {
            let mut count = [0; 8];
            (&reader.1).read_exact(&mut count).unwrap();
            reader.0.fetch_add(u64::from_ne_bytes(count), Ordering::SeqCst);
        });
        let (questions, inbox) = mpsc::channel::<mpsc::Sender<String>>();
        let own = 0.1f64 * f64::from(std::process::id() as i32 % 2 + 1);
        thread::Builder::new()
            .name("answers".into())
            .spawn(move || {
                let mut asked = 0u64;
                for answer in inbox {
                    asked += 1;
                    let name = thread::current().name().unwrap_or("").to_string();
                    // a number that stays in a register of the vector unit from before the clone
                    answer.send(format!("{name} {asked} {}", own > 0.0)).unwrap();
                }
            })
            .unwrap();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut word = [0; 4];
            while client.read_exact(&mut word).is_ok() {
                let before = sum.load(Ordering::SeqCst);
                (&event).write_all(&u64::from(word[0]).to_ne_bytes()).unwrap();
                while sum.load(Ordering::SeqCst) == before {
                    thread::yield_now();
                }
                let (send, receive) = mpsc::channel();
                questions.send(send).unwrap();
                let told = receive.recv().unwrap();
                println!("asked");
                let line = format!("{} {told} {}\n", sum.load(Ordering::SeqCst), std::process::id());
                client.write_all(line.as_bytes()).unwrap();
            }
        }
    }

    /// Descriptors from here on are used by no test.
    const HIGH: RawFd = 200;

    struct Victim {
        child: Child,
        folder: PathBuf,
        own: Own,
    }

    impl Victim {
        fn start(name: &str, variables: &[&str]) -> Victim {
            let folder = std::env::temp_dir().join(format!("forkd-zygote-{name}-{}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            let socket = folder.join("socket");
            let listener = UnixListener::bind(&socket).unwrap();
            let log = crate::fds::Source::log(&folder.join("log")).unwrap();
            let written = File::create(folder.join("written")).unwrap();
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--ignored", "--exact", "--nocapture", "zygote::tests::victim"])
                .env(VICTIM, "1")
                .envs(variables.iter().map(|name| (name, "1")))
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log);
            // SAFETY: system calls between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    // high numbers first: one of the two may have the number that the other gets
                    let written = libc::fcntl(written.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH);
                    let listener = libc::fcntl(listener.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH);
                    libc::dup2(written, WRITTEN as RawFd);
                    libc::dup2(listener, LISTENER as RawFd);
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    // closed on exec only: the starter learns through one of them whether that failed
                    let others = WRITTEN + 1;
                    libc::syscall(libc::SYS_close_range, others, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
                    Ok(())
                });
            }
            let child = command.spawn().unwrap();
            let own = Own {
                log: folder.join("log"),
                listeners: vec![(LISTENER, socket.clone())],
                written: vec![(WRITTEN, folder.join("written"))],
            };
            let victim = Victim { child, folder, own };
            assert_eq!(victim.ask("socket", 1).0, 1);
            victim
        }

        /// The sum that it knows, how often it was asked, and its pid
        fn ask(&self, socket: &str, add: u8) -> (u64, u64, i32) {
            let deadline = Instant::now() + patience();
            let mut stream = loop {
                match UnixStream::connect(self.folder.join(socket)) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(Instant::now() < deadline, "{error}"),
                }
                thread::sleep(Duration::from_millis(5));
            };
            stream.set_read_timeout(Some(patience())).unwrap();
            stream.write_all(&[add, 0, 0, 0]).unwrap();
            let mut line = String::new();
            let mut byte = [0];
            while !line.ends_with('\n') {
                stream.read_exact(&mut byte).unwrap();
                line.push(byte[0] as char);
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!((words[1], words[3]), ("answers", "true"), "{line}");
            (
                words[0].parse().unwrap(),
                words[2].parse().unwrap(),
                words[4].parse().unwrap(),
            )
        }

        /// Again while a thread is on its way into a call
        fn hold(&self) -> Outcome<Zygote> {
            let pid = self.child.id() as i32;
            let area = prepare(pid)?;
            let deadline = Instant::now() + patience();
            loop {
                match Zygote::hold(pid, area, &self.known(false), 0) {
                    Err(error) if error.code == "EAGAIN" && Instant::now() < deadline => {
                        thread::sleep(Duration::from_millis(1));
                    }
                    held => return held,
                }
            }
        }

        fn known(&self, is_connected: bool) -> Known<'_> {
            static NOWHERE: BTreeMap<u32, Place> = BTreeMap::new();
            Known {
                own: &self.own,
                places: &NOWHERE,
                silent: &NOWHERE,
                is_connected,
            }
        }

        fn copy(&self, name: &str) -> Copy {
            let given = |role: u32, file: File| Given { role, file };
            let path = std::ffi::CString::new(format!("{}/{name}", self.folder.display())).unwrap();
            Copy {
                given: vec![
                    given(
                        1,
                        crate::fds::Source::log(&self.folder.join(format!("{name}.log"))).unwrap(),
                    ),
                    given(
                        WRITTEN,
                        File::create(self.folder.join(format!("{name}.written"))).unwrap(),
                    ),
                ],
                listeners: vec![Listener {
                    role: LISTENER,
                    address: crate::fds::address_of(&path).unwrap(),
                }],
                group: None,
                confined: false,
                threads: None,
                connections: Connections::Accepted,
            }
        }
    }

    impl Drop for Victim {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    fn end(pid: i32) {
        // SAFETY: a clone is a child of this process.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL), pid);
        }
    }

    #[test]
    fn clones_run_on_with_threads_memory_and_descriptors_of_their_own() {
        let victim = Victim::start("clones", &[]);
        assert_eq!(victim.ask("socket", 4).0, 5);
        let zygote = victim.hold().unwrap();
        let pids: Vec<i32> = (0..3)
            .map(|index| zygote.clone(&victim.copy(&format!("clone-{index}"))).unwrap())
            .collect();
        for (index, pid) in pids.iter().enumerate() {
            let name = format!("clone-{index}");
            let add = index as u8 + 1;
            assert_eq!(victim.ask(&name, add), (5 + u64::from(add), 3, *pid));
            assert_eq!(victim.ask(&name, 1), (6 + u64::from(add), 4, *pid));
            assert_eq!(
                fs::read_to_string(victim.folder.join(format!("{name}.log"))).unwrap(),
                "asked\nasked\n"
            );
            assert_eq!(tracee::tasks_of(*pid).unwrap().len(), zygote.threads.len());
            let table = format!("/proc/{pid}/mem");
            let mut bytes = vec![1; PAGE];
            use std::os::unix::fs::FileExt;
            File::open(table)
                .unwrap()
                .read_exact_at(&mut bytes, zygote.area.table())
                .unwrap();
            assert!(
                bytes.iter().all(|byte| *byte == 0),
                "a clone sees the table of the zygote"
            );
            let count = |pid: i32| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
            let deadline = Instant::now() + patience();
            // all but the channel; the last connection closes a moment later
            while count(*pid) != count(zygote.pid()) - 1 {
                assert!(Instant::now() < deadline, "{} descriptors", count(*pid));
                thread::sleep(Duration::from_millis(5));
            }
            let code = format!("{:x}-{:x} r-xp", zygote.area.base, zygote.area.base + PAGE as u64);
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
            assert!(maps.contains(&code) && !maps.contains(" rwxp "), "{maps}");
        }
        for pid in pids {
            end(pid);
        }
        drop(zygote);
        assert_eq!(victim.ask("socket", 1).0, 6, "a zygote that is let go runs on");
    }

    #[test]
    fn a_process_that_has_changed_the_code_is_not_forked() {
        let victim = Victim::start("code", &[]);
        let pid = victim.child.id() as i32;
        let area = prepare(pid).unwrap();
        let known = victim.known(false);
        let readied = ready(pid, 0, victim.copy("changed")).unwrap();
        let overwrite = |at: u64, bytes: &[u8]| Tracee::seize_main(pid).unwrap().write(at, bytes).unwrap();
        overwrite(area.code(), &[0x90]);
        let refused = |readied| match fork(pid, area, &known, 0, readied) {
            Err(error) => error.code,
            Ok(_) => panic!("it was forked"),
        };
        assert_eq!(refused(readied), "refused");
        overwrite(area.code(), script::stub());
        let readied = ready(pid, 0, victim.copy("gadget")).unwrap();
        overwrite(area.gadget, &[0x90, 0x90]);
        assert_eq!(refused(readied), "refused");
        overwrite(area.gadget, &[0x0f, 0x05]);
        assert_eq!(victim.ask("socket", 1).0, 2);
    }

    #[test]
    fn a_running_process_is_forked_with_its_connections_and_runs_on() {
        let victim = Victim::start("forked", &[]);
        let pid = victim.child.id() as i32;
        let area = prepare(pid).unwrap();
        let mut client = UnixStream::connect(victim.folder.join("socket")).unwrap();
        client.set_read_timeout(Some(patience())).unwrap();
        let mut ask = |add: u8| {
            client.write_all(&[add, 0, 0, 0]).unwrap();
            let mut line = String::new();
            let mut byte = [0];
            while !line.ends_with('\n') {
                client.read_exact(&mut byte).unwrap();
                line.push(byte[0] as char);
            }
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(ask(4), 5);
        let count = |pid: i32| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let open = count(pid);
        let copies: Vec<i32> = (0..3u8)
            .map(|index| {
                let copy = victim.copy(&format!("fork-{index}"));
                let known = victim.known(true);
                let forked = fork(pid, area, &known, 0, ready(pid, 0, copy).unwrap()).unwrap();
                assert_eq!(forked.numbers[&WRITTEN], WRITTEN as RawFd);
                assert_eq!(ask(1), 6 + u64::from(index), "the source runs on, with its connection");
                forked.pid
            })
            .collect();
        assert_eq!(count(pid), open, "it keeps no descriptor");
        for (index, copy) in copies.iter().enumerate() {
            // it was copied before the source was asked again, and serves its own socket
            let sum = 5 + index as u64;
            assert_eq!(victim.ask(&format!("fork-{index}"), 2).0, sum + 2);
            assert_eq!(victim.ask(&format!("fork-{index}"), 1).2, *copy);
            end(*copy);
        }
        assert_eq!(ask(1), 9);
        let readied = ready(pid, 0, victim.copy("busy")).unwrap();
        assert_eq!(count(pid), open, "it keeps no descriptor of what is made for it");
        let error = fork(pid, area, &victim.known(false), 0, readied).err().unwrap();
        assert_eq!(error.code, "EAGAIN", "{}", error.message);
        assert_eq!(ask(1), 10, "it runs on after a refusal");
    }

    #[test]
    fn a_copy_keeps_a_connection_that_its_clones_accept_anew() {
        let victim = Victim::start("silent", &[]);
        let pid = victim.child.id() as i32;
        let area = prepare(pid).unwrap();
        let mut client = UnixStream::connect(victim.folder.join("socket")).unwrap();
        client.write_all(&[2, 0, 0, 0]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let copy = Copy {
            connections: Connections::Silent(vec![LISTENER]),
            ..victim.copy("copy")
        };
        let readied = ready(pid, 0, copy).unwrap();
        let Forked { pid: copy, silent, .. } = fork(pid, area, &victim.known(true), 0, readied).unwrap();
        let own = Own {
            log: victim.folder.join("copy.log"),
            listeners: vec![(LISTENER, victim.folder.join("copy"))],
            written: vec![(WRITTEN, victim.folder.join("copy.written"))],
        };
        let places: BTreeMap<u32, Place> = silent.iter().map(|(role, (place, _))| (*role, *place)).collect();
        let known = Known {
            own: &own,
            places: &BTreeMap::new(),
            silent: &places,
            is_connected: false,
        };
        let deadline = Instant::now() + patience();
        let zygote = loop {
            match Zygote::hold(copy, area, &known, 0) {
                Err(error) if error.code == "EAGAIN" && Instant::now() < deadline => thread::sleep(IDLE_POLL),
                held => break held.unwrap(),
            }
        };
        for index in 0..2 {
            let name = format!("clone-{index}");
            let clone = zygote.clone(&victim.copy(&name)).unwrap();
            // in its place of the connection, without the socket being asked for another
            assert_eq!(victim.ask(&name, 1), (4, 3, clone));
            end(clone);
        }
        drop(zygote);
        end(copy);
    }

    #[test]
    fn a_process_that_is_killed_in_an_injected_call_is_left_to_be_reaped() {
        let victim = Victim::start("killed", &[]);
        let zygote = victim.hold().unwrap();
        assert!(zygote.has_threads());
        let pid = zygote.pid();
        let killer = thread::spawn(move || {
            // the main thread has left its stop and waits in the call
            while !fs::read_to_string(format!("/proc/{pid}/stat"))
                .unwrap()
                .contains(") S ")
            {
                thread::sleep(IDLE_POLL);
            }
            sys::send_signal(pid, libc::SIGKILL).unwrap();
        });
        let error = zygote
            .tracee
            .call(&zygote.threads[0], libc::SYS_pause, [0; 6])
            .err()
            .unwrap();
        killer.join().unwrap();
        assert_eq!(error.code, "ESRCH");
        drop(zygote);
        let mut status = 0;
        // SAFETY: writes one int.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, libc::__WALL) }, pid);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
    }

    #[test]
    fn a_process_that_is_killed_while_it_is_stopped_is_left_to_be_reaped() {
        for round in 0..KILLED {
            let victim = Victim::start(&format!("stopped-{round}"), &[]);
            let pid = victim.child.id() as i32;
            let area = prepare(pid).unwrap();
            let killer = thread::spawn(move || {
                thread::sleep(Duration::from_micros(20 * round));
                sys::send_signal(pid, libc::SIGKILL).unwrap();
            });
            // killed before, while or after it is stopped
            let held = Zygote::hold(pid, area, &victim.known(false), 0);
            killer.join().unwrap();
            drop(held);
            let mut status = 0;
            loop {
                // threads first, as in the warden's main loop
                // SAFETY: writes one int.
                let ended = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
                assert!(ended > 0, "round {round}: nothing is left to be reaped");
                if ended == pid && !libc::WIFSTOPPED(status) {
                    break;
                }
            }
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
        }
    }

    #[test]
    fn a_thread_that_waits_for_a_mutex_is_not_copied() {
        let victim = Victim::start("mutex", &[MUTEX]);
        let pid = victim.child.id() as i32;
        let area = prepare(pid).unwrap();
        let deadline = Instant::now() + patience();
        loop {
            let error = Zygote::hold(pid, area, &victim.known(false), 0).err().unwrap();
            assert_eq!(error.code, "EAGAIN", "{}", error.message);
            // another thread may not wait yet
            if error.message.contains("waits for a mutex") {
                return;
            }
            assert!(Instant::now() < deadline, "{}", error.message);
        }
    }

    #[test]
    fn a_thread_in_a_call_that_does_not_wait_is_not_copied() {
        let victim = Victim::start("polls", &[POLLS]);
        let pid = victim.child.id() as i32;
        let area = prepare(pid).unwrap();
        for _ in 0..POLLING {
            let stopped = Zygote::stop(pid, area, &victim.known(false), 0, &mut Vec::new());
            let error = stopped.err().unwrap();
            assert_eq!(error.code, "EAGAIN", "{}", error.message);
        }
    }

    #[test]
    fn a_thread_that_has_not_run_since_it_waited_still_waits() {
        let victim = Victim::start("still", &[]);
        let zygote = victim.hold().unwrap();
        // their registers as at a second stop: the calls in which they waited are about to be made again
        let mut threads = zygote.tracee.threads().unwrap();
        assert_eq!(check_threads(&threads).err().unwrap().code, "EAGAIN");
        for thread in &mut threads {
            thread.waits_since(&zygote.threads);
        }
        check_threads(&threads).unwrap();
        // one that has run meanwhile
        threads[0].call = None;
        threads[0].registers.rbx ^= 1;
        threads[0].waits_since(&zygote.threads);
        assert_eq!(check_threads(&threads).err().unwrap().code, "EAGAIN");
    }

    #[test]
    fn nothing_can_be_sent_on_a_silent_connection() {
        let (own, _other) = silent_connection().unwrap();
        let mut poll = libc::pollfd {
            fd: own.as_raw_fd(),
            events: libc::POLLIN | libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: one entry.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 0);
    }

    #[test]
    fn a_file_has_the_role_of_its_place() {
        let victim = Victim::start("places", &[]);
        let pid = victim.child.id() as i32;
        // A running victim closes the connection of its last question while its descriptors are read.
        // SAFETY: a child of this process; no status is asked for.
        unsafe {
            libc::kill(pid, libc::SIGSTOP);
            assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), libc::WUNTRACED), pid);
        }
        let pidfd = descriptors::open_pid(pid).unwrap();
        let path = &victim.own.written[0].1;
        let id = descriptors::file_id(&File::open(path).unwrap()).unwrap();
        let own = Own {
            log: victim.own.log.clone(),
            listeners: victim.own.listeners.clone(),
            written: vec![(WRITTEN, path.clone()), (WRITTEN + 1, path.clone())],
        };
        let roles = |fd: RawFd| {
            let places = BTreeMap::from([(WRITTEN, Place { fd, file: id })]);
            let known = Known {
                own: &own,
                places: &places,
                silent: &BTreeMap::new(),
                is_connected: true,
            };
            Descriptors::of(pid, &pidfd, &known, -1).unwrap().places()
        };
        assert_eq!(roles(WRITTEN as RawFd).get(&WRITTEN), Some(&(WRITTEN as RawFd)));
        let elsewhere = roles(HIGH);
        assert_eq!(
            (elsewhere.get(&WRITTEN), elsewhere.get(&(WRITTEN + 1))),
            (None, Some(&(WRITTEN as RawFd)))
        );
        assert_eq!(
            shared_mapping("7f-8f rw-p 0 0:1 9 /a\n8f-9f r--s 0 0:1 9 /b\n9f-af rw-s 0 0:1 9 /c\n"),
            Some("/c")
        );
    }

    #[test]
    fn a_running_process_gets_another_file_in_place_of_one() {
        let victim = Victim::start("passing", &[]);
        let pid = victim.child.id() as i32;
        let (_, before) = &victim.own.written[0];
        assert_eq!(descriptors::numbers_of(pid, before).unwrap(), [WRITTEN as RawFd]);
        let count = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let open = count();
        let path = victim.folder.join("other");
        let file = File::create(&path).unwrap();
        for round in 1..4 {
            passing::replace(pid, &[WRITTEN as RawFd], &file, 0).unwrap();
            assert_eq!(descriptors::numbers_of(pid, &path).unwrap(), [WRITTEN as RawFd]);
            assert_eq!(victim.ask("socket", 1).0, 1 + round, "it runs on");
        }
        let deadline = Instant::now() + patience();
        while count() > open {
            assert!(Instant::now() < deadline, "{} descriptors in place of {open}", count());
            thread::sleep(Duration::from_millis(5));
        }
        assert!(descriptors::numbers_of(pid, before).unwrap().is_empty());
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        let victim = Victim::start("unknown", &[UNKNOWN]);
        let error = victim.hold().err().unwrap();
        assert_eq!(error.code, "refused");
        assert!(error.message.contains("socket of unknown use"), "{}", error.message);
        assert_eq!(victim.ask("socket", 1).0, 2, "it runs on");
        let text = "7f00-8f00 rw-s 00000000 00:01 9 /dev/shm/x\nSize: 4 kB\nVmFlags: rd wr sh mr mw me ms sd\n";
        assert!(Mappings::parse(text).unwrap_err().message.contains("/dev/shm/x"));
        let text = "7000-9000 rw-p 00000000 00:01 9 /ram\nVmFlags: rd wr mr mw me dc\n8000-9000 r--s 0 0:1 9 /c\nVmFlags: rd sh mr me\n";
        assert_eq!(Mappings::parse(text).unwrap().not_copied, [(0x7000, 0x2000)]);
        let text = "7000-9000 rwxp 00000000 00:00 0\nVmFlags: rd wr ex mr mw me hg\n";
        assert_eq!(Mappings::parse(text).unwrap().huge, [(0x7000, 0x2000)]);
    }

    #[test]
    fn a_clone_without_its_own_files_is_not_made() {
        let victim = Victim::start("files", &[]);
        let zygote = victim.hold().unwrap();
        let mut copy = victim.copy("clone");
        copy.given.pop();
        assert_eq!(zygote.clone(&copy).unwrap_err().code, "EINVAL");
    }
}
