//! Steps around a fork: before the machine stops for a snapshot, and after it has started as a fork.

use super::Agent;
use crate::failure::Failure;
use crate::generators::write_names;
use crate::sys;
use crate::table::KERNEL_TAGS;
use forkd_wire::{Malformed, Reader, Writer};

const GO_ON: u8 = 0;
const HOLD_PROCESSES: u8 = 1;
const BE_FIRST: u8 = 2;
const REHEARSE: u8 = 3;

impl Agent {
    /// Handles HOLD; returns the payload of its RESULT.
    pub(super) fn hold(&mut self, payload: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            GO_ON => {
                self.hold.end()?;
            }
            HOLD_PROCESSES => {
                let held = self.hold.begin().map_err(Failure::Unsupported)?;
                // what ran in a rehearsal is nothing that its forks have run
                if let Some(last_id) = self.rehearsal.take() {
                    self.table.rewind(last_id);
                }
                let named: Vec<_> = held.into_iter().map(|pid| (pid, self.owner_of(pid))).collect();
                self.openssl.find(&named);
                self.identity.cover_copies();
            }
            BE_FIRST => self.hold.be_first().map_err(Failure::Unsupported)?,
            REHEARSE => return self.rehearse(&mut reader),
            _ => return Err(Malformed.into()),
        }
        Ok(Writer::default().u64(sys::monotonic_ns()).0)
    }

    /// Processes stay held over the next RESYNC, but for interpreters that the host names and that have one thread: such a
    /// one waits for what the host sends, and no code of its user runs.
    fn rehearse(&mut self, reader: &mut Reader) -> Result<Vec<u8>, Failure> {
        let wanted = reader.list(|reader| reader.str())?;
        self.hold.stay().map_err(Failure::Unsupported)?;
        self.rehearsal.get_or_insert(self.table.last_id());
        let mut free = Vec::new();
        for (pid, context) in self.table.interpreters() {
            let is_wanted = wanted.iter().any(|name| name == context);
            if is_wanted && threads_of(pid) == 1 && self.hold.let_go(pid).is_ok() {
                free.push(context.to_string());
            }
        }
        Ok(write_names(Writer::default().u64(sys::monotonic_ns()), &free).0)
    }

    /// The name of a process's OpenSSL in the answer to a RESYNC; empty unless the process is a kernel.
    fn owner_of(&self, pid: i32) -> String {
        let tag = self.table.tag_of(pid).unwrap_or("");
        let context = tag.strip_prefix(KERNEL_TAGS);
        context.map_or(String::new(), |context| format!("{}/openssl", context))
    }

    /// Handles RESYNC; returns the payload of its RESULT.
    pub(super) fn resync(&mut self, payload: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut steps = self.identity.resync(payload)?;
        // after the guest kernel's generator is reseeded
        let mut filled = steps.take("generators", self.generators.refill(&mut self.scratch));
        filled.extend(steps.take("generators", self.openssl.reseed()));
        // last, because processes run from here on. Not after a failed step: the host ends such a fork
        let was_held = steps.are_done() && steps.take("processes", self.hold.end_unless_staying());
        Ok(steps.answer(&filled, was_held))
    }
}

fn threads_of(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", pid)).map_or(0, Iterator::count)
}
