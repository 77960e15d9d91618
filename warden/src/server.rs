//! Handles the requests of a client, and reports the exits of its children.

use crate::capture::Request;
use crate::children::{start_time, Children, Ended};
use crate::clone_spec::CloneSpec;
use crate::error::{Error, Outcome};
use crate::family::Families;
use crate::fds::Source;
use crate::image;
use crate::jobs::Jobs;
use crate::link::Link;
use crate::scan::{Abilities, Finder, Method};
use crate::sessions::{micros, Order, Sessions};
use crate::spawn::{spawn, Copies, Founded, Spec, Started};
use crate::stray::Strays;
use crate::sys;
use crate::wire::{Message, Splitter};
use crate::zygote::Copy;
use forkd_wire::{Reader, Writer};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::io::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAX_THREADS: usize = 4;
const COPY_THREADS: usize = 2;
/// The client that requested the end usually waits for the answer
const LAST_WORDS: Duration = Duration::from_secs(1);

mod op {
    // 1 was a SPAWN without confinement, 12 one without files at other paths, 13 one without a choice of the filter, 14 one
    // that could not be cloned, 3 a CAPTURE_BEGIN without earlier deltas, 15 one without deltas below. A client or warden that uses them has another
    // version
    pub const SIGNAL: u8 = 2;
    pub const CAPTURE_FINISH: u8 = 4;
    pub const CAPTURE_COMMIT: u8 = 5;
    pub const CAPTURE_ABORT: u8 = 6;
    pub const FLATTEN: u8 = 7;
    pub const INFO: u8 = 8;
    pub const TRIM: u8 = 9;
    pub const LIST: u8 = 10;
    pub const END: u8 = 11;
    pub const SPAWN: u8 = 16;
    pub const HOLD: u8 = 17;
    pub const CLONE: u8 = 18;
    pub const GIVE: u8 = 19;
    pub const SEAL: u8 = 20;
    pub const PREPARE: u8 = 21;
    pub const FORK: u8 = 22;
    pub const CAPTURE: u8 = 23;
    pub const CAPTURE_BEGIN: u8 = 24;
    pub const PREPARE_FROZEN: u8 = 25;
    pub const FREEZE: u8 = 26;
}

pub struct Server {
    children: Children,
    /// Readable on SIGCHLD, and on a system call that the kernel holds for the warden
    events: File,
    child_events: File,
    strays: Strays,
    families: Families,
    client: Option<Arc<Link>>,
    sessions: Sessions,
    jobs: Jobs,
    abilities: Abilities,
    threads: usize,
    /// The request for the end
    end_asked: Option<u32>,
}

/// Given now, or later by another thread
enum Answer {
    Now(Writer),
    Later,
}

impl Server {
    pub fn start() -> io::Result<Server> {
        let child_events = sys::child_events()?;
        let events = sys::events()?;
        // no child has this pid
        sys::add_event(&events, child_events.as_raw_fd(), 0)?;
        let strays = Strays::new(events.try_clone()?);
        let abilities = Abilities::probe();
        let threads = sys::cores().min(MAX_THREADS);
        Ok(Server {
            children: Children::default(),
            events,
            child_events,
            strays,
            families: Families::default(),
            client: None,
            sessions: Sessions::new(abilities, threads),
            jobs: Jobs::default(),
            abilities,
            threads,
            end_asked: None,
        })
    }

    /// Readable when `reap` has work
    pub fn child_events(&self) -> RawFd {
        self.events.as_raw_fd()
    }

    pub fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    pub fn end_is_asked(&self) -> bool {
        self.end_asked.is_some()
    }

    /// Serves only this client from now on.
    pub fn welcome(&mut self, client: Arc<Link>) {
        self.part();
        self.client = Some(client);
    }

    /// The client has disconnected: its unfinished work is undone, its VMMs continue to run.
    pub fn part(&mut self) {
        if let Some(client) = self.client.take() {
            self.sessions.client_left();
            for ended in client.close() {
                self.children.keep(ended);
            }
            self.children.client_left();
            self.families.client_left();
        }
    }

    /// Ends all children and removes all incomplete files.
    pub fn end_all(&mut self) {
        for pid in self.children.pids().chain(self.families.inits()) {
            let _ = sys::send_signal(pid, libc::SIGKILL);
        }
        if let Some(client) = &self.client {
            client.files().abandon();
        }
        while sys::reap(true).is_some() {}
    }

    /// Answers the client that requested the end, if there is one.
    pub fn answer_end(&self) {
        if let (Some(client), Some(id)) = (&self.client, self.end_asked) {
            client.reply(id, Ok(Writer::default()));
            client.drain(LAST_WORDS);
        }
    }

