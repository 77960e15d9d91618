//! An open folder: the guest kernel reads it in small parts, the agent requests large ones from the host.

use super::nodes::Nodes;
use super::record::Entry;
use crate::fuse::Folder;
use std::collections::VecDeque;

/// They precede the host's entries.
const DOTS: [&[u8]; 2] = [b".", b".."];
const UNKNOWN_INODE: u64 = 0xffff_ffff;

/// A READDIR or READDIRPLUS.
pub struct Reading {
    pub node: u64,
    pub handle: u64,
    pub offset: u64,
    pub size: u32,
    pub plus: bool,
}

impl Reading {
    /// The offset in the host's list.
    pub fn place(&self) -> u64 {
        self.offset.saturating_sub(DOTS.len() as u64)
    }
}

/// Entries that the guest kernel has not read yet.
#[derive(Default)]
pub struct Listing {
    entries: VecDeque<Entry>,
    /// The offset of the first of them.
    offset: u64,
    complete: bool,
}

impl Listing {
    pub fn new((entries, complete): (Vec<Entry>, bool), offset: u64) -> Listing {
        Listing {
            entries: entries.into(),
            offset,
            complete,
        }
    }

    /// Whether the next entries are here, or the end is known. The beginning is always requested again.
    pub fn has(&self, offset: u64) -> bool {
        offset > 0 && self.offset == offset && (self.complete || !self.entries.is_empty())
    }

    /// Fills the answer with as many entries as fit.
    pub fn fill(&mut self, reading: &Reading, nodes: &mut Nodes) -> Vec<u8> {
        let mut folder = Folder::new(reading.size, reading.plus);
        for (at, name) in DOTS.iter().enumerate().skip(reading.offset as usize) {
            folder.add(at as u64 + 1, name, UNKNOWN_INODE, libc::S_IFDIR, None);
        }
        self.offset = self.offset.max(DOTS.len() as u64);
        while let Some(entry) = self.entries.front() {
            if !folder.fits(&entry.name) {
                break;
            }
            let (found, name) = (&entry.attributes, &entry.name);
            let told = reading.plus.then(|| (nodes.tell(reading.node, name, found), found));
            self.offset = entry.next.saturating_add(DOTS.len() as u64);
            folder.add(self.offset, name, found.inode, found.kind(), told);
            self.entries.pop_front();
        }
        folder.into_bytes()
    }
}
