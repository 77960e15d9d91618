//! Threads that are started before a pause and parked until it.

use crate::recopy::{Shared, Worker};
use std::io;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread;

struct Hand {
    orders: Sender<Arc<Shared>>,
    ready: Receiver<()>,
    done: Receiver<(Worker, io::Result<()>)>,
}

pub struct Crew {
    hands: Vec<Hand>,
}

impl Crew {
    /// As many of `count` threads as the system gives, each with its own memory.
    pub fn start(count: usize, arena_pages: usize) -> Crew {
        Crew {
            hands: (0..count).filter_map(|_| hire(arena_pages).ok()).collect(),
        }
    }

    /// Waits until the threads have their memory; one that could not get it is left out.
    pub fn wait_ready(&mut self) {
        self.hands.retain(|hand| hand.ready.recv().is_ok());
    }

    pub fn order(&self, shared: &Arc<Shared>) {
        for hand in &self.hands {
            // a thread that is gone leaves its units to the others
            let _ = hand.orders.send(Arc::clone(shared));
        }
    }

    pub fn collect(&self) -> io::Result<Vec<Worker>> {
        let mut workers = Vec::with_capacity(self.hands.len());
        let mut failed = None;
        for hand in &self.hands {
            match hand.done.recv() {
                Ok((worker, Ok(()))) => workers.push(worker),
                Ok((_, Err(error))) => failed = Some(error),
                Err(_) => failed = Some(io::Error::from_raw_os_error(libc::EIO)),
            }
        }
        failed.map_or(Ok(workers), Err)
    }
}

fn hire(arena_pages: usize) -> io::Result<Hand> {
    let (orders, inbox) = channel::<Arc<Shared>>();
    let (say_ready, ready) = channel();
    let (deliver, done) = channel();
    thread::Builder::new().name("capture".into()).spawn(move || {
        let mut worker = match Worker::new(arena_pages) {
            Ok(worker) => worker,
            Err(_) => return,
        };
        let _ = say_ready.send(());
        if let Ok(shared) = inbox.recv() {
            let result = worker.work(&shared);
            // the capture's memory must not be freed here, between its pause and its commit
            drop(shared);
            let _ = deliver.send((worker, result));
        }
    })?;
    Ok(Hand { orders, ready, done })
}
