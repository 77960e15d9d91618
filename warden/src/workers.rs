//! Threads that are started before a pause and wait for it.

use crate::recopy::{Shared, Worker};
use std::io;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread;

struct WorkerThread {
    orders: Sender<Arc<Shared>>,
    ready: Receiver<()>,
    done: Receiver<(Worker, io::Result<()>)>,
}

pub struct WorkerPool {
    threads: Vec<WorkerThread>,
}

impl WorkerPool {
    /// Starts up to `count` threads, each with its own memory; the system may refuse some.
    pub fn start(count: usize, arena_pages: usize) -> WorkerPool {
        WorkerPool {
            threads: (0..count).filter_map(|_| start_thread(arena_pages).ok()).collect(),
        }
    }

    /// Waits until the threads have their memory, and drops those that got none.
    pub fn wait_ready(&mut self) {
        self.threads.retain(|thread| thread.ready.recv().is_ok());
    }

    pub fn order(&self, shared: &Arc<Shared>) {
        for thread in &self.threads {
            // a thread that has ended leaves its units to the others
            let _ = thread.orders.send(Arc::clone(shared));
        }
    }

    pub fn collect(&self) -> io::Result<Vec<Worker>> {
        let mut workers = Vec::with_capacity(self.threads.len());
        let mut failed = None;
        for thread in &self.threads {
            match thread.done.recv() {
                Ok((worker, Ok(()))) => workers.push(worker),
                Ok((_, Err(error))) => failed = Some(error),
                Err(_) => failed = Some(io::Error::from_raw_os_error(libc::EIO)),
            }
        }
        failed.map_or(Ok(workers), Err)
    }
}

fn start_thread(arena_pages: usize) -> io::Result<WorkerThread> {
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
            // the capture's memory must not be freed here, between the pause and the commit
            drop(shared);
            let _ = deliver.send((worker, result));
        }
    })?;
    Ok(WorkerThread { orders, ready, done })
}
