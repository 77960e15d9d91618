//! One thread's part of the pause: finds pages that are new or changed since the first copy, and keeps them in memory.

use crate::delta::pages_at;
use crate::page_map::Part;
use crate::scan::{Method, Region, ScanBuffer, Scanner};
use crate::sys::{self, Mapping, Remote, PAGE};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pages are read in pieces that stay in a core's own cache between the read and the comparison
const SCRATCH_PAGES: usize = 64;
const GROWTH_PAGES: usize = 1024;
/// Known pages per unit of work: few enough to balance the threads, enough to hide the cost of starting a scan
const UNIT_PAGES: u64 = 512;
/// Pages per unit, known or not: scanning present file pages takes time, too
const UNIT_SPAN: u64 = 8192;

/// Data that all threads of a pause read
pub struct Shared {
    pub pid: i32,
    pub base: u64,
    pub scanner: Scanner,
    pub method: Method,
    /// The first copy: the location of each page that was private then
    pub known: Vec<Part>,
    /// The files of the first copy: earlier deltas, which have the pages that are equal there, and last the new delta
    pub files: Vec<Mapping>,
    pub units: Vec<(u64, u64)>,
    pub next_unit: AtomicUsize,
}

/// Cuts RAM into ranges with at most `UNIT_PAGES` known pages and at most `UNIT_SPAN` pages each.
pub fn cut_units(known_parts: &[Part], ram_pages: u64) -> Vec<(u64, u64)> {
    let mut units = Vec::new();
    let (mut low, mut known) = (0, 0);
    let mut cut_to = |low: &mut u64, at: u64| {
        while *low < at {
            let high = at.min(*low + UNIT_SPAN);
            units.push((*low, high));
            *low = high;
        }
    };
    for part in known_parts {
        let mut at = part.first();
        while part.end() - at >= UNIT_PAGES - known {
            at += UNIT_PAGES - known;
            cut_to(&mut low, at);
            known = 0;
        }
        known += part.end() - at;
    }
    cut_to(&mut low, ram_pages);
    units
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Skip,
    Compare,
    Copy,
}

fn action(known: bool, dirty: bool, method: Method) -> Action {
    match (known, method) {
        (false, _) => Action::Copy,
        (true, Method::Compare) => Action::Compare,
        (true, Method::SoftDirty) if dirty => Action::Copy,
        (true, Method::SoftDirty) => Action::Skip,
    }
}

/// A slot of one of the files of the first copy
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub file: u32,
    pub slot: u32,
}

impl Location {
    fn plus(self, pages: u64) -> Location {
        let slot = self.slot + pages as u32;
        Location { slot, ..self }
    }
}

/// Contiguous pages that are all in the first copy, in contiguous slots, or all not in it
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    first: u64,
    count: u64,
    at: Option<Location>,
    dirty: bool,
}

/// The piece of `region` from `page` on; `part` is the first part that ends after `page`.
fn piece_at(region: &Region, page: u64, part: Option<&Part>) -> Piece {
    let end = region.first + region.count;
    let (count, at) = match part {
        Some(Part { run, file }) if run.first <= page => {
            let slot = run.slot + (page - run.first) as u32;
            (run.end().min(end) - page, Some(Location { file: *file, slot }))
        }
        Some(part) => (part.first().min(end) - page, None),
        None => (end - page, None),
    };
    Piece {
        first: page,
        count,
        at,
        dirty: region.dirty,
    }
}

/// Pages kept in memory until the VM runs again
pub struct Arena {
    chunks: Vec<Mapping>,
    room: usize,
    /// (page, its location in the first copy), in the order of the chunks' pages
    pub pages: Vec<(u64, Option<Location>)>,
}

impl Arena {
    fn new(pages: usize) -> io::Result<Arena> {
        let pages = pages.max(1);
        Ok(Arena {
            chunks: vec![Mapping::buffer(pages * PAGE)?],
            room: pages,
            pages: Vec::with_capacity(pages),
        })
    }

