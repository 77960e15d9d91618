//! An open folder: the guest kernel asks for small parts of it, the host is asked for large ones.

use super::nodes::Nodes;
use super::record::Entry;
use crate::fuse::Folder;
use std::collections::VecDeque;

/// They come before what the host lists.
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
    /// Where that is in the host's list.
    pub fn place(&self) -> u64 {
        self.offset.saturating_sub(DOTS.len() as u64)
    }
}

/// What the guest kernel has not asked for yet.
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

    /// Whether it goes on here, or is known to end here. The beginning is always asked for anew.
    pub fn has(&self, offset: u64) -> bool {
        offset > 0 && self.offset == offset && (self.complete || !self.entries.is_empty())
    }

    /// As much as fits into the answer.
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
            self.offset = entry.next + DOTS.len() as u64;
            folder.add(self.offset, name, found.inode, found.kind(), told);
            self.entries.pop_front();
        }
        folder.into_bytes()
    }
}
