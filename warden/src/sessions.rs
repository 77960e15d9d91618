//! The captures in progress, one thread each.

use crate::capture::{Capture, Committed, Request};
use crate::error::{Error, Outcome};
use crate::link::Link;
use crate::scan::Abilities;
use forkd_wire::Writer;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

const MAX_CAPTURES: usize = 64;

/// The next step, with the request to answer
#[derive(Clone, Copy)]
pub enum Order {
    Finish(u32),
    Commit(u32),
    Abort(u32),
    /// The process has ended; there is no request to answer
    Gone,
}

struct Entry {
    pid: i32,
    orders: Sender<Order>,
    gone: Arc<AtomicBool>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<u64, Entry>,
    last: u64,
}

#[derive(Clone)]
pub struct Sessions {
    table: Arc<Mutex<Table>>,
    abilities: Abilities,
    threads: usize,
}

struct Session {
    id: u64,
    orders: Receiver<Order>,
    gone: Arc<AtomicBool>,
    client: Arc<Link>,
    owner: Sessions,
}

fn unknown() -> Error {
    Error::new("ESRCH", "no such capture, or its process has ended")
}

pub fn micros(since: Instant) -> u64 {
    since.elapsed().as_micros() as u64
}

impl Sessions {
    pub fn new(abilities: Abilities, threads: usize) -> Sessions {
        Sessions {
            table: Arc::default(),
            abilities,
            threads,
        }
    }

    pub fn begin(&self, client: &Arc<Link>, request_id: u32, request: Request) -> Outcome<()> {
        self.start(client, request, move |session, request| {
            session.run(request_id, request)
        })
    }

    /// Of a process that does not change meanwhile, in one step
    pub fn whole(&self, client: &Arc<Link>, request_id: u32, request: Request) -> Outcome<()> {
        self.start(client, request, move |session, request| {
            session.capture_whole(request_id, request)
        })
    }

    fn start(
        &self,
        client: &Arc<Link>,
        request: Request,
        work: impl FnOnce(Session, &Request) + Send + 'static,
    ) -> Outcome<()> {
        let mut table = self.table.lock().unwrap();
        if table.entries.len() >= MAX_CAPTURES {
            return Err(Error::new("EBUSY", "too many captures at once"));
        }
        table.last += 1;
        let id = table.last;
        let (send, orders) = channel();
        let gone = Arc::new(AtomicBool::new(false));
        let entry = Entry {
            pid: request.pid,
            orders: send,
            gone: Arc::clone(&gone),
        };
        let session = Session {
            id,
            orders,
            gone,
            client: Arc::clone(client),
            owner: self.clone(),
        };
        thread::Builder::new()
            .name("capture".into())
            .spawn(move || work(session, &request))
            .map_err(|error| Error::io(&error, "thread"))?;
        table.entries.insert(id, entry);
        Ok(())
    }

    pub fn order(&self, id: u64, order: Order) -> Outcome<()> {
        let table = self.table.lock().unwrap();
        let entry = table.entries.get(&id).ok_or_else(unknown)?;
        entry.orders.send(order).map_err(|_| unknown())
    }

    pub fn process_ended(&self, pid: i32) {
        let table = self.table.lock().unwrap();
        for entry in table.entries.values().filter(|entry| entry.pid == pid) {
            entry.gone.store(true, Ordering::SeqCst);
            let _ = entry.orders.send(Order::Gone);
        }
    }

    /// The client has disconnected. Its captures get no more orders, so they end; no other client can name them.
    pub fn client_left(&self) {
        self.table.lock().unwrap().entries.clear();
    }
}

impl Session {
    fn run(self, request_id: u32, request: &Request) {
        let client = Arc::clone(&self.client);
        let started = Instant::now();
        let begun = Capture::begin(request, client.files(), self.owner.abilities, self.owner.threads);
        match begun.and_then(|capture| self.still_there(capture)) {
            Ok(capture) => {
                let payload = Writer::default().u64(self.id).u64(capture.pages());
                client.reply(request_id, Ok(payload.u64(micros(started))));
                self.serve(capture);
            }
            Err(error) => client.reply(request_id, Err(error)),
        }
        self.owner.table.lock().unwrap().entries.remove(&self.id);
        for order in self.orders.try_iter() {
            self.refuse(order, unknown());
        }
    }

    fn capture_whole(self, request_id: u32, request: &Request) {
        let client = &self.client;
        let captured = Capture::whole(request, client.files(), self.owner.abilities);
        let reply = |done: Committed| {
            let payload = Writer::default().u64(done.bytes).u64(done.pages);
            (payload.u64(done.private), done.file)
        };
        client.reply_with_file(request_id, captured.and_then(|done| self.still_there(done)).map(reply));
        self.owner.table.lock().unwrap().entries.remove(&self.id);
    }

    /// If the process has ended, the memory that was read may belong to another process with the same pid.
    fn still_there<T>(&self, value: T) -> Outcome<T> {
        if self.gone.load(Ordering::SeqCst) {
            return Err(Error::new("ESRCH", "the process has ended"));
        }
        Ok(value)
    }

    fn serve(&self, mut capture: Capture) {
        let client = &self.client;
        while let Ok(order) = self.orders.recv() {
            match order {
                Order::Finish(request) if !capture.is_finished() => {
                    let started = Instant::now();
                    let finished = capture.finish();
                    match finished.and_then(|finished| self.still_there(finished)) {
                        Ok(done) => {
                            let payload = Writer::default().u64(done.pages).u64(done.recopied);
                            client.reply(request, Ok(payload.u64(micros(started))));
                        }
                        Err(error) => {
                            drop(capture);
                            return client.reply(request, Err(error));
                        }
                    }
                }
                Order::Commit(request) if capture.is_finished() => {
                    let reply = |done: Committed| (Writer::default().u64(done.bytes).u64(done.pages), done.file);
                    return client.reply_with_file(request, capture.commit().map(reply));
                }
                Order::Abort(request) => {
                    drop(capture);
                    return client.reply(request, Ok(Writer::default()));
                }
                Order::Gone if !capture.is_finished() => return,
                Order::Gone => {}
                other => self.refuse(other, Error::new("EINVAL", "not at this point of a capture")),
            }
        }
    }

    fn refuse(&self, order: Order, error: Error) {
        if let Order::Finish(request) | Order::Commit(request) | Order::Abort(request) = order {
            self.client.reply(request, Err(error));
        }
    }
}
