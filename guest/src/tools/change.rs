//! Changes mode and owner of a tree. Links have no mode, and their targets are not changed.

use super::walk::{walk, Next, Step};
use super::{check_stopped, Outcome, Problem};
use crate::sys;
use crate::users;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A folder's owner needs these bits to enter it.
const PASSABLE: u32 = 0o500;

pub fn chmod(path: &Path, mode: u32) -> Outcome {
    let first = mode & PASSABLE == PASSABLE;
    change(path, first, &|name, is_link| match is_link {
        true => Ok(()),
        false => fs::set_permissions(name, Permissions::from_mode(mode)),
    })
}

pub fn chown(path: &Path, owner: &str, group: &str) -> Outcome {
    let (uid, gid) = users::ids(owner, group).map_err(|e| Problem {
        code: "no_such_user".to_string(),
        message: e.to_string(),
    })?;
    change(path, false, &|name, _| sys::chown_link(name, uid, gid))
}

/// Changes as much as possible and returns the first failure. `first`: a folder is changed before its content.
fn change(path: &Path, first: bool, work: &dyn Fn(&Path, bool) -> io::Result<()>) -> Outcome {
    let mut failure: Option<Problem> = None;
    walk(path, b"", &mut |step| {
        check_stopped()?;
        let mut note = |below: &[u8], error: io::Error| {
            failure.get_or_insert_with(|| super::problem_below(path, below, &error));
        };
        let (entry, due) = match step {
            Step::Enter(entry) => (entry, first),
            Step::Leave(entry) => (entry, !first),
            Step::Leaf(entry) => (entry, true),
            Step::Closed(entry, error) => {
                note(entry.path, error);
                (entry, !first)
            }
        };
        if due {
            if let Err(error) = work(entry.name, entry.found.file_type().is_symlink()) {
                note(entry.path, error);
            }
        }
        Ok(Next::Descend)
    })?;
    failure.map_or(Ok(()), Err)
}
