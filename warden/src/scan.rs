//! Finds the private pages of a mapping: present or swapped, and not file-backed.

use crate::sys::{self, PageRegion, PAGE};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Method that finds private pages
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// The ioctl PAGEMAP_SCAN, which visits only populated pages (Linux 6.7 and later)
    Ioctl,
    /// Reading /proc/PID/pagemap, one entry per page of address space
    Table,
}

/// Method that finds pages that changed after they were copied
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    SoftDirty,
    Compare,
}

#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    pub finder: Finder,
    pub method: Method,
}

/// Contiguous private pages, counted from the mapping's first page
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub first: u64,
    pub count: u64,
    /// Written since the marks were cleared; always false if the kernel has no soft-dirty marks
    pub dirty: bool,
}

impl Region {
    pub fn end(&self) -> u64 {
        self.first + self.count
    }
}

const TABLE_PRESENT: u64 = 1 << 63;
const TABLE_SWAPPED: u64 = 1 << 62;
const TABLE_FILE: u64 = 1 << 61;
const TABLE_SOFT_DIRTY: u64 = 1 << 55;
const ENTRY: usize = 8;

impl Abilities {
    /// The methods that this kernel has, found by trying them.
    pub fn probe() -> Abilities {
        Abilities {
            finder: if ioctl_works().unwrap_or(false) {
                Finder::Ioctl
            } else {
                Finder::Table
            },
            method: if soft_dirty_works().unwrap_or(false) {
                Method::SoftDirty
            } else {
                Method::Compare
            },
        }
    }
}

fn ioctl_works() -> io::Result<bool> {
    let page = one_page()?;
    let at = page.bytes().as_ptr() as u64;
    let mut regions = [PageRegion::default(); 1];
    let pagemap = File::open("/proc/self/pagemap")?;
    let (found, _) = sys::pagemap_scan(&pagemap, at, at + PAGE as u64, 0, &mut regions)?;
    Ok(found == 1 && regions[0].start == at)
}

/// Clearing the marks must clear a page's mark, and a write must set it again.
fn soft_dirty_works() -> io::Result<bool> {
    let mut page = one_page()?;
    let at = page.bytes().as_ptr() as u64;
    clear_marks("self")?;
    let pagemap = File::open("/proc/self/pagemap")?;
    let clean = !entry_is_marked(&pagemap, at)?;
    page.bytes_mut()[0] = 2;
    Ok(clean && entry_is_marked(&pagemap, at)?)
}

fn one_page() -> io::Result<sys::Mapping> {
    let mut page = sys::Mapping::buffer(PAGE)?;
    page.bytes_mut()[0] = 1;
    Ok(page)
}

fn entry_is_marked(pagemap: &File, at: u64) -> io::Result<bool> {
    let mut entry = [0; ENTRY];
    pagemap.read_exact_at(&mut entry, at / PAGE as u64 * ENTRY as u64)?;
    Ok(u64::from_le_bytes(entry) & TABLE_SOFT_DIRTY != 0)
}

/// Clears the soft-dirty marks of a process (a pid, or "self").
pub fn clear_marks(process: &str) -> io::Result<()> {
    let file = format!("/proc/{process}/clear_refs");
    OpenOptions::new().write(true).open(file)?.write_all(b"4")
}

pub struct Scanner {
    pagemap: File,
    base: u64,
    abilities: Abilities,
}

/// Memory for the scans of one thread, allocated in advance
pub struct ScanBuffer {
    found: Vec<PageRegion>,
    entries: Vec<u8>,
    pub regions: Vec<Region>,
}

impl ScanBuffer {
    pub fn new() -> ScanBuffer {
        ScanBuffer {
            found: vec![PageRegion::default(); 1024],
            entries: vec![1; 256 * 1024],
            regions: Vec::with_capacity(4096),
        }
    }
}

impl Scanner {
    pub fn open(pid: i32, base: u64, abilities: Abilities) -> io::Result<Scanner> {
        Ok(Scanner {
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
            base,
            abilities,
        })
    }

    /// Fills `buffer.regions` with the private pages among `low..high`, in order.
    pub fn scan(&self, low: u64, high: u64, buffer: &mut ScanBuffer) -> io::Result<()> {
        buffer.regions.clear();
        match self.abilities.finder {
            Finder::Ioctl => self.scan_ioctl(low, high, buffer),
            Finder::Table => self.scan_table(low, high, buffer),
        }
    }

