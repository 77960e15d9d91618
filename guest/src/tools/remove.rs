//! Removes a tree.

use super::walk::{walk, Next, Step};
use super::{check_stopped, Outcome, Problem};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Removes as much as possible and returns the first failure.
pub fn remove(path: &Path) -> Outcome {
    let identity = |path: &Path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    if identity(path)? == identity(Path::new("/"))? {
        return Err(io::Error::from_raw_os_error(libc::EBUSY).into());
    }
    remove_all(path, check_stopped)
}

/// The same for an incomplete tree; `check` may stop it.
pub fn remove_all(path: &Path, check: fn() -> io::Result<()>) -> Outcome {
    let mut failure: Option<Problem> = None;
    walk(path, b"", &mut |step| {
        check()?;
        let (entry, result) = match step {
            Step::Enter(_) => return Ok(Next::Descend),
            Step::Leaf(entry) => (entry.path.to_vec(), fs::remove_file(entry.name)),
            // an empty folder can be removed without reading it
            Step::Leave(entry) | Step::Closed(entry, _) => (entry.path.to_vec(), fs::remove_dir(entry.name)),
        };
        match result {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if failure.is_none() => failure = Some(super::problem_below(path, &entry, &e)),
            _ => {}
        }
        Ok(Next::Pass)
    })?;
    failure.map_or(Ok(()), Err)
}
