//! A capture: copy a running VM's private pages, then, in its pause, only what changed; then write it out.

use crate::crew::Crew;
use crate::delta::{self, append, slot_offset, Run};
use crate::fault::{Context, Fault, Outcome};
use crate::maps;
use crate::recopy::{cut_units, Shared, Worker};
use crate::scan::{self, Abilities, Method, Region, ScanBuffer, Scanner};
use crate::sys::{self, Mapping, Remote, PAGE};
use crate::unfinished::{Files, Unfinished};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

const COPY_PAGES: usize = 256;
const ARENA_PAGES: usize = 8 * 1024 * 1024 / PAGE;
/// Below this much work waking the other threads costs more than they save
const CREW_WORTHWHILE: Duration = Duration::from_micros(300);
/// What reading a page again and comparing it takes one thread, about
const COMPARE_PAGE: Duration = Duration::from_nanos(500);

pub struct Request {
    pub pid: i32,
    pub ram: PathBuf,
    pub ram_bytes: u64,
    pub delta: PathBuf,
}

pub struct Capture {
    file: Unfinished,
    ram_bytes: u64,
    slots: u32,
    shared: Arc<Shared>,
    crew: Crew,
    crew_works: bool,
    own: Worker,
    finished: Option<Vec<Worker>>,
}

pub struct Finished {
    pub pages: u64,
    pub recopied: u64,
}

pub struct Committed {
    pub bytes: u64,
    pub pages: u64,
    pub file: Unfinished,
}

impl Capture {
    pub fn begin(request: &Request, files: &Arc<Files>, abilities: Abilities, threads: usize) -> Outcome<Capture> {
        let pid = request.pid;
        let ram_pages = request.ram_bytes / PAGE as u64;
        if request.ram_bytes % PAGE as u64 != 0 || ram_pages >= u64::from(u32::MAX) {
            return Err(Fault::new("EINVAL", "RAM is not a number of pages"));
        }
        let base = maps::ram_address(pid, &request.ram, request.ram_bytes)?;
        let scanner = Scanner::open(pid, base, abilities).during(|| "pagemap")?;
        if abilities.method == Method::SoftDirty {
            scan::clear_marks(&pid.to_string()).during(|| "clear_refs")?;
        }
        let mut buffer = ScanBuffer::new();
        let scanning = Instant::now();
        scanner.scan(0, ram_pages, &mut buffer).during(|| "scan")?;
        let scan_time = scanning.elapsed();
        let (runs, slots) = lay_out(&buffer.regions);

        let arena = ARENA_PAGES.max(slots as usize / 20) / threads;
        let mut crew = Crew::start(threads - 1, arena);
        let file = files.create(&request.delta)?;
        copy_out(pid, base, &runs, &file.file).during(|| "first copy")?;
        let length = slot_offset(slots) as usize;
        // so that the file is as long as what is mapped even when it holds no page
        file.file.set_len(length as u64).during(|| "delta file")?;
        let first_copy = Mapping::of_file(&file.file, length, true).during(|| "delta file")?;
        let own = Worker::new(arena).during(|| "buffer")?;
        crew.wait_ready();
        Ok(Capture {
            file,
            ram_bytes: request.ram_bytes,
            slots,
            shared: Arc::new(Shared {
                pid,
                base,
                scanner,
                method: abilities.method,
                units: cut_units(&runs, ram_pages),
                runs,
                first_copy,
                next_unit: AtomicUsize::new(0),
            }),
            crew,
            crew_works: scan_time + COMPARE_PAGE * slots > CREW_WORTHWHILE,
            own,
            finished: None,
        })
    }

    pub fn pages(&self) -> u64 {
        self.slots.into()
    }

