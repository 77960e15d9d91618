//! Finds the address at which a process maps its RAM file.

use crate::error::{Context, Error, Outcome};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The address of the file's first byte in the process, which must map all of it privately and contiguously.
pub fn ram_address(pid: i32, ram: &Path, bytes: u64) -> Outcome<u64> {
    let meta = fs::metadata(ram).during(|| ram.display())?;
    let canonical = fs::canonicalize(ram).during(|| ram.display())?;
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).during(|| "maps")?;
    let device = (libc::major(meta.dev()), libc::minor(meta.dev()));
    find(&text, meta.ino(), device, &canonical.to_string_lossy(), bytes)
}

struct Area<'a> {
    start: u64,
    end: u64,
    private: bool,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    path: &'a str,
}

fn parse(line: &str) -> Option<Area<'_>> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let perms = fields.next()?;
    let offset = fields.next()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Area {
        start: hex(start)?,
        end: hex(end)?,
        private: perms.ends_with('p'),
        offset: hex(offset)?,
        device: (hex(major)? as u32, hex(minor)? as u32),
        inode: fields.next()?.trim().parse().ok()?,
        path: fields.next().unwrap_or("").trim_start(),
    })
}

fn find(text: &str, inode: u64, device: (u32, u32), path: &str, bytes: u64) -> Outcome<u64> {
    let mut areas: Vec<Area> = text
        .lines()
        .filter_map(parse)
        // btrfs and overlay report another device in maps than in stat; the path decides there
        .filter(|area| area.inode == inode && (area.device == device || area.path == path))
        .collect();
    if areas.is_empty() {
        return Err(Error::new("ENOENT", "the process does not map the RAM file"));
    }
    if areas.iter().any(|area| !area.private) {
        return Err(Error::new("EINVAL", "the RAM file is mapped shared"));
    }
    // mprotect and madvise split a mapping into areas, but do not move a byte
    areas.sort_unstable_by_key(|area| area.offset);
    let base = areas[0].start;
    let mut covered = 0;
    for area in &areas {
        if area.offset != covered || area.start != base + covered {
            return Err(Error::new("EINVAL", "the RAM file is not mapped in one line"));
        }
        covered += area.end - area.start;
    }
    if covered < bytes {
        let message = format!("the process maps {covered} of {bytes} bytes of RAM");
        return Err(Error::new("EINVAL", message));
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 77 /usr/bin/qemu
7f0000000000-7f0000100000 rw-p 00000000 fe:00 42 /a b/ram
7f0000100000-7f0000101000 r--p 00100000 fe:00 42 /a b/ram
7f0000101000-7f0000200000 rw-p 00101000 fe:00 42 /a b/ram
7f0000200000-7f0000300000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00001000 rw-s 00000000 00:1c 43 /dev/shm/ram
";

    fn look(inode: u64, device: (u32, u32), path: &str, bytes: u64) -> Result<u64, String> {
        find(MAPS, inode, device, path, bytes).map_err(|error| error.code)
    }

    #[test]
    fn joins_split_areas() {
        assert_eq!(look(42, (0xfe, 0), "", 0x200000), Ok(0x7f0000000000));
    }

    #[test]
    fn the_path_decides_if_devices_differ() {
        assert_eq!(look(42, (0, 9), "/a b/ram", 0x200000), Ok(0x7f0000000000));
        assert_eq!(look(42, (0, 9), "/other", 0x200000), Err("ENOENT".into()));
    }

    #[test]
    fn refuses_shared_short_and_missing() {
        assert_eq!(look(43, (0, 0x1c), "", 0x1000), Err("EINVAL".into()));
        assert_eq!(look(42, (0xfe, 0), "", 0x200001), Err("EINVAL".into()));
        assert_eq!(look(44, (0xfe, 0), "", 0x1000), Err("ENOENT".into()));
    }
}
