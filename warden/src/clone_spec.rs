//! What a client asks for when it clones a process: the files that the clone has in place of those of its zygote.

use crate::descriptors::{Own, LOG};
use crate::error::{Context, Error, Outcome};
use crate::fds::{self, Source, FIRST_FREE_FD, LAST_FREE_FD};
use crate::image;
use crate::spawn::{counts_own_threads, THREADS};
use crate::zygote::{Connections, Copy, Given, Listener};
use forkd_wire::Reader;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MAX_FILES: usize = 8;
/// As many descriptors go with one message, beside the files
const MAX_SILENT: usize = 2;
/// A new file with the content of the one that the held process has
const COPY: u8 = 4;

pub struct CloneSpec {
    pub own: Own,
    modes: Vec<u8>,
    group: Option<PathBuf>,
    /// Roles of sockets whose connections a copy of a running process keeps, silent
    silent: Vec<u32>,
    /// The role of a file, and the file that the running process writes for it by then
    pub next: Option<(u32, PathBuf)>,
}

impl CloneSpec {
    pub fn read(reader: &mut Reader) -> Outcome<CloneSpec> {
        let mut own = Own {
            log: reader.path()?,
            listeners: Vec::new(),
            written: Vec::new(),
        };
        let mut modes = Vec::new();
        let mut seen = vec![LOG];
        let item = |reader: &mut Reader| Outcome::Ok((reader.u32()?, reader.path()?, reader.u8()?));
        for (fd, path, mode) in reader.list(item)? {
            if !(FIRST_FREE_FD..=LAST_FREE_FD).contains(&fd) || seen.contains(&fd) || seen.len() > MAX_FILES {
                return Err(Error::new(
                    "EINVAL",
                    "descriptors must be distinct, 3 to 255, and at most 8",
                ));
            }
            seen.push(fd);
            match mode {
                1 | 2 | COPY => {
                    own.written.push((fd, path));
                    modes.push(mode);
                }
                3 => own.listeners.push((fd, path)),
                other => return Err(Error::new("EINVAL", format!("file mode {other} in a clone"))),
            }
        }
        let group = reader.optional(Reader::path)?;
        Ok(CloneSpec {
            own,
            modes,
            group,
            silent: Vec::new(),
            next: None,
        })
    }

    /// Of a process that runs on
    pub fn read_fork(reader: &mut Reader) -> Outcome<CloneSpec> {
        let mut spec = CloneSpec::read(reader)?;
        spec.silent = reader.list(|reader| Outcome::Ok(reader.u32()?))?;
        spec.next = reader.optional(|reader| Outcome::Ok((reader.u32()?, reader.path()?)))?;
        match spec.silent.len() {
            0..=MAX_SILENT => Ok(spec),
            _ => Err(Error::new("EINVAL", "too many connections")),
        }
    }

    /// Opens the files; copies are made of those that the held process has
    pub fn open(&self, log: &File, source: &Own) -> Outcome<Copy> {
        let mut given = vec![Given {
            role: LOG,
            file: log.try_clone().during(|| self.own.log.display())?,
        }];
        for ((role, path), mode) in self.own.written.iter().zip(&self.modes) {
            let file = match *mode {
                COPY => image::duplicate(source.written(*role)?, path)?,
                mode => Source::open(path, mode)?,
            };
            given.push(Given { role: *role, file });
        }
        let mut listeners = Vec::new();
        for (role, path) in &self.own.listeners {
            let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
            let address = fds::address_of(&path)?;
            listeners.push(Listener { role: *role, address });
        }
        let group = match &self.group {
            Some(path) => Some(folder(path)?),
            None => None,
        };
        Ok(Copy {
            given,
            listeners,
            group,
            confined: true,
            threads: counts_own_threads().then_some(THREADS),
            connections: match self.silent.as_slice() {
                [] => Connections::Accepted,
                roles => Connections::Silent(roles.to_vec()),
            },
        })
    }
}

fn folder(path: &Path) -> Outcome<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_DIRECTORY);
    options.open(path).during(|| path.display())
}