    pub fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    /// The pause: no file is written, no thread started.
    pub fn finish(&mut self) -> Outcome<Finished> {
        if self.crew_works {
            self.crew.order(&self.shared);
        }
        let own = self.own.work(&self.shared);
        let mut others = Vec::new();
        if self.crew_works {
            others = self.crew.collect().during(|| "second copy")?;
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

    /// Writes what the pause kept; the file is complete, but goes unless its owner finishes it.
    pub fn commit(mut self) -> Outcome<Committed> {
        let mut workers = self.finished.take().unwrap_or_default();
        workers.push(self.own);
        let mut slots = self.slots;
        let mut added = Vec::new();
        for worker in &workers {
            write_arena(&self.file.file, worker, &mut slots, &mut added).during(|| "delta file")?;
        }
        let mut dropped: Vec<_> = workers.iter().flat_map(|worker| &worker.dropped).copied().collect();
        dropped.sort_unstable();
        let index = final_index(&self.shared.runs, &dropped, added);
        let pages = index.iter().map(|run| u64::from(run.count)).sum();
        let bytes = delta::seal(&self.file.file, self.ram_bytes, slots, &index).during(|| "delta file")?;
        Ok(Committed {
            bytes,
            pages,
            file: self.file,
        })
    }
}

/// Slots in the order of pages.
fn lay_out(regions: &[Region]) -> (Vec<Run>, u32) {
    let mut slot = 0;
    let mut runs = Vec::with_capacity(regions.len());
    for region in regions {
        let count = region.count as u32;
        append(
            &mut runs,
            Run {
                first: region.first,
                count,
                slot,
            },
        );
        slot += count;
    }
    (runs, slot)
}

/// Copies all runs, whose slots follow each other, from the process into the file.
fn copy_out(pid: i32, base: u64, runs: &[Run], file: &File) -> io::Result<()> {
    let mut buffer = Mapping::buffer(COPY_PAGES * PAGE)?;
    let mut remote = Vec::with_capacity(COPY_PAGES);
    let (mut pages, mut written) = (0, 0);
    let mut flush = |remote: &mut Vec<Remote>, pages: &mut usize| {
        let bytes = &mut buffer.bytes_mut()[..*pages * PAGE];
        sys::read_process(pid, remote, bytes)?;
        file.write_all_at(bytes, slot_offset(written))?;
        written += *pages as u32;
        remote.clear();
        *pages = 0;
        Ok::<(), io::Error>(())
    };
    for run in runs {
        let mut at = run.first;
        while at < run.end() {
            let count = ((run.end() - at) as usize).min(COPY_PAGES - pages);
            remote.push(Remote {
                address: base as usize + at as usize * PAGE,
                length: count * PAGE,
            });
            pages += count;
            at += count as u64;
            if pages == COPY_PAGES {
                flush(&mut remote, &mut pages)?;
            }
        }
    }
    if pages > 0 {
        flush(&mut remote, &mut pages)?;
    }
    Ok(())
}

/// Writes a worker's pages: changed ones over their slots, new ones to slots from `slots` on.
fn write_arena(file: &File, worker: &Worker, slots: &mut u32, added: &mut Vec<Run>) -> io::Result<()> {
    let mut pages = worker.arena.pages.iter();
    for chunk in worker.arena.chunks() {
        // (first slot, where in the chunk, how many): pages that follow each other in both
        let mut row = (0, 0, 0);
        for (index, (first, known)) in pages.by_ref().take(chunk.len() / PAGE).enumerate() {
            let slot = known.unwrap_or_else(|| {
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

/// The first copy's runs without the dropped pages (sorted), and the added ones, in order of pages.
fn final_index(runs: &[Run], dropped: &[(u64, u64)], added: Vec<Run>) -> Vec<Run> {
    let mut all = added;
    let mut gone = dropped.iter().peekable();
    for run in runs {
        let mut at = run.first;
        while let Some((first, count)) = gone.next_if(|(first, _)| *first < run.end()) {
            keep_part(run, at, *first, &mut all);
            at = first + count;
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
        let dropped = [(0, 1), (3, 1), (12, 3), (19, 1)];
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
        assert_eq!(final_index(&runs, &[(0, 4), (10, 10)], vec![]), []);
    }
}
