//! READ: a file transfer to the host.

use super::{as_user, path, user};
use crate::channels::PIECE;
use crate::failure::Failure;
use crate::outbox::Outbox;
use crate::protocol::{channel, kind, WINDOW};
use forkd_wire::{Reader, Writer};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::{AsRawFd, RawFd};

/// Most bytes that one file sends before the others.
const TURN: usize = PIECE;

pub struct Download {
    file: File,
    /// A pipe or a device: it may have no data for a long time.
    special: bool,
    ready: bool,
    left: u64,
    sent: u64,
    credit: usize,
}

impl Download {
    pub fn open(payload: &[u8]) -> Result<Download, Failure> {
        let mut reader = Reader::new(payload);
        let (path, offset, left) = (path(&mut reader)?, reader.u64()?, reader.u64()?);
        let user = user(&mut reader)?;
        // non-blocking: a FIFO without a writer must not block the agent
        let mut file = as_user(&user, || {
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
                .open(path)
        })?;
        let found = file.metadata()?;
        if found.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR).into());
        }
        if offset > 0 {
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(Download {
            file,
            special: !found.is_file(),
            ready: false,
            left,
            sent: 0,
            credit: WINDOW,
        })
    }

    pub fn credit(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_add(bytes).min(WINDOW);
    }

    /// The descriptor to poll before there is anything to send.
    pub fn interest(&self, outbox: &Outbox) -> Option<RawFd> {
        let waits = self.special && !self.ready && self.credit > 0 && !outbox.is_full();
        waits.then(|| self.file.as_raw_fd())
    }

    pub fn ready(&mut self) {
        self.ready = true;
    }

    /// Whether it could send more at once.
    pub fn has_more(&self) -> bool {
        self.credit > 0 && (!self.special || self.ready)
    }

    /// Sends as much as credit, outbox and the limit per turn allow; `true` if the stream has ended.
    pub fn pump(&mut self, stream: u32, outbox: &mut Outbox) -> bool {
        let mut turn = TURN;
        if self.left == 0 {
            return self.end(stream, outbox);
        }
        while turn > 0 && self.has_more() && !outbox.is_full() {
            let most = self.left.min(PIECE.min(self.credit) as u64) as usize;
            let read = outbox.data_from(stream, channel::STDIN, &self.file, most);
            match read.map(|bytes| bytes.len()) {
                Ok(0) => return self.end(stream, outbox),
                Ok(count) => {
                    turn = turn.saturating_sub(count);
                    self.credit -= count;
                    self.sent += count as u64;
                    if self.left != u64::MAX {
                        self.left -= count as u64;
                    }
                    self.ready = false;
                    if self.left == 0 {
                        return self.end(stream, outbox);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.ready = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    Failure::Io(e).report(stream, outbox);
                    return true;
                }
            }
        }
        false
    }

    fn end(&self, stream: u32, outbox: &mut Outbox) -> bool {
        outbox.frame(kind::RESULT, stream, &Writer::default().u64(self.sent).0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use std::io::Write;

    fn payload(path: &str, offset: u64, length: u64) -> Vec<u8> {
        Writer::default().str(path).u64(offset).u64(length).str("").0
    }

    #[test]
    fn a_pipe_is_waited_for_and_read_as_data_arrives() {
        let dir = crate::scratch::Folder::new("download");
        let fifo = dir.path("fifo");
        sys::make_node(fifo.as_ref(), libc::S_IFIFO | 0o600, 0).unwrap();
        let mut outbox = Outbox::default();
        let mut download = match Download::open(&payload(fifo.to_str().unwrap(), 0, u64::MAX)) {
            Ok(download) => download,
            Err(_) => panic!("a pipe without a writer can be opened"),
        };
        assert!(!download.pump(1, &mut outbox), "no writer is not the end");
        assert!(outbox.is_empty() && download.interest(&outbox).is_some());
        let mut writer = OpenOptions::new().write(true).open(&fifo).unwrap();
        writer.write_all(b"abc").unwrap();
        download.ready();
        assert!(!download.pump(1, &mut outbox));
        assert!(!outbox.is_empty() && !download.has_more());
        drop(writer);
        download.ready();
        assert!(download.pump(1, &mut outbox), "the writer has closed");
    }
}
