//! Reports changes in a folder as records on stdout. The first record is `R`: later changes are not missed. With
//! `--flush` it is `S`, and each byte on stdin is answered with `F` after all earlier changes were reported.

mod batch;

use self::batch::{below, Batch, Kind};
use super::{Outcome, Problem};
use crate::sys::{self, Change, Inotify};
use forkd_wire::Writer;
use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::AsRawFd;
use std::path::{Path, PathBuf};

const SELF: u32 = libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_ATTRIB;
const WITHIN: u32 = libc::IN_CREATE | libc::IN_MODIFY | libc::IN_DELETE | libc::IN_MOVED_FROM | libc::IN_MOVED_TO;
const MADE: u32 = libc::IN_CREATE | libc::IN_MOVED_TO;
/// A batch is sent at once when it has this many events.
const LARGEST_BATCH: usize = 4096;
/// The second event of a move directly follows the first.
const OTHER_HALF_MS: i32 = 10;
/// How often one batch searches for folders that are moved on while they are searched for.
const MOST_SEARCHES: u32 = 8;

pub struct How {
    /// Time for which changes are gathered, and repeated ones reported once; 0: every change is reported.
    pub debounce_ms: u64,
    pub recursive: bool,
    pub flushes: bool,
}

pub fn watch(path: &Path, how: &How, input: File, mut output: File) -> Outcome {
    let mut watcher = Watcher::new(path, how, input)?;
    watcher.begin()?;
    output.write_all(if how.flushes { b"S" } else { b"R" })?;
    while !watcher.is_over {
        if !watcher.wait(-1, &output)? {
            return Ok(());
        }
        let until = sys::monotonic_ms() + how.debounce_ms;
        loop {
            watcher.read()?;
            let now = sys::monotonic_ms();
            if now >= until || watcher.is_due() {
                break;
            }
            if !watcher.wait((until - now).min(60_000) as i32, &output)? {
                return Ok(());
            }
        }
        if watcher.batch.has_half_a_move() && watcher.wait(OTHER_HALF_MS, &output)? {
            watcher.read()?;
        }
        watcher.flush(&mut output)?;
    }
    Ok(())
}

struct Watcher {
    inotify: Inotify,
    /// Stdin, on which the host requests a flush.
    input: Option<File>,
    /// The requested path, with which the events' paths begin.
    shown: Vec<u8>,
    start: PathBuf,
    recursive: bool,
    /// Whether the start is a folder.
    is_folder: bool,
    /// Watched folders: paths below the start, whose path is empty.
    folders: HashMap<i32, Vec<u8>>,
    buffer: Vec<u8>,
    /// Events of the guest kernel that were not handled yet.
    queue: VecDeque<Change>,
    batch: Batch,
    /// Flush answers that are sent with this batch.
    flushes: usize,
    /// Folders that had left their path when their content was to be read: they may have been moved.
    missed: Vec<Vec<u8>>,
    is_over: bool,
}

/// The origin of a folder's content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Present before the watch, and not reported.
    Old,
    /// Moved together with the folder: reported as created.
    Moved,
    /// Made in the new folder: reported as created, and as modified if it has content.
    Made,
}

/// The watch of a folder below the start, and its entries.
type Entered = (Option<i32>, Vec<Entry>);

/// An entry of a folder.
struct Entry {
    name: OsString,
    is_folder: bool,
    /// A file that is not empty.
    is_written: bool,
}

impl Entry {
    fn of(found: fs::DirEntry) -> Entry {
        let is_folder = found.file_type().map_or(false, |kind| kind.is_dir());
        let is_written = !is_folder && found.metadata().map_or(false, |file| file.is_file() && file.len() > 0);
        Entry {
            name: found.file_name(),
            is_folder,
            is_written,
        }
    }
}

