//! A capture: copies the private pages of a running VM, copies only the pages that changed since while the VM is
//! stopped, and writes the delta file after that.
//!
//! A capture can follow earlier ones of the same process. It then stores only the pages that differ from the content of
//! their deltas. They are compared while the VM runs, so the pause is as long as without earlier deltas.

use crate::common_pages::{common_pages, except};
use crate::delta::{self, append, pages_at, slot_offset, Delta, Run};
use crate::error::{Context, Error, Outcome};
use crate::maps;
use crate::page_map::{self, overlay, parts_of, within, without, Part};
use crate::recopy::{cut_units, Shared, Worker};
use crate::scan::{self, Abilities, Method, ScanBuffer, Scanner};
use crate::sys::{self, Mapping, Remote, PAGE};
use crate::temp_files::{TempFile, TempFiles};
use crate::workers::WorkerPool;
use forkd_wire::Reader;
use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

const COPY_PAGES: usize = 256;
const ARENA_PAGES: usize = 8 * 1024 * 1024 / PAGE;
/// Below this much work, waking the other threads costs more than they save
const WORKERS_WORTHWHILE: Duration = Duration::from_micros(300);
/// About the time that one thread needs to read a page again and compare it
const COMPARE_PAGE: Duration = Duration::from_nanos(500);

pub struct Request {
    pub pid: i32,
    pub ram: PathBuf,
    pub ram_bytes: u64,
    pub delta: PathBuf,
    /// Deltas of earlier captures, oldest first; the new one is applied after them
    pub earlier: Vec<PathBuf>,
    /// So many of them belong to the memory from which the process began: their pages are not counted
    pub below: usize,
    /// The page map of a stopped process of which the earlier deltas are the memory: what both have in common is equal, if
    /// the process does not change either
    pub alike: Option<File>,
}

impl Request {
    pub fn read(pid: i32, reader: &mut Reader) -> Outcome<Request> {
        let request = Request {
            pid,
            ram: reader.path()?,
            ram_bytes: reader.u64()?,
            delta: reader.path()?,
            earlier: reader.list(Reader::path)?,
            below: reader.u32()? as usize,
            alike: None,
        };
        if request.below > request.earlier.len() {
            return Err(Error::new("EINVAL", "more deltas are below than there are"));
        }
        Ok(request)
    }
}

pub struct Capture {
    file: TempFile,
    ram: File,
    ram_bytes: u64,
    /// Private pages at the first copy
    private: u64,
    /// The pages of the first copy in the new delta
    fresh: Vec<Run>,
    slots: u32,
    /// The content of the earlier deltas
    before: Vec<Part>,
    /// The content of those that are not below the process's own memory
    own_before: Vec<Part>,
    /// Those pages of it that were not private at the first copy
    absent: Vec<Part>,
    shared: Arc<Shared>,
    workers: WorkerPool,
    uses_workers: bool,
    own: Worker,
    finished: Option<Vec<Worker>>,
}

/// Whether the process may change its memory after the first copy
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Possible,
    None,
}

pub struct Finished {
    pub pages: u64,
    pub recopied: u64,
}

pub struct Committed {
    pub bytes: u64,
    pub pages: u64,
    /// Private pages at the first copy
    pub private: u64,
    pub file: TempFile,
}

impl Capture {
    pub fn begin(request: &Request, files: &Arc<TempFiles>, abilities: Abilities, threads: usize) -> Outcome<Capture> {
        Capture::copy(request, files, abilities, threads, Change::Possible)
    }

    /// All of a process that does not change meanwhile: there is nothing to finish.
    pub fn whole(request: &Request, files: &Arc<TempFiles>, abilities: Abilities) -> Outcome<Committed> {
        Capture::copy(request, files, abilities, 1, Change::None)?.commit()
    }

