//! The delta file: the pages of a RAM image that differ from its base.

use crate::error::{Context, Error, Outcome};
use crate::sys::{Mapping, PAGE};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8; 8] = b"FKDELTA1";
const VERSION: u32 = 1;
const ENTRY: usize = 16;
const HEADER_FIELDS: usize = 56;

/// `count` pages of RAM from page `first` are the file's pages from slot `slot`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: u64,
    pub count: u32,
    pub slot: u32,
}

impl Run {
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

pub fn slot_offset(slot: u32) -> u64 {
    (1 + u64::from(slot)) * PAGE as u64
}

/// Appends a run; joins it to the last one if both pages and slots are contiguous.
pub fn append(runs: &mut Vec<Run>, next: Run) {
    if let Some(last) = runs.last_mut() {
        let joined = last.count.checked_add(next.count);
        if let (true, Some(slot), Some(joined)) = (last.end() == next.first, last.slot.checked_add(last.count), joined)
        {
            if slot == next.slot {
                last.count = joined;
                return;
            }
        }
    }
    runs.push(next);
}

/// Writes the index and then the header; the pages are already in their slots. Returns the file's size.
pub fn seal(file: &File, ram_bytes: u64, slots: u32, runs: &[Run]) -> io::Result<u64> {
    let mut index = Vec::with_capacity(runs.len() * ENTRY);
    let mut pages = 0u64;
    for run in runs {
        index.extend_from_slice(&run.first.to_le_bytes());
        index.extend_from_slice(&run.count.to_le_bytes());
        index.extend_from_slice(&run.slot.to_le_bytes());
        pages += u64::from(run.count);
    }
    let index_at = slot_offset(slots);
    let size = index_at + index.len() as u64;
    file.set_len(size)?;
    file.write_all_at(&index, index_at)?;

    let mut header = Vec::with_capacity(PAGE);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(PAGE as u32).to_le_bytes());
    for field in [ram_bytes, pages, index_at, runs.len() as u64, checksum(&index)] {
        header.extend_from_slice(&field.to_le_bytes());
    }
    header.resize(PAGE, 0);
    file.write_all_at(&header, 0)?;
    Ok(size)
}

/// FNV-1a, 64 bits
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// A delta whose offsets have all been checked
pub struct Delta {
    map: Mapping,
    pub runs: Vec<Run>,
}

impl Delta {
    pub fn open(path: &Path, ram_bytes: u64) -> Outcome<Delta> {
        let file = File::open(path).during(|| path.display())?;
        let meta = file.metadata().during(|| path.display())?;
        let bad = |why: &str| Error::new("bad_delta", format!("{}: {why}", path.display()));
        if !meta.is_file() {
            return Err(bad("not a file"));
        }
        let size = usize::try_from(meta.len()).map_err(|_| bad("size"))?;
        if size < PAGE {
            return Err(bad("shorter than its header"));
        }
        let map = Mapping::of_file(&file, size, false).during(|| path.display())?;
        let runs = verify(map.bytes(), ram_bytes).map_err(bad)?;
        Ok(Delta { map, runs })
    }

    pub fn pages(&self, run: &Run) -> &[u8] {
        pages_at(&self.map, run.slot, run.count)
    }

    pub fn into_map(self) -> Mapping {
        self.map
    }
}

/// The pages from a slot on, in a mapping of a delta file
pub fn pages_at(map: &Mapping, slot: u32, count: u32) -> &[u8] {
    let at = slot_offset(slot) as usize;
    &map.bytes()[at..at + count as usize * PAGE]
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The runs of a complete file, header included
pub fn verify(bytes: &[u8], ram_bytes: u64) -> Result<Vec<Run>, &'static str> {
    if &bytes[..8] != MAGIC {
        return Err("not a delta, or not finished");
    }
    if u32_at(bytes, 8) != VERSION || u32_at(bytes, 12) != PAGE as u32 {
        return Err("unknown version or page size");
    }
    if u64_at(bytes, 16) != ram_bytes {
        return Err("of another RAM size");
    }
    let (page_count, index_at, entries) = (u64_at(bytes, 24), u64_at(bytes, 32), u64_at(bytes, 40));
    if bytes[HEADER_FIELDS..PAGE].iter().any(|byte| *byte != 0) {
        return Err("header padding is not zero");
    }
    let page = PAGE as u64;
    if index_at < page || index_at % page != 0 {
        return Err("index offset");
    }
    let end = entries
        .checked_mul(ENTRY as u64)
        .and_then(|length| length.checked_add(index_at));
    if end != Some(bytes.len() as u64) {
        return Err("index does not end where the file does");
    }
    let index = &bytes[index_at as usize..];
    if checksum(index) != u64_at(bytes, 48) {
        return Err("index checksum");
    }
    let runs = parse(index, ram_bytes / page, index_at / page - 1)?;
    if runs.iter().map(|run| u64::from(run.count)).sum::<u64>() != page_count {
        return Err("page count");
    }
    Ok(runs)
}

