//! Runs long work off the main thread, with a limit of parallel jobs.

use crate::error::{Error, Outcome};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;

const MAX_RUNNING: usize = 8;
const MAX_WAITING: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    running: usize,
    waiting: VecDeque<Job>,
}

#[derive(Clone, Default)]
pub struct Jobs {
    state: Arc<Mutex<State>>,
}

impl Jobs {
    pub fn run(&self, job: Job) -> Outcome<()> {
        let mut state = self.state.lock().unwrap();
        if state.running < MAX_RUNNING {
            let jobs = self.clone();
            thread::Builder::new()
                .name("job".into())
                .spawn(move || jobs.work(job))
                .map_err(|error| Error::io(&error, "thread"))?;
            state.running += 1;
        } else if state.waiting.len() < MAX_WAITING {
            state.waiting.push_back(job);
        } else {
            return Err(Error::new("EBUSY", "too much work at once"));
        }
        Ok(())
    }

    fn work(&self, first: Job) {
        let mut job = first;
        loop {
            job();
            let mut state = self.state.lock().unwrap();
            match state.waiting.pop_front() {
                Some(next) => job = next,
                None => {
                    state.running -= 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn refuses_jobs_beyond_its_limit_and_runs_the_others() {
        let jobs = Jobs::default();
        let gate = Arc::new(Mutex::new(()));
        let (done, finished) = channel();
        let closed = gate.lock().unwrap();
        let add = || {
            let (gate, done) = (Arc::clone(&gate), done.clone());
            jobs.run(Box::new(move || {
                drop(gate.lock());
                done.send(()).unwrap();
            }))
        };
        for _ in 0..MAX_RUNNING + MAX_WAITING {
            add().unwrap();
        }
        assert_eq!(add().unwrap_err().code, "EBUSY");
        drop(closed);
        for _ in 0..MAX_RUNNING + MAX_WAITING {
            finished.recv().unwrap();
        }
    }
}