    fn copy(
        request: &Request,
        files: &Arc<TempFiles>,
        abilities: Abilities,
        threads: usize,
        change: Change,
    ) -> Outcome<Capture> {
        let pid = request.pid;
        let ram_pages = request.ram_bytes / PAGE as u64;
        if request.ram_bytes % PAGE as u64 != 0 || ram_pages >= u64::from(u32::MAX) {
            return Err(Error::new("EINVAL", "RAM is not a number of pages"));
        }
        let base = maps::ram_address(pid, &request.ram, request.ram_bytes)?;
        let scanner = Scanner::open(pid, base, abilities).during(|| "pagemap")?;
        if abilities.method == Method::SoftDirty && change == Change::Possible {
            scan::clear_marks(&pid.to_string()).during(|| "clear_refs")?;
        }
        let mut buffer = ScanBuffer::new();
        let scanning = Instant::now();
        scanner.scan(0, ram_pages, &mut buffer).during(|| "scan")?;
        let scan_time = scanning.elapsed();
        let ranges: Vec<_> = buffer
            .regions
            .iter()
            .map(|region| (region.first, region.end()))
            .collect();
        let private = buffer.regions.iter().map(|region| region.count).sum();

        let recopies = change == Change::Possible;
        let arena = match recopies {
            true => ARENA_PAGES.max(private as usize / 20) / threads,
            false => 0,
        };
        let mut workers = WorkerPool::start(threads - 1, arena);
        let ram = File::open(&request.ram).during(|| request.ram.display())?;
        let chain = open_chain(&request.earlier, request.ram_bytes)?;
        let before = content_of(&chain);
        let own_before = content_of(&chain[request.below..]);
        let mut sources: Vec<Mapping> = chain.into_iter().map(Delta::into_map).collect();
        let file = files.create(&request.delta)?;
        let memory = match change {
            Change::Possible => None,
            Change::None => Some(File::open(format!("/proc/{pid}/mem")).during(|| "memory of the process")?),
        };
        let reader = PageReader { pid, base, memory };
        let equal = match &request.alike {
            Some(alike) => equal_pages(pid, base, alike, &ranges, &before),
            None => Vec::new(),
        };
        let compared = except(&ranges, &equal);
        let fresh = copy_changed(&reader, &compared, &before, &sources, &file.file).during(|| "first copy")?;
        let slots = fresh.iter().map(|run| run.count).sum();
        let length = slot_offset(slots) as usize;
        // the file must be as long as the mapping, also when it has no page: access beyond its end would be SIGBUS
        file.file.set_len(length as u64).during(|| "delta file")?;
        let new_file = sources.len() as u32;
        sources.push(Mapping::of_file(&file.file, length, recopies).during(|| "delta file")?);
        let known = overlay(&within(&before, &ranges), &parts_of(&fresh, new_file));
        let absent = without(&before, ranges.into_iter());
        let own = Worker::new(arena).during(|| "buffer")?;
        workers.wait_ready();
        Ok(Capture {
            file,
            ram,
            ram_bytes: request.ram_bytes,
            private,
            fresh,
            slots,
            before,
            own_before,
            absent,
            shared: Arc::new(Shared {
                pid,
                base,
                scanner,
                method: abilities.method,
                units: cut_units(&known, ram_pages),
                known,
                files: sources,
                next_unit: AtomicUsize::new(0),
            }),
            workers,
            uses_workers: scan_time + COMPARE_PAGE * private as u32 > WORKERS_WORTHWHILE,
            own,
            finished: None,
        })
    }

    /// Private pages at the first copy
    pub fn pages(&self) -> u64 {
        self.private
    }

    pub fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    /// Runs while the VM is stopped: writes no file and starts no thread.
    pub fn finish(&mut self) -> Outcome<Finished> {
        if self.uses_workers {
            self.workers.order(&self.shared);
        }
        let own = self.own.work(&self.shared);
        let mut others = Vec::new();
        if self.uses_workers {
            others = self.workers.collect().during(|| "second copy")?;
        }
        own.during(|| "second copy")?;
        let workers = || others.iter().chain(std::iter::once(&self.own));
        let finished = Finished {
            pages: workers().map(|worker| worker.seen).sum(),
            recopied: workers().map(|worker| worker.arena.pages.len() as u64).sum(),
        };
        self.finished = Some(others);
        Ok(finished)
    }

