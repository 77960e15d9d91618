//! What is done for a client: its requests, and the ends of its children.

use crate::capture::Request;
use crate::children::{Children, Ended};
use crate::fault::{Fault, Outcome};
use crate::image;
use crate::jobs::Jobs;
use crate::link::Link;
use crate::scan::{Abilities, Finder, Method};
use crate::sessions::{micros, Order, Sessions};
use crate::spawn::{spawn, Spec};
use crate::sys;
use crate::wire::{Message, Reader, Splitter, Writer};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::io::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAX_THREADS: usize = 4;
const COPY_THREADS: usize = 2;
/// A client that has asked for the end usually waits for the answer
const LAST_WORDS: Duration = Duration::from_secs(1);

mod op {
    // 1 was a SPAWN that knew no confinement: a client that asks for it, or a warden that has it, is of another version
    pub const SIGNAL: u8 = 2;
    pub const CAPTURE_BEGIN: u8 = 3;
    pub const CAPTURE_FINISH: u8 = 4;
    pub const CAPTURE_COMMIT: u8 = 5;
    pub const CAPTURE_ABORT: u8 = 6;
    pub const FLATTEN: u8 = 7;
    pub const INFO: u8 = 8;
    pub const TRIM: u8 = 9;
    pub const LIST: u8 = 10;
    pub const END: u8 = 11;
    pub const SPAWN: u8 = 12;
}

pub struct Server {
    children: Children,
    child_events: File,
    client: Option<Arc<Link>>,
    sessions: Sessions,
    jobs: Jobs,
    abilities: Abilities,
    threads: usize,
    /// The request that asked for the end
    end_asked: Option<u32>,
}

/// Now, or by somebody else later
enum Answer {
    Now(Writer),
    Later,
}

impl Server {
    pub fn start() -> io::Result<Server> {
        let child_events = sys::child_events()?;
        let abilities = Abilities::probe();
        let threads = sys::cores().min(MAX_THREADS);
        Ok(Server {
            children: Children::default(),
            child_events,
            client: None,
            sessions: Sessions::new(abilities, threads),
            jobs: Jobs::default(),
            abilities,
            threads,
            end_asked: None,
        })
    }

    /// Readable when `reap` has something to do
    pub fn child_events(&self) -> RawFd {
        self.child_events.as_raw_fd()
    }

    pub fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    pub fn end_is_asked(&self) -> bool {
        self.end_asked.is_some()
    }

    /// Serves this client from now on, and no other.
    pub fn welcome(&mut self, client: Arc<Link>) {
        self.part();
        self.client = Some(client);
    }

    /// The client is gone: what it had begun is undone, children go on.
    pub fn part(&mut self) {
        if let Some(client) = self.client.take() {
            self.sessions.client_left();
            for ended in client.close() {
                self.children.keep(ended);
            }
            self.children.client_left();
        }
    }

    /// Leaves no child and no half-written file.
    pub fn end_all(&mut self) {
        for pid in self.children.pids() {
            let _ = sys::send_signal(pid, libc::SIGKILL);
        }
        if let Some(client) = &self.client {
            client.files().abandon();
        }
        while sys::reap(true).is_some() {}
    }

    /// To whoever asked for the end, if somebody did: it is done.
    pub fn answer_end(&self) {
        if let (Some(client), Some(id)) = (&self.client, self.end_asked) {
            client.reply(id, Ok(Writer::new()));
            client.drain(LAST_WORDS);
        }
    }

    pub fn reap(&mut self) {
        // one read takes one pending SIGCHLD; they do not queue, so one is all there is
        let mut signal = [0; 128];
        let _ = self.child_events.read(&mut signal);
        while let Some((pid, code, signal)) = sys::reap(false) {
            if let Some((ended, known)) = self.children.end(pid, code, signal) {
                self.sessions.process_ended(pid);
                self.report(ended, known);
            }
        }
    }

    /// A client that has not listed a child that it did not start could not make sense of its end.
    fn report(&mut self, ended: Ended, known: bool) {
        match &self.client {
            Some(client) if known => client.tell_end(ended),
            _ => self.children.keep(ended),
        }
    }

    /// Does what has come in whole messages; an error when the stream cannot be one of messages.
    pub fn receive(&mut self, incoming: &mut Splitter) -> Result<(), String> {
        while let Some(client) = self.attended() {
            match incoming.next()? {
                Some(message) => self.handle(&client, &message),
                None => break,
            }
        }
        Ok(())
    }

    /// The client, unless nothing more is to be done for it
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
            Err(fault) => client.reply(message.id, Err(fault)),
        }
    }

    fn dispatch(&mut self, client: &Arc<Link>, code: u8, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        match code {
            op::SPAWN => self.spawn(reader),
            op::SIGNAL => self.signal(reader),
            op::CAPTURE_BEGIN => self.capture_begin(client, id, reader),
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
            other => Err(Fault::new("ENOSYS", format!("unknown operation {other}"))),
        }
    }

    fn spawn(&mut self, reader: &mut Reader) -> Outcome<Answer> {
        self.children.check_room()?;
        let (pid, start_time) = spawn(&Spec::read(reader)?)?;
        self.children.add(pid, start_time);
        Ok(Answer::Now(Writer::new().u32(pid as u32).u64(start_time)))
    }

    fn child(&self, reader: &mut Reader) -> Outcome<i32> {
        let pid = reader.u32()? as i32;
        if !self.children.contains(pid) {
            return Err(Fault::new("ESRCH", format!("no child {pid}")));
        }
        Ok(pid)
    }

    fn signal(&self, reader: &mut Reader) -> Outcome<Answer> {
        let pid = self.child(reader)?;
        let signal = reader.u32()? as i32;
        sys::send_signal(pid, signal).map_err(|error| Fault::io(&error, "kill"))?;
        Ok(Answer::Now(Writer::new()))
    }

    fn capture_begin(&self, client: &Arc<Link>, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        let request = Request {
            pid: self.child(reader)?,
            ram: reader.path()?,
            ram_bytes: reader.u64()?,
            delta: reader.path()?,
        };
        self.sessions.begin(client, id, request)?;
        Ok(Answer::Later)
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
                let payload = Writer::new().u64(done.written).u8(done.reflinked.into());
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
            client.reply(id, trimmed.map(|freed| Writer::new().u64(freed).u64(micros(started))));
        })
    }

    fn job(&self, client: &Arc<Link>, work: impl FnOnce(&Link) + Send + 'static) -> Outcome<Answer> {
        let client = Arc::clone(client);
        self.jobs.run(Box::new(move || {
            // it may have waited for longer than its client has stayed
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
        let info = Writer::new().str(method).str(finder).u32(self.threads as u32);
        info.u32(std::process::id())
    }
}
