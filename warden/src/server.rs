//! The main loop: requests from stdin, ends of children.

use crate::capture::Request;
use crate::fault::{Fault, Outcome};
use crate::image;
use crate::jobs::Jobs;
use crate::scan::{Abilities, Finder, Method};
use crate::sessions::{micros, Order, Sessions};
use crate::spawn::{spawn, Spec};
use crate::sys;
use crate::unfinished;
use crate::wire::{Message, Outbox, Reader, Splitter, Writer, EXIT};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::io::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

const MAX_THREADS: usize = 4;
const COPY_THREADS: usize = 2;

mod op {
    pub const SPAWN: u8 = 1;
    pub const SIGNAL: u8 = 2;
    pub const CAPTURE_BEGIN: u8 = 3;
    pub const CAPTURE_FINISH: u8 = 4;
    pub const CAPTURE_COMMIT: u8 = 5;
    pub const CAPTURE_ABORT: u8 = 6;
    pub const FLATTEN: u8 = 7;
    pub const INFO: u8 = 8;
    pub const TRIM: u8 = 9;
}

pub struct Server {
    children: HashSet<i32>,
    child_events: File,
    out: Arc<Outbox>,
    sessions: Sessions,
    jobs: Jobs,
    abilities: Abilities,
    threads: usize,
}

/// Now, or by another thread later
enum Answer {
    Now(Writer),
    Later,
}

impl Server {
    pub fn start() -> io::Result<Server> {
        let child_events = sys::child_events()?;
        let out = Arc::new(Outbox::new(sys::write_stdout));
        let abilities = Abilities::probe();
        let threads = sys::cores().min(MAX_THREADS);
        Ok(Server {
            children: HashSet::new(),
            child_events,
            sessions: Sessions::new(Arc::clone(&out), abilities, threads),
            out,
            jobs: Jobs::default(),
            abilities,
            threads,
        })
    }

    /// Until stdin ends; then no child and no half-written file is left. An error is a broken stream.
    pub fn run(mut self) -> Result<(), String> {
        let result = self.serve();
        for pid in &self.children {
            let _ = sys::send_signal(*pid, libc::SIGKILL);
        }
        unfinished::remove_all();
        while sys::reap(true).is_some() {}
        result
    }

    fn serve(&mut self) -> Result<(), String> {
        let mut splitter = Splitter::default();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let (request, child) = match sys::wait_readable(0, self.child_events.as_raw_fd()) {
                Ok(ready) => ready,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            if child {
                self.reap();
            }
            if !request {
                continue;
            }
            match sys::read_stdin(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => splitter.push(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(()),
            }
            while let Some(message) = splitter.next()? {
                self.handle(&message);
            }
        }
    }

    fn reap(&mut self) {
        // one read takes one pending SIGCHLD; they do not queue, so one is all there is
        let mut signal = [0; 128];
        let _ = self.child_events.read(&mut signal);
        while let Some((pid, code, signal)) = sys::reap(false) {
            if self.children.remove(&pid) {
                self.sessions.process_ended(pid);
                let payload = Writer::new().u32(pid as u32).i32(code).u32(signal as u32);
                self.out.send(EXIT, 0, payload);
            }
        }
    }

    fn handle(&mut self, message: &Message) {
        let mut reader = Reader::new(&message.payload);
        match self.dispatch(message.op, message.id, &mut reader) {
            Ok(Answer::Now(payload)) => self.out.reply(message.id, Ok(payload)),
            Ok(Answer::Later) => {}
            Err(fault) => self.out.reply(message.id, Err(fault)),
        }
    }

    fn dispatch(&mut self, code: u8, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        match code {
            op::SPAWN => {
                let pid = spawn(&Spec::read(reader)?)?;
                self.children.insert(pid);
                Ok(Answer::Now(Writer::new().u32(pid as u32)))
            }
            op::SIGNAL => self.signal(reader),
            op::CAPTURE_BEGIN => self.capture_begin(id, reader),
            op::CAPTURE_FINISH => self.order(reader, Order::Finish(id)),
            op::CAPTURE_COMMIT => self.order(reader, Order::Commit(id)),
            op::CAPTURE_ABORT => self.order(reader, Order::Abort(id)),
            op::FLATTEN => self.flatten(id, reader),
            op::INFO => Ok(Answer::Now(self.info())),
            op::TRIM => self.trim(id, reader),
            other => Err(Fault::new("ENOSYS", format!("unknown operation {other}"))),
        }
    }

    fn child(&self, reader: &mut Reader) -> Outcome<i32> {
        let pid = reader.u32()? as i32;
        if !self.children.contains(&pid) {
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

    fn capture_begin(&self, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        let request = Request {
            pid: self.child(reader)?,
            ram: reader.path()?,
            ram_bytes: reader.u64()?,
            delta: reader.path()?,
        };
        self.sessions.begin(id, request)?;
        Ok(Answer::Later)
    }

    fn order(&self, reader: &mut Reader, order: Order) -> Outcome<Answer> {
        self.sessions.order(reader.u64()?, order)?;
        Ok(Answer::Later)
    }

    fn flatten(&self, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        let base = reader.path()?;
        let deltas = reader.list(Reader::path)?;
        let target = reader.path()?;
        let threads = self.threads.min(COPY_THREADS);
        self.job(id, move |started| {
            let done = image::flatten(&base, &deltas, &target, threads)?;
            let payload = Writer::new().u64(done.written).u8(done.reflinked.into());
            Ok(payload.u64(micros(started)))
        })
    }

    fn trim(&self, id: u32, reader: &mut Reader) -> Outcome<Answer> {
        let path = reader.path()?;
        self.job(id, move |started| {
            let freed = image::trim(&path)?;
            Ok(Writer::new().u64(freed).u64(micros(started)))
        })
    }

    fn job(&self, id: u32, work: impl FnOnce(Instant) -> Outcome<Writer> + Send + 'static) -> Outcome<Answer> {
        let out = Arc::clone(&self.out);
        self.jobs.run(Box::new(move || out.reply(id, work(Instant::now()))))?;
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
        Writer::new().str(method).str(finder).u32(self.threads as u32)
    }
}