/// Makes the header right for any index bytes, so that a fuzzer reaches the code that reads the index.
#[cfg(any(test, feature = "fuzz"))]
pub fn complete(bytes: &mut [u8], ram_bytes: u64, index_at: usize) {
    let index = &bytes[index_at..];
    let pages = index.chunks_exact(ENTRY).map(|entry| u64::from(u32_at(entry, 8))).sum();
    let (entries, sum) = (index.len() as u64 / ENTRY as u64, checksum(index));
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(PAGE as u32).to_le_bytes());
    for (at, field) in [ram_bytes, pages, index_at as u64, entries, sum]
        .into_iter()
        .enumerate()
    {
        bytes[16 + 8 * at..24 + 8 * at].copy_from_slice(&field.to_le_bytes());
    }
}

fn parse(index: &[u8], ram_pages: u64, slots: u64) -> Result<Vec<Run>, &'static str> {
    let mut runs = Vec::with_capacity(index.len() / ENTRY);
    let mut free = 0;
    for entry in index.chunks_exact(ENTRY) {
        let run = Run {
            first: u64_at(entry, 0),
            count: u32_at(entry, 8),
            slot: u32_at(entry, 12),
        };
        let end = run.first.checked_add(u64::from(run.count));
        if run.count == 0 || run.first < free || !matches!(end, Some(end) if end <= ram_pages) {
            return Err("index entry out of range or order");
        }
        if u64::from(run.slot) + u64::from(run.count) > slots {
            return Err("index entry beyond the pages");
        }
        free = run.end();
        runs.push(run);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAM: u64 = 64 * PAGE as u64;

    fn sample(runs: &[Run]) -> Vec<u8> {
        let path = std::env::temp_dir().join(format!(
            "forkd-delta-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file = File::create(&path).unwrap();
        seal(&file, RAM, 8, runs).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        bytes
    }

    fn run(first: u64, count: u32, slot: u32) -> Run {
        Run { first, count, slot }
    }

    #[test]
    fn reads_its_own_output() {
        let runs = [run(0, 2, 0), run(5, 1, 7), run(60, 4, 2)];
        assert_eq!(verify(&sample(&runs), RAM).unwrap(), runs);
        assert_eq!(verify(&sample(&[]), RAM).unwrap(), []);
    }

    #[test]
    fn refuses_runs_out_of_bounds_even_with_a_valid_checksum() {
        for runs in [
            vec![run(60, 5, 0)],
            vec![run(0, 9, 0)],
            vec![run(0, 1, 8)],
            vec![run(0, 1, u32::MAX)],
            vec![run(u64::MAX, 1, 0)],
            vec![run(0, 0, 0)],
            vec![run(0, 2, 0), run(1, 1, 2)],
            vec![run(5, 1, 0), run(1, 1, 2)],
        ] {
            assert!(verify(&sample(&runs), RAM).is_err(), "{runs:?}");
        }
    }

    #[test]
    fn refuses_every_changed_byte_of_header_and_index() {
        let good = sample(&[run(0, 2, 0), run(5, 1, 7)]);
        for at in (0..PAGE).chain(9 * PAGE..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            assert!(verify(&bad, RAM).is_err(), "byte {at}");
        }
        assert!(verify(&good[..good.len() - 1], RAM).is_err());
        assert!(verify(&good, RAM * 2).is_err());
    }

    #[test]
    fn joins_runs() {
        let mut runs = Vec::new();
        for next in [run(0, 1, 0), run(1, 1, 1), run(2, 1, 5), run(4, 1, 6)] {
            append(&mut runs, next);
        }
        assert_eq!(runs, [run(0, 2, 0), run(2, 1, 5), run(4, 1, 6)]);
    }
}
