//! Staging: new content is made beside its final path under another name, and then renamed.

use super::remove;
use crate::files;
use crate::sys;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub struct Stage {
    pub path: PathBuf,
    place: PathBuf,
    is_done: bool,
}

impl Stage {
    pub fn beside(place: &Path) -> io::Result<Stage> {
        // the same folder under its canonical path: a link in the path may change meanwhile
        let name = place
            .file_name()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EEXIST))?;
        let parent = match place.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("/"),
        };
        let place = fs::canonicalize(parent)?.join(name);
        Ok(Stage {
            path: sys::neighbour(&place)?,
            place,
            is_done: false,
        })
    }

    /// Moves it to its final path.
    pub fn finish(mut self, overwrite: bool) -> io::Result<()> {
        files::rename(&self.path, &self.place, overwrite)?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.is_done && fs::symlink_metadata(&self.path).is_ok() {
            // also after a request to stop; the caller reports the failure that led here
            let _ = remove::remove_all(&self.path, || Ok(()));
        }
    }
}

/// A new entry of the working folder that replaces an old one, which stays until the new one is complete.
pub struct Place<'a> {
    name: &'a Path,
    made: PathBuf,
    is_done: bool,
}

impl<'a> Place<'a> {
    pub fn make<T>(name: &'a Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(Place<'a>, T)> {
        let mut place = Place {
            name,
            made: name.to_path_buf(),
            is_done: true,
        };
        let value = match make(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                place.made = sys::neighbour(name)?;
                make(&place.made)?
            }
            result => result?,
        };
        place.is_done = false;
        Ok((place, value))
    }

    pub fn path(&self) -> &Path {
        &self.made
    }

    pub fn finish(mut self) -> io::Result<()> {
        if self.made != self.name {
            fs::rename(&self.made, self.name)?;
        }
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.made);
        }
    }
}
