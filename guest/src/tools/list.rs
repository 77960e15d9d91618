//! The content of a folder as records on stdout: for an entry, its path below the folder and the fields of STAT; for an
//! unreadable folder, `!` and the reason; at the end `.` and whether there is more.

use super::walk::{walk, Next, Step};
use super::{check_stopped, Outcome, Problem};
use crate::files;
use crate::users::Names;
use forkd_wire::errno;
use forkd_wire::Writer;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A page also ends at this size: the host keeps it in memory.
const LARGEST_PAGE: usize = 8 << 20;
const PIECE: usize = 1 << 16;

/// Lists up to `limit` entries after the path `after` below the folder.
pub fn list(folder: &Path, depth: u64, limit: u64, after: Option<&[u8]>, mut output: File) -> Outcome {
    let after = after.unwrap_or_default();
    let names = Names::load();
    // a folder behind a link is listed as well
    let start = fs::canonicalize(folder)?;
    if !fs::metadata(&start)?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::ENOTDIR).into());
    }
    let (mut records, mut count, mut sent, mut more) = (Writer::default(), 0, 0, false);
    let result = walk(&start, after, &mut |step| {
        check_stopped()?;
        if records.0.len() >= PIECE {
            output.write_all(&records.0)?;
            sent += records.0.len();
            records.0.clear();
        }
        let (entry, is_folder) = match step {
            Step::Leave(_) => return Ok(Next::Pass),
            Step::Closed(entry, error) if entry.depth == 0 => return Err(error),
            Step::Closed(_, error) => {
                records = std::mem::take(&mut records).u8(b'!').str(&errno::name(&error));
                return Ok(Next::Pass);
            }
            Step::Enter(entry) => (entry, true),
            Step::Leaf(entry) => (entry, false),
        };
        let descend = match is_folder && entry.depth < depth {
            true => Next::Descend,
            false => Next::Pass,
        };
        if entry.depth == 0 || entry.path == after || leads_to(entry.path, after) {
            return Ok(descend);
        }
        if count >= limit || sent + records.0.len() >= LARGEST_PAGE {
            more = true;
            return Err(io::ErrorKind::Other.into());
        }
        count += 1;
        let record = std::mem::take(&mut records).u8(b'+').bytes(entry.path);
        records = files::describe(record, entry.name, entry.found, &names);
        Ok(descend)
    });
    match result {
        Err(error) if !more => return Err(Problem::from(error)),
        _ => {}
    }
    output.write_all(&records.u8(b'.').u8(more as u8).0)?;
    Ok(())
}

/// Whether a folder is on the way to a path.
fn leads_to(folder: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(folder)
        .map_or(false, |rest| rest.first() == Some(&b'/'))
}
