//! Files that are removed unless they are finished, also when the warden ends in the middle.

use crate::fault::{Context, Fault, Outcome};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Ledger {
    closing: bool,
    paths: Vec<PathBuf>,
}

static LEDGER: Mutex<Ledger> = Mutex::new(Ledger {
    closing: false,
    paths: Vec::new(),
});

fn ledger() -> MutexGuard<'static, Ledger> {
    LEDGER.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct Unfinished {
    path: PathBuf,
    pub file: File,
}

impl Unfinished {
    pub fn create(path: &Path) -> Outcome<Unfinished> {
        let mut ledger = ledger();
        if ledger.closing {
            return Err(Fault::new("ESHUTDOWN", "the warden is ending"));
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
            file,
        })
    }

    /// The file stays.
    pub fn finish(self) {
        ledger().paths.retain(|path| *path != self.path);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut ledger = ledger();
        let before = ledger.paths.len();
        ledger.paths.retain(|path| *path != self.path);
        if ledger.paths.len() < before {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes them all and lets no more be made.
pub fn remove_all() {
    let mut ledger = ledger();
    ledger.closing = true;
    for path in ledger.paths.drain(..) {
        let _ = std::fs::remove_file(path);
    }
}
