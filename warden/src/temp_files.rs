//! Files that are removed unless they are finished, also if their client disconnects or the warden ends before that.

use crate::error::{Context, Error, Outcome};
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
pub struct TempFiles {
    ledger: Mutex<Ledger>,
}

pub struct TempFile {
    path: PathBuf,
    owner: Arc<TempFiles>,
    pub file: File,
}

impl TempFiles {
    pub fn create(self: &Arc<TempFiles>, path: &Path) -> Outcome<TempFile> {
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
        Ok(TempFile {
            path: path.to_path_buf(),
            owner: Arc::clone(self),
            file,
        })
    }

    /// Removes all of them; later `create` calls fail.
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

    /// Removes a path from the list; false if it was not there, and the path may then be another file's.
    fn strike(&self, path: &Path) -> bool {
        let mut ledger = self.ledger();
        let before = ledger.paths.len();
        ledger.paths.retain(|known| known != path);
        ledger.paths.len() < before
    }
}

impl TempFile {
    /// Keeps the file; an error if it was abandoned meanwhile.
    pub fn finish(self) -> Outcome<PathBuf> {
        if self.owner.strike(&self.path) {
            Ok(self.path.clone())
        } else {
            Err(over())
        }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if self.owner.strike(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn over() -> Error {
    Error::new("ESHUTDOWN", "the warden is ending, or the client has disconnected")
}
