//! Files that are removed unless they are finished, also when their client goes or the warden ends in the middle.

use crate::fault::{Context, Fault, Outcome};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Ledger {
    closed: bool,
    paths: Vec<PathBuf>,
}

/// The unfinished files of one client
#[derive(Default)]
pub struct Files {
    ledger: Mutex<Ledger>,
}

pub struct Unfinished {
    path: PathBuf,
    owner: Arc<Files>,
    pub file: File,
}

impl Files {
    pub fn create(self: &Arc<Files>, path: &Path) -> Outcome<Unfinished> {
        let mut ledger = self.ledger();
        if ledger.closed {
            return Err(over());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .during(|| path.display())?;
        ledger.paths.push(path.to_path_buf());
        Ok(Unfinished {
            path: path.to_path_buf(),
            owner: Arc::clone(self),
            file,
        })
    }

    /// Removes them all and lets no more be made.
    pub fn abandon(&self) {
        let mut ledger = self.ledger();
        ledger.closed = true;
        for path in ledger.paths.drain(..) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False when it was removed already; then the path may be another's file.
    fn strike(&self, path: &Path) -> bool {
        let mut ledger = self.ledger();
        let before = ledger.paths.len();
        ledger.paths.retain(|known| known != path);
        ledger.paths.len() < before
    }
}

impl Unfinished {
    /// The file stays; an error when it was abandoned meanwhile.
    pub fn finish(self) -> Outcome<PathBuf> {
        if self.owner.strike(&self.path) {
            Ok(self.path.clone())
        } else {
            Err(over())
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.owner.strike(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn over() -> Fault {
    Fault::new("ESHUTDOWN", "the warden is ending, or the client is gone")
}
