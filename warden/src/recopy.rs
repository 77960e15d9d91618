//! One thread's share of the pause: finds pages that are new or changed since the first copy, and keeps them.

use crate::delta::{slot_offset, Run};
use crate::scan::{Method, Region, ScanBuffer, Scanner};
use crate::sys::{self, Mapping, Remote, PAGE};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Read again in pieces that stay in a core's own cache between reading and comparing
const SCRATCH_PAGES: usize = 64;
const GROWTH_PAGES: usize = 1024;
/// Known pages per unit of work: small enough to balance, large enough that the scan's start-up does not count
const UNIT_PAGES: u64 = 512;
/// Pages per unit, known or not: the pages of the file that are present take time to scan, too
const UNIT_SPAN: u64 = 8192;

/// What all threads of a pause read
pub struct Shared {
    pub pid: i32,
    pub base: u64,
    pub scanner: Scanner,
    pub method: Method,
    /// The first copy: where each page is in the delta file
    pub runs: Vec<Run>,
    /// The delta file as it was after the first copy
    pub first_copy: Mapping,
    pub units: Vec<(u64, u64)>,
    pub next_unit: AtomicUsize,
}

/// Cuts the pages of RAM into ranges with at most so many known pages, and at most so many pages, each.
pub fn cut_units(runs: &[Run], ram_pages: u64) -> Vec<(u64, u64)> {
    let mut units = Vec::new();
    let (mut low, mut known) = (0, 0);
    let mut cut_to = |low: &mut u64, at: u64| {
        while *low < at {
            let high = at.min(*low + UNIT_SPAN);
            units.push((*low, high));
            *low = high;
        }
    };
    for run in runs {
        let mut at = run.first;
        while run.end() - at >= UNIT_PAGES - known {
            at += UNIT_PAGES - known;
            cut_to(&mut low, at);
            known = 0;
        }
        known += run.end() - at;
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

/// Pages to look at, alike in whether and where they are in the first copy
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    first: u64,
    count: u64,
    slot: Option<u32>,
    dirty: bool,
}

/// The part of `region` from `at` on that one piece can describe; `run` is the first that ends after `at`.
fn piece_at(region: &Region, at: u64, run: Option<&Run>) -> Piece {
    let end = region.first + region.count;
    let (count, slot) = match run {
        Some(run) if run.first <= at => {
            let slot = run.slot + (at - run.first) as u32;
            (run.end().min(end) - at, Some(slot))
        }
        Some(run) => (run.first.min(end) - at, None),
        None => (end - at, None),
    };
    Piece {
        first: at,
        count,
        slot,
        dirty: region.dirty,
    }
}

/// Pages kept in memory until the VM runs again
pub struct Arena {
    chunks: Vec<Mapping>,
    room: usize,
    /// (page, its slot in the first copy), in the order of the chunks' pages
    pub pages: Vec<(u64, Option<u32>)>,
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

    fn keep(&mut self, page: u64, slot: Option<u32>, bytes: &[u8]) -> io::Result<()> {
        if self.room == 0 {
            self.chunks.push(Mapping::buffer(GROWTH_PAGES * PAGE)?);
            self.room = GROWTH_PAGES;
        }
        let chunk = self.chunks.last_mut().expect("an arena has a chunk").bytes_mut();
        let at = chunk.len() - self.room * PAGE;
        chunk[at..at + PAGE].copy_from_slice(bytes);
        self.room -= 1;
        self.pages.push((page, slot));
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
    /// Pages of the first copy that are the base's again, as (first, count)
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
        let from = shared.runs.partition_point(|run| run.end() <= low);
        let mut run = from;
        let mut met = 0;
        for region in &regions {
            let mut at = region.first;
            let end = region.first + region.count;
            self.seen += region.count;
            while at < end {
                while matches!(shared.runs.get(run), Some(run) if run.end() <= at) {
                    run += 1;
                }
                let piece = piece_at(region, at, shared.runs.get(run));
                if piece.slot.is_some() {
                    met += piece.count;
                }
                at += piece.count;
                self.take(shared, piece)?;
            }
        }
        self.flush(shared)?;
        let known: u64 = clipped(&shared.runs[from..], low, high)
            .map(|(first, end)| end - first)
            .sum();
        if met < known {
            subtract(clipped(&shared.runs[from..], low, high), &regions, &mut self.dropped);
        }
        self.scan.regions = regions;
        Ok(())
    }

    fn take(&mut self, shared: &Shared, mut piece: Piece) -> io::Result<()> {
        if action(piece.slot.is_some(), piece.dirty, shared.method) == Action::Skip {
            return Ok(());
        }
        while piece.count > 0 {
            let count = piece.count.min((SCRATCH_PAGES - self.batch_pages) as u64);
            self.batch.push(Piece { count, ..piece });
            self.batch_pages += count as usize;
            piece.first += count;
            piece.count -= count;
            piece.slot = piece.slot.map(|slot| slot + count as u32);
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
    let before = match (action(piece.slot.is_some(), piece.dirty, shared.method), piece.slot) {
        (Action::Compare, Some(slot)) => {
            let at = slot_offset(slot) as usize;
            Some(&shared.first_copy.bytes()[at..at + bytes.len()])
        }
        _ => None,
    };
    if before == Some(bytes) {
        return Ok(());
    }
    for (index, page) in bytes.chunks_exact(PAGE).enumerate() {
        let at = index * PAGE;
        if !matches!(before, Some(before) if &before[at..at + PAGE] == page) {
            let slot = piece.slot.map(|slot| slot + index as u32);
            arena.keep(piece.first + index as u64, slot, page)?;
        }
    }
    Ok(())
}

/// The runs' pages within a range, as (first, end)
fn clipped(runs: &[Run], low: u64, high: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    runs.iter()
        .take_while(move |run| run.first < high)
        .map(move |run| (run.first.max(low), run.end().min(high)))
}

/// Appends what of `known` is in no region.
fn subtract(known: impl Iterator<Item = (u64, u64)>, regions: &[Region], missing: &mut Vec<(u64, u64)>) {
    for (mut at, end) in known {
        let from = regions.partition_point(|region| region.first + region.count <= at);
        for region in regions[from..].iter().take_while(|region| region.first < end) {
            if region.first > at {
                missing.push((at, region.first - at));
            }
            at = region.first + region.count;
        }
        if at < end {
            missing.push((at, end - at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, count: u32, slot: u32) -> Run {
        Run { first, count, slot }
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
        for runs in [
            vec![],
            vec![run(0, 512, 0)],
            vec![run(3, 2000, 0), run(5000, 100, 2000)],
            vec![run(29_999, 1, 0)],
            (0..3000).map(|i| run(i * 3, 1, i as u32)).collect(),
        ] {
            let units = cut_units(&runs, 30_000);
            assert_eq!((units[0].0, units[units.len() - 1].1), (0, 30_000));
            assert!(units.windows(2).all(|pair| pair[0].1 == pair[1].0));
            for (low, high) in units {
                let known: u64 = clipped(&runs, low, high).map(|(a, b)| b.saturating_sub(a)).sum();
                assert!(known <= UNIT_PAGES && low < high && high - low <= UNIT_SPAN);
            }
        }
    }

    #[test]
    fn pieces_split_where_the_first_copy_begins_and_ends() {
        let known = run(12, 3, 7);
        let all = region(10, 10);
        let shape = |piece: Piece| (piece.first, piece.count, piece.slot);
        assert_eq!(shape(piece_at(&all, 10, Some(&known))), (10, 2, None));
        assert_eq!(shape(piece_at(&all, 12, Some(&known))), (12, 3, Some(7)));
        assert_eq!(shape(piece_at(&all, 13, Some(&known))), (13, 2, Some(8)));
        assert_eq!(shape(piece_at(&all, 15, None)), (15, 5, None));
    }

    #[test]
    fn subtracts() {
        let mut missing = Vec::new();
        let known = [(0, 4), (10, 20), (30, 31)];
        let regions = [region(1, 2), region(8, 4), region(13, 2), region(40, 1)];
        subtract(known.into_iter(), &regions, &mut missing);
        assert_eq!(missing, [(0, 1), (3, 1), (12, 1), (15, 5), (30, 1)]);
    }
}
