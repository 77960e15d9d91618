//! A folder as root of relative paths: they are followed name by name, and a link on the way is an error.

use super::walk::open_folder;
use crate::sys;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub struct Folder {
    root: File,
    /// The working folder, below the root.
    at: Vec<OsString>,
}

impl Folder {
    pub fn open(path: &Path) -> io::Result<Folder> {
        let root = File::open(path)?;
        sys::go_to(&root)?;
        Ok(Folder { root, at: Vec::new() })
    }

    /// Changes to the parent folder of an entry and makes missing folders on the way. Returns the entry's name there,
    /// or `None` for the root itself.
    pub fn go_to_parent(&mut self, path: &[u8]) -> io::Result<Option<PathBuf>> {
        let mut names = names(path)?;
        let name = names.pop();
        if self.at != names {
            if !names.starts_with(&self.at) {
                sys::go_to(&self.root)?;
                self.at.clear();
            }
            for name in &names[self.at.len()..] {
                sys::go_to(&open_or_make(Path::new(name))?)?;
                self.at.push(name.clone());
            }
        }
        Ok(name.map(PathBuf::from))
    }

    /// Opens the parent folder of an entry without changing the working folder.
    pub fn open_parent(&self, path: &[u8]) -> io::Result<(File, PathBuf)> {
        let mut names = names(path)?;
        let name = names.pop().ok_or_else(|| io::Error::from_raw_os_error(libc::EISDIR))?;
        let here = open_folder(Path::new("."))?;
        let opened = (|| {
            sys::go_to(&self.root)?;
            let mut folder = self.root.try_clone()?;
            for name in &names {
                folder = open_folder(Path::new(name))?;
                sys::go_to(&folder)?;
            }
            Ok(folder)
        })();
        sys::go_to(&here)?;
        opened.map(|folder| (folder, PathBuf::from(name)))
    }

    pub fn root(&self) -> &File {
        &self.root
    }
}

fn open_or_make(name: &Path) -> io::Result<File> {
    match open_folder(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o755).create(name)?;
            open_folder(name)
        }
        result => result,
    }
}

/// The names of a path; a leading slash is ignored, and `..` is refused.
fn names(path: &[u8]) -> io::Result<Vec<OsString>> {
    let names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<OsString> = names.map(|name| OsStr::from_bytes(name).to_os_string()).collect();
    match names.iter().any(|name| name == "..") {
        true => Err(io::Error::new(io::ErrorKind::Other, "an entry leads out of the folder")),
        false => Ok(names),
    }
}
