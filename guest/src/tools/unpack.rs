//! Extracts a tar archive from stdin below a folder: never above it, and never through a link.

use super::folder::Folder;
use super::stage::{Place, Stage};
use super::walk::open_folder;
use super::{check_stopped, Outcome, Problem};
use crate::files::MODE_BITS;
use crate::sys;
use forkd_wire::errno;
use forkd_wire::Writer;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tar::{Archive, EntryType, Header};

const PIECE: usize = 1 << 17;
/// Other bits are set only together with the owner, which only root can set.
const PLAIN_BITS: u32 = 0o777;

/// Extracts, and reports the number of entries and bytes. A new folder gets its name when it is complete.
pub fn unpack(place: &Path, input: File, mut output: File) -> Outcome {
    sys::set_umask(0);
    let stage = match fs::metadata(place) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => return Err(io::Error::from_raw_os_error(libc::ENOTDIR).into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Some(make_stage(place)?),
        Err(e) => return Err(e.into()),
    };
    let mut unpacker = Unpacker {
        folder: Folder::open(stage.as_ref().map_or(place, |stage| &stage.path))?,
        is_new: stage.is_some(),
        is_root: sys::is_root(),
        later: Vec::new(),
        buffer: vec![0; PIECE],
        entries: 0,
        bytes: 0,
    };
    unpacker.archive(input)?;
    if let Some(stage) = stage {
        stage.finish(false)?;
    }
    let counts = Writer::default().u64(unpacker.entries).u64(unpacker.bytes);
    output.write_all(&counts.0)?;
    Ok(())
}

fn make_stage(place: &Path) -> io::Result<Stage> {
    if let Some(parent) = place.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    let stage = Stage::beside(place)?;
    DirBuilder::new().mode(0o755).create(&stage.path)?;
    Ok(stage)
}

/// Metadata of an entry.
struct Facts {
    path: Vec<u8>,
    kind: EntryType,
    mode: u32,
    owner: (u32, u32),
    mtime: i64,
    target: Vec<u8>,
    device: u64,
}

struct Unpacker {
    folder: Folder,
    /// The target folder was made by this extraction, so the archive's metadata applies to it.
    is_new: bool,
    is_root: bool,
    /// New folders: their modes and times are set after their content is complete.
    later: Vec<Facts>,
    buffer: Vec<u8>,
    entries: u64,
    bytes: u64,
}

impl Unpacker {
    fn archive(&mut self, input: File) -> Outcome {
        let mut archive = Archive::new(BufReader::with_capacity(PIECE, input));
        for entry in archive.entries().map_err(|e| problem(b"", &e))? {
            check_stopped()?;
            let mut entry = entry.map_err(|e| problem(b"", &e))?;
            let path = entry.path_bytes().into_owned();
            let target = entry.link_name_bytes().unwrap_or_default().into_owned();
            let facts = Facts::read(entry.header(), path, target).map_err(|e| problem(b"", &e))?;
            if facts.kind == EntryType::XGlobalHeader {
                continue;
            }
            let size = entry.size();
            let is_new_folder = self
                .entry(&facts, &mut entry, size)
                .map_err(|e| problem(&facts.path, &e))?;
            self.entries += 1;
            if is_new_folder {
                self.later.push(facts);
            }
        }
        // bytes after the end of an archive only pad it to a tape block
        let mut rest = archive.into_inner();
        while rest.read(&mut self.buffer)? > 0 {}
        self.finish_folders()
    }

