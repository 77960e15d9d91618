//! Tells what changes in a folder, as records on stdout. First `R`: from here on nothing is missed.

use super::{Outcome, Problem};
use crate::protocol::Writer;
use crate::sys::{self, Change, Inotify};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::AsRawFd;
use std::path::{Path, PathBuf};

const SELF: u32 = libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_ATTRIB;
const WITHIN: u32 = libc::IN_CREATE | libc::IN_MODIFY | libc::IN_DELETE | libc::IN_MOVED_FROM | libc::IN_MOVED_TO;
/// A batch goes out at once when it has so many events.
const LARGEST_BATCH: usize = 4096;
/// The second half of a move comes right after the first.
const OTHER_HALF_MS: i32 = 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Created = b'c' as isize,
    Modified = b'm' as isize,
    Attributes = b'a' as isize,
    Removed = b'd' as isize,
    Moved = b'v' as isize,
    Overflow = b'o' as isize,
}

struct Event {
    kind: Kind,
    is_folder: bool,
    path: Vec<u8>,
    from: Vec<u8>,
    /// Of the first half of a move that still lacks the second.
    cookie: u32,
}

pub fn watch(path: &Path, debounce_ms: u64, recursive: bool, mut output: File) -> Outcome {
    let start = fs::canonicalize(path)?;
    let mut watcher = Watcher {
        inotify: Inotify::new()?,
        shown: path.as_os_str().as_bytes().to_vec(),
        start,
        recursive,
        is_folder: false,
        folders: HashMap::new(),
        batch: Vec::new(),
        last: HashMap::new(),
        is_over: false,
    };
    watcher.begin()?;
    output.write_all(b"R")?;
    let mut buffer = vec![0; 1 << 16];
    while !watcher.is_over {
        if !watcher.wait(-1, &output)? {
            return Ok(());
        }
        let until = sys::monotonic_ms() + debounce_ms;
        while !watcher.is_over && watcher.batch.len() < LARGEST_BATCH {
            watcher.read(&mut buffer)?;
            let now = sys::monotonic_ms();
            if now >= until {
                break;
            }
            if !watcher.wait((until - now).min(60_000) as i32, &output)? {
                return Ok(());
            }
        }
        if watcher.batch.iter().any(|event| event.cookie != 0) && watcher.wait(OTHER_HALF_MS, &output)? {
            watcher.read(&mut buffer)?;
        }
        watcher.flush(&mut output)?;
    }
    Ok(())
}

struct Watcher {
    inotify: Inotify,
    /// The path as it was asked for, which the events begin with.
    shown: Vec<u8>,
    start: PathBuf,
    recursive: bool,
    /// What the start is.
    is_folder: bool,
    /// What is watched: paths below the start, which itself is the empty path.
    folders: HashMap<i32, Vec<u8>>,
    batch: Vec<Event>,
    /// The last event of each path in this batch.
    last: HashMap<Vec<u8>, Kind>,
    is_over: bool,
}

impl Watcher {
    fn begin(&mut self) -> Result<(), Problem> {
        self.is_folder = fs::metadata(&self.start)?.is_dir();
        let within = if self.is_folder { WITHIN } else { libc::IN_MODIFY };
        let watch = self.inotify.watch(&self.start, SELF | within);
        self.folders.insert(watch.map_err(out_of_watches)?, Vec::new());
        if self.is_folder && self.recursive {
            self.adopt(&[], false)?;
        }
        Ok(())
    }

    /// Whether to go on: somebody still reads, and nobody asked us to end.
    fn wait(&self, timeout_ms: i32, output: &File) -> io::Result<bool> {
        let mut fds = [
            sys::poll_fd(self.inotify.as_raw_fd(), sys::POLLIN),
            sys::poll_fd(output.as_raw_fd(), 0),
        ];
        sys::poll(&mut fds, timeout_ms)?;
        Ok(!sys::is_stopped() && fds[1].revents == 0)
    }