    /// Writes the pages that the pause kept in memory. The file is complete, but is removed unless its owner finishes
    /// it.
    pub fn commit(mut self) -> Outcome<Committed> {
        let mut workers = self.finished.take().unwrap_or_default();
        workers.push(self.own);
        let new_file = self.shared.files.len() as u32 - 1;
        let mut slots = self.slots;
        let mut added = Vec::new();
        for worker in &workers {
            write_arena(&self.file.file, new_file, worker, &mut slots, &mut added).during(|| "delta file")?;
        }
        added.sort_unstable_by_key(|run| run.first);
        let mut dropped: Vec<_> = workers.iter().flat_map(|worker| &worker.dropped).copied().collect();
        dropped.sort_unstable();

        // pages of the earlier deltas that are the base's again
        let mut back = within(&self.before, &dropped);
        back.extend(without(&self.absent, added.iter().map(|run| (run.first, run.end()))));
        let restored = restore(&self.ram, &back, &self.shared.files, &self.file.file, &mut slots)
            .during(|| "pages of the RAM file")?;
        added.extend(restored);

        let index = final_index(&self.fresh, &dropped, added);
        let pages = page_map::count(&overlay(&self.own_before, &parts_of(&index, new_file)));
        let bytes = delta::seal(&self.file.file, self.ram_bytes, slots, &index).during(|| "delta file")?;
        Ok(Committed {
            bytes,
            pages,
            private: self.private,
            file: self.file,
        })
    }
}

/// The pages that a stopped process has in common with `alike`, and that are in the earlier deltas. None if it cannot be
/// known: then all are compared.
fn equal_pages(pid: i32, base: u64, alike: &File, ranges: &[(u64, u64)], before: &[Part]) -> Vec<(u64, u64)> {
    let known: Vec<(u64, u64)> = within(before, ranges)
        .iter()
        .map(|part| (part.first(), part.end()))
        .collect();
    let common = File::open(format!("/proc/{pid}/pagemap")).and_then(|own| common_pages(&own, alike, base, &known));
    common.unwrap_or_default()
}

/// Deltas in the order in which they are applied
fn open_chain(paths: &[PathBuf], ram_bytes: u64) -> Outcome<Vec<Delta>> {
    paths.iter().map(|path| Delta::open(path, ram_bytes)).collect()
}

/// The pages of all deltas, each from the last one that has it
fn content_of(deltas: &[Delta]) -> Vec<Part> {
    page_map::merge(deltas.iter().map(|delta| delta.runs.as_slice()))
}

/// Reads pages of a process's RAM
struct PageReader {
    pid: i32,
    /// Address of the first page
    base: u64,
    /// For a copy of another process. `process_vm_readv` would give it its own copy of each page that it has in common with
    /// that one; this way is slower where nothing is in common
    memory: Option<File>,
}

impl PageReader {
    /// Reads ranges (first, end) into `local`, packed.
    fn read(&self, ranges: &[(u64, u64)], remote: &mut Vec<Remote>, local: &mut [u8]) -> io::Result<()> {
        if let Some(memory) = &self.memory {
            let mut rest = local;
            for (first, end) in ranges {
                let (part, after) = mem::take(&mut rest).split_at_mut((end - first) as usize * PAGE);
                memory.read_exact_at(part, self.base + first * PAGE as u64)?;
                rest = after;
            }
            return Ok(());
        }
        remote.clear();
        remote.extend(ranges.iter().map(|(first, end)| Remote {
            address: self.base as usize + *first as usize * PAGE,
            length: (end - first) as usize * PAGE,
        }));
        sys::read_process(self.pid, remote, local)
    }
}