    pub fn reap(&mut self) {
        self.strays.end(&sys::ready_events(&self.events));
        // one read takes one pending SIGCHLD; signals do not queue, so there is only one
        let mut signal = [0; 128];
        let _ = self.child_events.read(&mut signal);
        while let Some((pid, code, signal)) = sys::reap(false) {
            if let Some((ended, known)) = self.children.end(pid, code, signal) {
                self.families.ended(pid);
                self.strays.forget(pid);
                self.sessions.process_ended(pid);
                self.report(ended, known);
            }
        }
    }

    /// The client can use the exit of a child only if it has started or listed that child.
    fn report(&mut self, ended: Ended, known: bool) {
        match &self.client {
            Some(client) if known => client.tell_end(ended),
            _ => self.children.keep(ended),
        }
    }

    /// Handles all complete messages; an error if the stream is malformed.
    pub fn receive(&mut self, incoming: &mut Splitter) -> Result<(), String> {
        while let Some(client) = self.attended() {
            match incoming.next()? {
                Some(message) => self.handle(&client, &message),
                None => break,
            }
        }
        Ok(())
    }

    /// The client, unless it has disconnected or has requested the end
    fn attended(&self) -> Option<Arc<Link>> {
        let client = self.client.as_ref()?;
        if self.end_is_asked() || client.is_broken() {
            return None;
        }
        Some(Arc::clone(client))
    }

    fn handle(&mut self, client: &Arc<Link>, message: &Message) {
        let mut reader = Reader::new(&message.payload);
        match self.dispatch(client, message.op, message.id, &mut reader) {
            Ok(Answer::Now(payload)) => client.reply(message.id, Ok(payload)),
            Ok(Answer::Later) => {}
            Err(error) => client.reply(message.id, Err(error)),
        }
    }

    fn dispatch(&mut self, client: &Arc<Link>, code: u8, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        match code {
            op::SPAWN => self.spawn(reader),
            op::HOLD => {
                let pid = self.child(reader)?;
                self.families.hold(pid)?;
                Ok(Answer::Now(Writer::default()))
            }
            op::CLONE => {
                let (pid, copy, wanted, log) = self.copy(reader, CloneSpec::read)?;
                let new = self.families.clone(pid, copy, wanted.own)?;
                self.copied(new, log)
            }
            op::PREPARE => {
                let (pid, copy, wanted, _) = self.copy(reader, CloneSpec::read_fork)?;
                self.families.prepare(pid, copy, wanted)?;
                Ok(Answer::Now(Writer::default()))
            }
            op::FORK => {
                self.children.check_room()?;
                let pid = self.child(reader)?;
                let (new, log) = self.families.fork(pid)?;
                self.copied(new, log)
            }
            op::PREPARE_FROZEN => {
                let pid = self.child(reader)?;
                let (ram, ram_bytes) = (reader.path()?, reader.u64()?);
                self.families.prepare_frozen(pid, &ram, ram_bytes)?;
                Ok(Answer::Now(Writer::default()))
            }
            op::FREEZE => {
                self.children.check_room()?;
                let pid = self.child(reader)?;
                let new = self.families.freeze(pid)?;
                self.added(new)
            }
            op::GIVE => {
                let pid = self.child(reader)?;
                let (role, path, mode) = (reader.u32()?, reader.path()?, reader.u8()?);
                let file = Source::open(&path, mode)?;
                self.families.give(pid, role, path, &file)?;
                Ok(Answer::Now(Writer::default()))
            }
            op::SEAL => {
                let pid = self.child(reader)?;
                let (role, next) = (reader.u32()?, reader.path()?);
                self.families.seal(pid, role, next)?;
                Ok(Answer::Now(Writer::default()))
            }
            op::SIGNAL => self.signal(reader),
            op::CAPTURE_BEGIN => {
                let request = Request::read(self.child(reader)?, reader)?;
                self.sessions.begin(client, id, request)?;
                Ok(Answer::Later)
            }
            op::CAPTURE => {
                let mut request = Request::read(self.child(reader)?, reader)?;
                let alike = reader.optional(|reader| Outcome::Ok(reader.u32()? as i32))?;
                // opened now: the number may be another process's after this one was reaped
                request.alike = alike
                    .filter(|pid| self.children.contains(*pid))
                    .and_then(|pid| File::open(format!("/proc/{pid}/pagemap")).ok());
                self.sessions.whole(client, id, request)?;
                Ok(Answer::Later)
            }
            op::CAPTURE_FINISH => self.order(reader, Order::Finish(id)),
            op::CAPTURE_COMMIT => self.order(reader, Order::Commit(id)),
            op::CAPTURE_ABORT => self.order(reader, Order::Abort(id)),
            op::FLATTEN => self.flatten(client, id, reader),
            op::INFO => Ok(Answer::Now(self.info())),
            op::TRIM => self.trim(client, id, reader),
            op::LIST => {
                let (list, ends) = self.children.list();
                client.reply_with_ends(id, list, ends);
                Ok(Answer::Later)
            }
            op::END => {
                self.end_asked = Some(id);
                Ok(Answer::Later)
            }
            other => Err(Error::new("ENOSYS", format!("unknown operation {other}"))),
        }
    }