    fn scan_ioctl(&self, low: u64, high: u64, buffer: &mut ScanBuffer) -> io::Result<()> {
        let page = PAGE as u64;
        let marks = match self.abilities.method {
            Method::SoftDirty => sys::PAGE_IS_SOFT_DIRTY,
            Method::Compare => 0,
        };
        let mut at = self.base + low * page;
        let end = self.base + high * page;
        while at < end {
            let (found, stop) = sys::pagemap_scan(&self.pagemap, at, end, marks, &mut buffer.found)?;
            for region in &buffer.found[..found] {
                push(
                    &mut buffer.regions,
                    Region {
                        first: (region.start - self.base) / page,
                        count: (region.end - region.start) / page,
                        dirty: region.categories & marks != 0,
                    },
                );
            }
            // with a full vector the kernel may report an end before the last region it returned
            let last = buffer.found[..found].last().map_or(at, |region| region.end);
            let next = if found == buffer.found.len() {
                last
            } else {
                stop.max(last)
            };
            if next <= at {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            at = next;
        }
        Ok(())
    }

    fn scan_table(&self, low: u64, high: u64, buffer: &mut ScanBuffer) -> io::Result<()> {
        let mut at = low;
        while at < high {
            let count = (high - at).min((buffer.entries.len() / ENTRY) as u64);
            let entries = &mut buffer.entries[..count as usize * ENTRY];
            let first = self.base / PAGE as u64 + at;
            self.pagemap.read_exact_at(entries, first * ENTRY as u64)?;
            for (index, entry) in entries.chunks_exact(ENTRY).enumerate() {
                let entry = u64::from_le_bytes(entry.try_into().unwrap());
                if is_private(entry) {
                    let dirty = self.abilities.method == Method::SoftDirty && entry & TABLE_SOFT_DIRTY != 0;
                    let first = at + index as u64;
                    push(&mut buffer.regions, Region { first, count: 1, dirty });
                }
            }
            at += count;
        }
        Ok(())
    }
}

fn is_private(entry: u64) -> bool {
    entry & (TABLE_PRESENT | TABLE_SWAPPED) != 0 && entry & TABLE_FILE == 0
}

fn push(regions: &mut Vec<Region>, next: Region) {
    if let Some(last) = regions.last_mut() {
        if last.first + last.count == next.first && last.dirty == next.dirty {
            last.count += next.count;
            return;
        }
    }
    regions.push(next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_entries() {
        assert!(is_private(TABLE_PRESENT));
        assert!(is_private(TABLE_SWAPPED | TABLE_SOFT_DIRTY));
        assert!(!is_private(TABLE_PRESENT | TABLE_FILE));
        assert!(!is_private(0));
        assert!(!is_private(TABLE_SOFT_DIRTY));
    }

    #[test]
    fn only_equal_rows_are_joined() {
        let mut regions = Vec::new();
        for (first, dirty) in [(1, false), (2, false), (3, true), (5, true)] {
            push(&mut regions, Region { first, count: 1, dirty });
        }
        let shape: Vec<_> = regions.iter().map(|r| (r.first, r.count, r.dirty)).collect();
        assert_eq!(shape, [(1, 2, false), (3, 1, true), (5, 1, true)]);
    }

    #[test]
    fn both_finders_agree() {
        let mut memory = sys::Mapping::buffer(64 * PAGE).unwrap();
        memory.bytes_mut()[0] = 1;
        let base = memory.bytes().as_ptr() as u64;
        let pid = std::process::id() as i32;
        let scan = |finder| {
            let abilities = Abilities {
                finder,
                method: Method::Compare,
            };
            let mut buffer = ScanBuffer::new();
            let scanner = Scanner::open(pid, base, abilities).unwrap();
            scanner.scan(3, 60, &mut buffer).unwrap();
            buffer.regions
        };
        let expected = [Region {
            first: 3,
            count: 57,
            dirty: false,
        }];
        assert_eq!(scan(Finder::Table), expected);
        if Abilities::probe().finder == Finder::Ioctl {
            assert_eq!(scan(Finder::Ioctl), expected);
        }
    }
}