impl Watcher {
    fn new(path: &Path, how: &How, input: File) -> io::Result<Watcher> {
        Ok(Watcher {
            inotify: Inotify::new()?,
            input: how.flushes.then_some(input),
            shown: path.as_os_str().as_bytes().to_vec(),
            start: fs::canonicalize(path)?,
            recursive: how.recursive,
            is_folder: false,
            folders: HashMap::new(),
            buffer: vec![0; 1 << 16],
            queue: VecDeque::new(),
            batch: Batch::new(how.debounce_ms > 0),
            flushes: 0,
            missed: Vec::new(),
            is_over: false,
        })
    }

    fn begin(&mut self) -> Result<(), Problem> {
        self.is_folder = fs::metadata(&self.start)?.is_dir();
        let within = if self.is_folder { WITHIN } else { libc::IN_MODIFY };
        let watch = self.inotify.watch(&self.start, SELF | within);
        self.folders.insert(watch.map_err(out_of_watches)?, Vec::new());
        if self.is_folder && self.recursive {
            self.adopt(&[], Content::Old)?;
        }
        Ok(())
    }

    /// Watches the present folders after events were lost, which may be about new, moved and removed folders.
    fn begin_anew(&mut self) -> Result<(), Problem> {
        // their paths may be wrong; the host lists everything again after this
        self.queue.clear();
        self.missed.clear();
        let inotify = &self.inotify;
        self.folders.retain(|watch, folder| {
            if !folder.is_empty() {
                inotify.forget(*watch);
            }
            folder.is_empty()
        });
        self.adopt(&[], Content::Old)
    }

    /// Whether the batch is sent before its time.
    fn is_due(&self) -> bool {
        self.is_over || self.flushes > 0 || self.batch.len() >= LARGEST_BATCH
    }

    /// Whether to continue: the reader is there, and the tool was not asked to end.
    fn wait(&self, timeout_ms: i32, output: &File) -> io::Result<bool> {
        let input = self.input.as_ref().map_or(-1, File::as_raw_fd);
        let mut fds = [
            sys::poll_fd(self.inotify.as_raw_fd(), sys::POLLIN),
            sys::poll_fd(output.as_raw_fd(), 0),
            sys::poll_fd(input, sys::POLLIN),
        ];
        sys::poll(&mut fds, timeout_ms)?;
        Ok(!sys::is_stopped() && fds[1].revents == 0)
    }

    /// Adds pending events to the batch.
    fn read(&mut self) -> Result<(), Problem> {
        // first: events from before the host's request are then in the queue
        self.read_input()?;
        self.drain()?;
        self.handle()
    }

    /// Adds the events of the queue to the batch.
    fn handle(&mut self) -> Result<(), Problem> {
        while let Some(change) = self.queue.pop_front() {
            self.change(change)?;
        }
        Ok(())
    }

