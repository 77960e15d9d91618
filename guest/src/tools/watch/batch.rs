//! Events that are sent together.

use forkd_wire::Writer;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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
    /// Cookie of the first event of a move whose second is missing.
    cookie: u32,
}

pub struct Batch {
    /// Whether repeated changes are reported once.
    merges: bool,
    events: Vec<Event>,
    /// How many events have a cookie.
    halves: usize,
    /// The reported kinds of each path since it was made, moved or removed.
    told: BTreeMap<Vec<u8>, Vec<Kind>>,
}

impl Batch {
    pub fn new(merges: bool) -> Batch {
        Batch {
            merges,
            events: Vec::new(),
            halves: 0,
            told: BTreeMap::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Adds an event, unless changes are merged and the same was reported already.
    pub fn add(&mut self, kind: Kind, is_folder: bool, path: Vec<u8>) {
        if kind == Kind::Removed {
            self.untell(&path);
        } else if self.merges {
            let told = self.told.entry(path.clone()).or_default();
            if told.contains(&kind) {
                return;
            }
            told.push(kind);
        }
        self.events.push(Event {
            kind,
            is_folder,
            path,
            from: Vec::new(),
            cookie: 0,
        });
    }

    /// Another file or folder may be at this path from now on: everything at it and below it is reported again.
    fn untell(&mut self, path: &[u8]) {
        self.told.remove(path);
        let inside = [path, b"/"].concat();
        let below = self.told.range(inside.clone()..).map(|(path, _)| path);
        let below: Vec<_> = below.take_while(|path| path.starts_with(&inside)).cloned().collect();
        for path in &below {
            self.told.remove(path);
        }
    }

    /// The first event of a move: the path counts as removed unless the second event has the new path.
    pub fn first_half(&mut self, cookie: u32, is_folder: bool, path: Vec<u8>) {
        self.add(Kind::Removed, is_folder, path);
        if let Some(event) = self.events.last_mut() {
            event.cookie = cookie;
            self.halves += 1;
        }
    }

    /// Completes a move and returns its origin; `None` if the first event was not seen.
    pub fn second_half(&mut self, cookie: u32, is_folder: bool, path: &[u8]) -> Option<Vec<u8>> {
        // a target directly follows its origin, so the search is short
        let at = self.events.iter().rposition(|event| event.cookie == cookie)?;
        let from = self.events.remove(at).path;
        self.halves -= 1;
        self.untell(path);
        self.events.push(Event {
            kind: Kind::Moved,
            is_folder,
            path: path.to_vec(),
            from: from.clone(),
            cookie: 0,
        });
        Some(from)
    }

    pub fn has_half_a_move(&self) -> bool {
        self.halves > 0
    }

    /// The folder around this one that was moved out of the tree: a target inside the tree would have been reported by
    /// now.
    pub fn moved_out(&mut self, folder: &[u8]) -> Option<Vec<u8>> {
        if self.halves == 0 {
            return None;
        }
        let is_around = |event: &&mut Event| event.cookie != 0 && below(folder, &event.path).is_some();
        let event = self.events.iter_mut().find(is_around)?;
        event.cookie = 0;
        self.halves -= 1;
        Some(event.path.clone())
    }

    /// All folders that were moved out of the tree so far.
    pub fn all_moved_out(&mut self) -> Vec<Vec<u8>> {
        let mut gone = Vec::new();
        if self.halves > 0 {
            for event in self
                .events
                .iter_mut()
                .filter(|event| event.cookie != 0 && event.is_folder)
            {
                event.cookie = 0;
                self.halves -= 1;
                gone.push(event.path.clone());
            }
        }
        gone
    }

    /// The records of all events, whose paths begin with `start`, and the folders that were moved out of the tree.
    pub fn take(&mut self, start: &[u8]) -> (Writer, Vec<Vec<u8>>) {
        let mut records = Writer::default();
        let mut left = Vec::new();
        for event in std::mem::take(&mut self.events) {
            let from = match event.kind {
                Kind::Moved => joined(start, &event.from),
                _ => Vec::new(),
            };
            records = records
                .u8(event.kind as u8)
                .u8(event.is_folder as u8)
                .bytes(&joined(start, &event.path))
                .bytes(&from);
            if event.cookie != 0 && event.is_folder {
                left.push(event.path);
            }
        }
        self.halves = 0;
        self.told.clear();
        (records, left)
    }
}

fn joined(start: &[u8], path: &[u8]) -> Vec<u8> {
    let mut whole = start.to_vec();
    if !path.is_empty() {
        if whole.last() != Some(&b'/') {
            whole.push(b'/');
        }
        whole.extend_from_slice(path);
    }
    whole
}

/// The part of a path after a folder, if it is that folder or below it.
pub fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(folder)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}