    fn spawn(&mut self, reader: &mut Reader) -> Outcome<Answer> {
        self.children.check_room()?;
        let Started {
            pid,
            start_time,
            watched,
            founded,
        } = spawn(&Spec::read(reader)?)?;
        self.children.add(pid, start_time);
        if let Some(Founded {
            init,
            secret,
            copies,
            own,
        }) = founded
        {
            match copies {
                Copies::Frozen => self.families.found_original(pid, init, secret),
                _ => self.families.found(pid, init, secret, own),
            }
        }
        if let Some(watched) = watched {
            // otherwise a system call that the kernel holds would never return
            if let Err(error) = self.strays.watch(pid, watched) {
                let _ = sys::send_signal(pid, libc::SIGKILL);
                return Err(Error::io(&error, "watching the process"));
            }
        }
        Ok(Answer::Now(Writer::default().u32(pid as u32).u64(start_time)))
    }

    /// What is asked for a copy of a process: the process, the files, what they are, and the log
    fn copy(
        &self,
        reader: &mut Reader,
        read: fn(&mut Reader) -> Outcome<CloneSpec>,
    ) -> Outcome<(i32, Copy, CloneSpec, File)> {
        self.children.check_room()?;
        let pid = self.child(reader)?;
        let wanted = read(reader)?;
        let log = Source::log(&wanted.own.log)?;
        let copy = wanted.open(&log, self.families.own(pid)?)?;
        Ok((pid, copy, wanted, log))
    }

    fn copied(&mut self, new: i32, log: File) -> Outcome<Answer> {
        let answer = self.added(new)?;
        self.strays.watch_clone(new, log);
        Ok(answer)
    }

    fn added(&mut self, new: i32) -> Outcome<Answer> {
        let start_time = start_time(new)?;
        self.children.add(new, start_time);
        Ok(Answer::Now(Writer::default().u32(new as u32).u64(start_time)))
    }

    fn child(&self, reader: &mut Reader) -> Outcome<i32> {
        let pid = reader.u32()? as i32;
        if !self.children.contains(pid) {
            return Err(Error::new("ESRCH", format!("no child {pid}")));
        }
        Ok(pid)
    }

    fn signal(&self, reader: &mut Reader) -> Outcome<Answer> {
        let pid = self.child(reader)?;
        let signal = reader.u32()? as i32;
        sys::send_signal(pid, signal).map_err(|error| Error::io(&error, "kill"))?;
        Ok(Answer::Now(Writer::default()))
    }

    fn order(&self, reader: &mut Reader, order: Order) -> Outcome<Answer> {
        self.sessions.order(reader.u64()?, order)?;
        Ok(Answer::Later)
    }

    fn flatten(&self, client: &Arc<Link>, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        let base = reader.path()?;
        let deltas = reader.list(Reader::path)?;
        let target = reader.path()?;
        let threads = self.threads.min(COPY_THREADS);
        self.job(client, move |client| {
            let started = Instant::now();
            let flattened = image::flatten(&base, &deltas, &target, client.files(), threads);
            let reply = |done: image::Flattened| {
                let payload = Writer::default().u64(done.written).u8(done.reflinked.into());
                (payload.u64(micros(started)), done.file)
            };
            client.reply_with_file(id, flattened.map(reply));
        })
    }

    fn trim(&self, client: &Arc<Link>, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        let path = reader.path()?;
        self.job(client, move |client| {
            let started = Instant::now();
            let trimmed = image::trim(&path);
            client.reply(
                id,
                trimmed.map(|freed| Writer::default().u64(freed).u64(micros(started))),
            );
        })
    }

    fn job(&self, client: &Arc<Link>, work: impl FnOnce(&Link) + Send + 'static) -> Outcome<Answer> {
        let client = Arc::clone(client);
        self.jobs.run(Box::new(move || {
            // the job may have waited for longer than its client was connected
            if !client.is_closed() {
                work(&client);
            }
        }))?;
        Ok(Answer::Later)
    }

    fn info(&self) -> Writer {
        let method = match self.abilities.method {
            Method::SoftDirty => "soft-dirty",
            Method::Compare => "compare",
        };
        let finder = match self.abilities.finder {
            Finder::Ioctl => "pagemap-scan",
            Finder::Table => "pagemap",
        };
        let info = Writer::default().str(method).str(finder).u32(self.threads as u32);
        info.u32(std::process::id())
    }
}