    fn read_input(&mut self) -> io::Result<()> {
        let input = match &mut self.input {
            Some(input) => input,
            None => return Ok(()),
        };
        let mut fds = [sys::poll_fd(input.as_raw_fd(), sys::POLLIN)];
        sys::poll(&mut fds, 0)?;
        if fds[0].revents != 0 {
            match input.read(&mut [0; 64])? {
                0 => self.input = None,
                count => self.flushes += count,
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        let queue = &mut self.queue;
        while self
            .inotify
            .changes(&mut self.buffer, |change| queue.push_back(change))?
        {}
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), Problem> {
        if change.mask & libc::IN_Q_OVERFLOW != 0 {
            self.batch.add(Kind::Overflow, false, Vec::new());
            return match self.recursive {
                true => self.begin_anew(),
                false => Ok(()),
            };
        }
        let folder = match self.folders.get(&change.watch) {
            Some(folder) => folder.clone(),
            None => return Ok(()),
        };
        if let Some(gone) = self.batch.moved_out(&folder) {
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
        if has(libc::IN_MOVED_TO) && self.moved(&change, &path, is_folder)? {
            return Ok(());
        }
        if is_folder {
            self.settle();
        }
        if has(libc::IN_MOVED_FROM) {
            self.batch.first_half(change.cookie, is_folder, path);
        } else if has(MADE) {
            self.missed.retain(|missed| below(missed, &path).is_none());
            self.batch.add(Kind::Created, is_folder, path.clone());
            if is_folder && self.recursive {
                let made = has(libc::IN_CREATE);
                self.adopt(&path, if made { Content::Made } else { Content::Moved })?;
            }
        } else if has(libc::IN_DELETE) {
            self.missed.retain(|missed| below(missed, &path).is_none());
            self.batch.add(Kind::Removed, is_folder, path);
        } else if has(libc::IN_MODIFY) {
            self.batch.add(Kind::Modified, is_folder, path);
        } else if has(libc::IN_ATTRIB) {
            self.batch.add(Kind::Attributes, is_folder, path);
        }
        Ok(())
    }

    /// An event about a watched file or folder itself; below the start, the parent folder reports it as well.
    fn about_itself(&mut self, change: &Change, path: &[u8]) {
        if change.mask & libc::IN_IGNORED != 0 {
            self.folders.remove(&change.watch);
        }
        if !path.is_empty() {
            return;
        }
        if change.mask & (libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_IGNORED | libc::IN_UNMOUNT) != 0 {
            if !self.is_over {
                self.batch.add(Kind::Removed, self.is_folder, Vec::new());
            }
            self.is_over = true;
        } else if change.mask & libc::IN_MODIFY != 0 {
            self.batch.add(Kind::Modified, false, Vec::new());
        } else if change.mask & libc::IN_ATTRIB != 0 {
            self.batch.add(Kind::Attributes, self.is_folder, Vec::new());
        }
    }

    /// The second event of a move; `false` if the first was not seen.
    fn moved(&mut self, change: &Change, path: &[u8], is_folder: bool) -> Result<bool, Problem> {
        let from = match self.batch.second_half(change.cookie, is_folder, path) {
            Some(from) => from,
            None => return Ok(false),
        };
        if !is_folder {
            return Ok(true);
        }
        self.settle();
        let mut is_watched = false;
        for folder in self.folders.values_mut() {
            if let Some(rest) = below(folder, &from) {
                is_watched |= rest.is_empty();
                *folder = [path, rest].concat();
            }
        }
        let (mut found, others) = std::mem::take(&mut self.missed)
            .into_iter()
            .partition::<Vec<_>, _>(|missed| below(missed, &from).is_some());
        self.missed = others;
        if self.recursive && !is_watched {
            // for example: it was moved between the begin of its parent's watch and the reading of its parent
            found = vec![from.clone()];
        }
        found.sort();
        found.dedup();
        for missed in &found {
            // folders inside another found one are covered by it
            if !found
                .iter()
                .any(|outer| outer != missed && below(missed, outer).is_some())
            {
                self.adopt(&[path, &missed[from.len()..]].concat(), Content::Made)?;
            }
        }
        Ok(true)
    }

    /// Adds watches below a folder, and reports its present content.
    fn adopt(&mut self, folder: &[u8], content: Content) -> Result<(), Problem> {
        let mut waiting = vec![folder.to_vec()];
        while let Some(path) = waiting.pop() {
            let (own_watch, entries) = match self.enter(&path)? {
                Some(entered) => entered,
                None => {
                    self.missed.push(path);
                    continue;
                }
            };
            // changes after the watch began are in the queue, which reports them; otherwise they would be reported
            // twice
            let mut queued: HashMap<Vec<u8>, u32> = HashMap::new();
            for change in self.queue.iter().filter(|change| Some(change.watch) == own_watch) {
                *queued.entry(change.name.clone()).or_default() |= change.mask;
            }
            for entry in entries {
                let seen = queued.get(entry.name.as_bytes()).copied().unwrap_or_default();
                if seen & MADE != 0 {
                    continue;
                }
                let mut below = path.clone();
                super::walk::join(&mut below, &entry.name);
                if content != Content::Old {
                    self.batch.add(Kind::Created, entry.is_folder, below.clone());
                }
                if content == Content::Made && entry.is_written && seen & libc::IN_MODIFY == 0 {
                    self.batch.add(Kind::Modified, false, below.clone());
                }
                if entry.is_folder {
                    waiting.push(below);
                }
            }
        }
        Ok(())
    }

    /// Watches a folder, reads its entries, and then the queue. `None` if it has left its path: another folder may be
    /// there now. If it was moved, that event is in the queue.
    fn enter(&mut self, path: &[u8]) -> Result<Option<Entered>, Problem> {
        let place = self.start.join(OsStr::from_bytes(path));
        let mut own_watch = None;
        let mut is_new = false;
        // the start is watched from the beginning
        if !path.is_empty() {
            match self.watch_below(&place, path) {
                Err(e) if !is_elsewhere(&e) => return Err(out_of_watches(e)),
                Ok(Some((watch, added))) => {
                    own_watch = Some(watch);
                    is_new = added;
                }
                Ok(None) | Err(_) => {
                    self.drain()?;
                    return Ok(None);
                }
            }
        }
        let entries = match fs::read_dir(&place) {
            Err(e) if is_elsewhere(&e) => None,
            // before the queue is read: later writes are in the queue
            result => Some(result?.flatten().map(Entry::of).collect()),
        };
        self.drain()?;
        match entries {
            Some(entries) if !self.has_left(path) => Ok(Some((own_watch, entries))),
            _ => {
                if let (Some(watch), true) = (own_watch, is_new) {
                    self.folders.remove(&watch);
                    self.inotify.forget(watch);
                }
                Ok(None)
            }
        }
    }

    /// Whether a move or a removal of a folder, or of one around it, is in the queue.
    fn has_left(&self, path: &[u8]) -> bool {
        self.queue.iter().any(|change| {
            if change.mask & libc::IN_ISDIR == 0 || change.mask & (libc::IN_MOVED_FROM | libc::IN_DELETE) == 0 {
                return false;
            }
            self.folders.get(&change.watch).map_or(false, |folder| {
                let mut left = folder.clone();
                super::walk::join(&mut left, OsStr::from_bytes(&change.name));
                below(path, &left).is_some()
            })
        })
    }

    /// The watch of a folder, and whether it is new. `None` if another watched folder is at this place, whose move is
    /// in the queue.
    fn watch_below(&mut self, place: &Path, path: &[u8]) -> io::Result<Option<(i32, bool)>> {
        let mask = SELF | WITHIN | libc::IN_ONLYDIR | libc::IN_DONT_FOLLOW;
        let mut watch = self.inotify.watch(place, mask)?;
        match self.folders.get(&watch) {
            None => {}
            Some(known) if known == path => return Ok(Some((watch, false))),
            Some(known) => match self.batch.moved_out(known) {
                None => return Ok(None),
                // it was moved out of the tree, and in again
                Some(gone) => {
                    self.forget(&gone);
                    watch = self.inotify.watch(place, mask)?;
                }
            },
        }
        self.folders.insert(watch, path.to_vec());
        Ok(Some((watch, true)))
    }

    fn flush(&mut self, output: &mut File) -> Result<(), Problem> {
        let mut records = self.finish()?;
        for _ in 0..std::mem::take(&mut self.flushes) {
            records = records.u8(b'F');
        }
        output.write_all(&records.0)?;
        Ok(())
    }

    /// Ends the batch and returns its records.
    fn finish(&mut self) -> Result<Writer, Problem> {
        // a folder that was moved into one without a watch has no second event, and still has the watch of its old path:
        // it can be watched at its new path only after that one was dropped
        for _ in 0..MOST_SEARCHES {
            self.settle();
            for path in std::mem::take(&mut self.missed) {
                self.adopt(&path, Content::Made)?;
            }
            if self.queue.is_empty() {
                // what is still missed was removed, or cannot be read
                break;
            }
            self.handle()?;
        }
        let (records, left) = self.batch.take(&self.shown);
        for folder in left {
            self.forget(&folder);
        }
        self.missed.clear();
        Ok(records)
    }

    /// Drops folders that were moved out of the tree, before the paths of others change: targets inside the tree would
    /// have been reported by now.
    fn settle(&mut self) {
        for gone in self.batch.all_moved_out() {
            self.forget(&gone);
        }
    }

    /// Drops a folder that was moved out of the tree.
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
}

/// Removed, replaced or closed since it was seen.
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

#[cfg(test)]
mod tests;
