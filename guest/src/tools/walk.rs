//! Walks a tree without following links and without long paths: the working folder is always the parent of the entry,
//! so the depth is not limited and no link can lead the walk out of the tree.

use crate::sys;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// An entry of the tree; `name` is valid in the working folder.
pub struct Entry<'a> {
    pub name: &'a Path,
    /// Below the start, whose path is empty.
    pub path: &'a [u8],
    pub depth: u64,
    pub found: &'a Metadata,
    /// The working folder.
    pub folder: &'a File,
}

pub enum Step<'a> {
    /// A folder, before its content.
    Enter(Entry<'a>),
    /// The same folder after its content.
    Leave(Entry<'a>),
    /// Any other entry.
    Leaf(Entry<'a>),
    /// A folder that cannot be opened, after its Enter and in place of its Leave.
    Closed(Entry<'a>, io::Error),
}

impl<'a> Step<'a> {
    pub fn entry(&self) -> &Entry<'a> {
        match self {
            Step::Enter(entry) | Step::Leave(entry) | Step::Leaf(entry) | Step::Closed(entry, _) => entry,
        }
    }
}

/// How to proceed with an entered folder.
#[derive(PartialEq, Eq)]
pub enum Next {
    Descend,
    Pass,
}

struct Level {
    folder: File,
    /// Names that are still to be visited, the next one last.
    names: Vec<OsString>,
    /// The folder's name in its parent.
    name: OsString,
    found: Metadata,
    /// Position of its name in the path.
    path_length: usize,
}

/// Visits a path and everything below it, each folder's names in the order of their bytes. With `from`, a path below
/// the start, earlier entries are skipped, except the folders on the way to it.
pub fn walk(start: &Path, from: &[u8], visit: &mut dyn FnMut(Step) -> io::Result<Next>) -> io::Result<()> {
    let root = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(".")?;
    let found = fs::symlink_metadata(start)?;
    let mut levels: Vec<Level> = Vec::new();
    let mut path: Vec<u8> = Vec::new();
    let mut next = Some((start.as_os_str().to_os_string(), found));
    loop {
        let depth = levels.len() as u64;
        if let Some((name, found)) = next.take() {
            let path_length = path.len();
            if depth > 0 {
                join(&mut path, &name);
            }
            let folder = levels.last().map_or(&root, |level| &level.folder);
            let entry = || Entry {
                name: Path::new(&name),
                path: &path,
                depth,
                found: &found,
                folder,
            };
            if !found.is_dir() {
                visit(Step::Leaf(entry()))?;
            } else if visit(Step::Enter(entry()))? == Next::Descend {
                match enter(Path::new(&name), folder) {
                    Ok((folder, mut names)) => {
                        if let Some(first) = next_name(from, &path) {
                            names.retain(|name| name.as_bytes() >= first);
                        }
                        levels.push(Level {
                            folder,
                            names,
                            name,
                            found,
                            path_length,
                        });
                        continue;
                    }
                    Err(error) => {
                        visit(Step::Closed(entry(), error))?;
                    }
                }
            }
            path.truncate(path_length);
            continue;
        }
        let level = match levels.last_mut() {
            Some(level) => level,
            None => return Ok(()),
        };
        if let Some(name) = level.names.pop() {
            match fs::symlink_metadata(&name) {
                Ok(found) => next = Some((name, found)),
                // removed since the folder was read
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
            continue;
        }
        let done = match levels.pop() {
            Some(level) => level,
            None => return Ok(()),
        };
        let folder = levels.last().map_or(&root, |level| &level.folder);
        sys::go_to(folder)?;
        visit(Step::Leave(Entry {
            name: Path::new(&done.name),
            path: &path,
            depth: levels.len() as u64,
            found: &done.found,
            folder,
        }))?;
        path.truncate(done.path_length);
    }
}

/// Enters a folder, never through a link, and reads its names; stays in `back` if that fails.
fn enter(name: &Path, back: &File) -> io::Result<(File, Vec<OsString>)> {
    let folder = open_folder(name)?;
    sys::go_to(&folder)?;
    match names() {
        Ok(names) => Ok((folder, names)),
        Err(error) => {
            sys::go_to(back)?;
            Err(error)
        }
    }
}

/// The name in the folder `path` that leads to `wanted`.
fn next_name<'a>(wanted: &'a [u8], path: &[u8]) -> Option<&'a [u8]> {
    let rest = wanted.strip_prefix(path)?;
    let rest = if path.is_empty() {
        rest
    } else {
        rest.strip_prefix(b"/")?
    };
    rest.split(|byte| *byte == b'/').next()
}

pub fn open_folder(name: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(name)
}

fn names() -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(".")? {
        names.push(entry?.file_name());
    }
    names.sort_unstable_by(|a, b| b.as_bytes().cmp(a.as_bytes()));
    Ok(names)
}

pub fn join(path: &mut Vec<u8>, name: &OsStr) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
}