    fn keep(&mut self, page: u64, at: Option<Location>, bytes: &[u8]) -> io::Result<()> {
        if self.room == 0 {
            self.chunks.push(Mapping::buffer(GROWTH_PAGES * PAGE)?);
            self.room = GROWTH_PAGES;
        }
        let chunk = self.chunks.last_mut().expect("an arena has a chunk").bytes_mut();
        let free = chunk.len() - self.room * PAGE;
        chunk[free..free + PAGE].copy_from_slice(bytes);
        self.room -= 1;
        self.pages.push((page, at));
        Ok(())
    }

    /// The kept bytes, chunk by chunk
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().map(Mapping::bytes)
    }
}

pub struct Worker {
    scratch: Mapping,
    scan: ScanBuffer,
    batch: Vec<Piece>,
    batch_pages: usize,
    remote: Vec<Remote>,
    pub arena: Arena,
    /// Pages of the first copy that are no longer private, and so the base's again, as (first, end)
    pub dropped: Vec<(u64, u64)>,
    pub seen: u64,
}

impl Worker {
    pub fn new(arena_pages: usize) -> io::Result<Worker> {
        Ok(Worker {
            scratch: Mapping::buffer(SCRATCH_PAGES * PAGE)?,
            scan: ScanBuffer::new(),
            batch: Vec::with_capacity(SCRATCH_PAGES),
            batch_pages: 0,
            remote: Vec::with_capacity(SCRATCH_PAGES),
            arena: Arena::new(arena_pages)?,
            dropped: Vec::new(),
            seen: 0,
        })
    }

    /// Takes units until none is left.
    pub fn work(&mut self, shared: &Shared) -> io::Result<()> {
        loop {
            let index = shared.next_unit.fetch_add(1, Ordering::Relaxed);
            match shared.units.get(index) {
                Some((low, high)) => self.unit(shared, *low, *high)?,
                None => return Ok(()),
            }
        }
    }

    fn unit(&mut self, shared: &Shared, low: u64, high: u64) -> io::Result<()> {
        shared.scanner.scan(low, high, &mut self.scan)?;
        let regions = std::mem::take(&mut self.scan.regions);
        let from = shared.known.partition_point(|part| part.end() <= low);
        let mut next = from;
        let mut met = 0;
        for region in &regions {
            let mut at = region.first;
            let end = region.first + region.count;
            self.seen += region.count;
            while at < end {
                while matches!(shared.known.get(next), Some(part) if part.end() <= at) {
                    next += 1;
                }
                let piece = piece_at(region, at, shared.known.get(next));
                if piece.at.is_some() {
                    met += piece.count;
                }
                at += piece.count;
                self.take(shared, piece)?;
            }
        }
        self.flush(shared)?;
        let known: u64 = clipped(&shared.known[from..], low, high)
            .map(|(first, end)| end - first)
            .sum();
        if met < known {
            subtract(clipped(&shared.known[from..], low, high), &regions, &mut self.dropped);
        }
        self.scan.regions = regions;
        Ok(())
    }