/// Copies the pages of the ranges that differ from `before` into the file, in contiguous slots. Returns their runs.
fn copy_changed(
    reader: &PageReader,
    ranges: &[(u64, u64)],
    before: &[Part],
    sources: &[Mapping],
    file: &File,
) -> io::Result<Vec<Run>> {
    let mut buffer = Mapping::buffer(COPY_PAGES * PAGE)?;
    let mut remote = Vec::with_capacity(COPY_PAGES);
    let mut earlier = Earlier { parts: before, sources };
    let mut runs = Vec::new();
    let mut slots = 0;
    for batch in batches(ranges) {
        let pages: u64 = batch.iter().map(|(first, end)| end - first).sum();
        let bytes = &mut buffer.bytes_mut()[..pages as usize * PAGE];
        reader.read(&batch, &mut remote, bytes)?;
        let mut kept = 0;
        for (index, page) in batch.iter().flat_map(|(first, end)| *first..*end).enumerate() {
            let at = index * PAGE;
            if earlier.page(page) == Some(&bytes[at..at + PAGE]) {
                continue;
            }
            // the changed pages move together, so that a batch is one write
            if kept != index {
                bytes.copy_within(at..at + PAGE, kept * PAGE);
            }
            append(
                &mut runs,
                Run {
                    first: page,
                    count: 1,
                    slot: slots + kept as u32,
                },
            );
            kept += 1;
        }
        file.write_all_at(&bytes[..kept * PAGE], slot_offset(slots))?;
        slots += kept as u32;
    }
    Ok(runs)
}

/// Cuts ranges (first, end) into batches of at most `COPY_PAGES` pages.
fn batches(ranges: &[(u64, u64)]) -> impl Iterator<Item = Vec<(u64, u64)>> + '_ {
    let mut rest = ranges.iter().copied();
    let mut cut = rest.next();
    std::iter::from_fn(move || {
        let mut batch = Vec::new();
        let mut room = COPY_PAGES as u64;
        while let (Some((first, end)), true) = (cut, room > 0) {
            let stop = end.min(first + room);
            batch.push((first, stop));
            room -= stop - first;
            cut = if stop < end { Some((stop, end)) } else { rest.next() };
        }
        (!batch.is_empty()).then_some(batch)
    })
}

/// The content of earlier deltas, read in the order of pages
struct Earlier<'a> {
    /// From the first part on that ends after the last page asked for
    parts: &'a [Part],
    sources: &'a [Mapping],
}

impl<'a> Earlier<'a> {
    fn page(&mut self, page: u64) -> Option<&'a [u8]> {
        while matches!(self.parts.first(), Some(part) if part.end() <= page) {
            self.parts = &self.parts[1..];
        }
        let part = self.parts.first().filter(|part| part.first() <= page)?;
        let slot = part.run.slot + (page - part.first()) as u32;
        Some(pages_at(&self.sources[part.file as usize], slot, 1))
    }
}

/// Stores the base's content of pages whose earlier content differs from it. Returns their runs.
fn restore(ram: &File, back: &[Part], sources: &[Mapping], file: &File, slots: &mut u32) -> io::Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut page = vec![0; PAGE];
    for Part { run, file: source } in back {
        for at in 0..run.count {
            let first = run.first + u64::from(at);
            ram.read_exact_at(&mut page, first * PAGE as u64)?;
            if pages_at(&sources[*source as usize], run.slot + at, 1) == page {
                continue;
            }
            file.write_all_at(&page, slot_offset(*slots))?;
            runs.push(Run {
                first,
                count: 1,
                slot: *slots,
            });
            *slots += 1;
        }
    }
    Ok(runs)
}

