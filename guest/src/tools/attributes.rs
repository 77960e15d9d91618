//! Extended attributes with a common prefix of their names.

use super::{check_stopped, Outcome, Problem};
use crate::sys;
use forkd_wire::{Malformed, Reader, Writer};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Limit of a request.
const LARGEST_INPUT: u64 = 4 << 20;
/// Limit of one file's names and values.
const LARGEST_SET: usize = 16 << 10;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Reports the attributes of each path on stdin, in the same order. An unreadable file has none.
pub fn get(prefix: &[u8], input: File, mut output: File) -> Outcome {
    let request = whole(input)?;
    let paths = Reader::new(&request).list(|reader| reader.bytes()).map_err(malformed)?;
    for path in paths {
        check_stopped()?;
        let path = Path::new(OsStr::from_bytes(path));
        let pairs = read(path, prefix).unwrap_or_default();
        let start = Writer::default().u32(pairs.len() as u32);
        let record = pairs
            .iter()
            .fold(start, |record, (name, value)| record.bytes(name).bytes(value));
        output.write_all(&record.0)?;
    }
    Ok(())
}

/// Replaces the attributes of a path by those on stdin.
pub fn set(path: &Path, prefix: &[u8], input: File) -> Outcome {
    let request = whole(input)?;
    let wanted = Reader::new(&request)
        .list(|reader| Ok((joined(prefix, reader.bytes()?), reader.bytes()?)))
        .map_err(malformed)?;
    let old = match names(path, prefix) {
        // a file system without attributes has none to remove
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Vec::new(),
        names => names?,
    };
    for name in old {
        if wanted.iter().all(|(kept, _)| *kept != name) {
            sys::remove_attribute(path, &name)?;
        }
    }
    for (name, value) in &wanted {
        sys::set_attribute(path, name, value)?;
    }
    Ok(())
}

fn read(path: &Path, prefix: &[u8]) -> io::Result<Pairs> {
    let mut pairs = Pairs::new();
    let mut size = 0;
    for name in names(path, prefix)? {
        let value = match sys::attribute(path, &name, LARGEST_SET) {
            // too large, or removed meanwhile
            Err(error) if matches!(error.raw_os_error(), Some(libc::ERANGE | libc::ENODATA)) => continue,
            value => value?,
        };
        size += name.len() + value.len();
        if size > LARGEST_SET {
            break;
        }
        pairs.push((name[prefix.len()..].to_vec(), value));
    }
    Ok(pairs)
}

fn names(path: &Path, prefix: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let all = sys::attribute_names(path)?;
    let ours = all.split(|byte| *byte == 0).filter(|name| name.starts_with(prefix));
    Ok(ours.map(<[u8]>::to_vec).collect())
}

fn joined(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    [prefix, name].concat()
}

fn whole(input: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(LARGEST_INPUT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn malformed(_: Malformed) -> Problem {
    Problem::bad_request("the input is malformed")
}