    /// Takes what has happened into the batch.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Problem> {
        let mut changes = Vec::new();
        while self.inotify.changes(buffer, |change| changes.push(change))? {}
        for change in changes {
            self.change(change)?;
        }
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), Problem> {
        if change.mask & libc::IN_Q_OVERFLOW != 0 {
            self.event(Kind::Overflow, false, Vec::new());
            // folders may have been made that were not told
            return if self.recursive { self.adopt(&[], false) } else { Ok(()) };
        }
        let folder = match self.folders.get(&change.watch) {
            Some(folder) => folder.clone(),
            None => return Ok(()),
        };
        if let Some(gone) = self.moved_out(&folder) {
            self.forget(&gone);
            return Ok(());
        }
        if change.name.is_empty() {
            self.about_itself(&change, &folder);
            return Ok(());
        }
        let mut path = folder;
        super::walk::join(&mut path, OsStr::from_bytes(&change.name));
        let is_folder = change.mask & libc::IN_ISDIR != 0;
        let has = |bits: u32| change.mask & bits != 0;
        if has(libc::IN_MOVED_TO) && self.moved(&change, &path, is_folder) {
            return Ok(());
        }
        if has(libc::IN_MOVED_FROM) {
            self.event(Kind::Removed, is_folder, path);
            if let Some(event) = self.batch.last_mut() {
                event.cookie = change.cookie;
            }
        } else if has(libc::IN_CREATE | libc::IN_MOVED_TO) {
            self.event(Kind::Created, is_folder, path.clone());
            if is_folder && self.recursive {
                self.adopt(&path, true)?;
            }
        } else if has(libc::IN_DELETE) {
            self.event(Kind::Removed, is_folder, path);
        } else if has(libc::IN_MODIFY) {
            self.event(Kind::Modified, is_folder, path);
        } else if has(libc::IN_ATTRIB) {
            self.event(Kind::Attributes, is_folder, path);
        }
        Ok(())
    }

    /// A watched file or folder says something about itself; of those below the start their folders do it as well.
    fn about_itself(&mut self, change: &Change, path: &[u8]) {
        if change.mask & libc::IN_IGNORED != 0 {
            self.folders.remove(&change.watch);
        }
        if !path.is_empty() {
            return;
        }
        if change.mask & (libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_IGNORED | libc::IN_UNMOUNT) != 0 {
            if !self.is_over {
                self.event(Kind::Removed, self.is_folder, Vec::new());
            }
            self.is_over = true;
        } else if change.mask & libc::IN_MODIFY != 0 {
            self.event(Kind::Modified, false, Vec::new());
        } else if change.mask & libc::IN_ATTRIB != 0 {
            self.event(Kind::Attributes, self.is_folder, Vec::new());
        }
    }

    /// The second half of a move; `false` when the first was not seen.
    fn moved(&mut self, change: &Change, path: &[u8], is_folder: bool) -> bool {
        let half = self.batch.iter().position(|event| event.cookie == change.cookie);
        let from = match half {
            Some(at) => self.batch.remove(at).path,
            None => return false,
        };
        self.last.remove(&from);
        if is_folder {
            for folder in self.folders.values_mut() {
                if let Some(rest) = below(folder, &from) {
                    *folder = [path, rest].concat();
                }
            }
        }
        self.last.insert(path.to_vec(), Kind::Moved);
        self.batch.push(Event {
            kind: Kind::Moved,
            is_folder,
            path: path.to_vec(),
            from,
            cookie: 0,
        });
        true
    }

    /// The folder around this one that was moved, and not to anywhere here: else that would have been told by now.
    fn moved_out(&mut self, folder: &[u8]) -> Option<Vec<u8>> {
        let is_around = |event: &&mut Event| event.cookie != 0 && below(folder, &event.path).is_some();
        let event = self.batch.iter_mut().find(is_around)?;
        event.cookie = 0;
        Some(event.path.clone())
    }

    /// Adds an event unless the batch says the same already.
    fn event(&mut self, kind: Kind, is_folder: bool, path: Vec<u8>) {
        let last = self.last.get(&path).copied();
        let said = match kind {
            Kind::Created => last == Some(Kind::Created),
            Kind::Modified => matches!(last, Some(Kind::Created) | Some(Kind::Modified)),
            Kind::Attributes => matches!(last, Some(Kind::Created) | Some(Kind::Attributes)),
            Kind::Overflow => last == Some(Kind::Overflow),
            Kind::Removed | Kind::Moved => false,
        };
        if said {
            return;
        }
        self.last.insert(path.clone(), kind);
        self.batch.push(Event {
            kind,
            is_folder,
            path,
            from: Vec::new(),
            cookie: 0,
        });
    }

    /// Watches what a folder holds; with `tells`, what is in it already is told as created.
    fn adopt(&mut self, folder: &[u8], tells: bool) -> Result<(), Problem> {
        let mut waiting = vec![folder.to_vec()];
        while let Some(path) = waiting.pop() {
            let place = self.start.join(OsStr::from_bytes(&path));
            if !path.is_empty() {
                let mask = SELF | WITHIN | libc::IN_ONLYDIR | libc::IN_DONT_FOLLOW;
                match self.inotify.watch(&place, mask) {
                    Ok(watch) => self.folders.insert(watch, path.clone()),
                    Err(e) if is_elsewhere(&e) => continue,
                    Err(e) => return Err(out_of_watches(e)),
                };
            }
            let entries = match fs::read_dir(&place) {
                Err(e) if is_elsewhere(&e) => continue,
                result => result?,
            };
            for entry in entries.flatten() {
                let mut below = path.clone();
                super::walk::join(&mut below, &entry.file_name());
                let is_folder = entry.file_type().map_or(false, |kind| kind.is_dir());
                if tells {
                    self.event(Kind::Created, is_folder, below.clone());
                }
                if is_folder {
                    waiting.push(below);
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self, output: &mut File) -> Result<(), Problem> {
        let mut records = Writer::default();
        for event in std::mem::take(&mut self.batch) {
            if event.cookie != 0 && event.is_folder {
                self.forget(&event.path);
            }
            let from = match event.kind {
                Kind::Moved => self.show(&event.from),
                _ => Vec::new(),
            };
            records = records
                .u8(event.kind as u8)
                .u8(event.is_folder as u8)
                .bytes(&self.show(&event.path))
                .bytes(&from);
        }
        self.last.clear();
        output.write_all(&records.0)?;
        Ok(())
    }

    /// A folder that was moved out of the tree is none of our business any more.
    fn forget(&mut self, path: &[u8]) {
        let inotify = &self.inotify;
        self.folders.retain(|watch, folder| {
            let gone = below(folder, path).is_some();
            if gone {
                inotify.forget(*watch);
            }
            !gone
        });
    }

    fn show(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() {
            return self.shown.clone();
        }
        let mut shown = self.shown.clone();
        if shown.last() != Some(&b'/') {
            shown.push(b'/');
        }
        shown.extend_from_slice(path);
        shown
    }
}

/// What of a path follows a folder, when it is that folder or below it.
fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(folder)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

/// Gone, replaced or closed since it was seen.
fn is_elsewhere(error: &io::Error) -> bool {
    let gone = [libc::ENOENT, libc::ENOTDIR, libc::EACCES, libc::ELOOP];
    error.raw_os_error().map_or(false, |number| gone.contains(&number))
}

fn out_of_watches(error: io::Error) -> Problem {
    if error.raw_os_error() != Some(libc::ENOSPC) {
        return error.into();
    }
    Problem {
        code: "EMFILE".to_string(),
        message: "there are more folders than fs.inotify.max_user_watches allows".to_string(),
    }
}