/// Writes a worker's pages: changed pages over their slots in the new delta, others to slots from `slots` on.
fn write_arena(file: &File, new_file: u32, worker: &Worker, slots: &mut u32, added: &mut Vec<Run>) -> io::Result<()> {
    let mut pages = worker.arena.pages.iter();
    for chunk in worker.arena.chunks() {
        // (first slot, first page in the chunk, count) of pages that are contiguous in both
        let mut row = (0, 0, 0);
        for (index, (first, known)) in pages.by_ref().take(chunk.len() / PAGE).enumerate() {
            let own = known.filter(|at| at.file == new_file).map(|at| at.slot);
            let slot = own.unwrap_or_else(|| {
                *slots += 1;
                added.push(Run {
                    first: *first,
                    count: 1,
                    slot: *slots - 1,
                });
                *slots - 1
            });
            if slot != row.0 + row.2 {
                write_row(file, chunk, row)?;
                row = (slot, index, 0);
            }
            row.2 += 1;
        }
        write_row(file, chunk, row)?;
    }
    Ok(())
}

fn write_row(file: &File, chunk: &[u8], (slot, at, count): (u32, usize, u32)) -> io::Result<()> {
    file.write_all_at(&chunk[at * PAGE..(at + count as usize) * PAGE], slot_offset(slot))
}

/// The index: the first copy's runs without the dropped pages (sorted, as (first, end)), and the added runs, in the
/// order of pages.
fn final_index(runs: &[Run], dropped: &[(u64, u64)], added: Vec<Run>) -> Vec<Run> {
    let mut all = added;
    let mut gone = dropped.iter().peekable();
    for run in runs {
        let mut at = run.first;
        while let Some((first, end)) = gone.peek().copied().filter(|(first, _)| *first < run.end()) {
            keep_part(run, at, *first, &mut all);
            at = at.max(*end);
            // a range may reach into the next run
            if *end > run.end() {
                break;
            }
            gone.next();
        }
        keep_part(run, at, run.end(), &mut all);
    }
    all.sort_unstable_by_key(|run| run.first);
    let mut index = Vec::with_capacity(all.len());
    for run in all {
        append(&mut index, run);
    }
    index
}

fn keep_part(run: &Run, from: u64, to: u64, kept: &mut Vec<Run>) {
    if from < to {
        kept.push(Run {
            first: from,
            count: (to - from) as u32,
            slot: run.slot + (from - run.first) as u32,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, count: u32, slot: u32) -> Run {
        Run { first, count, slot }
    }

    #[test]
    fn index_loses_dropped_pages_and_gains_added_ones() {
        let runs = [run(0, 4, 0), run(10, 10, 4)];
        let dropped = [(0, 1), (3, 4), (12, 15), (19, 20)];
        let added = vec![run(30, 1, 15), run(5, 1, 14), run(31, 1, 16)];
        assert_eq!(
            final_index(&runs, &dropped, added),
            [
                run(1, 2, 1),
                run(5, 1, 14),
                run(10, 2, 4),
                run(15, 4, 9),
                run(30, 2, 15)
            ]
        );
        assert_eq!(final_index(&runs, &[(0, 4), (10, 20)], vec![]), []);
        assert_eq!(final_index(&runs, &[(2, 12)], vec![]), [run(0, 2, 0), run(12, 8, 6)]);
        assert_eq!(final_index(&runs, &[(5, 9)], vec![]), runs);
    }

    #[test]
    fn batches_have_all_pages_once_and_only_the_last_is_partial() {
        let ranges = [(0, 100), (200, 1000), (1001, 1002), (2000, 2055)];
        let all: Vec<_> = batches(&ranges).collect();
        let pages = |ranges: &[(u64, u64)]| ranges.iter().flat_map(|(a, b)| *a..*b).collect::<Vec<_>>();
        assert_eq!(
            all.iter().flat_map(|batch| pages(batch)).collect::<Vec<_>>(),
            pages(&ranges)
        );
        let (last, full) = all.split_last().unwrap();
        assert!(full.iter().all(|batch| pages(batch).len() == COPY_PAGES) && pages(last).len() <= COPY_PAGES);
        assert_eq!(batches(&[]).count(), 0);
    }
}