    fn take(&mut self, shared: &Shared, mut piece: Piece) -> io::Result<()> {
        if action(piece.at.is_some(), piece.dirty, shared.method) == Action::Skip {
            return Ok(());
        }
        while piece.count > 0 {
            let count = piece.count.min((SCRATCH_PAGES - self.batch_pages) as u64);
            self.batch.push(Piece { count, ..piece });
            self.batch_pages += count as usize;
            piece.first += count;
            piece.count -= count;
            piece.at = piece.at.map(|at| at.plus(count));
            if self.batch_pages == SCRATCH_PAGES {
                self.flush(shared)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, shared: &Shared) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.remote.clear();
        self.remote.extend(self.batch.iter().map(|piece| Remote {
            address: shared.base as usize + piece.first as usize * PAGE,
            length: piece.count as usize * PAGE,
        }));
        let scratch = &mut self.scratch.bytes_mut()[..self.batch_pages * PAGE];
        sys::read_process(shared.pid, &self.remote, scratch)?;
        let mut rest = &*scratch;
        for piece in &self.batch {
            let (bytes, after) = rest.split_at(piece.count as usize * PAGE);
            rest = after;
            keep_changed(shared, piece, bytes, &mut self.arena)?;
        }
        self.batch.clear();
        self.batch_pages = 0;
        Ok(())
    }
}

fn keep_changed(shared: &Shared, piece: &Piece, bytes: &[u8], arena: &mut Arena) -> io::Result<()> {
    let before = match (action(piece.at.is_some(), piece.dirty, shared.method), piece.at) {
        (Action::Compare, Some(at)) => Some(pages_at(&shared.files[at.file as usize], at.slot, piece.count as u32)),
        _ => None,
    };
    if before == Some(bytes) {
        return Ok(());
    }
    for (index, page) in bytes.chunks_exact(PAGE).enumerate() {
        let at = index * PAGE;
        if !matches!(before, Some(before) if &before[at..at + PAGE] == page) {
            let location = piece.at.map(|at| at.plus(index as u64));
            arena.keep(piece.first + index as u64, location, page)?;
        }
    }
    Ok(())
}

/// The parts' pages within a range, as (first, end)
fn clipped(parts: &[Part], low: u64, high: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    parts
        .iter()
        .take_while(move |part| part.first() < high)
        .map(move |part| (part.first().max(low), part.end().min(high)))
}

/// Appends the parts of `known` that are in no region.
fn subtract(known: impl Iterator<Item = (u64, u64)>, regions: &[Region], missing: &mut Vec<(u64, u64)>) {
    for (mut at, end) in known {
        let from = regions.partition_point(|region| region.first + region.count <= at);
        for region in regions[from..].iter().take_while(|region| region.first < end) {
            if region.first > at {
                missing.push((at, region.first));
            }
            at = region.first + region.count;
        }
        if at < end {
            missing.push((at, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::Run;

    fn part(first: u64, count: u32, slot: u32) -> Part {
        let run = Run { first, count, slot };
        Part { run, file: 2 }
    }

    fn region(first: u64, count: u64) -> Region {
        Region {
            first,
            count,
            dirty: false,
        }
    }

    #[test]
    fn decides_by_method() {
        for method in [Method::Compare, Method::SoftDirty] {
            assert_eq!(action(false, false, method), Action::Copy);
            assert_eq!(action(false, true, method), Action::Copy);
        }
        assert_eq!(action(true, false, Method::Compare), Action::Compare);
        assert_eq!(action(true, false, Method::SoftDirty), Action::Skip);
        assert_eq!(action(true, true, Method::SoftDirty), Action::Copy);
    }

    #[test]
    fn units_cover_all_pages_once() {
        for parts in [
            vec![],
            vec![part(0, 512, 0)],
            vec![part(3, 2000, 0), part(5000, 100, 2000)],
            vec![part(29_999, 1, 0)],
            (0..3000).map(|i| part(i * 3, 1, i as u32)).collect(),
        ] {
            let units = cut_units(&parts, 30_000);
            assert_eq!((units[0].0, units[units.len() - 1].1), (0, 30_000));
            assert!(units.windows(2).all(|pair| pair[0].1 == pair[1].0));
            for (low, high) in units {
                let known: u64 = clipped(&parts, low, high).map(|(a, b)| b.saturating_sub(a)).sum();
                assert!(known <= UNIT_PAGES && low < high && high - low <= UNIT_SPAN);
            }
        }
    }

    #[test]
    fn pieces_split_at_both_ends_of_the_first_copy() {
        let known = part(12, 3, 7);
        let all = region(10, 10);
        let shape = |piece: Piece| (piece.first, piece.count, piece.at.map(|at| (at.file, at.slot)));
        assert_eq!(shape(piece_at(&all, 10, Some(&known))), (10, 2, None));
        assert_eq!(shape(piece_at(&all, 12, Some(&known))), (12, 3, Some((2, 7))));
        assert_eq!(shape(piece_at(&all, 13, Some(&known))), (13, 2, Some((2, 8))));
        assert_eq!(shape(piece_at(&all, 15, None)), (15, 5, None));
    }

    #[test]
    fn subtracts() {
        let mut missing = Vec::new();
        let known = [(0, 4), (10, 20), (30, 31)];
        let regions = [region(1, 2), region(8, 4), region(13, 2), region(40, 1)];
        subtract(known.into_iter(), &regions, &mut missing);
        assert_eq!(missing, [(0, 1), (3, 4), (12, 13), (15, 20), (30, 31)]);
    }
}
