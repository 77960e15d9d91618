//! Work on RAM images: make a flat one of a base and deltas, and give back the space of zero pages.

use crate::delta::Delta;
use crate::fault::{Context, Fault, Outcome};
use crate::sys::{self, PAGE};
use crate::unfinished::{Files, Unfinished};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

const BLOCK: usize = 1 << 20;

pub struct Flattened {
    pub written: u64,
    pub reflinked: bool,
    /// Complete, but it goes unless its owner finishes it
    pub file: Unfinished,
}

/// Makes `out`: `base` with the deltas applied, oldest first.
pub fn flatten(base: &Path, deltas: &[PathBuf], out: &Path, files: &Arc<Files>, threads: usize) -> Outcome<Flattened> {
    let source = File::open(base).during(|| base.display())?;
    let size = source.metadata().during(|| base.display())?.len();
    if size % PAGE as u64 != 0 {
        return Err(Fault::new("EINVAL", format!("{}: not a RAM image", base.display())));
    }
    let deltas = deltas
        .iter()
        .map(|path| Delta::open(path, size))
        .collect::<Outcome<Vec<_>>>()?;
    let target = files.create(out)?;
    let reflinked = sys::reflink(&source, &target.file).is_ok();
    let mut written = 0;
    if !reflinked {
        target.file.set_len(size).during(|| out.display())?;
        written += copy_data(&source, &target.file, size, threads).during(|| out.display())?;
    }
    for delta in &deltas {
        for run in &delta.runs {
            let pages = delta.pages(run);
            target
                .file
                .write_all_at(pages, run.first * PAGE as u64)
                .during(|| out.display())?;
            written += pages.len() as u64;
        }
    }
    Ok(Flattened {
        written,
        reflinked,
        file: target,
    })
}

/// Copies what is not zero; returns how many bytes.
fn copy_data(source: &File, target: &File, size: u64, threads: usize) -> io::Result<u64> {
    let blocks = data_blocks(source, size)?;
    let next = AtomicUsize::new(0);
    let copy = || {
        let mut buffer = vec![0; BLOCK];
        let mut written = 0;
        while let Some((at, length)) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let bytes = &mut buffer[..*length];
            source.read_exact_at(bytes, *at)?;
            for (from, to) in rows(bytes, false) {
                target.write_all_at(&bytes[from..to], at + from as u64)?;
                written += (to - from) as u64;
            }
        }
        Ok::<u64, io::Error>(written)
    };
    let threads = threads.min(blocks.len()).max(1);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(copy)).collect();
        let mut total = copy()?;
        for other in others {
            total += other.join().map_err(|_| io::Error::from_raw_os_error(libc::EIO))??;
        }
        Ok(total)
    })
}

/// The file's data as (offset, length), cut into blocks; both multiples of a page.
fn data_blocks(file: &File, size: u64) -> io::Result<Vec<(u64, usize)>> {
    let page = PAGE as u64;
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < size {
        let data = match sys::seek_data(file, at)? {
            Some(data) => (data / page * page).max(at),
            None => break,
        };
        let hole = sys::seek_hole(file, data)?.unwrap_or(size).min(size);
        let end = (hole + page - 1) / page * page;
        at = data;
        while at < end {
            let length = (end - at).min(BLOCK as u64);
            blocks.push((at, length as usize));
            at += length;
        }
    }
    Ok(blocks)
}

/// The rows of pages in a block that are zero, or of those that are not, as (from, to).
fn rows(bytes: &[u8], zero: bool) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    let matches = move |at: usize| is_zero(&bytes[at..at + PAGE]) == zero;
    std::iter::from_fn(move || {
        while at < bytes.len() && !matches(at) {
            at += PAGE;
        }
        let from = at;
        while at < bytes.len() && matches(at) {
            at += PAGE;
        }
        if from < at {
            Some((from, at))
        } else {
            None
        }
    })
}

fn is_zero(page: &[u8]) -> bool {
    static ZERO: [u8; PAGE] = [0; PAGE];
    page[0] == 0 && page == &ZERO[..]
}

/// Punches holes where whole pages are zero; returns the bytes of file that are holes now and were data.
pub fn trim(path: &Path) -> Outcome<u64> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .during(|| path.display())?;
    let size = file.metadata().during(|| path.display())?.len() / PAGE as u64 * PAGE as u64;
    let blocks = data_blocks(&file, size).during(|| path.display())?;
    let mut buffer = vec![0; BLOCK];
    let mut freed = 0;
    let mut row = (0, 0);
    for (at, length) in blocks {
        let bytes = &mut buffer[..length];
        file.read_exact_at(bytes, at).during(|| path.display())?;
        for (from, to) in rows(bytes, true) {
            let (from, to) = (at + from as u64, at + to as u64);
            if row.1 == from {
                row.1 = to;
            } else {
                freed += punch(&file, row).during(|| path.display())?;
                row = (from, to);
            }
        }
    }
    freed += punch(&file, row).during(|| path.display())?;
    Ok(freed)
}

fn punch(file: &File, (from, to): (u64, u64)) -> io::Result<u64> {
    if from < to {
        sys::punch_hole(file, from, to - from)?;
    }
    Ok(to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_zero_and_of_data() {
        let mut bytes = vec![0u8; 6 * PAGE];
        bytes[PAGE + 5] = 1;
        bytes[2 * PAGE] = 1;
        bytes[6 * PAGE - 1] = 1;
        let pages = |zero| {
            rows(&bytes, zero)
                .map(|(a, b)| (a / PAGE, b / PAGE))
                .collect::<Vec<_>>()
        };
        assert_eq!(pages(false), [(1, 3), (5, 6)]);
        assert_eq!(pages(true), [(0, 1), (3, 5)]);
        assert_eq!(rows(&[], true).count(), 0);
    }
}