    /// Whether a folder was made; it is finished after its content is complete.
    fn entry(&mut self, facts: &Facts, content: &mut dyn Read, size: u64) -> io::Result<bool> {
        let name = match (self.folder.go_to_parent(&facts.path)?, facts.kind) {
            (Some(name), _) => name,
            (None, EntryType::Directory) => return Ok(self.is_new),
            (None, _) => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
        };
        match facts.kind {
            EntryType::Directory => return make_directory(&name),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(&name, facts, content, size)?
            }
            EntryType::Symlink => {
                let target = OsStr::from_bytes(&facts.target);
                self.node(&name, facts, |name| symlink(target, name))?
            }
            EntryType::Link => {
                let (parent, from) = self.folder.open_parent(&facts.target)?;
                Place::make(&name, |name| sys::link(&parent, &from, name))?.0.finish()?
            }
            EntryType::Fifo | EntryType::Char | EntryType::Block => {
                let kind = match facts.kind {
                    EntryType::Fifo => libc::S_IFIFO,
                    EntryType::Char => libc::S_IFCHR,
                    _ => libc::S_IFBLK,
                };
                let mode = kind | self.mode(facts);
                self.node(&name, facts, |name| sys::make_node(name, mode, facts.device))?
            }
            _ => return Err(io::Error::new(io::ErrorKind::Other, "an entry has an unknown type")),
        }
        Ok(false)
    }

    fn file(&mut self, name: &Path, facts: &Facts, content: &mut dyn Read, size: u64) -> io::Result<()> {
        let mode = self.mode(facts) & PLAIN_BITS;
        let (place, mut file) = Place::make(name, |name| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode).open(name)
        })?;
        self.content(&mut file, facts, content, size)?;
        place.finish()
    }

    /// Entries without content: links, pipes, devices.
    fn node(&self, name: &Path, facts: &Facts, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        let (place, ()) = Place::make(name, make)?;
        if self.is_root && facts.owner != (0, 0) {
            sys::chown_link(place.path(), facts.owner.0, facts.owner.1)?;
        }
        sys::set_mtime(place.path(), facts.mtime, 0)?;
        place.finish()
    }

    fn content(&mut self, file: &mut File, facts: &Facts, content: &mut dyn Read, size: u64) -> io::Result<()> {
        let is_sparse = facts.kind == EntryType::GNUSparse;
        let zeros = if is_sparse { vec![0; PIECE] } else { Vec::new() };
        let mut done = 0;
        while done < size {
            check_stopped()?;
            let count = match content.read(&mut self.buffer) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "it ends in the middle of a file",
                    ))
                }
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let bytes = &self.buffer[..count];
            if is_sparse && bytes == &zeros[..count] {
                file.seek(SeekFrom::Current(count as i64))?;
            } else {
                file.write_all(bytes)?;
            }
            done += count as u64;
        }
        if is_sparse {
            file.set_len(size)?;
        }
        self.bytes += size;
        self.keep(file, facts, facts.mode & !PLAIN_BITS != 0)
    }

    /// Sets owner, mode and time of a complete file or folder.
    fn keep(&self, file: &File, facts: &Facts, sets_mode: bool) -> io::Result<()> {
        if self.is_root && facts.owner != (0, 0) {
            sys::chown_file(file, facts.owner.0, facts.owner.1)?;
        }
        if sets_mode {
            file.set_permissions(Permissions::from_mode(self.mode(facts)))?;
        }
        sys::set_file_mtime(file, facts.mtime, 0)
    }

    fn mode(&self, facts: &Facts) -> u32 {
        facts.mode & if self.is_root { MODE_BITS } else { PLAIN_BITS }
    }

    fn finish_folders(&mut self) -> Outcome {
        while let Some(facts) = self.later.pop() {
            let folder = match self.folder.go_to_parent(&facts.path) {
                Ok(Some(name)) => open_folder(&name),
                Ok(None) => self.folder.root().try_clone(),
                Err(e) => Err(e),
            };
            folder
                .and_then(|folder| self.keep(&folder, &facts, true))
                .map_err(|e| problem(&facts.path, &e))?;
        }
        Ok(())
    }
}

impl Facts {
    fn read(header: &Header, path: Vec<u8>, target: Vec<u8>) -> io::Result<Facts> {
        let id = |id: u64| {
            u32::try_from(id).map_err(|_| io::Error::new(io::ErrorKind::Other, "an owner is no number of a user"))
        };
        let part = |part: io::Result<Option<u32>>| part.map(Option::unwrap_or_default);
        Ok(Facts {
            path,
            // older archives mark a folder only by a slash at the end of its name
            kind: match header.entry_type() {
                EntryType::Regular if header.path_bytes().ends_with(b"/") => EntryType::Directory,
                kind => kind,
            },
            mode: header.mode()? & MODE_BITS,
            owner: (id(header.uid()?)?, id(header.gid()?)?),
            mtime: i64::try_from(header.mtime()?).unwrap_or_default(),
            target,
            device: match header.entry_type() {
                EntryType::Char | EntryType::Block => {
                    sys::device(part(header.device_major())?, part(header.device_minor())?)
                }
                _ => 0,
            },
        })
    }
}

/// Makes a folder; whether it is new. An existing one is not changed.
fn make_directory(name: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(name) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && fs::symlink_metadata(name)?.is_dir() => Ok(false),
        Err(e) => Err(e),
    }
}

fn problem(path: &[u8], error: &io::Error) -> Problem {
    let at = match path {
        b"" => String::new(),
        path => format!("{}: ", String::from_utf8_lossy(path)),
    };
    match error.raw_os_error() {
        Some(_) => Problem {
            code: errno::name(error),
            message: format!("{}{}", at, errno::text(error)),
        },
        // an error in the archive, not of a system call
        None => Problem {
            code: "bad_archive".to_string(),
            message: format!("{}the archive is broken: {}", at, error),
        },
    }
}
