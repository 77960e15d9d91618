//! A folder of a test's own, removed at its end. Tools change the working folder of the whole process, so there is one at a time.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE: Mutex<()> = Mutex::new(());

pub struct Folder {
    path: PathBuf,
    _one: MutexGuard<'static, ()>,
}

impl Folder {
    pub fn new(name: &str) -> Folder {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = env::temp_dir().join(format!("forkd-agent-{}-{}", name, std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder { path, _one: one }
    }

    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.path.join(below)
    }

    /// A file for what a tool writes.
    pub fn output(&self) -> File {
        File::create(self.path(".output")).unwrap()
    }

    /// What a tool wrote.
    pub fn written(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut file = File::open(self.path(".output")).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        fs::remove_file(self.path(".output")).unwrap();
        bytes
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        env::set_current_dir("/").unwrap();
        // what a test closed, only root could remove
        let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(&self.path).status();
        let result: io::Result<()> = fs::remove_dir_all(&self.path);
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}
