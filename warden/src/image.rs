//! RAM images: makes a flat image from a base and deltas, and punches holes for zero pages.

use crate::delta::Delta;
use crate::error::{Context, Error, Outcome};
use crate::page_map;
use crate::sys::{self, PAGE};
use crate::temp_files::{TempFile, TempFiles};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

const BLOCK: usize = 1 << 20;

pub struct Flattened {
    pub written: u64,
    pub reflinked: bool,
    /// Complete, but removed unless its owner finishes it
    pub file: TempFile,
}

/// Makes `out`: `base` with the deltas applied, oldest first.
pub fn flatten(
    base: &Path,
    deltas: &[PathBuf],
    out: &Path,
    files: &Arc<TempFiles>,
    threads: usize,
) -> Outcome<Flattened> {
    let source = File::open(base).during(|| base.display())?;
    let size = source.metadata().during(|| base.display())?.len();
    if size % PAGE as u64 != 0 {
        return Err(Error::new("EINVAL", format!("{}: not a RAM image", base.display())));
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
    // merged first: a page that several deltas have is written once
    for part in page_map::merge(deltas.iter().map(|delta| delta.runs.as_slice())) {
        let pages = deltas[part.file as usize].pages(&part.run);
        target
            .file
            .write_all_at(pages, part.run.first * PAGE as u64)
            .during(|| out.display())?;
        written += pages.len() as u64;
    }
    Ok(Flattened {
        written,
        reflinked,
        file: target,
    })
}

/// A new file with the content of another, open for reading and writing
pub fn duplicate(from: &Path, to: &Path) -> Outcome<File> {
    let source = File::open(from).during(|| from.display())?;
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o600);
    let target = options.open(to).during(|| to.display())?;
    if sys::reflink(&source, &target).is_err() {
        copy_parts(&source, &target).during(|| to.display())?;
    }
    Ok(target)
}

/// Copies a file of any length, and leaves its holes out.
fn copy_parts(source: &File, target: &File) -> io::Result<()> {
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut buffer = vec![0; BLOCK];
    let mut at = 0;
    while let Some(data) = sys::seek_data(source, at)?.filter(|data| *data < size) {
        at = sys::seek_hole(source, data)?.unwrap_or(size).min(size);
        for from in (data..at).step_by(BLOCK) {
            let bytes = &mut buffer[..BLOCK.min((at - from) as usize)];
            source.read_exact_at(bytes, from)?;
            target.write_all_at(bytes, from)?;
        }
    }
    Ok(())
}

/// Copies the bytes that are not zero; returns their number.
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

/// The file's data as (offset, length), cut into blocks; both are multiples of a page.
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

/// The runs of zero pages in a block, or of the others, as (from, to).
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

/// Punches holes where whole pages are zero; returns the number of bytes that were data and are holes now.
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
    fn a_copy_has_the_bytes_and_the_holes() {
        let folder = std::env::temp_dir().join(format!("forkd-image-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (from, to) = (folder.join("from"), folder.join("to"));
        let source = File::create(&from).unwrap();
        source.write_all_at(b"start", 0).unwrap();
        source.write_all_at(b"end", 8 * BLOCK as u64 + 1).unwrap();
        let target = File::create(&to).unwrap();
        copy_parts(&File::open(&from).unwrap(), &target).unwrap();
        assert_eq!(std::fs::read(&from).unwrap(), std::fs::read(&to).unwrap());
        use std::os::unix::fs::MetadataExt;
        assert!(target.metadata().unwrap().blocks() * 512 < BLOCK as u64);
        assert_eq!(duplicate(&from, &to).unwrap_err().code, "EEXIST");
        std::fs::remove_dir_all(&folder).unwrap();
    }

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
