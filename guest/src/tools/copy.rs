//! Copies a file or a tree, with modes, times and links, and with owners if permitted.

use super::stage::Stage;
use super::walk::{open_folder, walk, Entry, Next, Step};
use super::{check_stopped, problem_below, remove, Outcome, Problem};
use crate::files::MODE_BITS;
use crate::sys;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Bytes copied between two checks whether the result is still needed.
const STRETCH: u64 = 16 << 20;
/// Other bits are kept only together with the owner.
const PLAIN_BITS: u32 = 0o777;

pub fn copy(from: &Path, to: &Path, recursive: bool, overwrite: bool) -> Outcome {
    if recursive {
        return copy_to(from, to, overwrite);
    }
    // as in cp: a single link is copied as its target, a link in a tree as a link
    let from = fs::canonicalize(from)?;
    match fs::metadata(&from)?.is_dir() {
        true => Err(io::Error::from_raw_os_error(libc::EISDIR).into()),
        false => copy_to(&from, to, overwrite),
    }
}

/// Moves to another file system: copies, then removes.
pub fn move_across(from: &Path, to: &Path, overwrite: bool) -> Outcome {
    copy_to(from, to, overwrite)?;
    remove::remove(from)
}

fn copy_to(from: &Path, to: &Path, overwrite: bool) -> Outcome {
    fs::symlink_metadata(from)?;
    match fs::symlink_metadata(to) {
        Ok(_) if !overwrite => return Err(io::Error::from_raw_os_error(libc::EEXIST).into()),
        Ok(found) if found.is_dir() && fs::read_dir(to)?.next().is_some() => {
            return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY).into());
        }
        _ => {}
    }
    let stage = Stage::beside(to)?;
    let mut copier = Copier {
        stage: &stage.path,
        is_root: sys::is_root(),
        folders: Vec::new(),
        links: HashMap::new(),
    };
    let mut at = Vec::new();
    walk(from, b"", &mut |step| {
        at.clear();
        at.extend_from_slice(step.entry().path);
        copier.step(step)
    })
    .map_err(|e| problem_below(from, &at, &e))?;
    stage.finish(overwrite).map_err(Problem::from)
}

struct Copier<'a> {
    stage: &'a Path,
    is_root: bool,
    /// The copies of the folders from the start to the current one.
    folders: Vec<File>,
    /// Files with several names: the path of the first copy, below the start.
    links: HashMap<(u64, u64), Vec<u8>>,
}

impl Copier<'_> {
    fn step(&mut self, step: Step) -> io::Result<Next> {
        check_stopped()?;
        match step {
            Step::Enter(entry) => self.enter(&entry)?,
            Step::Leave(entry) => {
                if let Some(folder) = self.folders.pop() {
                    self.keep(&folder, entry.found)?;
                }
            }
            Step::Leaf(entry) => self.leaf(&entry)?,
            Step::Closed(_, error) => return Err(error),
        }
        Ok(Next::Descend)
    }

    fn enter(&mut self, entry: &Entry) -> io::Result<()> {
        if let Some(stage) = self.folders.first() {
            let stage = stage.metadata()?;
            if (stage.dev(), stage.ino()) == (entry.found.dev(), entry.found.ino()) {
                let message = "a folder cannot be copied into itself";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        let copy = self.at_copy(entry, |name| {
            DirBuilder::new().mode(0o700).create(name)?;
            open_folder(name)
        })?;
        self.folders.push(copy);
        Ok(())
    }

    fn leaf(&mut self, entry: &Entry) -> io::Result<()> {
        let found = entry.found;
        if found.nlink() > 1 {
            let first = self.links.get(&(found.dev(), found.ino()));
            if let (Some(first), Some(root)) = (first, self.folders.first()) {
                let first = Path::new(OsStr::from_bytes(first));
                match self.at_copy(entry, |name| sys::link(root, first, name)) {
                    // the path from the start is too long: the name becomes a separate file
                    Err(e) if e.raw_os_error() == Some(libc::ENAMETOOLONG) => {}
                    result => return result,
                }
            }
            self.links.insert((found.dev(), found.ino()), entry.path.to_vec());
        }
        let file_type = found.file_type();
        if file_type.is_file() {
            return self.file(entry);
        }
        if file_type.is_symlink() {
            let target = fs::read_link(entry.name)?;
            return self.at_copy(entry, |name| {
                symlink(&target, name)?;
                if self.is_root {
                    sys::chown_link(name, found.uid(), found.gid())?;
                }
                sys::set_mtime(name, found.mtime(), found.mtime_nsec())
            });
        }
        self.at_copy(entry, |name| {
            sys::make_node(name, found.mode() & !MODE_BITS | 0o600, found.rdev())?;
            if self.is_root {
                sys::chown_link(name, found.uid(), found.gid())?;
            }
            fs::set_permissions(name, Permissions::from_mode(self.mode(found)))?;
            sys::set_mtime(name, found.mtime(), found.mtime_nsec())
        })
    }

    fn file(&self, entry: &Entry) -> io::Result<()> {
        let mut source = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(entry.name)?;
        let found = source.metadata()?;
        if !found.is_file() {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        let mut copy = self.at_copy(entry, |name| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(name)
        })?;
        copy_content(&mut source, &mut copy, &found)?;
        self.keep(&copy, &found)
    }

    /// Runs `work` with the copy's name in the copy's folder.
    fn at_copy<T>(&self, entry: &Entry, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        match self.folders.last() {
            None => work(self.stage),
            Some(folder) => {
                sys::go_to(folder)?;
                let result = work(entry.name);
                sys::go_to(entry.folder)?;
                result
            }
        }
    }

    fn keep(&self, copy: &File, found: &Metadata) -> io::Result<()> {
        if self.is_root {
            sys::chown_file(copy, found.uid(), found.gid())?;
        }
        copy.set_permissions(Permissions::from_mode(self.mode(found)))?;
        sys::set_file_mtime(copy, found.mtime(), found.mtime_nsec())
    }

    fn mode(&self, found: &Metadata) -> u32 {
        found.mode() & if self.is_root { MODE_BITS } else { PLAIN_BITS }
    }
}

/// Holes stay holes. std lets the guest kernel copy, by reference if the file system supports that.
fn copy_content(source: &mut File, copy: &mut File, found: &Metadata) -> io::Result<()> {
    let size = found.size();
    let has_holes = found.blocks() * 512 < size;
    let mut at = 0;
    while at < size {
        let end = match has_holes {
            true => {
                at = sys::next_part(source, at, size, true)?;
                sys::next_part(source, at, size, false)?
            }
            false => size,
        };
        while at < end {
            check_stopped()?;
            source.seek(SeekFrom::Start(at))?;
            copy.seek(SeekFrom::Start(at))?;
            let count = io::copy(&mut source.take((end - at).min(STRETCH)), copy)?;
            if count == 0 {
                // it was shortened meanwhile
                return Ok(());
            }
            at += count;
        }
    }
    if has_holes {
        copy.set_len(size)?;
    }
    Ok(())
}
