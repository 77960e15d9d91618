//! Disk usage: the bytes and entries of a tree, and the size of its file system.

use super::walk::{walk, Next, Step};
use super::{check_stopped, Outcome};
use crate::sys;
use forkd_wire::Writer;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Unit of `st_blocks`.
const BLOCK: u64 = 512;

/// A file with several names counts once. Links are not followed, and other file systems below the path do not count.
/// A folder that cannot be read counts as one entry.
pub fn usage(path: &Path, mut output: File) -> Outcome {
    // before the walk, which changes the working folder
    let (total, used) = sys::disk_usage(path)?;
    let mut linked = HashSet::new();
    let (mut bytes, mut entries, mut device) = (0u64, 0u64, None);
    walk(path, b"", &mut |step| {
        check_stopped()?;
        let found = match step {
            Step::Enter(entry) | Step::Leaf(entry) => entry.found,
            Step::Leave(_) | Step::Closed(..) => return Ok(Next::Descend),
        };
        if *device.get_or_insert(found.dev()) != found.dev() {
            return Ok(Next::Pass);
        }
        if found.is_dir() || found.nlink() < 2 || linked.insert(found.ino()) {
            bytes = bytes.saturating_add(found.blocks().saturating_mul(BLOCK));
        }
        entries += 1;
        Ok(Next::Descend)
    })?;
    let counts = Writer::default().u64(bytes).u64(entries).u64(total).u64(used);
    output.write_all(&counts.0)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::usage;
    use crate::scratch::Folder;
    use forkd_wire::Reader;
    use std::fs;
    use std::path::Path;

    fn counts(folder: &Folder, path: &Path) -> [u64; 4] {
        assert!(usage(path, folder.output()).is_ok());
        let bytes = folder.written();
        let mut reader = Reader::new(&bytes);
        [(); 4].map(|()| reader.u64().unwrap())
    }

    #[test]
    fn a_file_with_two_names_counts_once() {
        let folder = Folder::new("usage");
        let tree = folder.path("tree");
        fs::create_dir_all(tree.join("below")).unwrap();
        fs::write(tree.join("large"), vec![1u8; 1 << 20]).unwrap();
        let [one, entries, total, used] = counts(&folder, &tree);
        assert!((1 << 20..3 << 20).contains(&one), "{one}");
        assert_eq!(entries, 3);
        assert!(total > 0 && used <= total);
        fs::hard_link(tree.join("large"), tree.join("below/again")).unwrap();
        let [two, entries, ..] = counts(&folder, &tree);
        assert_eq!((two, entries), (one, 4));
    }
}
