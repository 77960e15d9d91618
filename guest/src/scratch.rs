//! A test folder that is removed on drop. Tools change the working folder of the whole process, so there is only one at
//! a time.

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

    /// A file for a tool's output.
    pub fn output(&self) -> File {
        File::create(self.path(".output")).unwrap()
    }

    /// The output of a tool.
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
        // a test may have removed permissions, and then only root could remove the folder
        let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(&self.path).status();
        let result: io::Result<()> = fs::remove_dir_all(&self.path);
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}
